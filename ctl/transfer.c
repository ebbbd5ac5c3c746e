/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/agent-file.h"
#include "ctl/ctl.h"
#include "ctl/spec.h"
#include "ctl/transfer.h"

#define DEPTH_MAX 64U

typedef struct GuestFile {
        char *name;
        uint32_t mode;
        uint64_t size;
} GuestFile;

static void guest_file_done(GuestFile *f) {
        free(f->name);
        *f = (GuestFile) {};
}

static int read_guest_file(sd_bus_message *m, GuestFile *ret) {
        const char *name;

        int r = sd_bus_message_read(m, "(" CUBE_BUS_FILE ")", &name, &ret->mode, NULL, NULL, &ret->size, NULL, NULL);
        if (r <= 0)
                return r;
        ret->name = strdup(name);
        return ret->name ? 1 : -ENOMEM;
}

static int stat_guest(Transfer *t, const char *path, bool follow, GuestFile *ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;

        int r = ctl_call_sandbox(t->bus, NULL, t->id, "StatFile", &reply, error, "sb", path, (int) follow);
        if (r < 0)
                return r;
        r = read_guest_file(reply, ret);
        return r < 0 ? r : r == 0 ? -EBADMSG : 0;
}

int transfer_is_directory(Transfer *t, const char *path) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(guest_file_done) GuestFile f = {};

        int r = stat_guest(t, path, true, &f, &error);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return ctl_fail(r, &error, "look at %s:%s", t->id, path);
        return S_ISDIR(f.mode);
}

/* A stream's error: the guest's own words where it gave some. */
static int stream_failed(int r, const char *message, const char *what, const char *from, const char *to) {
        ctl_note("Failed to %s %s to %s: %s", what, from, to, message ? message : strerror(-r));
        return r;
}

static int skip(Transfer *t, const char *path, const char *why) {
        ctl_note("Left out %s: %s", path, why);
        t->n_skipped++;
        return 0;
}

static int send_file(Transfer *t, const char *from, int fd, const struct stat *st, const char *to) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *message = NULL;
        uint64_t size = S_ISREG(st->st_mode) ? (uint64_t) st->st_size : UINT64_MAX;
        uint32_t mode = S_ISREG(st->st_mode) ? st->st_mode & 07777 : 0644;
        int stream;

        int r = ctl_call_sandbox(t->bus, NULL, t->id, "CopyTo", &reply, &error, "sa{sv}", to, 3, "mode", "u", mode,
                                 "user", "s", t->user ? t->user : "root", "size", "t", size);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &stream);
        if (r < 0)
                return ctl_fail(r, &error, "copy %s to %s:%s", from, t->id, to);

        r = agent_file_send(stream, fd, size, &message);
        if (r == -ENODATA)
                return stream_failed(r, "it became shorter meanwhile", "copy", from, to);
        return r < 0 ? stream_failed(r, message, "copy", from, to) : 0;
}

static int make_guest_directory(Transfer *t, const char *path, uint32_t mode) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        int r = ctl_call_sandbox(t->bus, NULL, t->id, "MakeDirectory", NULL, &error, "sa{sv}", path, 3, "mode", "u",
                                 mode, "parents", "b", 1, "user", "s", t->user ? t->user : "root");
        return r < 0 && r != -EEXIST ? ctl_fail(r, &error, "make directory %s:%s", t->id, path) : 0;
}

static int send_entry(Transfer *t, int dirfd, const char *name, const char *from, const char *to, unsigned depth);

static int send_directory(Transfer *t, int fd, const struct stat *st, const char *from, const char *to,
                          unsigned depth) {
        if (!t->recursive)
                return ctl_usage("%s is a directory; copy it with -r.", from);
        if (depth >= DEPTH_MAX)
                return skip(t, from, "too deep");

        int r = make_guest_directory(t, to, st->st_mode & 07777);
        if (r < 0)
                return r;

        DIR *d = fdopendir(fd);
        if (!d) {
                r = -errno;
                safe_close(fd);
                return ctl_fail(r, NULL, "read directory %s", from);
        }
        for (struct dirent *e; r >= 0 && (e = readdir(d));) {
                _cleanup_free_ char *below = NULL, *target = NULL;
                if (!filename_valid(e->d_name))
                        continue;
                r = path_join(from, e->d_name, &below);
                if (r >= 0)
                        r = path_join(to, e->d_name, &target);
                if (r >= 0)
                        r = send_entry(t, dirfd(d), e->d_name, below, target, depth + 1);
        }
        closedir(d);
        return r;
}

