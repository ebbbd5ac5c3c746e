/* SPDX-License-Identifier: Apache-2.0 */
/* cube-agent: PID 1 of a guest, first in the initramfs, then in the user's root. */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "base/tlv.h"
#include "guest/agent.h"
#include "guest/boot.h"
#include "guest/log.h"
#include "guest/machine.h"
#include "guest/outbox.h"
#include "guest/transport.h"

/* How long the host may take to accept the news of a failed boot. */
#define REPORT_TRIES 50U
#define REPORT_WAIT_MSEC 200

#define HOOKS_DIRECTORY "/etc/cube/fork.d"
#define HOOKS_USEC (10U * USEC_PER_SEC)

static int connect_host(void) {
        for (unsigned i = 0; i < REPORT_TRIES; i++) {
                _cleanup_close_ int fd = -EBADF;
                int error = 0, r = transport_connect(&fd);
                socklen_t size = sizeof(error);

                if (r == 0) {
                        struct pollfd p = { .fd = fd, .events = POLLOUT };
                        (void) poll(&p, 1, REPORT_WAIT_MSEC);
                        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0 ||
                            p.revents != POLLOUT)
                                r = -ECONNREFUSED;
                }
                if (r >= 0)
                        return TAKE_FD(fd);
                (void) poll(NULL, 0, REPORT_WAIT_MSEC);
        }
        return -ETIMEDOUT;
}

/* The host learns why before the guest is gone: AGENT_ERROR with id 0 in place of AGENT_READY. */
static void report_boot_failure(int error, const char *message) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_close_ int fd = connect_host();
        Outbox out = {};
        char byte;

        if (fd < 0) {
                log_error("host not reached: %s", strerror(-fd));
                return;
        }
        tlv_put_u32(&w, AGENT_TAG_ERRNO, (uint32_t) -error);
        tlv_put_str(&w, AGENT_TAG_MESSAGE, message);
        if (tlv_writer_finish(&w) < 0 || outbox_put_frame(&out, AGENT_ERROR, 0, 0, w.data, w.size) < 0)
                return;

        (void) fd_set_nonblock(fd, false);
        (void) outbox_flush(&out, fd);
        outbox_done(&out);

        /* Until the host has taken it and closes, or a moment. */
        struct pollfd p = { .fd = fd, .events = POLLIN };
        (void) shutdown(fd, SHUT_WR);
        if (poll(&p, 1, 1000) > 0)
                (void) !read(fd, &byte, 1);
}

int main(void) {
        char message[DISK_MESSAGE_MAX] = "";

        if (getpid() != 1) {
                fprintf(stderr, "cube-agent runs as PID 1 of a guest.\n");
                return EXIT_FAILURE;
        }

        boot_kernel();
        int r = boot_root(message);
        if (r < 0) {
                log_error("boot failed: %s", message);
                report_boot_failure(r, message);
                machine_poweroff();
        }

        machine_set_memory_pressure();
        log_info("root mounted, serving the host");
        r = agent_run(HOOKS_DIRECTORY, HOOKS_USEC, true);
        if (r < 0)
                log_error("agent failed: %s", strerror(-r));
        machine_poweroff();
}
