/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "vmm/overlay.h"

/* How many entries of a caller's vector go into one system call. */
#define IOV_BATCH 64

/* Where one is in a vector of buffers. */
typedef struct Cursor {
        const struct iovec *iov;
        size_t n;
        size_t skip;              /* of iov[0] */
} Cursor;

static size_t cursor_window(const Cursor *c, uint64_t len, struct iovec out[static IOV_BATCH], size_t *ret_bytes) {
        size_t n = 0, bytes = 0, skip = c->skip;

        for (size_t i = 0; i < c->n && n < IOV_BATCH && bytes < len; i++) {
                size_t take = MIN(c->iov[i].iov_len - skip, len - bytes);

                if (take > 0)
                        out[n++] = (struct iovec) {
                                .iov_base = (uint8_t *) c->iov[i].iov_base + skip,
                                .iov_len = take,
                        };
                bytes += take;
                skip = 0;
        }

        *ret_bytes = bytes;
        return n;
}

static void cursor_advance(Cursor *c, uint64_t bytes) {
        while (c->n > 0 && bytes >= c->iov->iov_len - c->skip) {
                bytes -= c->iov->iov_len - c->skip;
                c->iov++;
                c->n--;
                c->skip = 0;
        }
        c->skip += bytes;
}

static void cursor_copy(Cursor *c, void *buffer, size_t len, bool to_iov) {
        uint8_t *p = buffer;

        while (len > 0) {
                struct iovec out[IOV_BATCH];
                size_t bytes, n = cursor_window(c, len, out, &bytes);

                if (bytes == 0)
                        return;
                for (size_t i = 0; i < n; i++) {
                        if (to_iov)
                                memcpy(out[i].iov_base, p, out[i].iov_len);
                        else
                                memcpy(p, out[i].iov_base, out[i].iov_len);
                        p += out[i].iov_len;
                }
                cursor_advance(c, bytes);
                len -= bytes;
        }
}

static void cursor_zero(Cursor *c, uint64_t len) {
        while (len > 0) {
                struct iovec out[IOV_BATCH];
                size_t bytes, n = cursor_window(c, len, out, &bytes);

                if (bytes == 0)
                        return;
                for (size_t i = 0; i < n; i++)
                        memset(out[i].iov_base, 0, out[i].iov_len);
                cursor_advance(c, bytes);
                len -= bytes;
        }
}

/* Moves len bytes between fd and the cursor. A file that ends early is broken: -EIO. */
static int transfer(Cursor *c, int fd, uint64_t offset, uint64_t len, bool to_fd) {
        while (len > 0) {
                struct iovec out[IOV_BATCH];
                size_t bytes, n_iov = cursor_window(c, len, out, &bytes);

                ssize_t n = to_fd ? pwritev(fd, out, (int) n_iov, (off_t) offset) :
                                    preadv(fd, out, (int) n_iov, (off_t) offset);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        return -EIO;
                cursor_advance(c, n);
                offset += n;
                len -= n;
        }
        return 0;
}

/* The bitmap */

static bool is_present(const Overlay *o, uint64_t block) {
        return o->overlay_fd >= 0 && (o->present[block / 64] & (1ULL << (block % 64)));
}

static void set_present(Overlay *o, uint64_t first, uint64_t n) {
        for (uint64_t b = first; b < first + n; b++)
                o->present[b / 64] |= 1ULL << (b % 64);
}

/* SEEK_DATA's answer is rounded outwards to whole blocks: a block was only ever written as a whole. */
static int rebuild(Overlay *o) {
        uint64_t at = 0;

        while (at < o->disk_bytes) {
                off_t data = lseek(o->overlay_fd, (off_t) at, SEEK_DATA);
                if (data < 0)
                        return errno == ENXIO ? 0 : -errno;
                if ((uint64_t) data >= o->disk_bytes)
                        return 0;

                off_t hole = lseek(o->overlay_fd, data, SEEK_HOLE);
                if (hole < 0)
                        return -errno;

                uint64_t end = MIN((uint64_t) hole, o->disk_bytes);
                uint64_t first = (uint64_t) data / o->block;
                set_present(o, first, (end + o->block - 1) / o->block - first);
                at = end;
        }
        return 0;
}

