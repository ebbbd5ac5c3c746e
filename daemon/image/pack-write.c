/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/pack.h"
#include "daemon/image/slurp.h"
#include "daemon/json-strict.h"

#define CHUNK MIB(1)

typedef struct Writer {
        const PackFds *fds;
        struct archive *out;
        uint8_t *buffer, *zeros;
        uint64_t done, total;      /* bytes of data, for who watches */
        Fault *fault;
} Writer;

static void writer_done(Writer *w) {
        archive_write_freep(&w->out);
        free(w->buffer);
        free(w->zeros);
}

static int out_fault(Writer *w) {
        return fault_set(w->fault, -EIO, "writing the file: %s", strempty(archive_error_string(w->out)));
}

static bool has_member(json_object *manifest, const PackMember *m) {
        return !m->guest || json_object_object_get_ex(manifest, "guest", NULL);
}

static int hash_runs(int fd, PackSum *s, uint64_t *total) {
        _cleanup_(pack_runs_done) PackRuns runs = {};
        uint64_t offset = 0, bytes;

        int r = pack_runs_new(&runs);
        while (r >= 0 && (r = pack_next_run(fd, &offset, &bytes)) > 0) {
                pack_runs_add(&runs, offset, bytes);
                offset += bytes;
                *total += bytes;
        }
        if (r >= 0)
                pack_runs_finish(&runs, s->runs_sha256);
        return r;
}

static int sum_member(Writer *w, const PackMember *m, int fd, json_object *members) {
        json_object *o = NULL;
        PackSum s = {};
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        s.bytes = (uint64_t) st.st_size;
        if (m->sparse) {
                r = hash_sparse_file(fd, s.sha256);
                if (r >= 0)
                        r = hash_runs(fd, &s, &w->total);
        } else {
                r = hash_file(fd, s.sha256);
                w->total += s.bytes;
        }
        if (r >= 0)
                r = pack_sum_to_json(&s, m, &o);
        return r < 0 ? r : json_add(members, m->name, o);
}

static int add_members(Writer *w, json_object *manifest) {
        json_object *members = json_object_new_object();
        int r = json_add(manifest, "members", members);

        for (int i = 0; i < _PACK_MEMBER_MAX && r >= 0; i++) {
                if (!has_member(manifest, &pack_members[i]))
                        continue;
                r = sum_member(w, &pack_members[i], w->fds->members[i], members);
                if (r < 0)
                        return fault_set(w->fault, r, "%s: %s", pack_members[i].name, strerror(-r));
        }
        return r;
}

static struct archive_entry *new_entry(const char *name, uint64_t bytes) {
        struct archive_entry *e = archive_entry_new();

        if (!e)
                return NULL;
        archive_entry_set_pathname(e, name);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0400);
        archive_entry_set_size(e, (la_int64_t) bytes);
        archive_entry_set_mtime(e, 0, 0);
        return e;
}

static int put(Writer *w, const uint8_t *data, size_t size) {
        while (size > 0) {
                la_ssize_t n = archive_write_data(w->out, data, size);
                if (n <= 0)
                        return out_fault(w);
                data += n;
                size -= (size_t) n;
        }
        return 0;
}

/* The writer leaves the entry's holes out itself, and wants to be given their zeros. */
static int put_hole(Writer *w, uint64_t bytes) {
        int r = 0;

        while (bytes > 0 && r >= 0) {
                size_t n = (size_t) MIN(bytes, CHUNK);
                r = put(w, w->zeros, n);
                bytes -= n;
        }
        return r;
}

