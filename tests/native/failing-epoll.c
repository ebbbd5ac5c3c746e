/* SPDX-License-Identifier: Apache-2.0 */

/* Loaded into the harness before libc: while the file that $FAILING_EPOLL names is there, the kernel has no room to watch the
 * output of a program. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_output(int fd, const struct epoll_event *event) {
        const unsigned events = EPOLLIN|EPOLLRDHUP;
        struct stat st;

        return (event->events & events) == events && fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event) {
        int (*real)(int epfd, int op, int fd, struct epoll_event *event) = dlsym(RTLD_NEXT, "epoll_ctl");
        const char *file = getenv("FAILING_EPOLL");

        if (op == EPOLL_CTL_ADD && is_output(fd, event) && file && access(file, F_OK) == 0) {
                errno = ENOSPC;
                return -1;
        }
        return real(epfd, op, fd, event);
}
