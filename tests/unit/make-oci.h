/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An OCI image layout in a directory, made of layers that a test lists, by libarchive and nettle alone. */

#include <archive.h>
#include <archive_entry.h>

#include "daemon/image/hash-file.h"
#include "temp-dir.h"

#define MADE_LAYERS_MAX 8U

/* Type f, d, l (symbolic), h (hard), c (device), p (FIFO). */
typedef struct MadeFile {
        char type;
        const char *path;
        const char *content;       /* of a link: its target */
        unsigned mode;             /* 0: a usual one */
        int uid, gid;
        const char *xattr;         /* NAME=VALUE */
} MadeFile;

typedef struct MadeLayer {
        const MadeFile *files;
        size_t n;
        int (*filter)(struct archive *);
        const char *type;          /* NULL: as the filter is */
} MadeLayer;

typedef struct MadeImage {
        TempDir dir;
        char digests[MADE_LAYERS_MAX][72];
        char diff_ids[MADE_LAYERS_MAX][72]; /* what it unpacks to */
        uint64_t sizes[MADE_LAYERS_MAX];
        const char *types[MADE_LAYERS_MAX];
        size_t n_layers;
        const char *config;        /* the part of programs, as JSON */
        const char *architecture;
        const char *rootfs;        /* of the configuration, as JSON; NULL: the diff_ids */
        const char *annotations;   /* of the image in the index, as JSON */
} MadeImage;

_unused_ static MadeImage make_image(void) {
        MadeImage m = { .dir = temp_dir_make(), .config = "{}", .architecture = "amd64", .annotations = "{}" };

        assert(mkdirat(m.dir.fd, "blobs", 0755) == 0 && mkdirat(m.dir.fd, "blobs/sha256", 0755) == 0);
        return m;
}

_unused_ static void made_image_done(MadeImage *m) {
        temp_dir_done(&m->dir);
}
#define _cleanup_image_ _cleanup_(made_image_done)

static void made_blob_path(const char *digest, char ret[static 128]) {
        (void) snprintf(ret, 128, "blobs/sha256/%.64s", digest + strlen("sha256:"));
}

static void made_digest(const void *data, size_t size, char ret[static 72]) {
        char hex[SHA256_HEX_SIZE];
        struct sha256_ctx sum;

        sha256_init(&sum);
        sha256_update(&sum, size, data);
        hash_finish(&sum, hex);
        (void) snprintf(ret, 72, "sha256:%s", hex);
}

static void made_add_blob(MadeImage *m, const void *data, size_t size, char ret_digest[static 72]) {
        char path[128];

        made_digest(data, size, ret_digest);
        made_blob_path(ret_digest, path);
        temp_dir_write(&m->dir, path, data, size);
}

static void made_write_file(struct archive *a, const MadeFile *f) {
        static const mode_t modes[] = {
                ['f'] = S_IFREG|0644, ['d'] = S_IFDIR|0755, ['l'] = S_IFLNK|0777, ['h'] = S_IFREG|0644,
                ['c'] = S_IFCHR|0666, ['p'] = S_IFIFO|0600,
        };
        struct archive_entry *e = archive_entry_new();
        size_t size = f->type == 'f' && f->content ? strlen(f->content) : 0;
        const char *equals = f->xattr ? strchr(f->xattr, '=') : NULL;

        archive_entry_set_pathname(e, f->path);
        archive_entry_set_mode(e, f->mode ? (modes[(int) f->type] & S_IFMT) | f->mode : modes[(int) f->type]);
        archive_entry_set_size(e, (int64_t) size);
        archive_entry_set_uid(e, f->uid);
        archive_entry_set_gid(e, f->gid);
        archive_entry_set_uname(e, "somebody");
        archive_entry_set_mtime(e, 1000, 0);
        if (f->type == 'l')
                archive_entry_set_symlink(e, f->content);
        if (f->type == 'h')
                archive_entry_set_hardlink(e, f->content);
        if (equals) {
                char name[64];
                (void) snprintf(name, sizeof(name), "%.*s", (int) (equals - f->xattr), f->xattr);
                archive_entry_xattr_add_entry(e, name, equals + 1, strlen(equals + 1));
        }
        assert(archive_write_header(a, e) >= ARCHIVE_WARN);
        assert(size == 0 || archive_write_data(a, f->content, size) == (la_ssize_t) size);
        archive_entry_free(e);
}