static int put_run(Writer *w, const char *name, int fd, uint64_t offset, uint64_t bytes) {
        while (bytes > 0) {
                ssize_t n = pread(fd, w->buffer, (size_t) MIN(bytes, CHUNK), (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return fault_set(w->fault, n < 0 ? -errno : -ESTALE, "reading %s: %s", name,
                                         n < 0 ? strerror(errno) : "it is shorter than it was");
                int r = put(w, w->buffer, (size_t) n);
                if (r < 0)
                        return r;
                offset += (uint64_t) n;
                bytes -= (uint64_t) n;
                w->done += (uint64_t) n;
                pack_tell(w->fds->progress, w->done, w->total);
        }
        return 0;
}

static int list_runs(struct archive_entry *e, int fd, uint64_t size) {
        uint64_t offset = 0, bytes;
        int r, n = 0;

        while ((r = pack_next_run(fd, &offset, &bytes)) > 0) {
                archive_entry_sparse_add_entry(e, (la_int64_t) offset, (la_int64_t) bytes);
                offset += bytes;
                n++;
        }
        if (r >= 0 && n == 0)
                archive_entry_sparse_add_entry(e, (la_int64_t) size, 0);
        return r;
}

static int put_sparse(Writer *w, const PackMember *m, int fd, uint64_t size) {
        uint64_t offset = 0, at = 0, bytes;
        int r;

        while ((r = pack_next_run(fd, &offset, &bytes)) > 0) {
                r = put_hole(w, offset - at);
                if (r >= 0)
                        r = put_run(w, m->name, fd, offset, bytes);
                if (r < 0)
                        return r;
                at = offset += bytes;
        }
        return r < 0 ? r : put_hole(w, size - at);
}

static int write_member(Writer *w, const PackMember *m, int fd) {
        _cleanup_(archive_entry_freep) struct archive_entry *e = NULL;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        uint64_t size = (uint64_t) st.st_size;
        e = new_entry(m->name, size);
        if (!e)
                return -ENOMEM;
        int r = m->sparse ? list_runs(e, fd, size) : 0;
        if (r < 0)
                return r;
        if (archive_write_header(w->out, e) != ARCHIVE_OK)
                return out_fault(w);
        return m->sparse ? put_sparse(w, m, fd, size) : put_run(w, m->name, fd, 0, size);
}

static int write_manifest(Writer *w, json_object *manifest) {
        size_t size;
        const char *text = json_object_to_json_string_length(manifest, JSON_C_TO_STRING_PRETTY|JSON_C_TO_STRING_NOSLASHESCAPE, &size);
        _cleanup_(archive_entry_freep) struct archive_entry *e = text ? new_entry(PACK_JSON, size) : NULL;

        if (!e)
                return -ENOMEM;
        if (size > PACK_JSON_MAX)
                return fault_set(w->fault, -E2BIG, PACK_JSON " would be too large: the template has too many network rules");
        if (archive_write_header(w->out, e) != ARCHIVE_OK)
                return out_fault(w);
        return put(w, (const uint8_t *) text, size);
}

static int open_output(Writer *w) {
        w->out = archive_write_new();
        w->buffer = malloc(CHUNK);
        w->zeros = calloc(1, CHUNK);
        if (!w->out || !w->buffer || !w->zeros)
                return -ENOMEM;
        if (archive_write_set_format_pax(w->out) != ARCHIVE_OK || archive_write_add_filter_zstd(w->out) != ARCHIVE_OK ||
            archive_write_set_bytes_per_block(w->out, 64 * 1024) != ARCHIVE_OK ||
            archive_write_set_bytes_in_last_block(w->out, 1) != ARCHIVE_OK ||
            archive_write_open_fd(w->out, w->fds->out) != ARCHIVE_OK)
                return out_fault(w);
        return 0;
}

int pack_write(const PackFds *fds, Fault *fault) {
        _cleanup_(writer_done) Writer w = { .fds = fds, .fault = fault };
        _cleanup_json_ json_object *manifest = NULL;
        _cleanup_free_ uint8_t *text = NULL;
        size_t size;

        int r = slurp(fds->in, PACK_JSON_MAX, &text, &size);
        if (r >= 0)
                r = json_parse_strict((const char *) text, size, &manifest);
        if (r < 0)
                return fault_set(fault, r, "reading the description: %s", strerror(-r));
        r = add_members(&w, manifest);
        if (r >= 0)
                r = open_output(&w);
        if (r >= 0)
                r = write_manifest(&w, manifest);
        for (int i = 0; i < _PACK_MEMBER_MAX && r >= 0; i++)
                if (has_member(manifest, &pack_members[i]))
                        r = write_member(&w, &pack_members[i], fds->members[i]);
        return r < 0 || archive_write_close(w.out) == ARCHIVE_OK ? r : out_fault(&w);
}
