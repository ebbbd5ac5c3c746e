/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/agent-file.h"
#include "base/fd-util.h"
#include "base/tlv.h"
#include "daemon/copy-proto.h"
#include "daemon/image/copy-in.h"

#define DEPTH_MAX 128U
/* Of a path, in a message: its end. */
#define SHOWN_MAX 140U
/* Set-id bits are for the owner that a file has here, and there it is root's. */
#define MODE_KEPT 01777U

typedef struct Level {
        DIR *dir;
        size_t path_size;          /* of the directory itself */
} Level;

typedef struct Copying {
        int socket_fd;
        char path[PATH_MAX];       /* of what is being copied, in the guest */
        size_t shown;              /* where in it begins what people are told */
        Level levels[DEPTH_MAX];
        size_t n_levels;
        Fault *fault;
} Copying;

static void copying_done(Copying *c) {
        while (c->n_levels > 0)
                (void) closedir(c->levels[--c->n_levels].dir);
}

static const char *shown(const Copying *c) {
        return c->path[c->shown] ? c->path + c->shown : c->path;
}

static int failed(const Copying *c, int r, const char *what) {
        const char *path = shown(c);
        size_t n = strlen(path);
        bool cut = n > SHOWN_MAX;

        return fault_set(c->fault, r, "%s%s: %s", cut ? "..." : "", cut ? path + n - SHOWN_MAX : path,
                         isempty(what) ? strerror(-r) : what);
}

/* What the guest or cubed said about a request; a file's comes with a stream. */
static int take_answer(const Copying *c, int *ret_stream) {
        char packet[sizeof(CopyAnswer) + COPY_TEXT_MAX];
        _cleanup_close_ int stream = -EBADF;
        CopyAnswer h;
        size_t n_fds;

        ssize_t n = recv_packet(c->socket_fd, packet, sizeof(packet) - 1, &stream, 1, &n_fds);
        if (n == 0)
                return failed(c, -ECONNRESET, "the build ended");
        if (n < (ssize_t) sizeof(h))
                return failed(c, n < 0 ? (int) n : -EBADMSG, NULL);
        memcpy(&h, packet, sizeof(h));
        packet[n] = 0;
        if (h.error > 0 || h.error < -4095)
                return failed(c, -EBADMSG, NULL);
        if (h.error < 0)
                return failed(c, h.error, packet + sizeof(h));
        if (ret_stream && stream < 0)
                return failed(c, -EBADMSG, NULL);
        if (ret_stream)
                *ret_stream = TAKE_FD(stream);
        return 0;
}

static int ask(const Copying *c, AgentFrameType type, const TlvWriter *body, int *ret_stream) {
        CopyRequest h = { .type = (uint32_t) type };

        int r = tlv_writer_finish(body);
        if (r >= 0) {
                struct iovec iov[2] = { { &h, sizeof(h) }, { body->data, body->size } };
                r = send_packet(c->socket_fd, iov, 2, NULL, 0);
        }
        return r < 0 ? failed(c, r, NULL) : take_answer(c, ret_stream);
}

static int make_directory(const Copying *c, const char *path, mode_t mode) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(COPY_BODY_MAX);

        tlv_put_str(&w, AGENT_TAG_PATH, path);
        tlv_put_u32(&w, AGENT_TAG_MODE, mode & MODE_KEPT);
        tlv_put_u32(&w, AGENT_TAG_PARENTS, 1);
        return ask(c, AGENT_MKDIR, &w, NULL);
}

static int copy_link(const Copying *c, int dir_fd, const char *name) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(COPY_BODY_MAX);
        char target[PATH_MAX];

        ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);
        if (n < 0)
                return failed(c, -errno, NULL);
        target[n] = 0;
        tlv_put_str(&w, AGENT_TAG_PATH, c->path);
        tlv_put_str(&w, AGENT_TAG_LINK, target);
        return ask(c, AGENT_SYMLINK, &w, NULL);
}

