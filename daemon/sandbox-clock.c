/* SPDX-License-Identifier: Apache-2.0 */

/* The guest's clock. What it is told of the time is as old as the way there took: milliseconds, or seconds where a guest has to
 * wait for a CPU. A claim has the time in it as well, as old as the boot. */

#include "base/agent-proto.h"
#include "daemon/sandbox-private.h"

/* An answer that took longer than this makes it be told again, so many times. */
#define LATE_USEC (100 * USEC_PER_MSEC)
#define TIMES_MAX 5U
/* Nobody waits longer for one of them. */
#define ANSWER_USEC (5 * USEC_PER_SEC)

bool sandbox_time_is_late(uint64_t sent_usec) {
        return clock_usec(CLOCK_MONOTONIC) - sent_usec > LATE_USEC;
}

static void time_told(Sandbox *s) {
        void (*told)(Sandbox *) = s->priv->time_told;

        s->priv->time_told = NULL;
        if (told)
                told(s);
}

static int tell(Sandbox *s);

static void on_told(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more, void *userdata) {
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;

        /* Its end, or that of the guest that was told, is told by others. */
        if (more || error == -ECONNRESET)
                return;
        /* One that has no CPU now, or is paused, still has it before it: when it takes it, it sets its clock back. */
        bool aged = error == -ETIMEDOUT || (error >= 0 && sandbox_time_is_late(p->time_sent_usec));
        bool again = aged && p->n_times_told < TIMES_MAX && tell(s) >= 0;
        if (error < 0 || !again)
                time_told(s);
}

static int tell(Sandbox *s) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);
        struct SandboxPrivate *p = s->priv;

        p->n_times_told++;
        p->time_sent_usec = clock_usec(CLOCK_MONOTONIC);
        tlv_put_u64(&w, AGENT_TAG_REALTIME_NSEC, clock_usec(CLOCK_REALTIME) * NSEC_PER_USEC);
        return p->vmm ? vmm_client_agent(p->vmm, AGENT_SET_TIME, &w, ANSWER_USEC, on_told, s) : -ENOTCONN;
}

void sandbox_tell_time(Sandbox *s, void (*told)(Sandbox *s)) {
        s->priv->time_told = told;
        s->priv->n_times_told = 0;
        if (tell(s) < 0)
                time_told(s);
}
