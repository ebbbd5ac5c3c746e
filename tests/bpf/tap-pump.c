/* SPDX-License-Identifier: Apache-2.0 */

/* Moves frames, virtio-net headers included, between two taps that it inherits as fds 3 and 4: stands for a VMM
 * whose guest is the stack of another namespace. Ends when its parent does. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAME_MAX (66U * 1024U)
#define BURST 64

static int move(int from, int to) {
        static char frame[FRAME_MAX];

        for (int i = 0; i < BURST; i++) {
                ssize_t n = read(from, frame, sizeof(frame));
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                /* A tap that is down drops what it is given. */
                if (write(to, frame, (size_t) n) < 0 && errno != EIO && errno != EAGAIN && errno != EINVAL)
                        return -errno;
        }
        return 0;
}

int main(void) {
        struct pollfd p[2] = { { .fd = 3, .events = POLLIN }, { .fd = 4, .events = POLLIN } };

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
                if (poll(p, 2, -1) < 0)
                        return 1;
                if (move(3, 4) < 0 || move(4, 3) < 0)
                        return 1;
        }
}