static int copy_file(const Copying *c, int fd, const struct stat *st) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(COPY_BODY_MAX);
        _cleanup_close_ int stream = -EBADF;
        _cleanup_free_ char *message = NULL;

        tlv_put_str(&w, AGENT_TAG_PATH, c->path);
        tlv_put_u32(&w, AGENT_TAG_MODE, st->st_mode & MODE_KEPT);
        tlv_put_u64(&w, AGENT_TAG_SIZE, (uint64_t) st->st_size);
        int r = ask(c, AGENT_STREAM_WRITE, &w, &stream);
        if (r < 0)
                return r;
        r = agent_file_send(stream, fd, (uint64_t) st->st_size, &message);
        if (r == -ENODATA)
                return failed(c, r, "it became shorter meanwhile");
        return r < 0 ? failed(c, r, message) : 0;
}

/* Takes fd, also when it fails. */
static int enter(Copying *c, int dir_fd, const struct stat *st) {
        _cleanup_close_ int fd = dir_fd;

        if (c->n_levels == DEPTH_MAX)
                return failed(c, -ELOOP, "too many directories below each other");
        int r = make_directory(c, c->path, st->st_mode);
        if (r < 0)
                return r;
        DIR *d = fdopendir(fd);
        if (!d)
                return failed(c, -errno, NULL);
        (void) TAKE_FD(fd);
        /* The first one is shared with whoever opened it. */
        rewinddir(d);
        c->levels[c->n_levels++] = (Level) { d, strlen(c->path) };
        return 0;
}

/* Takes fd. */
static int copy_opened(Copying *c, int opened) {
        _cleanup_close_ int fd = opened;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return failed(c, -errno, NULL);
        if (S_ISDIR(st.st_mode))
                return enter(c, TAKE_FD(fd), &st);
        if (S_ISREG(st.st_mode))
                return copy_file(c, fd, &st);
        return failed(c, -EINVAL, "neither a file nor a directory nor a symbolic link");
}

static int copy_entry(Copying *c, const Level *l, const char *name) {
        struct stat st;

        if ((size_t) snprintf(c->path + l->path_size, sizeof(c->path) - l->path_size, "/%s", name) >=
            sizeof(c->path) - l->path_size)
                return failed(c, -ENAMETOOLONG, NULL);
        if (fstatat(dirfd(l->dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return failed(c, -errno, NULL);
        if (S_ISLNK(st.st_mode))
                return copy_link(c, dirfd(l->dir), name);
        /* Non-blocking: a FIFO is found out, not waited for. */
        int fd = openat(dirfd(l->dir), name, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
        return fd < 0 ? failed(c, -errno, NULL) : copy_opened(c, fd);
}

static int copy_tree(Copying *c) {
        while (c->n_levels > 0) {
                Level *l = &c->levels[c->n_levels - 1];

                errno = 0;
                struct dirent *e = readdir(l->dir);
                c->path[l->path_size] = 0;
                if (!e && errno != 0)
                        return failed(c, -errno, NULL);
                if (!e) {
                        (void) closedir(l->dir);
                        c->n_levels--;
                        continue;
                }
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                int r = copy_entry(c, l, e->d_name);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int make_parents(const Copying *c) {
        _cleanup_free_ char *above = strdup(c->path);
        if (!above)
                return -ENOMEM;

        char *slash = strrchr(above, '/');
        if (slash == above)
                return 0;
        *slash = 0;
        return make_directory(c, above, 0755);
}

int copy_in(int source_fd, int socket_fd, const char *path, Fault *fault) {
        _cleanup_(copying_done) Copying c = { .socket_fd = socket_fd, .fault = fault };

        if (*path != '/' || strlen(path) >= sizeof(c.path))
                return fault_set(fault, -EINVAL, "malformed arguments");
        c.shown = strlen(path) + 1;
        strcpy(c.path, path);
        int r = make_parents(&c);
        if (r < 0)
                return r;
        int fd = fcntl(source_fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return failed(&c, -errno, NULL);
        r = copy_opened(&c, fd);
        return r < 0 ? r : copy_tree(&c);
}