/* Its diff_id is the digest of data, as of one that is not packed. */
_unused_ static void made_add_packed_layer(MadeImage *m, const void *data, size_t size, const char *type) {
        size_t n = m->n_layers++;

        assert(n < MADE_LAYERS_MAX);
        made_add_blob(m, data, size, m->digests[n]);
        strcpy(m->diff_ids[n], m->digests[n]);
        m->sizes[n] = size;
        m->types[n] = type;
}

/* Into ret, which has room for allocated bytes. */
static size_t made_pack(const MadeLayer *l, int (*filter)(struct archive *), void *ret, size_t allocated) {
        struct archive *a = archive_write_new();
        size_t size;

        assert(a && archive_write_set_format_pax(a) == ARCHIVE_OK && filter(a) == ARCHIVE_OK);
        assert(archive_write_open_memory(a, ret, allocated, &size) == ARCHIVE_OK);
        for (size_t i = 0; i < l->n; i++)
                made_write_file(a, &l->files[i]);
        assert(archive_write_close(a) == ARCHIVE_OK);
        archive_write_free(a);
        return size;
}

_unused_ static void made_add_layer(MadeImage *m, const MadeLayer *l) {
        static const char gzip[] = "application/vnd.oci.image.layer.v1.tar+gzip";
        size_t allocated = MIB(4);
        _cleanup_free_ uint8_t *data = malloc(allocated);

        assert(data);
        size_t size = made_pack(l, l->filter ? l->filter : archive_write_add_filter_gzip, data, allocated);
        made_add_packed_layer(m, data, size, l->type ? l->type : gzip);
        size = made_pack(l, archive_write_add_filter_none, data, allocated);
        made_digest(data, size, m->diff_ids[m->n_layers - 1]);
}

_unused_ static void made_write_index(MadeImage *m, const char *text) {
        temp_dir_write(&m->dir, "index.json", text, strlen(text));
}

/* Configuration and manifest; a descriptor that leads to it. */
_unused_ static void made_describe(MadeImage *m, char *ret, size_t size) {
        char ids[1024], config[4096], manifest[8192], digest[72];
        int n = snprintf(ids, sizeof(ids), "{\"type\":\"layers\",\"diff_ids\":[");

        for (size_t i = 0; i < m->n_layers; i++)
                n += snprintf(ids + n, sizeof(ids) - (size_t) n, "%s\"%s\"", i > 0 ? "," : "", m->diff_ids[i]);
        (void) snprintf(ids + n, sizeof(ids) - (size_t) n, "]}");
        n = snprintf(config, sizeof(config), "{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":%s,\"rootfs\":%s}",
                     m->architecture, m->config, m->rootfs ?: ids);
        made_add_blob(m, config, (size_t) n, digest);
        n = snprintf(manifest, sizeof(manifest), "{\"schemaVersion\":2,\"config\":{\"mediaType\":"
                     "\"application/vnd.oci.image.config.v1+json\",\"digest\":\"%s\",\"size\":%d},\"layers\":[", digest, n);
        for (size_t i = 0; i < m->n_layers; i++)
                n += snprintf(manifest + n, sizeof(manifest) - (size_t) n, "%s{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%llu}",
                              i > 0 ? "," : "", m->types[i], m->digests[i], (unsigned long long) m->sizes[i]);
        n += snprintf(manifest + n, sizeof(manifest) - (size_t) n, "]}");
        made_add_blob(m, manifest, (size_t) n, digest);
        (void) snprintf(ret, size, "{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"%s\","
                        "\"size\":%d,\"annotations\":%s}", digest, n, m->annotations);
}

/* All that is beside the layers. */
_unused_ static void made_seal(MadeImage *m) {
        char index[2048], descriptor[1024];

        made_describe(m, descriptor, sizeof(descriptor));
        (void) snprintf(index, sizeof(index), "{\"schemaVersion\":2,\"manifests\":[%s]}\n", descriptor);
        made_write_index(m, index);
        temp_dir_write(&m->dir, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", 30);
}
