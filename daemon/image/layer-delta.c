/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <unistd.h>

#include "daemon/copy-range.h"
#include "daemon/image/layer-delta.h"

#define BLOCK 4096U
#define CHUNK (64U * BLOCK)

typedef struct Record {
        uint64_t offset, bytes;    /* little-endian */
} Record;

typedef struct Delta {
        int disk_fd, shadow_fd, overlay_fd, fd;
        uint64_t size;             /* of what was written to fd */
        uint64_t shadow_data, shadow_end;
        uint8_t now[CHUNK], before[CHUNK];
} Delta;

/* A file that ends early goes on with zeros. */
static int read_padded(int fd, uint8_t *buffer, size_t size, uint64_t offset) {
        size_t done = 0;

        while (done < size) {
                ssize_t n = pread(fd, buffer + done, size - done, (off_t) (offset + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t) n;
        }
        memset(buffer + done, 0, size - done);
        return 0;
}

/* How much from offset on the shadow has, or the disk, in one piece. */
static int find_before(Delta *d, uint64_t offset, uint64_t end, int *ret_fd, uint64_t *ret_end) {
        if (d->shadow_end <= offset) {
                int r = find_data(d->shadow_fd, offset, &d->shadow_data, &d->shadow_end);
                if (r < 0)
                        return r;
        }
        bool shadowed = d->shadow_data <= offset;
        *ret_fd = shadowed ? d->shadow_fd : d->disk_fd;
        *ret_end = MIN(end, shadowed ? d->shadow_end : d->shadow_data);
        return 0;
}

static int put_record(Delta *d, const uint8_t *data, uint64_t offset, size_t bytes) {
        Record record = { htole64(offset), htole64(bytes) };

        int r = pwrite_all(d->fd, &record, sizeof(record), d->size);
        if (r >= 0)
                r = pwrite_all(d->fd, data, bytes, d->size + sizeof(record));
        if (r < 0)
                return r;
        d->size += sizeof(record) + bytes;
        return pwrite_all(d->shadow_fd, data, bytes, offset);
}

static int compare(Delta *d, uint64_t offset, size_t size, int before_fd) {
        size_t begin = 0;
        bool differs = false;

        int r = read_padded(d->overlay_fd, d->now, size, offset);
        if (r >= 0)
                r = read_padded(before_fd, d->before, size, offset);
        for (size_t at = 0; at <= size && r >= 0; at += BLOCK) {
                bool this = at < size && memcmp(d->now + at, d->before + at, BLOCK) != 0;
                if (this && !differs)
                        begin = at;
                else if (!this && differs)
                        r = put_record(d, d->now + begin, offset + begin, at - begin);
                differs = this;
        }
        return r;
}

static int write_range(Delta *d, uint64_t offset, uint64_t end) {
        int r = 0;

        while (offset < end && r >= 0) {
                uint64_t piece_end;
                int before_fd;

                r = find_before(d, offset, end, &before_fd, &piece_end);
                if (r < 0)
                        return r;
                /* What we write there in between is looked for again. */
                for (; offset < piece_end && r >= 0; offset += MIN(piece_end - offset, CHUNK))
                        r = compare(d, offset, (size_t) MIN(piece_end - offset, CHUNK), before_fd);
        }
        return r;
}

int delta_write(int disk_fd, int shadow_fd, int overlay_fd, uint64_t disk_bytes, int delta_fd) {
        _cleanup_free_ Delta *d = new0(Delta, 1);
        uint64_t data, end, offset = 0;
        int r = d ? 0 : -ENOMEM;

        if (r < 0)
                return r;
        d->disk_fd = disk_fd;
        d->shadow_fd = shadow_fd;
        d->overlay_fd = overlay_fd;
        d->fd = delta_fd;
        while ((r = find_data(overlay_fd, offset, &data, &end)) >= 0 && data < disk_bytes) {
                /* Never half a block, wherever the holes begin. */
                offset = MAX(offset, ALIGN_DOWN(data, BLOCK));
                end = MIN(ALIGN_UP(end, BLOCK), disk_bytes);
                r = write_range(d, offset, end);
                if (r < 0)
                        return r;
                offset = end;
        }
        return r;
}

int delta_apply(int delta_fd, uint64_t disk_bytes, int disk_fd) {
        uint64_t at = 0, done = 0, size;

        int r = check_regular(delta_fd, false, &size);
        while (r >= 0 && at < size) {
                Record record;

                r = size - at < sizeof(record) ? -EBADMSG : pread_all(delta_fd, &record, sizeof(record), at);
                if (r < 0)
                        break;
                at += sizeof(record);
                uint64_t offset = le64toh(record.offset), bytes = le64toh(record.bytes);
                if (bytes == 0 || (offset | bytes) % BLOCK != 0 || offset < done || bytes > disk_bytes ||
                    offset > disk_bytes - bytes || bytes > size - at)
                        return -EBADMSG;
                r = copy_range(delta_fd, disk_fd, (FileRange) { at, offset, bytes });
                at += bytes;
                done = offset + bytes;
        }
        return r;
}
