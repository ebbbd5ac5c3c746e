/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/hash-tree.h"

#define DEPTH_MAX 256U
#define NAMES_MAX (4U * 1024U * 1024U)
#define ATTRIBUTE_MAX 65536U
#define CHUNK 65536U

typedef struct Level {
        int fd;
        char **names;              /* sorted */
        size_t n, next;
} Level;

typedef struct Hashing {
        struct sha256_ctx sum;
        HashUse use;
        dev_t dev;                 /* of the directory that it all begins with */
        Level levels[DEPTH_MAX];
        size_t n_levels;
        uint8_t buffer[CHUNK];
} Hashing;

static void level_done(Level *l) {
        for (size_t i = 0; i < l->n; i++)
                free(l->names[i]);
        free(l->names);
        safe_close(l->fd);
}

static Hashing *hashing_free(Hashing *h) {
        while (h && h->n_levels > 0)
                level_done(&h->levels[--h->n_levels]);
        free(h);
        return NULL;
}
DEFINE_CLEANUP(Hashing *, hashing_free);

/* With its size, so that no two rows of them look alike. */
static void add(Hashing *h, const void *data, size_t size) {
        uint64_t n = size;

        sha256_update(&h->sum, sizeof(n), (const uint8_t *) &n);
        sha256_update(&h->sum, size, data);
}

static void add_text(Hashing *h, const char *s) {
        add(h, s, strlen(s));
}

