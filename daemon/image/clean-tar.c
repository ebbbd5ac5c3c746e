/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "daemon/image/archive-util.h"
#include "daemon/image/clean-tar.h"

#define ENTRIES_MAX 4000000U
#define XATTRS_MAX 64
/* Of all: an archive has room for each in a few bytes, mksquashfs keeps them in memory. */
#define XATTR_BYTES_MAX MIB(64)
#define COPY_SIZE MIB(1)

const char *clean_tar_path(const char *path) {
        const char *p;

        for (;;)
                if (path[0] == '/')
                        path++;
                else if (path[0] == '.' && (path[1] == '/' || path[1] == 0))
                        path++;
                else
                        break;

        for (p = path; *p; p = strchrnul(p, '/'), p += *p == '/')
                if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == 0))
                        return NULL;
        return path;
}

int clean_tar_in_fault(CleanTar *t) {
        return fault_set(t->fault, -EBADMSG, "%s: %s", t->verb, strempty(archive_error_string(t->in)));
}

static int out_fault(CleanTar *t) {
        return fault_set(t->fault, -EIO, "passing on the root file system: %s", strempty(archive_error_string(t->out)));
}

/* libarchive writes each attribute in two spellings, and finds each of them again when it reads. */
static int drop_double_xattrs(CleanTar *t, struct archive_entry *e) {
        _cleanup_(archive_entry_freep) struct archive_entry *once = NULL;
        const char *name;
        const void *value;
        size_t size;

        if (archive_entry_xattr_count(e) == 0)
                return 0;
        if (archive_entry_xattr_count(e) > XATTRS_MAX)
                return fault_set(t->fault, -E2BIG, "%s: \"%s\" has more than %d extended attributes", t->verb,
                                 archive_entry_pathname(e), XATTRS_MAX);

        once = archive_entry_clone(e);
        if (!once)
                return -ENOMEM;
        archive_entry_xattr_clear(e);
        for (archive_entry_xattr_reset(once); archive_entry_xattr_next(once, &name, &value, &size) == ARCHIVE_OK;) {
                const char *had = NULL;
                const void *had_value;
                size_t had_size;

                for (archive_entry_xattr_reset(e);
                     archive_entry_xattr_next(e, &had, &had_value, &had_size) == ARCHIVE_OK && !streq(had, name);)
                        had = NULL;
                if (had && streq(had, name))
                        continue;
                uint64_t takes = strlen(name) + size;
                if (takes > XATTR_BYTES_MAX - t->xattr_bytes)
                        return fault_set(t->fault, -EFBIG, "the extended attributes of the files are larger than %u MiB",
                                         (unsigned) (XATTR_BYTES_MAX / MIB(1)));
                t->xattr_bytes += takes;
                archive_entry_xattr_add_entry(e, name, value, size);
        }
        return 0;
}

/* 1 when the entry shall be written, 0 when it is left out. */
static int clean_entry(CleanTar *t, struct archive_entry *e) {
        const char *path = archive_entry_pathname(e), *link = archive_entry_hardlink(e), *clean;
        time_t mtime = archive_entry_mtime(e);
        int r;

        if (!path)
                return fault_set(t->fault, -EBADMSG, "%s: a name can't be read", t->verb);
        clean = clean_tar_path(path);
        if (!clean)
                return fault_set(t->fault, -EBADMSG, "%s: \"%s\" leads out of the root", t->verb, path);
        /* The root's own attributes are ours. */
        if (!*clean)
                return 0;
        if (archive_entry_filetype(e) == AE_IFSOCK)
                return 0;

        if (streq(clean, "manifest.json") || streq(clean, "oci-layout"))
                t->has_manifest = true;
        if (startswith(clean, "usr") || startswith(clean, "bin") || startswith(clean, "etc"))
                t->has_system = true;

        if (link) {
                const char *target = clean_tar_path(link);
                if (!target || !*target)
                        return fault_set(t->fault, -EBADMSG, "%s: \"%s\" is a link out of the root", t->verb, path);
                if (target != link) {
                        _cleanup_free_ char *copy = strdup(target);
                        if (!copy)
                                return -ENOMEM;
                        archive_entry_set_hardlink(e, copy);
                }
        }
        if (clean != path) {
                _cleanup_free_ char *copy = strdup(clean);
                if (!copy)
                        return -ENOMEM;
                archive_entry_set_pathname(e, copy);
        }

        archive_entry_set_uname(e, NULL);
        archive_entry_set_gname(e, NULL);
        if (t->map_uid && (uid_t) archive_entry_uid(e) == *t->map_uid) {
                archive_entry_set_uid(e, 0);
                archive_entry_set_gid(e, 0);
        }
        archive_entry_set_mtime(e, mtime < 0 ? 0 : MIN(mtime, (time_t) UINT32_MAX), 0);
        archive_entry_unset_atime(e);
        archive_entry_unset_ctime(e);
        archive_entry_unset_birthtime(e);
        archive_entry_acl_clear(e);
        archive_entry_set_fflags(e, 0, 0);
        archive_entry_sparse_clear(e);
        r = drop_double_xattrs(t, e);
        return r < 0 ? r : 1;
}

