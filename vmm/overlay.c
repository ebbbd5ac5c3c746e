/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

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

/* The map */

static_assert(OVERLAY_FILES_MAX <= 16, "the index of a file has four bits");

static unsigned owner_of(const Overlay *o, uint64_t block) {
        return o->owners ? o->owners[block / 2] >> (block % 2 * 4) & 0xf : 0;
}

static void set_owner(Overlay *o, uint64_t first, uint64_t n, unsigned owner) {
        for (uint64_t b = first; b < first + n; b++) {
                unsigned shift = b % 2 * 4;
                o->owners[b / 2] = (uint8_t) ((o->owners[b / 2] & ~(0xf << shift)) | owner << shift);
        }
}

/* Whole units, the last of which may end behind the disk. */
static void set_owner_units(Overlay *o, uint64_t offset, uint64_t end, unsigned owner) {
        const uint64_t unit = o->files[owner].unit;
        uint64_t first = ALIGN_DOWN(offset, unit) / OVERLAY_BLOCK;
        uint64_t last = MIN(ALIGN_UP(end, unit) / OVERLAY_BLOCK, o->n_blocks);

        set_owner(o, first, last - first, owner);
}

/* SEEK_DATA's answer is rounded outwards to whole units: a unit was only ever written as a whole. */
static int map_data(Overlay *o, unsigned owner, bool *ret_any) {
        const int fd = o->files[owner].fd;
        uint64_t at = 0;

        *ret_any = false;
        while (at < o->disk_bytes) {
                off_t data = lseek(fd, (off_t) at, SEEK_DATA);
                if (data < 0)
                        return errno == ENXIO ? 0 : -errno;
                if ((uint64_t) data >= o->disk_bytes)
                        return 0;

                off_t hole = lseek(fd, data, SEEK_HOLE);
                if (hole < 0)
                        return -errno;

                at = MIN((uint64_t) hole, o->disk_bytes);
                set_owner_units(o, (uint64_t) data, at, owner);
                *ret_any = true;
        }
        return 0;
}

/* The files */

void overlay_fds_done(OverlayFds *fds) {
        assert(fds);

        for (unsigned i = 0; i < fds->n_layers; i++)
                safe_close(fds->layer_fds[i]);
        safe_close(fds->overlay_fd);
        if (fds->has_frozen)
                safe_close(fds->frozen_fd);
        *fds = OVERLAY_FDS_NONE;
}

/* name: for messages. */
static int inspect(const Overlay *o, int fd, const char *name, bool top, OverlayFile *ret, ErrorText *e) {
        struct stat st;

        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fstat(fd, &st) < 0)
                return error_set_errno(e, -errno, "%s", name);
        if (!S_ISREG(st.st_mode))
                return error_set(e, -EINVAL, "%s is not a regular file", name);
        if ((flags & O_ACCMODE) != (top ? O_RDWR : O_RDONLY))
                return error_set(e, -EINVAL, "%s is not opened %s", name,
                                 top ? "for reading and writing" : "read-only");
        if ((uint64_t) st.st_size > o->disk_bytes)
                return error_set(e, -EINVAL, "%s has %llu bytes, its disk only %llu", name,
                                 (unsigned long long) st.st_size, (unsigned long long) o->disk_bytes);
        for (unsigned i = 1; i <= o->top; i++)
                if (o->files[i].dev == st.st_dev && o->files[i].ino == st.st_ino)
                        return error_set(e, -EINVAL, "%s is in use as another file of the disk", name);

        *ret = (OverlayFile) { .fd = fd, .unit = OVERLAY_BLOCK, .bytes = (uint64_t) st.st_size,
                               .dev = st.st_dev, .ino = st.st_ino };
        while (ret->unit < (uint64_t) st.st_blksize && ret->unit < OVERLAY_UNIT_MAX)
                ret->unit *= 2;
        return 0;
}

/* Over those that are there. */
static int add_file(Overlay *o, int *fd, const char *name, bool top, ErrorText *e) {
        OverlayFile file;
        struct stat st;
        bool any;

        int r = inspect(o, *fd, name, top, &file, e);
        if (r < 0)
                return r;
        o->files[++o->top] = file;
        *fd = -EBADF;

        r = map_data(o, o->top, &any);
        if (r < 0)
                return error_set_errno(e, r, "%s", name);
        /* A file system without holes calls all of a sparse file data, and would hide what is beneath. */
        if (any && fstat(file.fd, &st) >= 0 && st.st_blocks == 0)
                return error_set(e, -EOPNOTSUPP, "%s lies on a file system that does not know holes", name);
        return 0;
}

