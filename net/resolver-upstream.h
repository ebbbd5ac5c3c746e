/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the host's own name servers, those of its resolv.conf.
 *
 * One in cube-resolver. Each query has a socket, thus a source port, and an id of its own, both chosen at random; what
 * comes back counts only from the server that was asked, with that id and question. UDP, then TCP where an answer is
 * truncated; a server that fails or does not answer is followed by the next one. resolv.conf is read again when it is
 * another file or has changed. */

#include <systemd/sd-event.h>

#include "net/dns-message.h"

typedef struct Upstream Upstream;
typedef struct UpstreamQuery UpstreamQuery;

typedef struct UpstreamConfig {
        const char *resolv_conf; /* path, borrowed */
        uint16_t port;         /* of the servers */
        uint64_t try_usec;     /* for one server to answer */
        uint64_t give_up_usec; /* for all of them together */
} UpstreamConfig;

int upstream_new(sd_event *event, const UpstreamConfig *config, Upstream **ret);
/* All its queries have to be cancelled before. */
Upstream *upstream_free(Upstream *u);
DEFINE_CLEANUP(Upstream *, upstream_free);

/* error: 0, or -ETIMEDOUT and the like. Take *answer by TAKE_PTR; the query is gone afterwards. */
typedef void (*UpstreamDone)(int error, ldns_pkt **answer, void *userdata);
/* query is borrowed till then. */
int upstream_ask(Upstream *u, const DnsQuery *query, UpstreamDone done, void *userdata, UpstreamQuery **ret);
UpstreamQuery *upstream_query_free(UpstreamQuery *q);
