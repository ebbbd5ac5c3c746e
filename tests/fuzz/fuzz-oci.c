/* SPDX-License-Identifier: Apache-2.0 */

/* Container images: layers that are merged, lists of images, what an image says of itself, and layers as names alone.
 * What is passed on is a clean tar; what is left of names is a tree.
 *
 * Input: u8, then by its low two bits: 0 up to three layers, each a u16 size and so many bytes; 1 an index.json; 2 the
 * description of an image, behind a line of "-" its manifest; 3 entries, of which each takes two bytes and more (add_entry()). */

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/oci-merge.h"
#include "daemon/image/oci-tree.h"
#include "daemon/image/rootfs.h"
#include "daemon/json-strict.h"
#include "fuzz.h"

#define UNPACKED_MAX MIB(1)
#define LAYERS_MAX 3U
#define ENTRIES_MAX 32U
/* More than these are not looked at: links can lead to many. */
#define LEFT_MAX 256U

static char directory[] = "/tmp/fuzz-oci.XXXXXX";
static int dir_fd = -EBADF;

static void remove_directory(void) {
        (void) unlinkat(dir_fd, "index.json", 0);
        (void) unlinkat(dir_fd, "blobs/sha256", AT_REMOVEDIR);
        (void) unlinkat(dir_fd, "blobs", AT_REMOVEDIR);
        (void) rmdir(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        FUZZ_CHECK(mkdtemp(directory));
        dir_fd = open(directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        FUZZ_CHECK(dir_fd >= 0 && mkdirat(dir_fd, "blobs", 0700) == 0 && mkdirat(dir_fd, "blobs/sha256", 0700) == 0);
        return atexit(remove_directory);
}

static void write_at(const char *path, const void *data, size_t size) {
        _cleanup_close_ int fd = openat(dir_fd, path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);
        FUZZ_CHECK(fd >= 0 && write_full(fd, data, size) >= 0);
}

static void blob_path(const OciBlob *b, char *ret, size_t size) {
        (void) snprintf(ret, size, "blobs/sha256/%s", b->digest + 7);
}

static OciBlob add_blob(const void *data, size_t size) {
        OciBlob b = { .digest = "sha256:", .bytes = size };
        struct sha256_ctx sum;
        char path[128];

        sha256_init(&sum);
        sha256_update(&sum, size, data);
        hash_finish(&sum, b.digest + 7);
        blob_path(&b, path, sizeof(path));
        write_at(path, data, size);
        return b;
}

static void drop_blob(const OciBlob *b) {
        char path[128];

        blob_path(b, path, sizeof(path));
        (void) unlinkat(dir_fd, path, 0);
}

static bool same(int a, int b) {
        uint8_t x[512], y[512];
        struct stat s, t;
        ssize_t n;

        for (off_t at = 0; (n = pread(a, x, sizeof(x), at)) > 0; at += n)
                if (pread(b, y, sizeof(y), at) != n || memcmp(x, y, (size_t) n) != 0)
                        return false;
        return fstat(a, &s) == 0 && fstat(b, &t) == 0 && s.st_size == t.st_size;
}

static void merge(FuzzInput *in) {
        _cleanup_close_ int first = memfd_create("first", MFD_CLOEXEC), second = memfd_create("second", MFD_CLOEXEC);
        OciBlob layers[LAYERS_MAX];
        OciImage image = { .layers = layers };
        Fault fault = {};

        for (; image.n_layers < LAYERS_MAX && in->left > 0; image.n_layers++) {
                size_t size = MIN((size_t) fuzz_u16(in), in->left);

                layers[image.n_layers] = add_blob(in->data, size);
                in->data += size;
                in->left -= size;
        }
        FUZZ_CHECK(oci_layout_open_layers(dir_fd, &image, &fault) == 0);
        int r = oci_merge(&image, first, -EBADF, UNPACKED_MAX, &fault);
        FUZZ_CHECK(r >= 0 || *fault.text);
        for (size_t i = 0; i < image.n_layers; i++) {
                safe_close(image.fds[i]);
                drop_blob(&layers[i]);
        }
        free(image.fds);
        if (r < 0)
                return;
        FUZZ_CHECK(lseek(first, 0, SEEK_SET) == 0);
        r = rootfs_tar_to_tar(first, second, UNPACKED_MAX, &fault);
        /* It may be a file system that holds an image. */
        FUZZ_CHECK(r == -EINVAL || (r >= 0 && same(first, second)));
}

static void list(const void *data, size_t size) {
        Fault fault = {};
        OciBlob b;

        write_at("index.json", data, size);
        int r = oci_layout_find(dir_fd, "a", &b, &fault);
        FUZZ_CHECK(r < 0 ? *fault.text : oci_digest_valid(b.digest));
        fault = (Fault) {};
        r = oci_layout_find(dir_fd, "", &b, &fault);
        FUZZ_CHECK(r < 0 ? *fault.text : oci_digest_valid(b.digest));
}

/* What is taken for the defaults of a template is what cubed takes, too. */
static void check_image(const OciImage *image) {
        _cleanup_(exec_defaults_done) ExecDefaults again = {};
        _cleanup_json_ json_object *o = NULL;

        FUZZ_CHECK(exec_defaults_to_json(&image->defaults, &o) == 0);
        FUZZ_CHECK(exec_defaults_from_json(o, &again) == 0);
        for (size_t i = 0; i < image->n_layers; i++)
                FUZZ_CHECK(oci_digest_valid(image->layers[i].digest) && oci_digest_valid(image->layers[i].unpacked));
}

static void describe(const char *data, size_t size) {
        _cleanup_free_ char *text = strndup(data, size);
        _cleanup_(oci_image_done) OciImage image = {};
        char manifest[512];
        Fault fault = {};

        FUZZ_CHECK(text);
        char *own = strstr(text, "\n-\n");
        if (own)
                own[1] = 0;
        OciBlob config = add_blob(text, strlen(text));
        (void) snprintf(manifest, sizeof(manifest), "{\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\","
                        "\"digest\":\"%s\",\"size\":%zu},\"layers\":[]}", config.digest, strlen(text));
        const char *whole = own ? own + 3 : manifest;
        OciBlob b = add_blob(whole, strlen(whole));

        int r = oci_layout_load(dir_fd, &b, &image, &fault);
        FUZZ_CHECK(r >= 0 || *fault.text);
        if (r >= 0)
                check_image(&image);
        drop_blob(&b);
        drop_blob(&config);
}

/* Names, of which a path is made; those that a layer's author would choose to do harm are among them. */
static const char *const names[] = {
        "a", "b", "c", "..", ".", "", ".wh.a", ".wh.b", ".wh..wh..opq", ".wh...", ".wh.", "/", "a/b", "d", "e", ".wh..wh.x",
};

static void make_path(FuzzInput *in, unsigned n, char ret[static 128]) {
        *ret = 0;
        for (unsigned i = 0; i < n; i++) {
                strcat(ret, names[fuzz_u8(in) & 15]);
                strcat(ret, "/");
        }
        strcat(ret, names[fuzz_u8(in) & 15]);
}

/* u8: type in bits 0-2 (5: a new layer), names in front of the last in 3-4, of the target in 5-6; then the names. */
static int add_entry(OciTree *t, FuzzInput *in, bool *ret_directory) {
        uint8_t how = fuzz_u8(in);
        char path[128], target[128];
        OciEntry e = { .type = how & 7, .path = path, .target = target };

        if (e.type > OCI_NOTHING)
                return oci_tree_begin_layer(t) < 0 ? -E2BIG : 1;
        make_path(in, how >> 3 & 3, path);
        make_path(in, how >> 5 & 3, target);
        *ret_directory = e.type == OCI_DIRECTORY;
        return oci_tree_add(t, &e);
}

typedef struct Left {
        char path[OCI_PATH_SIZE];
        bool directory;
} Left;

static const Left *find_left(const Left *left, size_t n, const char *path, size_t size) {
        for (size_t i = 0; i < n; i++)
                if (strlen(left[i].path) == size && memcmp(left[i].path, path, size) == 0)
                        return &left[i];
        return NULL;
}

/* Each name once, and in a directory that is one. */
static void check_left(const Left *left, size_t n) {
        for (size_t i = 0; i < n; i++) {
                const char *path = left[i].path, *slash = strrchr(path, '/');

                FUZZ_CHECK(*path && *path != '/' && find_left(left, n, path, strlen(path)) == &left[i]);
                if (!slash)
                        continue;
                const Left *above = find_left(left, n, path, (size_t) (slash - path));
                FUZZ_CHECK(above && above->directory);
        }
}

static void tree(FuzzInput *in) {
        static Left left[LEFT_MAX];
        bool directory[ENTRIES_MAX][ENTRIES_MAX] = {};
        _cleanup_(oci_tree_freep) OciTree *t = NULL;
        size_t layer = 0, entry = 0, n = 0;
        Fault fault = {};

        FUZZ_CHECK(oci_tree_new(MIB(1), &t, &fault) == 0 && oci_tree_begin_layer(t) == 0);
        for (size_t i = 0; i < ENTRIES_MAX && in->left > 0; i++) {
                int r = add_entry(t, in, &directory[layer][entry]);
                if (r > 0) {
                        layer++;
                        entry = 0;
                } else
                        entry++;
                FUZZ_CHECK(r >= 0 || *fault.text);
        }
        for (size_t l = 0; l <= layer; l++)
                for (size_t e = 0; e < ENTRIES_MAX; e++) {
                        OciFile *f = oci_tree_find(t, l, e);
                        for (OciNode *i = NULL; f && (i = oci_file_next_name(f, i)); n++) {
                                if (n == LEFT_MAX)
                                        return;
                                oci_node_path(i, left[n].path);
                                left[n].directory = directory[l][e];
                        }
                }
        for (OciNode *i = NULL; (i = oci_tree_next_implied(t, i)); n++) {
                if (n == LEFT_MAX)
                        return;
                oci_node_path(i, left[n].path);
                left[n].directory = true;
        }
        check_left(left, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        switch (fuzz_u8(&in) & 3) {
        case 0: merge(&in); break;
        case 1: list(in.data, in.left); break;
        case 2: describe((const char *) in.data, in.left); break;
        case 3: tree(&in); break;
        }
        return 0;
}
