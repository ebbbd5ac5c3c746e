/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/name-servers.h"
#include "net/resolver-upstream.h"

#define TRIES_EACH 2U
/* Of packets that are no answer to what was asked: more than that is somebody who guesses. */
#define STRAYS_MAX 16U
#define TCP_MAX 65535U
#define LENGTH_BYTES 2U

struct Upstream {
        sd_event *event;
        UpstreamConfig config;
        NameServers servers;
};

struct UpstreamQuery {
        Upstream *upstream;
        const DnsQuery *query;
        UpstreamDone done;
        void *userdata;
        NameServers servers;   /* as they were when it began */
        sd_event_source *io, *timer;
        unsigned tries, strays;
        uint64_t give_up;      /* usec */
        uint16_t id;
        uint8_t *wire;         /* with its length before it, as TCP wants it */
        size_t wire_size;
        bool tcp;
        uint8_t *buffer;       /* TCP: what came so far */
        size_t sent, have;
};

static void try_next(UpstreamQuery *q, bool tcp);

int upstream_new(sd_event *event, const UpstreamConfig *config, Upstream **ret) {
        Upstream *u = new0(Upstream, 1);

        if (!u)
                return -ENOMEM;
        *u = (Upstream) { .event = sd_event_ref(event), .config = *config };
        *ret = u;
        return 0;
}

Upstream *upstream_free(Upstream *u) {
        if (!u)
                return NULL;
        sd_event_unref(u->event);
        free(u);
        return NULL;
}

static void hang_up(UpstreamQuery *q) {
        q->io = sd_event_source_disable_unref(q->io);
        free(TAKE_PTR(q->buffer));
        q->sent = q->have = 0;
}

UpstreamQuery *upstream_query_free(UpstreamQuery *q) {
        if (!q)
                return NULL;
        hang_up(q);
        sd_event_source_disable_unref(q->timer);
        free(q->wire);
        free(q);
        return NULL;
}

static void finish(UpstreamQuery *q, int error, ldns_pkt *answer) {
        UpstreamDone done = q->done;
        void *userdata = q->userdata;

        upstream_query_free(q);
        done(error, &answer, userdata);
        ldns_pkt_free(answer);
}

/* Of the right question: an answer, a reason to ask by TCP, or one to ask somebody else. */
static void on_answer(UpstreamQuery *q, ldns_pkt *answer) {
        ldns_pkt_rcode rcode = ldns_pkt_get_rcode(answer);
        bool truncated = ldns_pkt_tc(answer);

        if (!truncated && (rcode == LDNS_RCODE_NOERROR || rcode == LDNS_RCODE_NXDOMAIN)) {
                finish(q, 0, answer);
                return;
        }
        ldns_pkt_free(answer);
        try_next(q, truncated && !q->tcp);
}

static void on_udp(UpstreamQuery *q, int fd) {
        uint8_t packet[DNS_QUERY_MAX];
        ldns_pkt *answer;

        ssize_t n = recv(fd, packet, sizeof(packet), 0);
        if (n < 0) {
                /* Nobody listens there. */
                if (errno != EAGAIN && errno != EINTR)
                        try_next(q, false);
                return;
        }
        if (dns_upstream_parse(q->query, q->id, packet, (size_t) n, &answer) >= 0)
                on_answer(q, answer);
        else if (++q->strays >= STRAYS_MAX)
                try_next(q, false);
}

static int tcp_write(UpstreamQuery *q, int fd) {
        ssize_t n = send(fd, q->wire + q->sent, q->wire_size - q->sent, MSG_NOSIGNAL);

        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        q->sent += (size_t) n;
        return q->sent < q->wire_size ? 0 : sd_event_source_set_io_events(q->io, EPOLLIN);
}

/* 1 when the message is complete. */
static int tcp_read(UpstreamQuery *q, int fd) {
        size_t want = LENGTH_BYTES;

        if (!q->buffer && !(q->buffer = malloc(LENGTH_BYTES + TCP_MAX)))
                return -ENOMEM;
        if (q->have >= LENGTH_BYTES)
                want += (size_t) (q->buffer[0] << 8 | q->buffer[1]);
        ssize_t n = recv(fd, q->buffer + q->have, want - q->have, 0);
        if (n <= 0)
                return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? 0 : -errno;
        q->have += (size_t) n;
        return q->have > LENGTH_BYTES && q->have == LENGTH_BYTES + (size_t) (q->buffer[0] << 8 | q->buffer[1]);
}