static int send_entry(Transfer *t, int dirfd, const char *name, const char *from, const char *to, unsigned depth) {
        struct stat link, st;

        if (fstatat(dirfd, name, &link, AT_SYMLINK_NOFOLLOW) < 0)
                return ctl_fail(-errno, NULL, "read %s", from);
        if (depth > 0 && !S_ISREG(link.st_mode) && !S_ISDIR(link.st_mode) && !S_ISLNK(link.st_mode))
                return skip(t, from, "neither a file nor a directory");

        /* Non-blocking: a FIFO behind a link is found out, not waited for. */
        _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY|O_CLOEXEC|O_NOCTTY|(depth > 0 ? O_NONBLOCK : 0));
        if (fd < 0 || fstat(fd, &st) < 0) {
                int r = -errno;
                if (S_ISLNK(link.st_mode) && depth > 0)
                        return skip(t, from, "a link to nowhere");
                return ctl_fail(r, NULL, "open %s", from);
        }

        if (S_ISDIR(st.st_mode)) {
                if (S_ISLNK(link.st_mode) && depth > 0)
                        return skip(t, from, "a link to a directory");
                return send_directory(t, TAKE_FD(fd), &st, from, to, depth);
        }
        if (depth > 0 && !S_ISREG(st.st_mode))
                return skip(t, from, "neither a file nor a directory");
        return send_file(t, from, fd, &st, to);
}

int transfer_to(Transfer *t, const char *from, const char *to, bool into) {
        _cleanup_free_ char *name = NULL, *target = NULL;

        if (into) {
                name = path_last(from);
                if (!name)
                        return ctl_usage("'%s' has no name to give the copy; name it in the destination.", from);
                int r = path_join(to, name, &target);
                if (r < 0)
                        return r;
        }
        return send_entry(t, AT_FDCWD, from, from, target ? target : to, 0);
}

/* A new file beside the one to be, which takes its name once it is whole. What is no regular file (a pipe, /dev/stdout) is
 * written into as it is, if it was the user who named it: a guest's names would lead out of the destination that way. */
static int open_target(int dirfd, const char *name, uint32_t mode, char **ret_temporary) {
        bool named = dirfd == AT_FDCWD; /* all below is reached by a directory's descriptor */
        struct stat st;

        if (named && fstatat(dirfd, name, &st, 0) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
                int fd = openat(dirfd, name, O_WRONLY|O_CLOEXEC|O_NOCTTY);
                return fd < 0 ? -errno : fd;
        }

        const char *slash = strrchr(name, '/');
        int prefix = slash ? (int) (slash - name) + 1 : 0;
        for (unsigned i = 0; i < 100; i++) {
                _cleanup_free_ char *temporary = NULL;
                if (asprintf(&temporary, "%.*s.cubectl-%i-%u", prefix, name, (int) getpid(), i) < 0) {
                        temporary = NULL;
                        return -ENOMEM;
                }
                int fd = openat(dirfd, temporary, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, mode & 0777 & ~0077U);
                if (fd >= 0)
                        *ret_temporary = TAKE_PTR(temporary);
                if (fd >= 0 || errno != EEXIST)
                        return fd >= 0 ? fd : -errno;
        }
        return -EEXIST;
}

static int finish_target(int dirfd, int fd, const char *temporary, const char *name, uint32_t mode) {
        mode_t mask = umask(0);
        (void) umask(mask);

        /* Set-id and sticky bits of a guest mean nothing here. */
        if (fchmod(fd, mode & 0777 & ~mask) < 0)
                return -errno;
        return renameat(dirfd, temporary, dirfd, name) < 0 ? -errno : 0;
}

static int receive_stream(Transfer *t, int stream, int dirfd, const char *name, const GuestFile *f, const char *from,
                          const char *to) {
        _cleanup_free_ char *message = NULL, *temporary = NULL;

        _cleanup_close_ int fd = open_target(dirfd, name, f->mode, &temporary);
        if (fd < 0)
                return ctl_fail(fd, NULL, "create %s", to);

        int r = agent_file_receive(stream, fd, UINT64_MAX, &message);
        if (r >= 0 && temporary)
                r = finish_target(dirfd, fd, temporary, name, f->mode);
        if (r < 0) {
                if (temporary)
                        (void) unlinkat(dirfd, temporary, 0);
                return stream_failed(r, message, "copy", from, to);
        }
        return 0;
}

