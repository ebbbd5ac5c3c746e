/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
#include <sys/stat.h>

#include "guest/agent.h"
#include "guest/log.h"
#include "guest/process.h"
#include "guest/shutdown.h"
#include "guest/stream.h"

/* Three pipes each for the live processes and the exited ones that nobody has read yet, and streams. */
#define AGENT_NOFILE 16384U

static int agent_start(Agent *a, const char *hooks_path, uint64_t hooks_usec, bool loopback) {
        struct rlimit limit = { .rlim_cur = AGENT_NOFILE, .rlim_max = 524288 };

        (void) setrlimit(RLIMIT_NOFILE, &limit);
        umask(0); /* modes are what the request says */

        *a = (Agent) {
                .listen_fd = -EBADF,
                .signal_fd = -EBADF,
                .hooks = { .path = hooks_path, .limit_usec = hooks_usec, .output_fd = -EBADF },
        };
        int r = loop_init(&a->loop);
        if (r < 0)
                return r;
        if (loopback)
                loopback_start(&a->loopback, &a->loop);
        r = processes_init(a);
        if (r < 0)
                return r;
        r = streams_listen(a);
        if (r < 0)
                return r;
        return control_start(&a->control, a);
}

static void agent_done(Agent *a) {
        hooks_stop(a);
        envd_done(a);
        streams_done(a);
        if (a->control.agent)
                control_done(&a->control);
        processes_done(a);
        loopback_done(&a->loopback);
        loop_remove(&a->shutdown_timer);
        loop_done(&a->loop);
}

int agent_run(const char *hooks_path, uint64_t hooks_usec, bool loopback) {
        static Agent agent;

        int r = agent_start(&agent, hooks_path, hooks_usec, loopback);
        if (r >= 0)
                r = loop_run(&agent.loop);
        agent_done(&agent);
        return r;
}
