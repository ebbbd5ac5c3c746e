/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/pack.h"
#include "daemon/json-strict.h"

#define TELL_EVERY MIB(4)

typedef struct Reader {
        const PackFds *fds;
        struct archive *in;
        uint64_t file_bytes;       /* of the pack; 0: a stream */
        uint64_t told;
        uint64_t data, max_data;   /* bytes that were written, in all members */
        Fault *fault;
} Reader;

static void reader_done(Reader *r) {
        archive_read_freep(&r->in);
}

static int bad(Reader *r, const char *what) {
        return fault_set(r->fault, -EBADMSG, "%s: %s", what, strempty(archive_error_string(r->in)));
}

/* 0 at the end. */
static int next_entry(Reader *r, struct archive_entry **ret) {
        int k = archive_read_next_header(r->in, ret);

        if (k == ARCHIVE_EOF)
                return 0;
        return k == ARCHIVE_OK ? 1 : bad(r, "this is no template that was exported, or it is damaged");
}

/* The next entry is a plain file of that name. */
static int expect_entry(Reader *r, const char *name, struct archive_entry **ret) {
        int k = next_entry(r, ret);

        if (k < 0)
                return k;
        if (k == 0)
                return fault_set(r->fault, -EBADMSG, "the file ends before %s", name);
        const char *path = archive_entry_pathname(*ret);
        if (!path || !streq(path, name))
                return fault_set(r->fault, -EBADMSG, "it has \"%.64s\" where %s should be", strempty(path), name);
        if (archive_entry_filetype(*ret) != AE_IFREG || archive_entry_hardlink(*ret) || archive_entry_symlink(*ret) ||
            !archive_entry_size_is_set(*ret))
                return fault_set(r->fault, -EBADMSG, "%s is not a plain file", name);
        return 0;
}

static int check_format(Reader *r, json_object *manifest) {
        static const char *const keys[] = { "format", "version", "template", "guest", "members", NULL };
        json_object *o;
        const char *format;
        uint64_t version;

        if (json_get_string(manifest, "format", 64, &format) < 0 || !streq(format, PACK_FORMAT))
                return fault_set(r->fault, -EBADMSG, "its " PACK_JSON " is not that of a template");
        if (json_get_u64(manifest, "version", 0, INT64_MAX, &version) < 0)
                return fault_set(r->fault, -EBADMSG, "its " PACK_JSON " has no version");
        if (version != PACK_VERSION)
                return fault_set(r->fault, -EBADMSG, "it has version %" PRIu64 " of the format, this cubed knows version %u",
                                 version, PACK_VERSION);
        if (json_check_keys(manifest, keys) < 0 || json_get(manifest, "template", json_type_object, &o) < 0 ||
            (json_object_object_get_ex(manifest, "guest", NULL) && json_get(manifest, "guest", json_type_object, &o) < 0))
                return fault_set(r->fault, -EBADMSG, "its " PACK_JSON " has a key that is unknown, missing, or of a wrong value");
        return 0;
}

/* Exactly those that belong to it. */
static int read_sums(Reader *r, json_object *manifest, PackSum *sums, int *ret_n) {
        const char *keys[_PACK_MEMBER_MAX + 1] = {};
        bool guest = json_object_object_get_ex(manifest, "guest", NULL);
        json_object *members;
        int n = 0;

        int k = json_get(manifest, "members", json_type_object, &members);
        for (; k >= 0 && n < _PACK_MEMBER_MAX && (guest || !pack_members[n].guest); n++) {
                keys[n] = pack_members[n].name;
                k = pack_sum_from_json(members, &pack_members[n], &sums[n]);
                if (k < 0)
                        return fault_set(r->fault, k, "its " PACK_JSON " says nothing right of %s", pack_members[n].name);
        }
        if (k >= 0)
                k = json_check_keys(members, keys);
        if (k < 0)
                return fault_set(r->fault, k, "its " PACK_JSON " lists other members than those of a template");
        *ret_n = n;
        return 0;
}

static int read_manifest(Reader *r, json_object **ret) {
        _cleanup_free_ char *text = NULL;
        struct archive_entry *e;
        size_t size, done = 0;

        int k = expect_entry(r, PACK_JSON, &e);
        if (k < 0)
                return k;
        if (archive_entry_size(e) <= 0 || archive_entry_size(e) > (la_int64_t) PACK_JSON_MAX)
                return fault_set(r->fault, -EBADMSG, "its " PACK_JSON " has %" PRId64 " bytes", (int64_t) archive_entry_size(e));
        size = (size_t) archive_entry_size(e);
        text = malloc(size);
        if (!text)
                return -ENOMEM;
        while (done < size) {
                la_ssize_t n = archive_read_data(r->in, text + done, size - done);
                if (n <= 0)
                        return bad(r, "reading " PACK_JSON);
                done += (size_t) n;
        }
        k = json_parse_strict(text, size, ret);
        if (k < 0)
                return fault_set(r->fault, k, "its " PACK_JSON " is no JSON object");
        k = check_format(r, *ret);
        return k < 0 ? k : write_full(r->fds->out, text, size);
}

static void tell(Reader *r) {
        uint64_t done = (uint64_t) MAX(archive_filter_bytes(r->in, -1), (la_int64_t) 0);

        if (done - r->told < TELL_EVERY)
                return;
        r->told = done;
        pack_tell(r->fds->progress, done, r->file_bytes);
}