static int add_files(Overlay *o, OverlayFds *fds, ErrorText *e) {
        char name[32];

        if (fds->overlay_fd < 0)
                return fds->n_layers > 0 ? error_set(e, -EINVAL, "layers of a disk without an overlay") : 0;
        assert(fds->n_layers <= VMM_DISK_LAYERS_MAX);

        o->owners = calloc(o->n_blocks / 2 + 1, 1);
        o->bounce = malloc(OVERLAY_UNIT_MAX);
        if (!o->owners || !o->bounce)
                return error_set(e, -ENOMEM, "out of memory");

        for (unsigned i = 0; i < fds->n_layers; i++) {
                (void) snprintf(name, sizeof(name), "disk layer %u", i);
                int r = add_file(o, &fds->layer_fds[i], name, false, e);
                if (r < 0)
                        return r;
        }
        return add_file(o, &fds->overlay_fd, "disk overlay", true, e);
}

static int open_over(Overlay *o, const OverlayFile *base, uint64_t disk_bytes, OverlayFds *fds, ErrorText *e) {
        *o = (Overlay) {
                .files = { *base },
                .disk_bytes = disk_bytes,
                .n_blocks = (disk_bytes + OVERLAY_BLOCK - 1) / OVERLAY_BLOCK,
        };
        int r = add_files(o, fds, e);
        o->flush_from = o->top;
        overlay_fds_done(fds);
        return r;
}

int overlay_init(Overlay *o, int base_fd, uint64_t base_bytes, uint64_t disk_bytes, OverlayFds *fds, ErrorText *e) {
        OverlayFile base = { .fd = base_fd, .bytes = base_bytes };
        int r;

        assert(o);
        assert(fds);

        if (disk_bytes == 0 || disk_bytes > OVERLAY_DISK_BYTES_MAX || base_bytes > disk_bytes ||
            (base_bytes > 0 && base_fd < 0)) {
                *o = (Overlay) { .files = { base } };
                overlay_fds_done(fds);
                r = error_set(e, -EINVAL, "a disk of %llu bytes over a base of %llu", (unsigned long long) disk_bytes,
                              (unsigned long long) base_bytes);
        } else
                r = open_over(o, &base, disk_bytes, fds, e);
        if (r < 0)
                overlay_done(o);
        return r;
}

void overlay_done(Overlay *o) {
        assert(o);

        for (unsigned i = 0; i <= o->top; i++)
                safe_close(o->files[i].fd);
        free(o->owners);
        free(o->bounce);
        *o = (Overlay) { .files = { { .fd = -EBADF } } };
}

/* Changes */

static int check_writable(const Overlay *o, ErrorText *e) {
        return o->top > 0 ? 0 : error_set(e, -EINVAL, "the disk is read-only, it has no overlay");
}

static int check_empty(int fd, ErrorText *e) {
        if (lseek(fd, 0, SEEK_DATA) >= 0)
                return error_set(e, -EINVAL, "the new disk overlay is not empty");
        return errno == ENXIO ? 0 : error_set_errno(e, -errno, "disk overlay");
}

static bool same_file(const OverlayFile *a, const OverlayFile *b) {
        return a->dev == b->dev && a->ino == b->ino;
}

static int check_frozen(const Overlay *o, int fd, ErrorText *e) {
        const Overlay nothing = { .disk_bytes = o->disk_bytes };
        OverlayFile file;

        int r = inspect(&nothing, fd, "frozen disk overlay", false, &file, e);
        if (r < 0)
                return r;
        return same_file(&file, &o->files[o->top]) ? 0 :
                error_set(e, -EINVAL, "the frozen disk overlay is another file than the present overlay");
}

static int prepare_push(const Overlay *o, OverlayFds *fds, OverlayChange *ret, ErrorText *e) {
        if (o->top == OVERLAY_FILES_MAX - 1)
                return error_set(e, -E2BIG, "the disk has %u layers, no more can be: give a shorter chain of the same "
                                 "content", VMM_DISK_LAYERS_MAX);
        int r = inspect(o, fds->overlay_fd, "disk overlay", true, &ret->next, e);
        if (r >= 0)
                r = check_empty(fds->overlay_fd, e);
        if (r >= 0 && fds->has_frozen)
                r = check_frozen(o, fds->frozen_fd, e);
        if (r < 0)
                return r;
        fds->overlay_fd = -EBADF;
        ret->freezes = fds->has_frozen;
        ret->frozen_fd = TAKE_FD(fds->frozen_fd);
        fds->has_frozen = false;
        ret->pushes = true;
        return 0;
}

