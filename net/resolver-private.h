/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of cube-resolver share. One Resolver in the program, owned by its main().
 *
 *   resolver-link.c     cube-netd: maps, sockets, policies
 *   resolver-listen.c   packets and connections of guests
 *   resolver-query.c    one query, from its verdict to its answer
 *   resolver-sandbox.c  what is kept of each sandbox */

#include <sys/socket.h>

#include "net/denied-names.h"
#include "net/opened-names.h"
#include "net/resolver-policies.h"
#include "net/resolver-sockets.h"
#include "net/resolver-upstream.h"

typedef struct Resolver Resolver;
typedef struct ResolverLink ResolverLink;
typedef struct ResolverListener ResolverListener;
typedef struct TcpClient TcpClient;
typedef struct Query Query;

typedef struct ResolverConfig {
        const char *socket;    /* of cube-netd */
        UpstreamConfig upstream;
        uint32_t ttl_min, ttl_max; /* seconds that an answer opens its addresses for */
        uint32_t rate;         /* queries a second and sandbox; so many at once, too */
        uint32_t queries_max, sandbox_queries_max; /* under way */
        uint32_t tcp_max, sandbox_tcp_max; /* connections */
        uint64_t tcp_idle_usec;
} ResolverConfig;

typedef struct ResolverSandbox {
        uint32_t slot;
        unsigned n_queries, n_tcp;
        uint64_t tokens, filled; /* millionths of a query, usec */
        OpenedNames opened;
        DeniedNames denied;
} ResolverSandbox;

struct Resolver {
        ResolverConfig config;
        sd_event *event;
        sd_event_source *cleaning;
        ResolverMaps maps;
        ResolverPolicies *policies;
        ResolverLink *link;
        ResolverListener *listener;
        Upstream *upstream;
        ResolverSandbox **sandboxes; /* by slot */
        Query *queries;
        unsigned n_queries;
        Prefix net4, net6;
        uint64_t audit_usec;
};

uint64_t resolver_now_nsec(void);

/* Goes on trying while cube-netd is not there. */
int resolver_link_new(Resolver *r, ResolverLink **ret);
ResolverLink *resolver_link_free(ResolverLink *l);
/* Lost when cube-netd does not listen. */
void resolver_link_tell_denied(ResolverLink *l, uint32_t slot, const char *reason, const char *name, const char *address,
                               uint32_t count);

/* Listens on these in place of those before; takes them. */
int resolver_listen(Resolver *r, ResolverSockets *sockets);
ResolverListener *resolver_listener_free(ResolverListener *l);

/* Where an answer goes. */
typedef struct Origin {
        int fd;                /* UDP; borrowed from the listener */
        struct sockaddr_storage peer;
        socklen_t peer_size;
        TcpClient *tcp;        /* else */
} Origin;

/* Answers at once or later. -EBUSY: it is not answered at all. */
int query_begin(Resolver *r, uint32_t slot, const Origin *origin, const uint8_t *data, size_t size);
/* Without an answer. tcp NULL: all by UDP. */
void query_forget(Resolver *r, const TcpClient *tcp);
void query_forget_all(Resolver *r);
/* Takes the bytes, and puts the length before them; the client may be gone afterwards. */
void tcp_client_send(TcpClient *c, const uint8_t *data, size_t size);

/* NULL: no memory. */
ResolverSandbox *resolver_sandbox_get(Resolver *r, uint32_t slot);
bool resolver_sandbox_may_ask(Resolver *r, ResolverSandbox *s);
void resolver_sandbox_denied(Resolver *r, ResolverSandbox *s, const char *reason, const char *name, const char *address);
/* What is in the map already, of a cube-resolver before. */
void resolver_sandboxes_count(Resolver *r);
int resolver_sandboxes_start(Resolver *r);
void resolver_sandboxes_done(Resolver *r);
