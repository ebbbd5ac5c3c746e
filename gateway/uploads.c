/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "gateway/build-spec.h"
#include "gateway/template-names.h"
#include "gateway/uploads.h"

#define TEMPORARY "."
#define KEPT_SECONDS (24 * 60 * 60)
#define SWEEP_USEC (UINT64_C(60) * 60 * USEC_PER_SEC)
#define HEAD_SIZE 512U
#define NAME_SIZE 96U

struct Upload {
        int dir_fd, fd;
        char temporary[NAME_SIZE], name[NAME_SIZE];
        uint64_t left;
        uint8_t head[HEAD_SIZE];
        size_t n_head;
};

static int make_directory(int at_fd, const char *name, int *ret_fd) {
        if (mkdirat(at_fd, name, 0700) < 0 && errno != EEXIST)
                return -errno;
        *ret_fd = openat(at_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

static DIR *list(int fd) {
        int own = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        DIR *d = own < 0 ? NULL : fdopendir(own);

        if (!d && own >= 0)
                (void) close(own);
        return d;
}

/* 1 with the next one, 0 at the end. */
static int next(DIR *d, const char **ret_name, struct stat *ret) {
        struct dirent *e;

        while ((e = readdir(d)))
                if (!streq(e->d_name, ".") && !streq(e->d_name, "..") &&
                    fstatat(dirfd(d), e->d_name, ret, AT_SYMLINK_NOFOLLOW) == 0) {
                        *ret_name = e->d_name;
                        return 1;
                }
        return 0;
}

static void empty(int at_fd, const char *name) {
        _cleanup_close_ int fd = openat(at_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : list(fd);
        const char *entry;
        struct stat st;

        while (d && next(d, &entry, &st) > 0)
                (void) unlinkat(fd, entry, 0);
        if (d)
                (void) closedir(d);
}

static bool is_old(const struct stat *st) {
        return st->st_mtime < time(NULL) - KEPT_SECONDS;
}

/* A build that has one keeps its name, too, by which it counts as the tenant's. */
static bool is_in_a_build(const struct stat *st) {
        return st->st_nlink > 1;
}

/* What nobody came back for, and at a start what is left of uploads that ended with the gateway before. */
static void sweep_tenant(int fd, bool starting) {
        DIR *d = list(fd);
        const char *name;
        struct stat st;

        while (d && next(d, &name, &st) > 0)
                if ((starting && startswith(name, TEMPORARY)) || (is_old(&st) && !is_in_a_build(&st)))
                        (void) unlinkat(fd, name, 0);
        if (d)
                (void) closedir(d);
}

static void sweep_files(int files_fd, bool starting) {
        DIR *d = list(files_fd);
        const char *name;
        struct stat st;

        while (d && next(d, &name, &st) > 0) {
                _cleanup_close_ int fd = openat(files_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (fd < 0)
                        continue;
                sweep_tenant(fd, starting);
                (void) unlinkat(files_fd, name, AT_REMOVEDIR);
        }
        if (d)
                (void) closedir(d);
}

/* By us, or by cubed, which goes on with what the gateway before had it build. */
static bool is_open_somewhere(int builds_fd, const char *build) {
        _cleanup_close_ int fd = openat(builds_fd, build, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        return fd < 0 || flock(fd, LOCK_EX|LOCK_NB) < 0;
}

static void sweep_builds(int builds_fd) {
        DIR *d = list(builds_fd);
        const char *name;
        struct stat st;

        while (d && next(d, &name, &st) > 0)
                if (!is_open_somewhere(builds_fd, name))
                        build_directory_remove(builds_fd, name);
        if (d)
                (void) closedir(d);
}

static void sweep(int files_fd, int builds_fd, bool starting) {
        sweep_builds(builds_fd);
        sweep_files(files_fd, starting);
}

int uploads_open(const char *state, int *ret_files_fd, int *ret_builds_fd) {
        _cleanup_close_ int fd = open(state, O_RDONLY|O_DIRECTORY|O_CLOEXEC), files_fd = -EBADF, builds_fd = -EBADF;

        int r = fd < 0 ? -errno : make_directory(fd, "files", &files_fd);
        if (r >= 0)
                r = make_directory(fd, "builds", &builds_fd);
        if (r < 0)
                return r;
        sweep(files_fd, builds_fd, true);
        *ret_files_fd = TAKE_FD(files_fd);
        *ret_builds_fd = TAKE_FD(builds_fd);
        return 0;
}

typedef struct Sweep {
        int files_fd, builds_fd;
} Sweep;

static int on_sweep(sd_event_source *source, uint64_t usec, void *userdata) {
        const Sweep *s = userdata;

        sweep(s->files_fd, s->builds_fd, false);
        int r = sd_event_source_set_time_relative(source, SWEEP_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int uploads_sweep_hourly(sd_event *event, int files_fd, int builds_fd, sd_event_source **ret) {
        _cleanup_free_ Sweep *s = new0(Sweep, 1);
        if (!s)
                return -ENOMEM;

        *s = (Sweep) { files_fd, builds_fd };
        int r = sd_event_add_time_relative(event, ret, CLOCK_MONOTONIC, SWEEP_USEC, 0, on_sweep, s);
        if (r < 0)
                return r;
        (void) sd_event_source_set_destroy_callback(*ret, free);
        (void) TAKE_PTR(s);
        return 0;
}

static const char *path_of(char buf[static NAME_SIZE], const char *tenant, const char *hash) {
        (void) snprintf(buf, NAME_SIZE, "%s/%s", tenant, hash);
        return buf;
}

bool uploads_have(int files_fd, const char *tenant, const char *hash) {
        char path[NAME_SIZE];

        return utimensat(files_fd, path_of(path, tenant, hash), NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

/* One that could go: it is whole, and in no build. */
typedef struct Kept {
        char name[NAME_SIZE];
        struct timespec at;
        uint64_t bytes;
} Kept;

typedef struct Survey {
        uint64_t bytes, kept_bytes;
        size_t n, n_kept, n_allocated;
        Kept *kept;
} Survey;

static void survey_done(Survey *s) {
        free(s->kept);
}

static int survey_keep(Survey *s, const char *name, const struct stat *st) {
        if (s->n_kept == s->n_allocated) {
                size_t more = MAX(s->n_allocated * 2, 64U);
                Kept *grown = realloc(s->kept, more * sizeof(Kept));
                if (!grown)
                        return -ENOMEM;
                s->kept = grown;
                s->n_allocated = more;
        }
        Kept *k = &s->kept[s->n_kept++];
        *k = (Kept) { .at = st->st_mtim, .bytes = (uint64_t) st->st_size };
        strcpy(k->name, name);
        s->kept_bytes += k->bytes;
        return 0;
}

static int survey(int fd, Survey *s) {
        DIR *d = list(fd);
        const char *name;
        struct stat st;
        int r = d ? 0 : -errno;

        while (r >= 0 && next(d, &name, &st) > 0) {
                s->bytes += (uint64_t) st.st_size;
                s->n++;
                if (!startswith(name, TEMPORARY) && strlen(name) < NAME_SIZE && !is_in_a_build(&st))
                        r = survey_keep(s, name, &st);
        }
        if (d)
                (void) closedir(d);
        return r;
}

static int compare_age(const void *a, const void *b) {
        const struct timespec *x = &((const Kept *) a)->at, *y = &((const Kept *) b)->at;

        if (x->tv_sec != y->tv_sec)
                return x->tv_sec < y->tv_sec ? -1 : 1;
        return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool fits(uint64_t all, size_t n, uint64_t bytes, const UploadLimits *limits) {
        return all <= limits->all_max - bytes && n < limits->n_max;
}

static int make_room(int fd, uint64_t bytes, const UploadLimits *limits) {
        _cleanup_(survey_done) Survey s = {};

        if (bytes > limits->one_max || bytes > limits->all_max)
                return -EFBIG;
        int r = survey(fd, &s);
        if (r < 0)
                return r;
        /* Nothing goes for one that finds no room all the same. */
        if (!fits(s.bytes - s.kept_bytes, s.n - s.n_kept, bytes, limits))
                return -EDQUOT;
        if (!fits(s.bytes, s.n, bytes, limits))
                qsort(s.kept, s.n_kept, sizeof(Kept), compare_age);
        for (size_t i = 0; i < s.n_kept && !fits(s.bytes, s.n, bytes, limits); i++) {
                if (unlinkat(fd, s.kept[i].name, 0) < 0)
                        return -errno;
                s.bytes -= s.kept[i].bytes;
                s.n--;
        }
        return 0;
}

int upload_new(int files_fd, const char *tenant, const char *hash, uint64_t bytes, const UploadLimits *limits, Upload **ret) {
        Upload *u = new0(Upload, 1);
        char id[BUILD_ID_SIZE];

        if (!u)
                return -ENOMEM;
        *u = (Upload) { .dir_fd = -EBADF, .fd = -EBADF, .left = bytes };
        build_id_new(id);
        (void) snprintf(u->temporary, sizeof(u->temporary), TEMPORARY "%s", id);
        (void) snprintf(u->name, sizeof(u->name), "%s", hash);
        int r = make_directory(files_fd, tenant, &u->dir_fd);
        if (r >= 0)
                r = make_room(u->dir_fd, bytes, limits);
        if (r >= 0) {
                u->fd = openat(u->dir_fd, u->temporary, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600);
                /* As long as it will be, so that others find the room taken. */
                if (u->fd < 0 || ftruncate(u->fd, (off_t) bytes) < 0)
                        r = -errno;
        }
        if (r < 0) {
                upload_free(u);
                return r;
        }
        *ret = u;
        return 0;
}

int upload_write(Upload *u, const void *data, size_t size) {
        const uint8_t *p = data;

        if (size > u->left)
                return -EFBIG;
        u->left -= size;
        if (u->n_head < HEAD_SIZE) {
                size_t n = MIN(size, HEAD_SIZE - u->n_head);
                memcpy(u->head + u->n_head, p, n);
                u->n_head += n;
        }
        while (size > 0) {
                ssize_t n = write(u->fd, p, size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                p += n;
                size -= (size_t) n;
        }
        return 0;
}

/* What the guest's tar will take it for. */
static bool is_archive(const Upload *u) {
        if (u->n_head >= 3 && u->head[0] == 0x1f && u->head[1] == 0x8b && u->head[2] == 8)
                return true;
        return u->n_head == HEAD_SIZE && memcmp(u->head + 257, "ustar", 5) == 0;
}

/* One that a build has stays in the tenant's directory, under a name that is no hash, so that it counts on. */
static int set_aside(const Upload *u) {
        char name[BUILD_ID_SIZE];
        struct stat st;

        if (fstatat(u->dir_fd, u->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!is_in_a_build(&st))
                return 0;
        build_id_new(name);
        return renameat(u->dir_fd, u->name, u->dir_fd, name) < 0 ? -errno : 0;
}

int upload_finish(Upload *u) {
        if (u->left > 0)
                return -ENODATA;
        if (!is_archive(u))
                return -EBADMSG;
        int r = set_aside(u);
        if (r < 0)
                return r;
        if (renameat(u->dir_fd, u->temporary, u->dir_fd, u->name) < 0)
                return -errno;
        u->temporary[0] = 0;
        return 0;
}

Upload *upload_free(Upload *u) {
        if (!u)
                return NULL;
        if (u->fd >= 0 && *u->temporary)
                (void) unlinkat(u->dir_fd, u->temporary, 0);
        safe_close(u->fd);
        safe_close(u->dir_fd);
        free(u);
        return NULL;
}

int build_directory_make(int builds_fd, const char *build, int *ret_fd) {
        if (mkdirat(builds_fd, build, 0700) < 0)
                return -errno;
        _cleanup_close_ int fd = openat(builds_fd, build, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        /* The lock lasts as long as anybody has a copy of the descriptor. */
        if (fd < 0 || flock(fd, LOCK_SH|LOCK_NB) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int build_directory_add(int fd, const char *name, int files_fd, const char *tenant, const char *hash) {
        char path[NAME_SIZE];

        /* It is a part of a path. */
        if (!files_hash_valid(hash))
                return -EINVAL;
        return linkat(files_fd, path_of(path, tenant, hash), fd, name, 0) < 0 ? -errno : 0;
}

void build_directory_remove(int builds_fd, const char *build) {
        empty(builds_fd, build);
        (void) unlinkat(builds_fd, build, AT_REMOVEDIR);
}