static int write_block(Reader *r, const char *name, int fd, const uint8_t *data, size_t size, uint64_t offset) {
        if (size > r->max_data - r->data)
                return fault_set(r->fault, -EFBIG, "it unpacks to more than %" PRIu64 " bytes", r->max_data);
        r->data += size;
        if (lseek(fd, (off_t) offset, SEEK_SET) < 0)
                return -errno;
        int k = write_full(fd, data, size);
        return k < 0 ? fault_set(r->fault, k, "writing %s: %s", name, strerror(-k)) : 0;
}

/* A file system with larger blocks would have data where there was a hole, which hides what lies beneath. */
static int check_alignment(Reader *r, int fd) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        return st.st_blksize <= 4096 ? 0 :
                fault_set(r->fault, -EOPNOTSUPP, "the store's file system has blocks of %" PRId64 " bytes, the saved guest's "
                          "disk needs 4096 at most", (int64_t) st.st_blksize);
}

static int copy_blocks(Reader *r, const PackMember *m, int fd, const PackSum *want, PackRuns *runs) {
        uint64_t at = 0;

        for (;;) {
                const void *data;
                la_int64_t offset;
                size_t size;
                int k = archive_read_data_block(r->in, &data, &size, &offset);

                if (k == ARCHIVE_EOF)
                        return !m->sparse && at != want->bytes ?
                                fault_set(r->fault, -EBADMSG, "%s is shorter than announced", m->name) : 0;
                if (k != ARCHIVE_OK)
                        return bad(r, m->name);
                /* In order, and inside. */
                if (offset < 0 || (uint64_t) offset < at || (uint64_t) offset > want->bytes ||
                    size > want->bytes - (uint64_t) offset || (!m->sparse && (uint64_t) offset != at))
                        return fault_set(r->fault, -EBADMSG, "%s has data where none can be", m->name);
                at = (uint64_t) offset + size;
                pack_runs_add(runs, (uint64_t) offset, size);
                k = write_block(r, m->name, fd, data, size, (uint64_t) offset);
                if (k < 0)
                        return k;
                tell(r);
        }
}

static int verify(Reader *r, const PackMember *m, int fd, const PackSum *want, PackRuns *runs) {
        char sum[SHA256_HEX_SIZE];

        int k = m->sparse ? hash_sparse_file(fd, sum) : hash_file(fd, sum);
        if (k < 0)
                return fault_set(r->fault, k, "reading %s again: %s", m->name, strerror(-k));
        bool same = streq(sum, want->sha256);
        if (m->sparse) {
                pack_runs_finish(runs, sum);
                same = same && streq(sum, want->runs_sha256);
        }
        return same ? 0 : fault_set(r->fault, -EBADMSG, "the checksum of %s is not the one in " PACK_JSON "; the file is damaged",
                                    m->name);
}

static int read_member(Reader *r, const PackMember *m, int fd, const PackSum *want) {
        _cleanup_(pack_runs_done) PackRuns runs = {};
        struct archive_entry *e;

        int k = expect_entry(r, m->name, &e);
        if (k < 0)
                return k;
        if ((uint64_t) archive_entry_size(e) != want->bytes)
                return fault_set(r->fault, -EBADMSG, "%s has %" PRId64 " bytes, " PACK_JSON " says %" PRIu64, m->name,
                                 (int64_t) archive_entry_size(e), want->bytes);
        k = pack_runs_new(&runs);
        if (k >= 0 && m == &pack_members[PACK_GUEST_DISK])
                k = check_alignment(r, fd);
        if (k >= 0)
                k = copy_blocks(r, m, fd, want, &runs);
        if (k >= 0 && ftruncate(fd, (off_t) want->bytes) < 0)
                k = fault_set(r->fault, -errno, "%s: %s", m->name, strerror(errno));
        return k < 0 ? k : verify(r, m, fd, want, &runs);
}

static int open_input(Reader *r) {
        struct stat st;

        if (fstat(r->fds->in, &st) < 0)
                return -errno;
        r->file_bytes = S_ISREG(st.st_mode) ? (uint64_t) st.st_size : 0;
        r->in = archive_read_new();
        if (!r->in)
                return -ENOMEM;
        if (archive_read_support_filter_zstd(r->in) != ARCHIVE_OK || archive_read_support_format_tar(r->in) != ARCHIVE_OK ||
            archive_read_open_fd(r->in, r->fds->in, 64 * 1024) != ARCHIVE_OK)
                return bad(r, "this is no template that was exported");
        return 0;
}

int pack_read(const PackFds *fds, uint64_t max_bytes, Fault *fault) {
        _cleanup_(reader_done) Reader r = { .fds = fds, .max_data = max_bytes, .fault = fault };
        _cleanup_json_ json_object *manifest = NULL;
        PackSum sums[_PACK_MEMBER_MAX];
        struct archive_entry *e;
        int n = 0;

        int k = open_input(&r);
        if (k >= 0)
                k = read_manifest(&r, &manifest);
        if (k >= 0)
                k = read_sums(&r, manifest, sums, &n);
        for (int i = 0; i < n && k >= 0; i++)
                k = read_member(&r, &pack_members[i], fds->members[i], &sums[i]);
        if (k >= 0)
                k = next_entry(&r, &e);
        if (k > 0)
                return fault_set(fault, -EBADMSG, "there is more in it than a template: \"%.64s\"", strempty(archive_entry_pathname(e)));
        return k;
}
