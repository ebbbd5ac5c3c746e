/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "daemon/nss-child.h"

static int read_answer(int fd, uint64_t timeout_usec, uint8_t *buf, size_t max, size_t *ret_size) {
        uint64_t deadline = now_usec() + timeout_usec;
        size_t size = 0;

        while (size < max) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                uint64_t now = now_usec();
                int n = poll(&p, 1, (int) MIN((deadline - MIN(now, deadline)) / USEC_PER_MSEC, 60000U));
                ssize_t k = n > 0 ? read(fd, buf + size, max - size) : 0;

                if (n == 0)
                        return -ETIMEDOUT;
                if ((n < 0 || k < 0) && errno != EINTR)
                        return -errno;
                if (n > 0 && k == 0)
                        break;
                size += k > 0 ? (size_t) k : 0;
        }
        *ret_size = size;
        return 0;
}

int nss_child_ask(NssChild f, const void *arg, uint64_t timeout_usec, void *ret, size_t max, size_t *ret_size) {
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        in = ends[0];
        out = ends[1];
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                f(out, arg);
                _exit(0);
        }
        out = safe_close(out);

        int r = read_answer(in, timeout_usec, ret, max, ret_size);
        (void) kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return r;
}