static int open_overlay(Overlay *o) {
        struct stat st;

        if (fstat(o->overlay_fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size > o->disk_bytes)
                return -EINVAL;

        while (o->block < (uint64_t) st.st_blksize && o->block < OVERLAY_BLOCK_MAX)
                o->block *= 2;
        o->n_blocks = (o->disk_bytes + o->block - 1) / o->block;

        o->present = new0(uint64_t, (o->n_blocks + 63) / 64);
        o->bounce = malloc(o->block);
        if (!o->present || !o->bounce)
                return -ENOMEM;

        int r = rebuild(o);
        if (r < 0)
                return r;

        /* A file system without holes calls all of a sparse file data, and would hide the base. */
        if (st.st_blocks == 0 && overlay_present_bytes(o) > 0)
                return -EOPNOTSUPP;
        return 0;
}

int overlay_init(Overlay *o, int base_fd, int overlay_fd, uint64_t base_bytes, uint64_t disk_bytes) {
        assert(o);

        *o = (Overlay) {
                .base_fd = base_fd,
                .overlay_fd = overlay_fd,
                .base_bytes = base_bytes,
                .disk_bytes = disk_bytes,
                .block = OVERLAY_BLOCK_MIN,
        };

        int r = 0;
        if (disk_bytes == 0 || disk_bytes > OVERLAY_DISK_BYTES_MAX || base_bytes > disk_bytes ||
            (base_bytes > 0 && base_fd < 0))
                r = -EINVAL;
        else if (overlay_fd >= 0)
                r = open_overlay(o);
        if (r < 0)
                overlay_done(o);
        return r;
}

void overlay_done(Overlay *o) {
        assert(o);

        safe_close(o->base_fd);
        safe_close(o->overlay_fd);
        free(o->present);
        free(o->bounce);
        *o = (Overlay) { .base_fd = -EBADF, .overlay_fd = -EBADF };
}

void overlay_done_other(Overlay *other) {
        assert(other);

        other->base_fd = -EBADF;
        overlay_done(other);
}

int overlay_open_other(const Overlay *o, int fd, Overlay *ret) {
        assert(o);
        assert(ret);

        *ret = (Overlay) {
                .base_fd = o->base_fd,
                .overlay_fd = fd,
                .base_bytes = o->base_bytes,
                .disk_bytes = o->disk_bytes,
                .block = OVERLAY_BLOCK_MIN,
        };
        int r = open_overlay(ret);
        if (r < 0)
                overlay_done_other(ret);
        return r;
}

void overlay_swap(Overlay *o, Overlay *other) {
        Overlay before = *o;

        assert(other);

        *o = *other;
        *other = before;
}

/* Reading */

static int read_base(const Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        uint64_t from_file = offset < o->base_bytes ? MIN(len, o->base_bytes - offset) : 0;

        int r = transfer(c, o->base_fd, offset, from_file, false);
        if (r < 0)
                return r;
        cursor_zero(c, len - from_file);
        return 0;
}

/* How far from offset on, at most len bytes, all is the overlay's, or nothing is. */
static uint64_t same_run(const Overlay *o, uint64_t offset, uint64_t len, bool *ret_present) {
        uint64_t block = offset / o->block;
        uint64_t run = o->block - offset % o->block;

        *ret_present = is_present(o, block);
        while (run < len && is_present(o, ++block) == *ret_present)
                run += o->block;
        return MIN(run, len);
}

static int total_bytes(const Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset, uint64_t *ret) {
        uint64_t total = 0;

        for (size_t i = 0; i < n_iov; i++)
                if (__builtin_add_overflow(total, iov[i].iov_len, &total))
                        return -EINVAL;
        if (offset > o->disk_bytes || total > o->disk_bytes - offset)
                return -EINVAL;
        *ret = total;
        return 0;
}

int overlay_read(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset) {
        Cursor c = { .iov = iov, .n = n_iov };
        uint64_t left;

        assert(o);

        int r = total_bytes(o, iov, n_iov, offset, &left);
        if (r < 0)
                return r;

        while (left > 0) {
                bool present;
                uint64_t run = same_run(o, offset, left, &present);

                r = present ? transfer(&c, o->overlay_fd, offset, run, false) : read_base(o, &c, offset, run);
                if (r < 0)
                        return r;
                offset += run;
                left -= run;
        }
        return 0;
}

/* Writing */

static uint64_t block_bytes(const Overlay *o, uint64_t block) {
        return MIN((uint64_t) o->block, o->disk_bytes - block * o->block);
}

/* A block that was the base's and could not be written whole must stay the base's, also for the
 * next one who asks SEEK_DATA. */
static void take_back(const Overlay *o, uint64_t block, uint64_t n) {
        for (uint64_t b = block; b < block + n; b++)
                if (!is_present(o, b))
                        (void) fallocate(o->overlay_fd, FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE,
                                         (off_t) (b * o->block), (off_t) o->block);
}

/* Part of a block that is still the base's: the whole block moves up. */
static int write_partial(Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        uint64_t block = offset / o->block, size = block_bytes(o, block);
        struct iovec whole = { .iov_base = o->bounce, .iov_len = size };
        Cursor bounce = { .iov = &whole, .n = 1 };

        int r = read_base(o, &bounce, block * o->block, size);
        if (r < 0)
                return r;
        cursor_copy(c, o->bounce + offset % o->block, len, false);

        bounce = (Cursor) { .iov = &whole, .n = 1 };
        r = transfer(&bounce, o->overlay_fd, block * o->block, size, true);
        if (r < 0) {
                take_back(o, block, 1);
                return r;
        }
        set_present(o, block, 1);
        return 0;
}

/* Whole blocks, whoever's they are. */
static int write_blocks(Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        uint64_t block = offset / o->block, n = (len + o->block - 1) / o->block;

        int r = transfer(c, o->overlay_fd, offset, len, true);
        if (r < 0) {
                take_back(o, block, n);
                return r;
        }
        set_present(o, block, n);
        return 0;
}

/* One step of a write: how much of it, from offset on, is done in the same way. */
static uint64_t write_step(const Overlay *o, uint64_t offset, uint64_t left, bool *ret_partial) {
        uint64_t block = offset / o->block, in_block = offset % o->block;
        uint64_t rest = block_bytes(o, block) - in_block;

        *ret_partial = (in_block > 0 || left < rest) && !is_present(o, block);
        if (in_block > 0 || left < rest)
                return MIN(left, rest);

        /* Up to the last block that is covered whole; the disk's end counts as that. */
        if (offset + left == o->disk_bytes)
                return left;
        return ALIGN_DOWN(left, (uint64_t) o->block);
}

int overlay_write(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset) {
        Cursor c = { .iov = iov, .n = n_iov };
        uint64_t left;

        assert(o);

        if (o->overlay_fd < 0)
                return -EROFS;
        int r = total_bytes(o, iov, n_iov, offset, &left);
        if (r < 0)
                return r;

        while (left > 0) {
                bool partial;
                uint64_t step = write_step(o, offset, left, &partial);

                r = partial ? write_partial(o, &c, offset, step) : write_blocks(o, &c, offset, step);
                if (r < 0)
                        return r;
                offset += step;
                left -= step;
        }
        return 0;
}

int overlay_flush(Overlay *o) {
        assert(o);

        if (o->overlay_fd < 0)
                return 0;
        return fdatasync(o->overlay_fd) < 0 ? -errno : 0;
}

uint64_t overlay_present_bytes(const Overlay *o) {
        uint64_t n = 0;

        assert(o);

        if (!o->present)
                return 0;
        for (uint64_t i = 0; i < (o->n_blocks + 63) / 64; i++)
                n += __builtin_popcountll(o->present[i]);
        return n * o->block;
}