static int copy_data(CleanTar *t, uint64_t size) {
        while (size > 0) {
                la_ssize_t n = archive_read_data(t->in, t->buffer, MIN(size, COPY_SIZE));

                if (n < 0)
                        return clean_tar_in_fault(t);
                if (n == 0)
                        return fault_set(t->fault, -EBADMSG, "%s: a file is shorter than announced", t->verb);
                for (la_ssize_t done = 0; done < n;) {
                        la_ssize_t m = archive_write_data(t->out, t->buffer + done, (size_t) (n - done));
                        if (m <= 0)
                                return out_fault(t);
                        done += m;
                }
                size -= (uint64_t) n;
        }
        return 0;
}

int clean_tar_add(CleanTar *t, struct archive_entry *e) {
        uint64_t size;
        int r;

        if (++t->entries > ENTRIES_MAX)
                return fault_set(t->fault, -EFBIG, "%s: more than %u files", t->verb, ENTRIES_MAX);
        r = clean_entry(t, e);
        if (r <= 0)
                return r;
        t->has_files = true;

        if (archive_entry_hardlink(e) || archive_entry_filetype(e) != AE_IFREG)
                archive_entry_set_size(e, 0);
        size = archive_entry_size(e) > 0 ? (uint64_t) archive_entry_size(e) : 0;
        if (size > t->max_bytes - t->bytes)
                return fault_set(t->fault, -EFBIG, "the root file system unpacks to more than %" PRIu64 " bytes",
                                 t->max_bytes);
        t->bytes += size;

        if (archive_write_header(t->out, e) < ARCHIVE_WARN)
                return out_fault(t);
        return copy_data(t, size);
}

int clean_tar_open(CleanTar *t, int out_fd) {
        t->out = archive_write_new();
        t->buffer = malloc(COPY_SIZE);
        if (!t->out || !t->buffer)
                return -ENOMEM;
        if (archive_write_set_format_pax_restricted(t->out) != ARCHIVE_OK ||
            archive_write_set_bytes_per_block(t->out, 64 * 1024) != ARCHIVE_OK ||
            archive_write_set_options(t->out, "xattrheader=SCHILY") != ARCHIVE_OK ||
            /* No padding that the reader might not wait for. */
            archive_write_set_bytes_in_last_block(t->out, 1) != ARCHIVE_OK ||
            archive_write_open_fd(t->out, out_fd) != ARCHIVE_OK)
                return out_fault(t);
        return 0;
}

int clean_tar_close(CleanTar *t) {
        if (!t->has_files)
                return fault_set(t->fault, -ENODATA, "the root file system holds no files");
        return archive_write_close(t->out) == ARCHIVE_OK ? 0 : out_fault(t);
}

void clean_tar_done(CleanTar *t) {
        archive_read_freep(&t->in);
        archive_write_freep(&t->out);
        free(t->buffer);
}
