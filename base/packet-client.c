/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "base/packet-client.h"

#define PACKETS_PER_ROUND 16U
/* A round ends with the packet that gets over this: what others sent is waiting too. */
#define BYTES_PER_ROUND (32U * 1024U)

typedef struct Pending {
        uint32_t seq;
        uint64_t deadline_usec;
        PacketReply reply;
        void *userdata;
        struct Pending *next;
} Pending;

typedef struct Queued {
        uint8_t *data;
        size_t size;
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds;
        struct Queued *next;
} Queued;

struct PacketClient {
        int fd;
        const PacketProtocol *protocol;
        void *event_userdata;
        unsigned n_inside;        /* callbacks of ours on the stack: memory stays until they are back */
        bool dead;
        uint32_t last_seq;
        Pending *pending;         /* in the order of asking */
        size_t n_pending;
        Queued *queue, *queue_tail;
        size_t queued_bytes;
};

static uint8_t receive_buffer[PACKET_SIZE_MAX];

static void queued_free(Queued *q) {
        close_many(q->fds, q->n_fds);
        /* It may have held an environment. */
        if (q->data)
                explicit_bzero(q->data, q->size);
        free(q->data);
        free(q);
}

int packet_client_new(int fd, const PacketProtocol *protocol, void *event_userdata, PacketClient **ret) {
        int size = PACKET_SIZE_MAX;

        int r = fd_set_nonblock(fd, true);
        if (r < 0)
                return r;
        PacketClient *c = new0(PacketClient, 1);
        if (!c)
                return -ENOMEM;

        /* The default send buffer is smaller than our largest packet. */
        if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

        c->fd = fd;
        c->protocol = protocol;
        c->event_userdata = event_userdata;
        *ret = c;
        return 0;
}

static void client_release(PacketClient *c) {
        if (c->dead && c->n_inside == 0)
                free(c);
}

static void pending_finish(Pending *p, int error, const PacketBody *body) {
        static const PacketBody nothing = {};

        p->reply(error, body ? body : &nothing, p->userdata);
        free(p);
}

PacketClient *packet_client_free(PacketClient *c) {
        if (!c || c->dead)
                return NULL;

        c->dead = true;
        c->n_inside++;
        c->fd = safe_close(c->fd);
        for (Queued *q; (q = c->queue);) {
                c->queue = q->next;
                queued_free(q);
        }
        for (Pending *p; (p = c->pending);) {
                c->pending = p->next;
                pending_finish(p, -ECONNRESET, NULL);
        }
        c->n_inside--;
        client_release(c);
        return NULL;
}

int packet_client_fd(const PacketClient *c) {
        return c->fd;
}

uint32_t packet_client_events(const PacketClient *c) {
        return EPOLLIN | (c->queue ? EPOLLOUT : 0);
}

static int queue_packet(PacketClient *c, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        size_t size = 0;

        for (size_t i = 0; i < n_iov; i++)
                size += iov[i].iov_len;
        if (c->queued_bytes + size > c->protocol->max_queued_bytes)
                return -ENOBUFS;

        Queued *q = new0(Queued, 1);
        if (!q)
                return -ENOMEM;
        q->data = malloc(size);
        if (!q->data) {
                queued_free(q);
                return -ENOMEM;
        }
        for (size_t i = 0; i < n_iov; i++) {
                memcpy(q->data + q->size, iov[i].iov_base, iov[i].iov_len);
                q->size += iov[i].iov_len;
        }
        for (; q->n_fds < n_fds; q->n_fds++) {
                q->fds[q->n_fds] = fcntl(fds[q->n_fds], F_DUPFD_CLOEXEC, 3);
                if (q->fds[q->n_fds] < 0) {
                        int r = -errno;
                        queued_free(q);
                        return r;
                }
        }

        if (c->queue)
                c->queue_tail->next = q;
        else
                c->queue = q;
        c->queue_tail = q;
        c->queued_bytes += size;
        return 0;
}

static int flush_queue(PacketClient *c) {
        for (Queued *q; (q = c->queue);) {
                struct iovec iov = { q->data, q->size };
                int r = send_packet(c->fd, &iov, 1, q->fds, q->n_fds);
                if (r == -EAGAIN)
                        return 0;
                if (r < 0)
                        return r == -EPIPE ? -ECONNRESET : r;
                c->queue = q->next;
                c->queued_bytes -= q->size;
                queued_free(q);
        }
        return 0;
}

static uint32_t next_seq(PacketClient *c) {
        /* 0 is that of events. */
        if (++c->last_seq == 0)
                c->last_seq = 1;
        return c->last_seq;
}

static int send_request(PacketClient *c, uint16_t op, uint32_t seq, const TlvWriter *body, const int *fds,
                        size_t n_fds) {
        PacketHeader h = {
                .magic = c->protocol->magic,
                .version = c->protocol->version,
                .op = op,
                .seq = seq,
                .len = body ? (uint32_t) body->size : 0,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { body ? body->data : NULL, h.len } };
        size_t n_iov = h.len > 0 ? 2 : 1;

        int r = c->queue ? -EAGAIN : send_packet(c->fd, iov, n_iov, fds, n_fds);
        if (r == -EAGAIN)
                r = queue_packet(c, iov, n_iov, fds, n_fds);
        return r;
}