static bool all_zero(const uint8_t *p, size_t n) {
        return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Zeros are left out wherever the holes are, and holes are not read where the file's position is nobody else's. */
static int add_bytes(Hashing *h, int fd, uint64_t offset, bool skip_holes) {
        for (;;) {
                off_t data = skip_holes ? lseek(fd, (off_t) offset, SEEK_DATA) : -1;
                struct stat st;

                if (data > 0)
                        offset = MAX(offset, ALIGN_DOWN((uint64_t) data, CHUNK));
                else if (skip_holes && data < 0 && errno == ENXIO && fstat(fd, &st) >= 0)
                        offset = MAX(offset, (uint64_t) st.st_size);
                ssize_t n = pread(fd, h->buffer, sizeof(h->buffer), (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                if (!all_zero(h->buffer, (size_t) n)) {
                        sha256_update(&h->sum, sizeof(offset), (const uint8_t *) &offset);
                        sha256_update(&h->sum, (size_t) n, h->buffer);
                }
                offset += (uint64_t) n;
        }
        /* Where it ended: it may have grown while it was read. */
        sha256_update(&h->sum, sizeof(offset), (const uint8_t *) &offset);
        return 0;
}

static int compare(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Of NUL-terminated names, in no order. */
static int sort(const char *names, size_t size, char ***ret, size_t *ret_n) {
        size_t n = 0;

        for (size_t at = 0; at < size; at += strlen(names + at) + 1)
                n++;
        char **l = new0(char *, n + 1);
        if (!l)
                return -ENOMEM;
        for (size_t at = 0, i = 0; at < size; at += strlen(names + at) + 1)
                l[i++] = (char *) names + at;
        qsort(l, n, sizeof(*l), compare);
        *ret = l;
        *ret_n = n;
        return 0;
}

static int add_attributes(Hashing *h, int fd) {
        _cleanup_free_ char *names = malloc(ATTRIBUTE_MAX), *value = malloc(ATTRIBUTE_MAX);
        _cleanup_free_ char **sorted = NULL;
        size_t n_names;

        if (!names || !value)
                return -ENOMEM;
        ssize_t n = flistxattr(fd, names, ATTRIBUTE_MAX);
        if (n < 0)
                return errno == EOPNOTSUPP ? 0 : -errno;
        int r = sort(names, (size_t) n, &sorted, &n_names);
        for (size_t i = 0; i < n_names && r >= 0; i++) {
                ssize_t size = fgetxattr(fd, sorted[i], value, ATTRIBUTE_MAX);
                if (size < 0)
                        return -errno;
                add_text(h, sorted[i]);
                add(h, value, (size_t) size);
        }
        return r;
}

/* Takes fd. */
static int enter(Hashing *h, int opened) {
        _cleanup_close_ int fd = opened;
        Level *l = &h->levels[h->n_levels];
        struct dirent *e;

        if (h->n_levels == DEPTH_MAX)
                return -ELOOP;
        *l = (Level) { .fd = -EBADF };
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        DIR *d = copy < 0 ? NULL : fdopendir(copy);
        if (!d) {
                int r = -errno;
                safe_close(copy);
                return r;
        }
        l->fd = TAKE_FD(fd);
        h->n_levels++;
        int r = 0;
        while (r >= 0 && (errno = 0, e = readdir(d))) {
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                char **grown = l->n % 64 > 0 ? l->names : reallocarray(l->names, l->n + 64, sizeof(*grown));
                if (grown)
                        l->names = grown;
                char *name = grown && l->n < NAMES_MAX ? strdup(e->d_name) : NULL;
                if (name)
                        l->names[l->n++] = name;
                else
                        r = -ENOMEM;
        }
        if (r >= 0)
                r = -errno;
        (void) closedir(d);
        if (l->n > 0)
                qsort(l->names, l->n, sizeof(*l->names), compare);
        return r;
}

static void end_directory(Hashing *h) {
        add_text(h, "..");
}

static void add_status(Hashing *h, const char *name, const struct stat *st) {
        uint64_t numbers[] = { st->st_mode, st->st_uid, st->st_gid,
                               S_ISBLK(st->st_mode) || S_ISCHR(st->st_mode) ? st->st_rdev : 0 };

        add_text(h, name);
        add(h, numbers, sizeof(numbers));
}

/* Takes fd. */
static int add_opened(Hashing *h, int opened, const char *name) {
        _cleanup_close_ int fd = opened;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        add_status(h, name, &st);
        int r = add_attributes(h, fd);
        if (r < 0)
                return r;
        if (S_ISDIR(st.st_mode) && h->use == HASH_ROOT && st.st_dev != h->dev) {
                end_directory(h);
                return 0;
        }
        if (S_ISDIR(st.st_mode))
                return enter(h, TAKE_FD(fd));
        return S_ISREG(st.st_mode) ? add_bytes(h, fd, 0, true) : 0;
}

static int add_entry(Hashing *h, int dir_fd, const char *name) {
        char target[PATH_MAX];
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
                /* Non-blocking: it may have become a FIFO. */
                int fd = openat(dir_fd, name, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
                return fd < 0 ? -errno : add_opened(h, fd, name);
        }
        add_status(h, name, &st);
        if (!S_ISLNK(st.st_mode))
                return 0;
        ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));
        if (n < 0)
                return -errno;
        add(h, target, (size_t) n);
        return 0;
}

static int add_tree(Hashing *h) {
        int r = 0;

        while (h->n_levels > 0 && r >= 0) {
                Level *l = &h->levels[h->n_levels - 1];

                if (l->next < l->n) {
                        r = add_entry(h, l->fd, l->names[l->next]);
                        l->next++;
                } else {
                        level_done(l);
                        h->n_levels--;
                        end_directory(h);
                }
        }
        return r;
}

static int add_whole_directory(Hashing *h, int fd, const struct stat *st) {
        /* Opened anew, with a position of its own. */
        int copy = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

        if (copy < 0)
                return -errno;
        h->dev = st->st_dev;
        int r = add_opened(h, copy, ".");
        return r < 0 ? r : add_tree(h);
}

int hash_tree(int fd, HashUse use, char ret[static SHA256_HEX_SIZE]) {
        _cleanup_(hashing_freep) Hashing *h = new0(Hashing, 1);
        struct stat st;
        int r;

        if (!h)
                return -ENOMEM;
        *ret = 0;
        h->use = use;
        sha256_init(&h->sum);
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                r = add_whole_directory(h, fd, &st);
        else {
                off_t position = lseek(fd, 0, SEEK_CUR);
                uint32_t mode = use == HASH_COPY ? st.st_mode : 0;

                if (position < 0 || S_ISCHR(st.st_mode))
                        return 0;
                add_text(h, "file");
                add(h, &mode, sizeof(mode));
                r = add_bytes(h, fd, (uint64_t) position, false);
        }
        if (r >= 0)
                hash_finish(&h->sum, ret);
        return r;
}
