/* SPDX-License-Identifier: Apache-2.0 */

/* Connected to cube-netd most of the time; what it told holds until it tells something else. */

#include <stdio.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "net/resolver-private.h"
#include "net/resolver-proto.h"

#define RETRY_USEC (200 * USEC_PER_MSEC)
#define BODY_MAX 4096U
/* Packets read before anybody else has his turn. */
#define PACKETS_ONCE 64U

struct ResolverLink {
        Resolver *resolver;
        sd_event_source *io, *retry;
        NameTable *incoming;   /* of a policy of which there is more to come */
        uint32_t incoming_id;
        ResolverSockets sockets; /* to be listened on once all policies are known */
        uint8_t *packet;
        bool complained;       /* of this cube-netd */
};

static int try_connect(ResolverLink *l);

static int retry_later(ResolverLink *l) {
        int r = sd_event_source_set_time_relative(l->retry, RETRY_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(l->retry, SD_EVENT_ONESHOT);
}

static int disconnect(ResolverLink *l) {
        l->io = sd_event_source_disable_unref(l->io);
        l->incoming = name_table_free(l->incoming);
        resolver_sockets_done(&l->sockets);
        return retry_later(l);
}

static int read_prefix(const Tlv *t, Prefix *ret) {
        _cleanup_free_ char *text = NULL;
        int r = tlv_get_str(t, &text);

        return r < 0 ? r : prefix_parse(text, ret);
}

static int take_fds(ResolverLink *l, int *fds, size_t n) {
        Resolver *r = l->resolver;

        if (n < 2 || n - 2 > RESOLVER_SOCKETS_MAX || n % 2 != 0)
                return -EBADMSG;
        safe_close(r->maps.names);
        safe_close(r->maps.entries);
        r->maps.names = TAKE_FD(fds[0]);
        r->maps.entries = TAKE_FD(fds[1]);
        resolver_sockets_done(&l->sockets);
        for (size_t i = 2; i < n; i++)
                l->sockets.fds[l->sockets.n++] = TAKE_FD(fds[i]);
        resolver_sandboxes_count(r);
        return 0;
}

static int handle_start(ResolverLink *l, TlvReader body, int *fds, size_t n_fds) {
        Resolver *r = l->resolver;
        uint32_t audit_sec = 0;
        Prefix net4 = {}, net6 = {};
        Tlv t;
        int k;

        while ((k = tlv_next(&body, &t)) > 0) {
                if (t.tag == RESOLVER_TAG_NET4)
                        k = read_prefix(&t, &net4);
                else if (t.tag == RESOLVER_TAG_NET6)
                        k = read_prefix(&t, &net6);
                else if (t.tag == RESOLVER_TAG_AUDIT_SEC)
                        k = tlv_get_u32(&t, &audit_sec);
                if (k < 0)
                        return k;
        }
        if (k < 0 || net4.tag != NET_TAG4 || (net6.tag != 0 && net6.tag != NET_TAG6))
                return -EBADMSG;
        r->net4 = net4;
        r->net6 = net6;
        r->audit_usec = audit_sec * USEC_PER_SEC;
        resolver_policies_begin(r->policies);
        return take_fds(l, fds, n_fds);
}

static int add_name(NameTable *names, const Tlv *t) {
        char text[NET_NAME_MAX];
        ResolverName fixed;

        if (t->len <= sizeof(fixed) || t->len - sizeof(fixed) >= sizeof(text))
                return -EBADMSG;
        memcpy(&fixed, t->data, sizeof(fixed));
        memcpy(text, t->data + sizeof(fixed), t->len - sizeof(fixed));
        text[t->len - sizeof(fixed)] = 0;
        PolicyName n = {
                .name = text,
                .rule = fixed.rule,
                .below = fixed.below != 0,
                .has_inside = fixed.has_inside != 0,
                .special = fixed.special != 0,
                .inside = { .tag = fixed.inside_tag, .len = fixed.inside_len },
        };
        memcpy(n.inside.addr, fixed.inside_addr, sizeof(n.inside.addr));
        return name_table_add(names, &n);
}

static int read_id(TlvReader body, uint32_t *ret) {
        Tlv t;

        return tlv_next(&body, &t) == 1 && t.tag == RESOLVER_TAG_POLICY ? tlv_get_u32(&t, ret) : -EBADMSG;
}

static int finish_policy(ResolverLink *l) {
        name_table_seal(l->incoming);
        int r = resolver_policies_put(l->resolver->policies, l->incoming_id, l->incoming);
        if (r >= 0)
                l->incoming = NULL;
        return r;
}

static int handle_policy(ResolverLink *l, TlvReader body) {
        uint32_t id, all = 0, last = 0;
        Tlv t;

        int r = read_id(body, &id);
        if (r < 0)
                return r;
        if (l->incoming && l->incoming_id != id)
                return -EBADMSG;
        l->incoming_id = id;
        while (r >= 0 && (r = tlv_next(&body, &t)) > 0) {
                if (t.tag == RESOLVER_TAG_ALL)
                        r = tlv_get_u32(&t, &all);
                if (r >= 0 && t.tag == RESOLVER_TAG_ALL && !l->incoming)
                        r = name_table_new(all != 0, &l->incoming);
                if (r >= 0 && t.tag == RESOLVER_TAG_NAME)
                        r = l->incoming ? add_name(l->incoming, &t) : -EBADMSG;
                if (r >= 0 && t.tag == RESOLVER_TAG_LAST)
                        r = tlv_get_u32(&t, &last);
        }
        if (r < 0)
                return r;
        if (!l->incoming)
                return -EBADMSG;
        return last ? finish_policy(l) : 0;
}

static int handle_id(ResolverLink *l, TlvReader body, bool keep) {
        uint32_t id;
        int r = read_id(body, &id);

        if (r >= 0 && keep)
                resolver_policies_keep(l->resolver->policies, id);
        else if (r >= 0)
                resolver_policies_drop(l->resolver->policies, id);
        return r;
}

static int handle(ResolverLink *l, const PacketHeader *h, TlvReader body, int *fds, size_t n_fds) {
        switch (h->op) {
        case RESOLVER_OP_START:
                return handle_start(l, body, fds, n_fds);
        case RESOLVER_OP_POLICY:
                return handle_policy(l, body);
        case RESOLVER_OP_KEEP:
                return handle_id(l, body, true);
        case RESOLVER_OP_DROP:
                return handle_id(l, body, false);
        case RESOLVER_OP_STARTED:
                resolver_policies_end(l->resolver->policies);
                return resolver_listen(l->resolver, &l->sockets);
        }
        return -EBADMSG;
}

/* After an upgrade cubed is restarted, and cube-netd with it, but nobody else. */
static int end_for_version(ResolverLink *l, unsigned version) {
        fprintf(stderr, "cube-resolver: cube-netd speaks version %u of their protocol and this cube-resolver version %u: it ends, "
                "so that its service starts the one that is installed\n", version, RESOLVER_PROTO_VERSION);
        int r = sd_event_exit(l->resolver->event, EXIT_FAILURE);
        /* Nothing more is read of this connection. */
        return r < 0 ? r : -ECONNRESET;
}

static int read_packet(ResolverLink *l, size_t size, int *fds, size_t n_fds) {
        PacketHeader h;

        if (size < sizeof(h))
                return -EBADMSG;
        memcpy(&h, l->packet, sizeof(h));
        if (h.magic != RESOLVER_PROTO_MAGIC || h.len != size - sizeof(h))
                return -EBADMSG;
        if (h.version != RESOLVER_PROTO_VERSION)
                return end_for_version(l, h.version);
        return handle(l, &h, TLV_READER_INIT(l->packet + sizeof(h), h.len), fds, n_fds);
}

/* 1, or 0 when there is nothing more. */
static int read_one(ResolverLink *l, int fd) {
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds;

        ssize_t n = recv_packet(fd, l->packet, PACKET_SIZE_MAX, fds, ELEMENTSOF(fds), &n_fds);
        if (n == -EAGAIN)
                return 0;
        if (n <= 0)
                return n < 0 ? (int) n : -ECONNRESET;
        int r = read_packet(l, (size_t) n, fds, n_fds);
        close_many(fds, n_fds);
        return r < 0 ? r : 1;
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        ResolverLink *l = userdata;
        int r = 1;

        for (unsigned i = 0; r > 0 && i < PACKETS_ONCE; i++)
                r = read_one(l, fd);
        if (r >= 0)
                return 0;
        if (r != -ECONNRESET && !l->complained)
                fprintf(stderr, "cube-resolver: what cube-netd says is not understood: %s; it is asked again until it is\n",
                        strerror(-r));
        l->complained = r != -ECONNRESET;
        return disconnect(l);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        ResolverLink *l = userdata;

        return try_connect(l) < 0 ? retry_later(l) : 0;
}

static int try_connect(ResolverLink *l) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", l->resolver->config.socket);
        if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        int r = sd_event_add_io(l->resolver->event, &l->io, fd, EPOLLIN, on_io, l);
        if (r < 0)
                return r;
        (void) sd_event_source_set_io_fd_own(l->io, true);
        (void) TAKE_FD(fd);
        /* A policy is known before anybody who has it is answered. */
        return sd_event_source_set_priority(l->io, SD_EVENT_PRIORITY_IMPORTANT);
}

