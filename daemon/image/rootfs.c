/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/clean-tar.h"
#include "daemon/image/rootfs.h"

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

static int close_tar(CleanTar *t) {
        if (t->has_files && t->has_manifest && !t->has_system)
                return fault_set(t->fault, -EINVAL,
                                 "this is a container image with layers, not a file system: "
                                 "name it as docker-archive:FILE or oci:DIR");
        return clean_tar_close(t);
}

int rootfs_tar_to_tar(int in_fd, int out_fd, uint64_t max_bytes, Fault *fault) {
        _cleanup_(clean_tar_done) CleanTar t = { .verb = "reading the tar", .max_bytes = max_bytes, .fault = fault };
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
                return clean_tar_in_fault(&t);
        r = clean_tar_open(&t, out_fd);
        if (r < 0)
                return r;

        while ((r = archive_read_next_header(t.in, &e)) != ARCHIVE_EOF) {
                if (r < ARCHIVE_WARN)
                        return clean_tar_in_fault(&t);
                r = clean_tar_add(&t, e);
                if (r < 0)
                        return r;
        }
        return close_tar(&t);
}

static int transfer_linked(CleanTar *t, struct archive_entry_linkresolver *links, struct archive_entry *e) {
        struct archive_entry *spare = NULL;

        archive_entry_linkify(links, &e, &spare);
        return e ? clean_tar_add(t, e) : 0;
}

static int walk(CleanTar *t, struct archive_entry_linkresolver *links) {
        for (;;) {
                _cleanup_(archive_entry_freep) struct archive_entry *e = archive_entry_new();
                int r;

                if (!e)
                        return -ENOMEM;
                r = archive_read_next_header2(t->in, e);
                if (r == ARCHIVE_EOF)
                        return 0;
                if (r < ARCHIVE_WARN)
                        return clean_tar_in_fault(t);
                if (archive_read_disk_can_descend(t->in))
                        (void) archive_read_disk_descend(t->in);
                r = transfer_linked(t, links, e);
                if (r < 0)
                        return r;
        }
}

int rootfs_directory_to_tar(int dir_fd, int out_fd, uint64_t max_bytes, const uid_t *map_uid, Fault *fault) {
        _cleanup_(clean_tar_done) CleanTar t = {
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
                return clean_tar_in_fault(&t);
        r = clean_tar_open(&t, out_fd);
        if (r < 0)
                return r;

        links = archive_entry_linkresolver_new();
        if (!links)
                return -ENOMEM;
        archive_entry_linkresolver_set_strategy(links, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED);
        r = walk(&t, links);
        archive_entry_linkresolver_free(links);
        return r < 0 ? r : close_tar(&t);
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
