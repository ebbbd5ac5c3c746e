/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "net/netd-resolver.h"
#include "net/resolver-proto.h"

/* Some of the largest policies, that come while it does not read. */
#define QUEUE_MAX (64U * 1024U * 1024U)
#define BODY_MAX (128U * 1024U)
#define FDS_MAX (2U + RESOLVER_SOCKETS_MAX)
/* What it may have told to cubed in a second. */
#define TOLD_MAX 500U

typedef struct Packet {
        struct Packet *next;
        int fds[FDS_MAX];
        size_t n_fds, size;
        uint8_t data[];
} Packet;

typedef struct ToldPolicy {
        uint32_t id;           /* 0: gone since */
        const PolicyTable *table; /* NULL: of a cube-netd before */
} ToldPolicy;

struct NetdResolver {
        sd_event *event;
        sd_event_source *listening, *connected;
        Network *network;
        NameDeniedHandler on_denied;
        void *userdata;
        Packet *first, **last;
        size_t queued;
        bool telling;          /* not all policies are queued yet */
        ToldPolicy *policies;  /* that there were when it connected: from the last one on, each when there is room for it */
        size_t n_policies;     /* that are to be queued */
        uint64_t second;
        unsigned told;
};

static Packet *packet_free(Packet *p) {
        close_many(p->fds, p->n_fds);
        free(p);
        return NULL;
}

static void disconnect(NetdResolver *r) {
        while (r->first) {
                Packet *p = r->first;
                r->first = p->next;
                packet_free(p);
        }
        r->last = &r->first;
        r->queued = 0;
        r->telling = false;
        r->n_policies = 0;
        free(r->policies);
        r->policies = NULL;
        r->connected = sd_event_source_disable_unref(r->connected);
}

/* Takes the fds. */
static int queue(NetdResolver *r, ResolverOp op, const TlvWriter *body, int *fds, size_t n_fds) {
        PacketHeader h = {
                .magic = RESOLVER_PROTO_MAGIC,
                .version = RESOLVER_PROTO_VERSION,
                .op = (uint16_t) op,
                .len = (uint32_t) body->size,
        };
        int k = tlv_writer_finish(body);
        if (k >= 0 && r->queued + sizeof(h) + body->size > QUEUE_MAX)
                k = -ENOBUFS;
        Packet *p = k >= 0 ? malloc(sizeof(Packet) + sizeof(h) + body->size) : NULL;
        if (!p) {
                close_many(fds, n_fds);
                return k < 0 ? k : -ENOMEM;
        }

        *p = (Packet) { .n_fds = n_fds, .size = sizeof(h) + body->size };
        memcpy(p->data, &h, sizeof(h));
        if (body->size > 0)
                memcpy(p->data + sizeof(h), body->data, body->size);
        for (size_t i = 0; i < n_fds; i++)
                p->fds[i] = TAKE_FD(fds[i]);
        *r->last = p;
        r->last = &p->next;
        r->queued += p->size;
        return 0;
}

static int queue_number(NetdResolver *r, ResolverOp op, uint32_t id) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(BODY_MAX);

        tlv_put_u32(&w, RESOLVER_TAG_POLICY, id);
        return queue(r, op, &w, NULL, 0);
}

static void put_name(TlvWriter *w, const PolicyName *n) {
        uint8_t record[sizeof(ResolverName) + NET_NAME_MAX];
        ResolverName fixed = {
                .rule = n->rule,
                .below = n->below,
                .has_inside = n->has_inside,
                .special = n->special,
                .inside_tag = n->inside.tag,
                .inside_len = n->inside.len,
        };
        size_t size = MIN(strlen(n->name), NET_NAME_MAX - 1U);

        memcpy(fixed.inside_addr, n->inside.addr, sizeof(fixed.inside_addr));
        memcpy(record, &fixed, sizeof(fixed));
        memcpy(record + sizeof(fixed), n->name, size);
        tlv_put(w, RESOLVER_TAG_NAME, record, sizeof(fixed) + size);
}

static int queue_policy(NetdResolver *r, uint32_t id, const PolicyTable *t) {
        size_t i = 0;
        int k;

        do {
                _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(BODY_MAX);
                tlv_put_u32(&w, RESOLVER_TAG_POLICY, id);
                tlv_put_u32(&w, RESOLVER_TAG_ALL, t->dns_all);
                for (; i < t->n_names && w.size < BODY_MAX - 1024U; i++)
                        put_name(&w, &t->names[i]);
                tlv_put_u32(&w, RESOLVER_TAG_LAST, i == t->n_names);
                k = queue(r, RESOLVER_OP_POLICY, &w, NULL, 0);
        } while (k >= 0 && i < t->n_names);
        return k;
}

static void count_policy(uint32_t id, const PolicyTable *t, void *userdata) {
        size_t *n = userdata;
        (*n)++;
}