int resolver_link_new(Resolver *r, ResolverLink **ret) {
        ResolverLink *l = new0(ResolverLink, 1);

        if (!l)
                return -ENOMEM;
        l->resolver = r;
        *ret = l;
        l->packet = malloc(PACKET_SIZE_MAX);
        if (!l->packet)
                return -ENOMEM;
        return sd_event_add_time_relative(r->event, &l->retry, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_retry, l);
}

ResolverLink *resolver_link_free(ResolverLink *l) {
        if (!l)
                return NULL;
        sd_event_source_disable_unref(l->io);
        sd_event_source_disable_unref(l->retry);
        name_table_free(l->incoming);
        resolver_sockets_done(&l->sockets);
        free(l->packet);
        free(l);
        return NULL;
}

void resolver_link_tell_denied(ResolverLink *l, uint32_t slot, const char *reason, const char *name, const char *address,
                               uint32_t count) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(BODY_MAX);

        if (!l->io)
                return;
        tlv_put_u32(&w, RESOLVER_TAG_SLOT, slot);
        tlv_put_str(&w, RESOLVER_TAG_REASON, reason);
        tlv_put_str(&w, RESOLVER_TAG_DENIED_NAME, name);
        tlv_put_str(&w, RESOLVER_TAG_ADDRESS, address);
        tlv_put_u32(&w, RESOLVER_TAG_COUNT, count);
        PacketHeader h = {
                .magic = RESOLVER_PROTO_MAGIC,
                .version = RESOLVER_PROTO_VERSION,
                .op = RESOLVER_OP_DENIED,
                .len = (uint32_t) w.size,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { w.data, w.size } };
        if (tlv_writer_finish(&w) >= 0)
                (void) send_packet(sd_event_source_get_io_fd(l->io), iov, 2, NULL, 0);
}
