/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/fd-util.h"
#include "tests/unit/failing-fsync.h"

static int install_filter(void) {
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_fsync, 0, 1),
                BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_USER_NOTIF),
                BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { .len = ELEMENTSOF(code), .filter = code };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        int fd = (int) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
        return fd < 0 ? -errno : fd;
}

int failing_fsync_confine(int socket_fd) {
        char byte = 0;
        struct iovec iov = { &byte, 1 };
        _cleanup_close_ int fd = install_filter();

        return fd < 0 ? fd : send_packet(socket_fd, &iov, 1, &fd, 1);
}

static void judge(FailingFsync *f, const struct seccomp_notif *call) {
        struct seccomp_notif_resp answer = { .id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

        if (atomic_fetch_add(&f->n_calls, 1) + 1 == atomic_load(&f->fail_at)) {
                answer.flags = 0;
                answer.error = -EIO;
        }
        /* ENOENT: the process was killed meanwhile */
        (void) ioctl(f->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

/* Until nobody is left who could call. */
static void *run(void *userdata) {
        FailingFsync *f = userdata;
        struct pollfd p = { .fd = f->listener, .events = POLLIN };

        while (poll(&p, 1, -1) > 0 && !(p.revents & POLLHUP)) {
                struct seccomp_notif call = {};

                if (ioctl(f->listener, SECCOMP_IOCTL_NOTIF_RECV, &call) >= 0)
                        judge(f, &call);
        }
        return NULL;
}

int failing_fsync_start(FailingFsync *f, int socket_fd) {
        size_t n_fds;
        char byte;

        ssize_t n = recv_packet(socket_fd, &byte, 1, &f->listener, 1, &n_fds);
        if (n <= 0 || n_fds != 1)
                return n < 0 ? (int) n : -EBADMSG;
        return -pthread_create(&f->thread, NULL, run, f);
}

void failing_fsync_set(FailingFsync *f, unsigned nth) {
        atomic_store(&f->n_calls, 0);
        atomic_store(&f->fail_at, nth);
}

void failing_fsync_stop(FailingFsync *f) {
        (void) pthread_join(f->thread, NULL);
        safe_close(f->listener);
}