int packet_client_call(PacketClient *c, uint16_t op, const TlvWriter *body, const int *fds, size_t n_fds,
                       uint64_t timeout_usec, PacketReply reply, void *userdata) {
        assert(reply);

        if (c->dead)
                return -ENOTCONN;
        if (body && tlv_writer_finish(body) < 0)
                return tlv_writer_finish(body);
        if ((body && body->size > PACKET_SIZE_MAX - sizeof(PacketHeader)) || n_fds > PACKET_FDS_LIMIT)
                return -EMSGSIZE;
        if (c->n_pending >= c->protocol->max_pending)
                return -EBUSY;

        Pending *p = new0(Pending, 1);
        if (!p)
                return -ENOMEM;
        uint64_t now = now_usec();
        *p = (Pending) {
                .seq = next_seq(c),
                .deadline_usec = timeout_usec > UINT64_MAX - now ? UINT64_MAX : now + timeout_usec,
                .reply = reply,
                .userdata = userdata,
        };

        int r = send_request(c, op, p->seq, body, fds, n_fds);
        if (r < 0) {
                free(p);
                return r == -EPIPE || r == -ECONNRESET ? -ENOTCONN : r;
        }
        Pending **end = &c->pending;
        while (*end)
                end = &(*end)->next;
        *end = p;
        c->n_pending++;
        return 0;
}

static Pending *take_pending(PacketClient *c, uint32_t seq) {
        for (Pending **i = &c->pending; *i; i = &(*i)->next)
                if ((*i)->seq == seq) {
                        Pending *p = *i;
                        *i = p->next;
                        c->n_pending--;
                        return p;
                }
        return NULL;
}

static int dispatch(PacketClient *c, const uint8_t *packet, size_t size, int *fds, size_t n_fds) {
        PacketHeader h;

        if (size < sizeof(h))
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != c->protocol->magic || h.version != c->protocol->version || h.len != size - sizeof(h) ||
            h.error > 0 || h.error < -4095)
                return -EBADMSG;

        PacketBody body = { packet + sizeof(h), h.len, fds, n_fds };
        if (h.flags & PACKET_FLAG_REPLY) {
                /* An unknown seq is an answer after its time-out. */
                Pending *p = take_pending(c, h.seq);
                if (p)
                        pending_finish(p, h.error, &body);
                return 0;
        }
        if (!c->protocol->event)
                return -EBADMSG;
        c->protocol->event(h.op, &body, c->event_userdata);
        return 0;
}

static int receive(PacketClient *c) {
        int fds[PACKET_FDS_LIMIT], r = 0;
        size_t n_fds = 0, bytes = 0;

        unsigned max = c->protocol->per_round > 0 ? c->protocol->per_round : PACKETS_PER_ROUND;
        for (unsigned i = 0; i < max && bytes < BYTES_PER_ROUND && !c->dead; i++) {
                ssize_t n = recv_packet(c->fd, receive_buffer, sizeof(receive_buffer), fds, ELEMENTSOF(fds), &n_fds);
                if (n == -EAGAIN)
                        return 0;
                if (n <= 0)
                        return n < 0 ? (int) n : -ECONNRESET;
                bytes += (size_t) n;
                r = dispatch(c, receive_buffer, (size_t) n, fds, n_fds);
                close_many(fds, n_fds);
                if (r < 0)
                        return r;
        }
        return 0;
}

int packet_client_process(PacketClient *c, uint32_t revents) {
        int r = 0;

        c->n_inside++;
        if (revents & EPOLLOUT)
                r = flush_queue(c);
        /* Also on HUP alone: what the peer said last is still there to be read. */
        if (revents & (EPOLLIN|EPOLLHUP|EPOLLERR)) {
                int k = receive(c);
                r = k < 0 ? k : r;
        }
        c->n_inside--;
        /* Freed by a callback: the owner knows, and has nothing to do. */
        if (c->dead)
                r = 0;
        client_release(c);
        return r;
}

uint64_t packet_client_deadline(const PacketClient *c) {
        uint64_t first = UINT64_MAX;

        for (const Pending *p = c->pending; p; p = p->next)
                first = MIN(first, p->deadline_usec);
        return first;
}

void packet_client_expire(PacketClient *c, uint64_t now_usec) {
        c->n_inside++;
        for (bool again = true; again && !c->dead;) {
                again = false;
                for (const Pending *p = c->pending; p; p = p->next)
                        if (p->deadline_usec <= now_usec) {
                                pending_finish(take_pending(c, p->seq), -ETIMEDOUT, NULL);
                                again = true;
                                break;
                        }
        }
        c->n_inside--;
        client_release(c);
}
