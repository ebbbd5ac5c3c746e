/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "daemon/copy-range.h"

#define BUFFER_BYTES MIB(1)
/* A signal ends the process between two of them. */
#define COPY_BYTES MIB(64)

int pread_all(int fd, void *buffer, size_t size, uint64_t offset) {
        uint8_t *p = buffer;

        while (size > 0) {
                ssize_t n = pread(fd, p, size, (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                p += n;
                size -= (size_t) n;
                offset += (uint64_t) n;
        }
        return 0;
}

int pwrite_all(int fd, const void *buffer, size_t size, uint64_t offset) {
        const uint8_t *p = buffer;

        while (size > 0) {
                ssize_t n = pwrite(fd, p, size, (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                p += n;
                size -= (size_t) n;
                offset += (uint64_t) n;
        }
        return 0;
}

static void range_advance(FileRange *r, uint64_t bytes) {
        r->from += bytes;
        r->to += bytes;
        r->bytes -= bytes;
}

static int copy_by_buffer(int from_fd, int to_fd, FileRange r) {
        _cleanup_free_ uint8_t *buffer = malloc(BUFFER_BYTES);
        if (!buffer)
                return -ENOMEM;

        while (r.bytes > 0) {
                size_t n = MIN(r.bytes, BUFFER_BYTES);
                int k = pread_all(from_fd, buffer, n, r.from);
                if (k >= 0)
                        k = pwrite_all(to_fd, buffer, n, r.to);
                if (k < 0)
                        return k;
                range_advance(&r, n);
        }
        return 0;
}

/* The kernel, or the two file systems, have no way of their own. */
static bool is_unsupported(int error) {
        return error == EXDEV || error == EINVAL || error == EOPNOTSUPP || error == ENOSYS || error == EPERM;
}

int copy_range(int from_fd, int to_fd, FileRange r) {
        while (r.bytes > 0) {
                off_t from = (off_t) r.from, to = (off_t) r.to;

                ssize_t n = copy_file_range(from_fd, &from, to_fd, &to, MIN(r.bytes, COPY_BYTES), 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return is_unsupported(errno) ? copy_by_buffer(from_fd, to_fd, r) : -errno;
                if (n == 0)
                        return -EIO;
                range_advance(&r, (uint64_t) n);
        }
        return 0;
}

int find_data(int fd, uint64_t offset, uint64_t *ret_data, uint64_t *ret_end) {
        off_t data = lseek(fd, (off_t) offset, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
                return -errno;
        off_t end = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (end < 0 && errno != ENXIO)
                return -errno;
        *ret_data = end < 0 ? UINT64_MAX : (uint64_t) data;
        *ret_end = end < 0 ? UINT64_MAX : (uint64_t) end;
        return 0;
}

int copy_range_sparse(int from_fd, int to_fd, FileRange r) {
        while (r.bytes > 0) {
                uint64_t data, end;

                int k = find_data(from_fd, r.from, &data, &end);
                if (k < 0)
                        return k;
                if (data - r.from >= r.bytes)
                        return 0;
                range_advance(&r, data - r.from);
                uint64_t n = MIN(r.bytes, end - data);
                k = copy_range(from_fd, to_fd, (FileRange) { r.from, r.to, n });
                if (k < 0)
                        return k;
                range_advance(&r, n);
        }
        return 0;
}

int check_regular(int fd, bool empty, uint64_t *ret_size) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (empty && st.st_size > 0))
                return -EINVAL;
        if (ret_size)
                *ret_size = (uint64_t) st.st_size;
        return 0;
}
