/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/rootfs.h"

#define ENTRIES_MAX 4000000U
#define XATTRS_MAX 64
#define COPY_SIZE MIB(1)
#define IMAGE_ALIGN 4096U

#define SQUASHFS_MAGIC 0x73717368U
#define EROFS_MAGIC 0xe0f5e1e2U
#define EROFS_OFFSET 1024

static const char *const type_names[_ROOTFS_TYPE_MAX] = {
        [ROOTFS_TAR] = "tar",
        [ROOTFS_DIRECTORY] = "directory",
        [ROOTFS_SQUASHFS] = "squashfs",
        [ROOTFS_EROFS] = "erofs",
};

const char *rootfs_type_to_string(RootfsType t) {
        return t >= 0 && t < _ROOTFS_TYPE_MAX ? type_names[t] : NULL;
}

RootfsType rootfs_type_from_string(const char *s) {
        for (int i = 0; i < _ROOTFS_TYPE_MAX; i++)
                if (streq(s, type_names[i]))
                        return (RootfsType) i;
        return _ROOTFS_TYPE_INVALID;
}

static bool has_magic(int fd, off_t offset, uint32_t magic) {
        uint32_t v;
        return pread(fd, &v, sizeof(v), offset) == sizeof(v) && le32toh(v) == magic;
}

int rootfs_probe(int fd, RootfsType *ret, uint64_t *ret_bytes, Fault *fault) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return fault_set(fault, -errno, "the root file system: %s", strerror(errno));
        *ret_bytes = 0;
        *ret = ROOTFS_TAR;
        if (S_ISDIR(st.st_mode))
                *ret = ROOTFS_DIRECTORY;
        else if (S_ISREG(st.st_mode)) {
                *ret_bytes = (uint64_t) st.st_size;
                if (st.st_size == 0)
                        return fault_set(fault, -ENODATA, "the root file system is an empty file");
                if (has_magic(fd, 0, SQUASHFS_MAGIC))
                        *ret = ROOTFS_SQUASHFS;
                else if (has_magic(fd, EROFS_OFFSET, EROFS_MAGIC))
                        *ret = ROOTFS_EROFS;
        } else if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
                return fault_set(fault, -EINVAL, "the root file system is neither a file, a directory nor a stream");
        return 0;
}

const char *rootfs_clean_path(const char *path) {
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

/* One pass from an archive to another. */
typedef struct Transfer {
        struct archive *in;
        struct archive *out;
        const char *verb;    /* "reading the tar" */
        const uid_t *map_uid;
        uint64_t bytes;
        uint64_t max_bytes;
        uint64_t entries;
        bool has_files;      /* one that was passed on: the root itself is not */
        bool has_system;     /* something under /usr, /bin, /etc ... */
        bool has_manifest;   /* an image archive of docker save, not a file system */
        uint8_t *buffer;
        Fault *fault;
} Transfer;

static int in_fault(Transfer *t) {
        return fault_set(t->fault, -EBADMSG, "%s: %s", t->verb, strempty(archive_error_string(t->in)));
}

static int out_fault(Transfer *t) {
        return fault_set(t->fault, -EIO, "passing on the root file system: %s", strempty(archive_error_string(t->out)));
}

/* libarchive writes each attribute in two spellings, and finds each of them again when it reads. */
static int drop_double_xattrs(Transfer *t, struct archive_entry *e) {
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
                if (!had || !streq(had, name))
                        archive_entry_xattr_add_entry(e, name, value, size);
        }
        return 0;
}

