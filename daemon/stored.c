/* SPDX-License-Identifier: Apache-2.0 */

/* cube-stored: file system work for cubed, which asks on fd 3 and never waits for a disk itself.
 *
 * One thread that works on one request after the other. Reaches nothing outside the directory that
 * the first request brings. Ends when cubed closes the socket. */

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <signal.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "daemon/store-proto.h"

#define STORED_FD 3
#define STORED_PACKET_MAX 65536U
/* Levels of directories that are followed down; our own trees have three. */
#define REMOVE_DEPTH_MAX 64U

typedef struct Stored {
        int root_fd;
} Stored;

static int open_beneath(int root_fd, const char *path, int flags) {
        struct open_how how = {
                .flags = (uint64_t) (flags|O_CLOEXEC),
                .resolve = RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_XDEV,
        };
        long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        return fd < 0 ? -errno : (int) fd;
}

/* The directory that path lies in, and its last component (points into path). */
static int open_parent(const Stored *s, char *path, int *ret_fd, const char **ret_name) {
        char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;

        if (!*name || streq(name, ".") || streq(name, ".."))
                return -EINVAL;
        if (slash)
                *slash = 0;
        int fd = open_beneath(s->root_fd, slash ? path : ".", O_RDONLY|O_DIRECTORY);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        *ret_name = name;
        return 0;
}

/* An explicit stack in place of recursion: the depth of a tree is input. */
typedef struct RemoveStack {
        DIR *dir[REMOVE_DEPTH_MAX];
        char name[REMOVE_DEPTH_MAX][256];
        size_t n;
} RemoveStack;

static void remove_stack_done(RemoveStack *k) {
        while (k->n > 0)
                closedir(k->dir[--k->n]);
}

static int push_directory(RemoveStack *k, int parent_fd, const char *name) {
        if (k->n == REMOVE_DEPTH_MAX || strlen(name) >= sizeof(k->name[0]))
                return -ELOOP;
        _cleanup_close_ int fd = openat(parent_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        DIR *d = fdopendir(fd);
        if (!d)
                return -errno;
        (void) TAKE_FD(fd);
        memcpy(k->name[k->n], name, strlen(name) + 1);
        k->dir[k->n++] = d;
        return 0;
}

static int remove_one(RemoveStack *k, int parent_fd, const char *name) {
        if (unlinkat(parent_fd, name, 0) >= 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        return push_directory(k, parent_fd, name);
}

static int remove_tree(int parent_fd, const char *name) {
        _cleanup_(remove_stack_done) RemoveStack k = {};

        int r = remove_one(&k, parent_fd, name);
        while (r >= 0 && k.n > 0) {
                DIR *d = k.dir[k.n - 1];
                errno = 0;
                struct dirent *e = readdir(d);
                if (e && (streq(e->d_name, ".") || streq(e->d_name, "..")))
                        continue;
                if (e)
                        r = remove_one(&k, dirfd(d), e->d_name);
                else if (errno)
                        r = -errno;
                else {
                        closedir(d);
                        k.n--;
                        int fd = k.n > 0 ? dirfd(k.dir[k.n - 1]) : parent_fd;
                        if (unlinkat(fd, k.name[k.n], AT_REMOVEDIR) < 0 && errno != ENOENT)
                                r = -errno;
                }
        }
        return r;
}

static int do_remove(const Stored *s, char *path) {
        _cleanup_close_ int dir = -EBADF;
        const char *name;

        int r = open_parent(s, path, &dir, &name);
        if (r == -ENOENT)
                return 0;
        return r < 0 ? r : remove_tree(dir, name);
}

static int do_rename(const Stored *s, char *from, char *to) {
        _cleanup_close_ int from_dir = -EBADF, to_dir = -EBADF;
        const char *from_name, *to_name;

        int r = open_parent(s, from, &from_dir, &from_name);
        if (r >= 0)
                r = open_parent(s, to, &to_dir, &to_name);
        if (r < 0)
                return r;
        if (renameat(from_dir, from_name, to_dir, to_name) < 0)
                return -errno;
        return fsync(to_dir) < 0 || fsync(from_dir) < 0 ? -errno : 0;
}

static int do_root(Stored *s, int *fds, size_t n_fds) {
        struct stat st;

        if (n_fds != 1 || fstat(fds[0], &st) < 0 || !S_ISDIR(st.st_mode))
                return -EBADF;
        safe_close(s->root_fd);
        s->root_fd = TAKE_FD(fds[0]);
        return 0;
}

static int work(Stored *s, const PacketHeader *h, const uint8_t *body, int *fds, size_t n_fds) {
        _cleanup_free_ char *path = NULL, *target = NULL;
        TlvReader reader = TLV_READER_INIT(body, h->len);
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                char **field = t.tag == STORE_TAG_PATH ? &path : t.tag == STORE_TAG_TARGET ? &target : NULL;
                if (!field || *field)
                        return -EBADMSG;
                r = tlv_get_str(&t, field);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        if (h->op == STORE_OP_ROOT)
                return do_root(s, fds, n_fds);
        if (s->root_fd < 0)
                return -EPROTO;

        switch (h->op) {
        case STORE_OP_SYNC:
                if (n_fds != 1)
                        return -EBADF;
                return fsync(fds[0]) < 0 ? -errno : 0;
        case STORE_OP_RENAME:
                return path && target ? do_rename(s, path, target) : -EBADMSG;
        case STORE_OP_REMOVE:
                return path ? do_remove(s, path) : -EBADMSG;
        default:
                return -EOPNOTSUPP;
        }
}

static int handle(Stored *s, const uint8_t *packet, size_t size, int *fds, size_t n_fds) {
        PacketHeader h;

        if (size < sizeof(h))
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != STORE_PROTO_MAGIC || h.version != STORE_PROTO_VERSION || h.len != size - sizeof(h))
                return -EBADMSG;

        PacketHeader answer = {
                .magic = STORE_PROTO_MAGIC,
                .version = STORE_PROTO_VERSION,
                .op = h.op,
                .flags = PACKET_FLAG_REPLY,
                .seq = h.seq,
                .error = work(s, &h, packet + sizeof(h), fds, n_fds),
        };
        struct iovec iov = { &answer, sizeof(answer) };
        return send_packet(STORED_FD, &iov, 1, NULL, 0);
}

static int run(void) {
        static uint8_t packet[STORED_PACKET_MAX];
        Stored s = { .root_fd = -EBADF };

        for (;;) {
                int fds[PACKET_FDS_LIMIT];
                size_t n_fds;

                ssize_t n = recv_packet(STORED_FD, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
                if (n <= 0)
                        return (int) n;
                int r = handle(&s, packet, (size_t) n, fds, n_fds);
                close_many(fds, n_fds);
                if (r < 0)
                        return r == -EPIPE || r == -ECONNRESET ? 0 : r;
        }
}

int main(int argc, char *argv[]) {
        struct stat st;

        if (argc == 2 && streq(argv[1], "--version")) {
                puts("cube-stored " CUBED_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc != 1 || fstat(STORED_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fputs("cube-stored is started by cubed, with a socket as fd 3.\n", stderr);
                return EXIT_FAILURE;
        }

        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) fd_set_cloexec(STORED_FD, true);
        int r = run();
        if (r < 0) {
                fprintf(stderr, "cube-stored: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