static int receive_file(Transfer *t, const char *from, int dirfd, const char *name, const char *to) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(guest_file_done) GuestFile f = {};
        int stream, r;

        r = t->user ? ctl_call_sandbox(t->bus, NULL, t->id, "CopyFrom", &reply, &error, "sa{sv}", from, 1, "user", "s",
                                       t->user)
                    : ctl_call_sandbox(t->bus, NULL, t->id, "CopyFrom", &reply, &error, "sa{sv}", from, 0);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &stream);
        if (r >= 0) {
                r = read_guest_file(reply, &f);
                r = r == 0 ? -EBADMSG : r;
        }
        if (r < 0)
                return ctl_fail(r, &error, "copy %s:%s to %s", t->id, from, to);
        return receive_stream(t, stream, dirfd, name, &f, from, to);
}

static int receive_entry(Transfer *t, const GuestFile *f, const char *from, int dirfd, const char *name, const char *to,
                         unsigned depth);

static int receive_child(Transfer *t, const GuestFile *f, const char *from, int dirfd, const char *to, unsigned depth) {
        _cleanup_free_ char *below = NULL, *target = NULL;
        _cleanup_(guest_file_done) GuestFile behind = {};

        if (!filename_valid(f->name))
                return skip(t, from, "holds a name that can't be one");
        int r = path_join(from, f->name, &below);
        if (r >= 0)
                r = path_join(to, f->name, &target);
        if (r < 0)
                return r;

        if (S_ISLNK(f->mode)) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                if (stat_guest(t, below, true, &behind, &error) < 0)
                        return skip(t, below, "a link to nowhere");
                if (S_ISDIR(behind.mode))
                        return skip(t, below, "a link to a directory");
                return receive_entry(t, &behind, below, dirfd, f->name, target, depth);
        }
        return receive_entry(t, f, below, dirfd, f->name, target, depth);
}

static int receive_directory(Transfer *t, const GuestFile *f, const char *from, int dirfd, const char *name,
                             const char *to, unsigned depth) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        if (!t->recursive)
                return ctl_usage("%s:%s is a directory; copy it with -r.", t->id, from);
        if (depth >= DEPTH_MAX)
                return skip(t, from, "too deep");

        if (mkdirat(dirfd, name, (f->mode & 0777) | 0700) < 0 && errno != EEXIST)
                return ctl_fail(-errno, NULL, "create directory %s", to);
        /* Below the top, a link that stands where a directory should be is not followed. */
        _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY|O_DIRECTORY|O_CLOEXEC|(depth > 0 ? O_NOFOLLOW : 0));
        if (fd < 0)
                return ctl_fail(-errno, NULL, "open directory %s", to);

        int r = ctl_call_sandbox(t->bus, NULL, t->id, "ListDirectory", &reply, &error, "s", from);
        if (r >= 0)
                r = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_FILE ")");
        if (r < 0)
                return ctl_fail(r, &error, "list %s:%s", t->id, from);

        for (;;) {
                _cleanup_(guest_file_done) GuestFile child = {};
                r = read_guest_file(reply, &child);
                if (r <= 0)
                        return r;
                r = receive_child(t, &child, from, fd, to, depth + 1);
                if (r < 0)
                        return r;
        }
}

static int receive_entry(Transfer *t, const GuestFile *f, const char *from, int dirfd, const char *name, const char *to,
                         unsigned depth) {
        if (S_ISDIR(f->mode))
                return receive_directory(t, f, from, dirfd, name, to, depth);
        if (depth > 0 && !S_ISREG(f->mode))
                return skip(t, from, "neither a file nor a directory");
        return receive_file(t, from, dirfd, name, to);
}

int transfer_from(Transfer *t, const char *from, const char *to, bool into) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *name = NULL, *target = NULL;
        _cleanup_(guest_file_done) GuestFile f = {};

        int r = stat_guest(t, from, true, &f, &error);
        if (r < 0)
                return ctl_fail(r, &error, "copy %s:%s", t->id, from);
        if (into) {
                name = path_last(from);
                if (!name)
                        return ctl_usage("'%s' has no name to give the copy; name it in the destination.", from);
                r = path_join(to, name, &target);
                if (r < 0)
                        return r;
        }
        to = target ? target : to;
        return receive_entry(t, &f, from, AT_FDCWD, to, to, 0);
}
