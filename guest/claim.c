/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "guest/claim.h"
#include "guest/log.h"
#include "guest/machine.h"
#include "guest/net.h"
#include "guest/stream.h"

static int set_nameservers(const StringList *servers) {
        char text[AGENT_NAMESERVERS_MAX * 64] = "";
        size_t n = 0;

        for (size_t i = 0; i < servers->n; i++)
                n += (size_t) snprintf(text + n, sizeof(text) - n, "nameserver %s\n", servers->items[i]);
        return machine_set_nameservers(text);
}

/* A kernel without a driver for the card is no worse off than one without a network. */
static int set_network(Agent *a, const Request *q, char message[static MACHINE_MESSAGE_MAX]) {
        int r = 0;

        static_assert(NET_MESSAGE_MAX <= MACHINE_MESSAGE_MAX, "one buffer for both");
        if (q->network.n_networks > 0) {
                r = net_configure(&q->network, &a->network, message);
                loopback_set_card(&a->loopback, net_card());
        }
        if (r == -ENODEV) {
                log_warning("there is no network card, or no driver for it");
                r = 0;
        }
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "name servers");
        return q->nameservers.n > 0 ? set_nameservers(&q->nameservers) : 0;
}

/* Entropy first: nothing that happens after it may repeat what another copy does. A file system that was
 * frozen comes back before the first that writes to it. */
static int claim(Agent *a, const Request *q, char message[static MACHINE_MESSAGE_MAX]) {
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

        snprintf(message, MACHINE_MESSAGE_MAX, "thawing the file system");
        r = freeze_end(a);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "host name");
        if (q->hostname)
                r = machine_set_hostname(q->hostname);
        if (r < 0)
                return r;

        r = set_network(a, q, message);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "CPUs");
        if (q->cpus > 1)
                r = machine_set_cpus(q->cpus, message);
        if (r < 0)
                return r;

        snprintf(message, MACHINE_MESSAGE_MAX, "growing the disk");
        return request_has(q, AGENT_TAG_DISK_BYTES) ? machine_grow_disk(q->disk_bytes) : 0;
}

static void claim_done(Agent *a, const char *failures) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);

        a->claimed = true;
        a->epoch++;
        cpu_times_read(&a->claim_cpu);
        if (failures)
                tlv_put_str(&w, AGENT_TAG_MESSAGE, failures);
        reply_ok(&a->claim_reply, &w);
        envd_resume(a);
}

/* The claim before was that of the guest that this is a copy of. */
static void supersede(Agent *a) {
        if (!a->hooks.names)
                return;
        hooks_stop(a);
        reply_error(&a->claim_reply, -ECANCELED, "another claim came");
}

void handle_claim(Agent *a, Request *q, Reply reply) {
        char message[MACHINE_MESSAGE_MAX];

        a->claimed = false;
        int r = claim(a, q, message);
        supersede(a);
        if (a->epoch > 0)
                streams_abandon(a);
        loopback_abandon(&a->loopback);
        envd_abandon(a);
        if (r < 0) {
                log_error("claim failed at %s: %s", message, strerror(-r));
                reply_error(&reply, r, "%s: %s", message, strerror(-r));
                return;
        }

        a->claim_reply = reply;
        if (a->epoch > 0)
                hooks_start(a, a->epoch + 1, claim_done);
        else
                claim_done(a, NULL);
}

void handle_set_time(Agent *a, Request *q, Reply reply) {
        reply_result(&reply, machine_set_time(q->realtime_nsec), "setting the time");
}

void handle_add_entropy(Agent *a, Request *q, Reply reply) {
        reply_result(&reply, machine_add_entropy(q->entropy, q->entropy_size), "adding entropy");
}