static void take_policy(uint32_t id, const PolicyTable *t, void *userdata) {
        NetdResolver *r = userdata;
        r->policies[r->n_policies++] = (ToldPolicy) { id, t };
}

static int take_policies(NetdResolver *r) {
        size_t n = 0;

        network_each_policy(r->network, count_policy, &n);
        r->policies = new0(ToldPolicy, n);
        if (!r->policies)
                return -ENOMEM;
        network_each_policy(r->network, take_policy, r);
        return 0;
}

static void forget_policy(NetdResolver *r, uint32_t id) {
        for (size_t i = 0; i < r->n_policies; i++)
                if (r->policies[i].id == id)
                        r->policies[i] = (ToldPolicy) {};
}

/* All of them at once would be more than there is room for. */
static int tell_next(NetdResolver *r) {
        const ToldPolicy *p;

        if (r->n_policies == 0) {
                r->telling = false;
                free(r->policies);
                r->policies = NULL;
                return queue(r, RESOLVER_OP_STARTED, &TLV_WRITER_INIT(0), NULL, 0);
        }
        p = &r->policies[--r->n_policies];
        if (p->id == 0)
                return 0;
        return p->table ? queue_policy(r, p->id, p->table) : queue_number(r, RESOLVER_OP_KEEP, p->id);
}

/* -EAGAIN when it has to read first. */
static int send_queued(NetdResolver *r) {
        while (r->first) {
                Packet *p = r->first;
                struct iovec iov = { p->data, p->size };
                int k = send_packet(sd_event_source_get_io_fd(r->connected), &iov, 1, p->fds, p->n_fds);
                if (k < 0)
                        return k;
                r->first = p->next;
                if (!r->first)
                        r->last = &r->first;
                r->queued -= p->size;
                packet_free(p);
        }
        return 0;
}

static void flush(NetdResolver *r) {
        int k = send_queued(r);

        while (k >= 0 && r->telling) {
                k = tell_next(r);
                if (k >= 0)
                        k = send_queued(r);
        }
        if (k < 0 && k != -EAGAIN)
                disconnect(r);
        else
                (void) sd_event_source_set_io_events(r->connected, r->first ? EPOLLIN|EPOLLOUT : EPOLLIN);
}

static void on_policy(uint32_t id, const PolicyTable *t, void *userdata) {
        NetdResolver *r = userdata;

        if (!r->connected)
                return;
        if (!t)
                forget_policy(r, id);
        int k = t ? queue_policy(r, id, t) : queue_number(r, RESOLVER_OP_DROP, id);
        if (k < 0)
                disconnect(r);
        else
                flush(r);
}

static int queue_start(NetdResolver *r) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(BODY_MAX);
        const SlotPlan *plan = network_plan(r->network);
        const ResolverSockets *s = network_resolver_sockets(r->network);
        char text[PREFIX_TEXT_MAX];
        int fds[FDS_MAX];
        size_t n = 2;

        int k = datapath_resolver_fds(network_datapath(r->network), &fds[0], &fds[1]);
        if (k < 0)
                return k;
        for (size_t i = 0; i < s->n; i++, n++) {
                fds[n] = fcntl(s->fds[i], F_DUPFD_CLOEXEC, 3);
                if (fds[n] < 0) {
                        k = -errno;
                        close_many(fds, n);
                        return k;
                }
        }
        tlv_put_str(&w, RESOLVER_TAG_NET4, prefix_format(text, &plan->net4));
        if (plan->net6.tag != 0)
                tlv_put_str(&w, RESOLVER_TAG_NET6, prefix_format(text, &plan->net6));
        tlv_put_u32(&w, RESOLVER_TAG_AUDIT_SEC, network_config(r->network)->audit_interval);
        return queue(r, RESOLVER_OP_START, &w, fds, n);
}

static int tell_all(NetdResolver *r) {
        int k = queue_start(r);

        if (k >= 0)
                k = take_policies(r);
        r->telling = k >= 0;
        return k;
}

static bool name_printable(const char *s) {
        for (; *s; s++)
                if (*s <= ' ' || *s > '~')
                        return false;
        return true;
}

static bool may_tell(NetdResolver *r) {
        struct timespec now;

        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        if ((uint64_t) now.tv_sec != r->second) {
                r->second = (uint64_t) now.tv_sec;
                r->told = 0;
        }
        return r->told++ < TOLD_MAX;
}

static int read_text(const Tlv *t, char *ret, size_t size) {
        if (t->len >= size)
                return -EBADMSG;
        memcpy(ret, t->data, t->len);
        ret[t->len] = 0;
        return strlen(ret) == t->len && name_printable(ret) ? 0 : -EBADMSG;
}