static void on_tcp(UpstreamQuery *q, int fd) {
        ldns_pkt *answer;

        int r = q->sent < q->wire_size ? tcp_write(q, fd) : tcp_read(q, fd);
        if (r > 0)
                r = dns_upstream_parse(q->query, q->id, q->buffer + LENGTH_BYTES, q->have - LENGTH_BYTES, &answer);
        else if (r == 0)
                return;
        if (r < 0)
                try_next(q, false);
        else
                on_answer(q, answer);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        UpstreamQuery *q = userdata;

        if (q->tcp)
                on_tcp(q, fd);
        else
                on_udp(q, fd);
        return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        UpstreamQuery *q = userdata;

        try_next(q, false);
        return 0;
}

static int new_id(UpstreamQuery *q) {
        if (getrandom(&q->id, sizeof(q->id), 0) != sizeof(q->id))
                return -EIO;
        q->wire[LENGTH_BYTES] = (uint8_t) (q->id >> 8);
        q->wire[LENGTH_BYTES + 1] = (uint8_t) q->id;
        return 0;
}

/* Connected, so that the kernel drops what others send. */
static int call(UpstreamQuery *q, const ServerAddress *server) {
        int type = q->tcp ? SOCK_STREAM : SOCK_DGRAM, r;
        _cleanup_close_ int fd = socket(server->any.sa_family, type|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        if (connect(fd, &server->any, server_address_size(server)) < 0 && errno != EINPROGRESS)
                return -errno;
        if (!q->tcp && send(fd, q->wire + LENGTH_BYTES, q->wire_size - LENGTH_BYTES, MSG_NOSIGNAL) < 0)
                return -errno;
        r = sd_event_add_io(q->upstream->event, &q->io, fd, q->tcp ? EPOLLOUT : EPOLLIN, on_io, q);
        if (r < 0)
                return r;
        (void) sd_event_source_set_io_fd_own(q->io, true);
        (void) TAKE_FD(fd);
        return 0;
}

static int try_once(UpstreamQuery *q, const ServerAddress *server) {
        uint64_t now = now_usec();

        hang_up(q);
        if (now >= q->give_up)
                return -ETIMEDOUT;
        int r = new_id(q);
        if (r >= 0)
                r = call(q, server);
        if (r < 0)
                return r;
        r = sd_event_source_set_time(q->timer, MIN(now + q->upstream->config.try_usec, q->give_up));
        return r < 0 ? r : sd_event_source_set_enabled(q->timer, SD_EVENT_ONESHOT);
}

/* tcp: of the same server, which had more to say than fits into a packet. */
static void try_next(UpstreamQuery *q, bool tcp) {
        int r = -ETIMEDOUT;

        q->tcp = tcp;
        q->strays = 0;
        if (tcp && try_once(q, &q->servers.servers[(q->tries - 1) % q->servers.n]) >= 0)
                return;
        q->tcp = false;
        while (q->tries < TRIES_EACH * q->servers.n) {
                r = try_once(q, &q->servers.servers[q->tries++ % q->servers.n]);
                if (r >= 0)
                        return;
        }
        finish(q, r, NULL);
}

/* done is never called from in here. */
static int try_first(UpstreamQuery *q) {
        while (q->tries < TRIES_EACH * q->servers.n)
                if (try_once(q, &q->servers.servers[q->tries++ % q->servers.n]) >= 0)
                        return 0;
        return -ENETUNREACH;
}

static int make_wire(UpstreamQuery *q) {
        _cleanup_free_ uint8_t *message = NULL;
        size_t size;

        int r = dns_upstream_query(q->query, 0, &message, &size);
        if (r < 0)
                return r;
        if (size > DNS_QUERY_MAX)
                return -EMSGSIZE;
        q->wire_size = LENGTH_BYTES + size;
        q->wire = malloc(q->wire_size);
        if (!q->wire)
                return -ENOMEM;
        q->wire[0] = (uint8_t) (size >> 8);
        q->wire[1] = (uint8_t) size;
        memcpy(q->wire + LENGTH_BYTES, message, size);
        return 0;
}

int upstream_ask(Upstream *u, const DnsQuery *query, UpstreamDone done, void *userdata, UpstreamQuery **ret) {
        UpstreamQuery *q = new0(UpstreamQuery, 1);

        if (!q)
                return -ENOMEM;
        name_servers_refresh(&u->servers, u->config.resolv_conf, u->config.port);
        *q = (UpstreamQuery) {
                .upstream = u,
                .query = query,
                .done = done,
                .userdata = userdata,
                .servers = u->servers,
                .give_up = now_usec() + u->config.give_up_usec,
        };
        int r = make_wire(q);
        if (r >= 0)
                r = sd_event_add_time(u->event, &q->timer, CLOCK_MONOTONIC, UINT64_MAX, 10 * USEC_PER_MSEC, on_timer, q);
        if (r >= 0)
                r = try_first(q);
        if (r < 0) {
                upstream_query_free(q);
                return r;
        }
        *ret = q;
        return 0;
}