/* 1 when the entry shall be written, 0 when it is left out. */
static int clean_entry(Transfer *t, struct archive_entry *e) {
        const char *path = archive_entry_pathname(e), *link = archive_entry_hardlink(e), *clean;
        time_t mtime = archive_entry_mtime(e);
        int r;

        if (!path)
                return fault_set(t->fault, -EBADMSG, "%s: a name can't be read", t->verb);
        clean = rootfs_clean_path(path);
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
                const char *target = rootfs_clean_path(link);
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

static int copy_data(Transfer *t, uint64_t size) {
        while (size > 0) {
                la_ssize_t n = archive_read_data(t->in, t->buffer, MIN(size, COPY_SIZE));

                if (n < 0)
                        return in_fault(t);
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

static int transfer_entry(Transfer *t, struct archive_entry *e) {
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

static int open_output(Transfer *t, int out_fd) {
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

static int close_output(Transfer *t) {
        if (!t->has_files)
                return fault_set(t->fault, -ENODATA, "the root file system holds no files");
        if (t->has_manifest && !t->has_system)
                return fault_set(t->fault, -EINVAL,
                                 "this is a container image with layers, not a file system: "
                                 "unpack it first, for example by \"docker export\" or \"umoci unpack\"");
        return archive_write_close(t->out) == ARCHIVE_OK ? 0 : out_fault(t);
}

static void transfer_done(Transfer *t) {
        archive_read_freep(&t->in);
        archive_write_freep(&t->out);
        free(t->buffer);
}

int rootfs_tar_to_tar(int in_fd, int out_fd, uint64_t max_bytes, Fault *fault) {
        _cleanup_(transfer_done) Transfer t = { .verb = "reading the tar", .max_bytes = max_bytes, .fault = fault };
        struct archive_entry *e;
        int r;

        t.in = archive_read_new();
        if (!t.in)
                return -ENOMEM;
        archive_read_support_filter_gzip(t.in);
        archive_read_support_filter_bzip2(t.in);
        archive_read_support_filter_xz(t.in);
        archive_read_support_filter_zstd(t.in);
        archive_read_support_filter_lz4(t.in);
        archive_read_support_format_tar(t.in);
        if (archive_read_open_fd(t.in, in_fd, 64 * 1024) != ARCHIVE_OK)
                return in_fault(&t);
        r = open_output(&t, out_fd);
        if (r < 0)
                return r;

        while ((r = archive_read_next_header(t.in, &e)) != ARCHIVE_EOF) {
                if (r < ARCHIVE_WARN)
                        return in_fault(&t);
                r = transfer_entry(&t, e);
                if (r < 0)
                        return r;
        }
        return close_output(&t);
}

static int transfer_linked(Transfer *t, struct archive_entry_linkresolver *links, struct archive_entry *e) {
        struct archive_entry *spare = NULL;

        archive_entry_linkify(links, &e, &spare);
        return e ? transfer_entry(t, e) : 0;
}

static int walk(Transfer *t, struct archive_entry_linkresolver *links) {
        for (;;) {
                _cleanup_(archive_entry_freep) struct archive_entry *e = archive_entry_new();
                int r;

                if (!e)
                        return -ENOMEM;
                r = archive_read_next_header2(t->in, e);
                if (r == ARCHIVE_EOF)
                        return 0;
                if (r < ARCHIVE_WARN)
                        return in_fault(t);
                if (archive_read_disk_can_descend(t->in))
                        (void) archive_read_disk_descend(t->in);
                r = transfer_linked(t, links, e);
                if (r < 0)
                        return r;
        }
}

int rootfs_directory_to_tar(int dir_fd, int out_fd, uint64_t max_bytes, const uid_t *map_uid, Fault *fault) {
        _cleanup_(transfer_done) Transfer t = {
                .verb = "reading the directory",
                .max_bytes = max_bytes,
                .map_uid = map_uid,
                .fault = fault,
        };
        struct archive_entry_linkresolver *links;
        int r;

        if (fchdir(dir_fd) < 0)
                return fault_set(fault, -errno, "entering the directory: %s", strerror(errno));
        t.in = archive_read_disk_new();
        if (!t.in)
                return -ENOMEM;
        archive_read_disk_set_symlink_physical(t.in);
        archive_read_disk_set_behavior(t.in, ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS|ARCHIVE_READDISK_NO_ACL|
                                       ARCHIVE_READDISK_NO_FFLAGS|ARCHIVE_READDISK_NO_SPARSE);
        if (archive_read_disk_open(t.in, ".") != ARCHIVE_OK)
                return in_fault(&t);
        r = open_output(&t, out_fd);
        if (r < 0)
                return r;

        links = archive_entry_linkresolver_new();
        if (!links)
                return -ENOMEM;
        archive_entry_linkresolver_set_strategy(links, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED);
        r = walk(&t, links);
        archive_entry_linkresolver_free(links);
        return r < 0 ? r : close_output(&t);
}

int rootfs_copy_image(int in_fd, int out_fd, uint64_t max_bytes, Fault *fault) {
        _cleanup_free_ uint8_t *buffer = calloc(1, COPY_SIZE);
        uint64_t done = 0;
        ssize_t n;
        int r = 0;

        if (!buffer)
                return -ENOMEM;
        while (r >= 0 && (n = read(in_fd, buffer, COPY_SIZE)) != 0) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return fault_set(fault, -errno, "reading the image: %s", strerror(errno));
                if ((uint64_t) n > max_bytes - done)
                        return fault_set(fault, -EFBIG, "the image is larger than %" PRIu64 " bytes", max_bytes);
                done += (uint64_t) n;
                r = write_full(out_fd, buffer, (size_t) n);
        }
        if (r >= 0 && done % IMAGE_ALIGN) {
                memset(buffer, 0, IMAGE_ALIGN);
                r = write_full(out_fd, buffer, IMAGE_ALIGN - done % IMAGE_ALIGN);
        }
        return r < 0 ? fault_set(fault, r, "writing the image: %s", strerror(-r)) : 0;
}