static int handle_denied(NetdResolver *r, TlvReader body) {
        char name[4 * NET_NAME_MAX] = "", address[64] = "", reason[32] = "";
        NameDenied d = { .name = name, .address = address, .reason = reason };
        Tlv t;
        int k;

        while ((k = tlv_next(&body, &t)) > 0) {
                if (t.tag == RESOLVER_TAG_SLOT)
                        k = tlv_get_u32(&t, &d.slot);
                else if (t.tag == RESOLVER_TAG_COUNT)
                        k = tlv_get_u32(&t, &d.count);
                else if (t.tag == RESOLVER_TAG_DENIED_NAME)
                        k = read_text(&t, name, sizeof(name));
                else if (t.tag == RESOLVER_TAG_ADDRESS)
                        k = read_text(&t, address, sizeof(address));
                else if (t.tag == RESOLVER_TAG_REASON)
                        k = read_text(&t, reason, sizeof(reason));
                if (k < 0)
                        return k;
        }
        if (k < 0 || d.slot < SLOT_FIRST || d.slot >= NET_SLOTS_MAX || (!streq(reason, "name") && !streq(reason, "answer")))
                return -EBADMSG;
        if (may_tell(r))
                r->on_denied(&d, r->userdata);
        return 0;
}

static int read_one(NetdResolver *r, int fd) {
        uint8_t packet[8192];
        PacketHeader h;
        size_t n_fds;
        int fds[1];

        ssize_t n = recv_packet(fd, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
        if (n == -EAGAIN)
                return 0;
        if (n <= 0)
                return n < 0 ? (int) n : -ECONNRESET;
        close_many(fds, n_fds);
        if ((size_t) n < sizeof(h))
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != RESOLVER_PROTO_MAGIC || h.version != RESOLVER_PROTO_VERSION || h.op != RESOLVER_OP_DENIED ||
            h.len != (size_t) n - sizeof(h))
                return -EBADMSG;
        return handle_denied(r, TLV_READER_INIT(packet + sizeof(h), h.len));
}

static int on_connected(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        NetdResolver *r = userdata;

        if (revents & (EPOLLIN|EPOLLHUP|EPOLLERR) && read_one(r, fd) < 0) {
                disconnect(r);
                return 0;
        }
        flush(r);
        return 0;
}

static bool may_connect(int fd) {
        struct ucred peer;
        socklen_t size = sizeof(peer);
        const struct passwd *user;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return false;
        if (peer.uid == 0)
                return true;
        user = getpwnam(RESOLVER_USER);
        return user && user->pw_uid == peer.uid;
}

static int on_listening(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        _cleanup_close_ int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
        NetdResolver *r = userdata;

        if (peer < 0 || !may_connect(peer))
                return 0;
        disconnect(r);
        if (sd_event_add_io(r->event, &r->connected, peer, EPOLLIN, on_connected, r) < 0)
                return 0;
        (void) sd_event_source_set_io_fd_own(r->connected, true);
        (void) TAKE_FD(peer);
        if (tell_all(r) < 0)
                disconnect(r);
        else
                flush(r);
        return 0;
}

static int listen_at(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        const struct passwd *user = getpwnam(RESOLVER_USER);

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (!user)
                fprintf(stderr, "cube-netd: there is no user %s, so only a cube-resolver of root's is let in: run systemd-sysusers "
                        "and restart cubed\n", RESOLVER_USER);
        (void) unlink(path);
        if (bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || chmod(path, 0600) < 0 ||
            (user && chown(path, user->pw_uid, (gid_t) -1) < 0) || listen(fd, 8) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int netd_resolver_new(sd_event *event, const char *path, Network *network, NameDeniedHandler f, void *userdata,
                      NetdResolver **ret) {
        _cleanup_(netd_resolver_freep) NetdResolver *r = new0(NetdResolver, 1);
        _cleanup_close_ int fd = -EBADF;

        if (!r)
                return -ENOMEM;
        *r = (NetdResolver) { .event = sd_event_ref(event), .network = network, .on_denied = f, .userdata = userdata };
        r->last = &r->first;
        fd = listen_at(path);
        if (fd < 0)
                return fd;
        int k = sd_event_add_io(event, &r->listening, fd, EPOLLIN, on_listening, r);
        if (k < 0)
                return k;
        (void) sd_event_source_set_io_fd_own(r->listening, true);
        (void) TAKE_FD(fd);
        network_watch_policies(network, on_policy, r);
        *ret = TAKE_PTR(r);
        return 0;
}

bool netd_resolver_is_connected(const NetdResolver *r) {
        return r->connected;
}

NetdResolver *netd_resolver_free(NetdResolver *r) {
        if (!r)
                return NULL;
        disconnect(r);
        network_watch_policies(r->network, NULL, NULL);
        sd_event_source_disable_unref(r->listening);
        sd_event_unref(r->event);
        free(r);
        return NULL;
}
