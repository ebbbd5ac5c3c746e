/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "guest/claim.h"
#include "guest/log.h"
#include "guest/machine.h"

/* Entropy first: nothing that happens after it may repeat what another clone does. */
static int claim(const Request *q, char message[static MACHINE_MESSAGE_MAX]) {
        int r = 0;

        snprintf(message, MACHINE_MESSAGE_MAX, "entropy");
        if (q->entropy_size > 0)
                r = machine_add_entropy(q->entropy, q->entropy_size);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "time");
        if (request_has(q, AGENT_TAG_REALTIME_NSEC))
                r = machine_set_time(q->realtime_nsec);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "host name");
        if (q->hostname)
                r = machine_set_hostname(q->hostname);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "CPUs");
        return q->cpus > 1 ? machine_set_cpus(q->cpus, message) : 0;
}

void handle_claim(Agent *a, Request *q, Reply reply) {
        char message[MACHINE_MESSAGE_MAX];

        int r = claim(q, message);
        if (r < 0) {
                log_error("claim failed at %s: %s", message, strerror(-r));
                reply_error(&reply, r, "%s: %s", message, strerror(-r));
                return;
        }

        if (request_has(q, AGENT_TAG_DISK_BYTES)) {
                r = machine_grow_disk(q->disk_bytes);
                if (r < 0) {
                        reply_error(&reply, r, "growing the disk: %s", strerror(-r));
                        return;
                }
        }

        a->claimed = true;
        reply_ok(&reply, NULL);
}

void handle_set_time(Agent *a, Request *q, Reply reply) {
        reply_result(&reply, machine_set_time(q->realtime_nsec), "setting the time");
}

void handle_add_entropy(Agent *a, Request *q, Reply reply) {
        reply_result(&reply, machine_add_entropy(q->entropy, q->entropy_size), "adding entropy");
}