static int check_ends_with_top(const Overlay *o, const Overlay *other, ErrorText *e) {
        return same_file(&other->files[other->top - 1], &o->files[o->top]) ? 0 :
                error_set(e, -EINVAL, "the chain of disk layers does not end with the present overlay");
}

int overlay_prepare_next(const Overlay *o, OverlayFds *fds, OverlayChange *ret, ErrorText *e) {
        assert(o);
        assert(fds);
        assert(ret);

        *ret = (OverlayChange) {};
        int r = check_writable(o, e);
        if (r >= 0 && fds->overlay_fd < 0)
                r = error_set(e, -EINVAL, "layers of a disk without an overlay");
        if (r >= 0 && fds->n_layers > 0 && fds->has_frozen)
                r = error_set(e, -EINVAL, "a chain of disk layers and a frozen disk overlay");
        if (r >= 0 && fds->n_layers > 0) {
                r = check_empty(fds->overlay_fd, e);
                if (r >= 0)
                        r = overlay_prepare_other(o, fds, ret, e);
                if (r >= 0)
                        r = check_ends_with_top(o, &ret->other, e);
                if (r >= 0)
                        ret->other.flush_from = ret->other.top - 1;
        } else if (r >= 0)
                r = prepare_push(o, fds, ret, e);
        overlay_fds_done(fds);
        if (r < 0)
                overlay_change_done(ret);
        return r;
}

int overlay_prepare_other(const Overlay *o, OverlayFds *fds, OverlayChange *ret, ErrorText *e) {
        assert(o);
        assert(fds);
        assert(ret);

        *ret = (OverlayChange) {};
        int r = check_writable(o, e);
        if (r >= 0 && fds->overlay_fd < 0)
                r = error_set(e, -EINVAL, "layers of a disk without an overlay");
        if (r >= 0) {
                ret->swaps = true;
                r = open_over(&ret->other, &o->files[0], o->disk_bytes, fds, e);
        }
        overlay_fds_done(fds);
        if (r < 0)
                overlay_change_done(ret);
        return r;
}

void overlay_change(Overlay *o, OverlayChange *c) {
        assert(o);
        assert(c);

        if (c->freezes) {
                safe_close(o->files[o->top].fd);
                o->files[o->top].fd = TAKE_FD(c->frozen_fd);
        }
        if (c->pushes)
                o->files[++o->top] = c->next;
        c->freezes = c->pushes = false;
        if (c->swaps) {
                Overlay before = *o;

                *o = c->other;
                c->other = before;
        }
}

void overlay_change_done(OverlayChange *c) {
        assert(c);

        if (c->pushes)
                safe_close(c->next.fd);
        if (c->freezes)
                safe_close(c->frozen_fd);
        if (c->swaps) {
                c->other.files[0].fd = -EBADF;
                overlay_done(&c->other);
        }
        *c = (OverlayChange) {};
}

/* Reading */

static int read_file(const Overlay *o, unsigned owner, Cursor *c, uint64_t offset, uint64_t len) {
        const OverlayFile *f = &o->files[owner];
        uint64_t from_file = offset < f->bytes ? MIN(len, f->bytes - offset) : 0;

        int r = transfer(c, f->fd, offset, from_file, false);
        if (r < 0)
                return r;
        cursor_zero(c, len - from_file);
        return 0;
}

/* How far from offset on, at most len bytes, all is of one file. */
static uint64_t same_run(const Overlay *o, uint64_t offset, uint64_t len, unsigned *ret_owner) {
        uint64_t block = offset / OVERLAY_BLOCK;
        uint64_t run = OVERLAY_BLOCK - offset % OVERLAY_BLOCK;

        *ret_owner = owner_of(o, block);
        if (!o->owners)
                return len;
        while (run < len && owner_of(o, ++block) == *ret_owner)
                run += OVERLAY_BLOCK;
        return MIN(run, len);
}

