/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd-util.h"

#define PACKET_FDS_MAX 64U

static int fd_change_flag(int fd, int get, int set, int flag, bool on) {
        int flags = fcntl(fd, get);
        if (flags < 0)
                return -errno;

        int want = on ? flags | flag : flags & ~flag;
        if (want != flags && fcntl(fd, set, want) < 0)
                return -errno;
        return 0;
}

int fd_set_nonblock(int fd, bool on) {
        return fd_change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on) {
        return fd_change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int read_full(int fd, void *buf, size_t size) {
        uint8_t *p = buf;

        while (size > 0) {
                ssize_t n = read(fd, p, size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        return -EPIPE;
                p += n;
                size -= (size_t) n;
        }
        return 0;
}

int write_full(int fd, const void *buf, size_t size) {
        const uint8_t *p = buf;

        while (size > 0) {
                ssize_t n = write(fd, p, size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                p += n;
                size -= (size_t) n;
        }
        return 0;
}

int read_whole(int fd, size_t max, char **ret, size_t *ret_size) {
        _cleanup_free_ char *buf = NULL;
        size_t size = 0, allocated = 0;

        for (;;) {
                if (size == allocated) {
                        if (allocated > max)
                                return -EFBIG;
                        allocated = MIN(allocated * 2 + 4096, max + 1);
                        char *b = realloc(buf, allocated + 1);
                        if (!b)
                                return -ENOMEM;
                        buf = b;
                }

                ssize_t n = read(fd, buf + size, allocated - size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                size += (size_t) n;
                if (size > max)
                        return -EFBIG;
        }

        buf[size] = 0;
        if (ret_size)
                *ret_size = size;
        *ret = TAKE_PTR(buf);
        return 0;
}

int read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size) {
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
        if (fd < 0)
                return -errno;

        return read_whole(fd, max, ret, ret_size);
}

int send_packet(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        union {
                struct cmsghdr align;
                uint8_t bytes[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
        } control = {};
        struct msghdr mh = { .msg_iov = (struct iovec *) iov, .msg_iovlen = n_iov };

        if (n_fds > PACKET_FDS_MAX)
                return -E2BIG;

        if (n_fds > 0) {
                mh.msg_control = control.bytes;
                mh.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);

                struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }

        for (;;) {
                if (sendmsg(fd, &mh, MSG_NOSIGNAL) >= 0)
                        return 0;
                if (errno != EINTR)
                        return -errno;
        }
}

static void collect_fds(struct msghdr *mh, int *fds, size_t max, size_t *n_fds, bool *overflow) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;

                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        int received;
                        memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (*n_fds < max)
                                fds[(*n_fds)++] = received;
                        else {
                                safe_close(received);
                                *overflow = true;
                        }
                }
        }
}

ssize_t recv_packet(int fd, void *buf, size_t size, int *ret_fds, size_t max_fds, size_t *ret_n_fds) {
        union {
                struct cmsghdr align;
                uint8_t bytes[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
        } control;
        struct iovec iov = { .iov_base = buf, .iov_len = size };
        struct msghdr mh = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        bool overflow = false;
        size_t n_fds = 0;
        ssize_t n;

        do
                n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;

        collect_fds(&mh, ret_fds, max_fds, &n_fds, &overflow);
        if (overflow || (mh.msg_flags & (MSG_TRUNC|MSG_CTRUNC))) {
                close_many(ret_fds, n_fds);
                return -EMSGSIZE;
        }
        /* To its readers a packet without a byte is the end, where nobody looks for descriptors. */
        if (n == 0) {
                close_many(ret_fds, n_fds);
                n_fds = 0;
        }

        *ret_n_fds = n_fds;
        return n;
}

void close_many(int *fds, size_t n) {
        for (size_t i = 0; i < n; i++)
                fds[i] = safe_close(fds[i]);
}
