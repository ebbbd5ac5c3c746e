/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "guest/freeze.h"
#include "guest/log.h"
#include "guest/machine.h"
#include "guest/shutdown.h"

#define TERM_WAIT_USEC (2U * USEC_PER_SEC)
#define KILL_WAIT_USEC (500U * USEC_PER_MSEC)

static void on_shutdown_timer(LoopSource *s, uint32_t events) {
        Agent *a = s->userdata;

        if (a->shutdown_step++ == 0) {
                log_warning("some processes did not end, killing them");
                (void) kill(-1, SIGKILL);
                if (loop_set_timer(&a->shutdown_timer, KILL_WAIT_USEC) >= 0)
                        return;
        }
        a->loop.stop = true;
}

void shutdown_start(Agent *a) {
        if (a->stopping)
                return;
        a->stopping = true;
        log_info("powering off");
        /* Who waits to write could not end. */
        (void) freeze_end(a);
        hooks_stop(a);

        /* Every process but this one; those of the kernel don't care. */
        (void) kill(-1, SIGTERM);
        (void) kill(-1, SIGCONT);
        if (loop_add_timer(&a->loop, &a->shutdown_timer, TERM_WAIT_USEC, on_shutdown_timer, a) < 0)
                a->loop.stop = true;
        /* The signal handler looks for children again, of which there may be none. */
        (void) kill(getpid(), SIGCHLD);
}

void shutdown_no_children(Agent *a) {
        if (a->stopping)
                a->loop.stop = true;
}

void handle_poweroff(Agent *a, Request *q, Reply reply) {
        reply_ok(&reply, NULL);
        shutdown_start(a);
}