static int read_range(const Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        while (len > 0) {
                unsigned owner;
                uint64_t run = same_run(o, offset, len, &owner);

                int r = read_file(o, owner, c, offset, run);
                if (r < 0)
                        return r;
                offset += run;
                len -= run;
        }
        return 0;
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
        uint64_t len;

        assert(o);

        int r = total_bytes(o, iov, n_iov, offset, &len);
        return r < 0 ? r : read_range(o, &c, offset, len);
}

/* Writing */

static uint64_t top_unit(const Overlay *o) {
        return o->files[o->top].unit;
}

static uint64_t unit_bytes(const Overlay *o, uint64_t start) {
        return MIN(top_unit(o), o->disk_bytes - start);
}

/* Of a whole unit, since those are written as a whole. */
static bool is_tops(const Overlay *o, uint64_t offset) {
        return owner_of(o, offset / OVERLAY_BLOCK) == o->top;
}

/* A unit that was not the top's and could not be written whole must not become so, also for the
 * next one who asks SEEK_DATA. */
static void take_back(const Overlay *o, uint64_t offset, uint64_t len) {
        for (uint64_t at = offset; at < offset + len; at += top_unit(o))
                if (!is_tops(o, at))
                        (void) fallocate(overlay_top_fd(o), FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE, (off_t) at,
                                         (off_t) top_unit(o));
}

/* Whole units, or inside of one that is the top's already. */
static int write_top(Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        OverlayFile *top = &o->files[o->top];

        int r = transfer(c, top->fd, offset, len, true);
        if (r < 0) {
                take_back(o, offset, len);
                return r;
        }
        top->bytes = MAX(top->bytes, offset + len);
        set_owner_units(o, offset, offset + len, o->top);
        return 0;
}

/* Part of a unit that is not the top's yet: the whole unit moves up. */
static int write_partial(Overlay *o, Cursor *c, uint64_t offset, uint64_t len) {
        uint64_t start = ALIGN_DOWN(offset, top_unit(o)), size = unit_bytes(o, start);
        struct iovec whole = { .iov_base = o->bounce, .iov_len = size };
        Cursor bounce = { .iov = &whole, .n = 1 };

        int r = read_range(o, &bounce, start, size);
        if (r < 0)
                return r;
        cursor_copy(c, o->bounce + (offset - start), len, false);

        bounce = (Cursor) { .iov = &whole, .n = 1 };
        return write_top(o, &bounce, start, size);
}

/* One step of a write: how much of it, from offset on, is done in the same way. */
static uint64_t write_step(const Overlay *o, uint64_t offset, uint64_t left, bool *ret_partial) {
        uint64_t in_unit = offset % top_unit(o);
        uint64_t rest = unit_bytes(o, offset - in_unit) - in_unit;

        *ret_partial = (in_unit > 0 || left < rest) && !is_tops(o, offset);
        if (in_unit > 0 || left < rest)
                return MIN(left, rest);

        /* Up to the last unit that is covered whole; the disk's end counts as that. */
        if (offset + left == o->disk_bytes)
                return left;
        return ALIGN_DOWN(left, top_unit(o));
}

int overlay_write(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset) {
        Cursor c = { .iov = iov, .n = n_iov };
        uint64_t left;

        assert(o);

        if (o->top == 0)
                return -EROFS;
        int r = total_bytes(o, iov, n_iov, offset, &left);
        if (r < 0)
                return r;

        while (left > 0) {
                bool partial;
                uint64_t step = write_step(o, offset, left, &partial);

                r = partial ? write_partial(o, &c, offset, step) : write_top(o, &c, offset, step);
                if (r < 0)
                        return r;
                offset += step;
                left -= step;
        }
        return 0;
}

/* What was written to a top that is a layer now was not flushed by that. */
int overlay_flush(Overlay *o) {
        assert(o);

        if (o->top == 0)
                return 0;
        for (; o->flush_from < o->top; o->flush_from++)
                if (fdatasync(o->files[o->flush_from].fd) < 0)
                        return -errno;
        return fdatasync(overlay_top_fd(o)) < 0 ? -errno : 0;
}

int overlay_top_fd(const Overlay *o) {
        assert(o);
        return o->top > 0 ? o->files[o->top].fd : -EBADF;
}

uint64_t overlay_present_bytes(const Overlay *o) {
        uint64_t n = 0;

        assert(o);

        for (uint64_t i = 0; o->top > 0 && i < o->n_blocks; i++)
                n += owner_of(o, i) == o->top;
        return n * OVERLAY_BLOCK;
}
