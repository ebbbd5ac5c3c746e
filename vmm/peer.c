/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "vmm/peer.h"

/* A packet must fit into the socket's buffer; the kernel doubles this and takes its own part. */
#define SEND_BUFFER_BYTES VMM_MESSAGE_MAX
#define RETRY_USEC (20 * USEC_PER_MSEC)

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "headers are sent as they lie in memory");

/* A message that waits. */
typedef struct Parcel {
        STAILQ_ENTRY(Parcel) entry;
        size_t size;
        int fds[PEER_FDS_MAX]; /* its own: those it was made from may be closed when its turn comes */
        size_t n_fds;
        uint8_t data[];
} Parcel;

STAILQ_HEAD(ParcelQueue, Parcel);

struct Peer {
        PeerEvents events;
        int fd;
        LoopSource *source;
        struct ParcelQueue queue;
        size_t queued_bytes;  /* with what the parcels themselves take */
        size_t queued_fds;
        LoopSource *retry;
        bool too_many;     /* descriptors of ours that it has not read: nothing tells when it has, so we try again */
        bool pressure;
        bool broken;       /* to be reported as gone when the loop comes round; see cut_off() */
        uint8_t buffer[VMM_MESSAGE_MAX];
};

static bool queue_is_high(const Peer *p) {
        return p->queued_bytes >= PEER_QUEUE_HIGH || p->queued_fds >= PEER_QUEUED_FDS_HIGH;
}

/* The hang-up that this makes brings the loop to on_peer(), which reports it. */
static void cut_off(Peer *p) {
        p->broken = true;
        (void) shutdown(p->fd, SHUT_RDWR);
}

static void update_events(Peer *p) {
        uint32_t events = 0;

        if (!queue_is_high(p))
                events |= EPOLLIN;
        if (!STAILQ_EMPTY(&p->queue) && !p->too_many)
                events |= EPOLLOUT;
        if (loop_set_events(p->source, events) < 0)
                cut_off(p);

        if (queue_is_high(p) != p->pressure) {
                p->pressure = !p->pressure;
                p->events.on_pressure(p->events.userdata, p->pressure);
        }
}

/* 0 sent, -EAGAIN, or the peer is broken. */
static int send_now(Peer *p, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        int r = send_packet(p->fd, iov, n_iov, fds, n_fds);
        p->too_many = r == -ETOOMANYREFS;
        if (p->too_many && loop_timer_set(p->retry, RETRY_USEC) >= 0)
                return -EAGAIN;
        if (r == -ENOBUFS)
                r = -EAGAIN;
        if (r < 0 && r != -EAGAIN)
                cut_off(p);
        return r;
}

static void drop_first(Peer *p) {
        Parcel *parcel = STAILQ_FIRST(&p->queue);

        STAILQ_REMOVE_HEAD(&p->queue, entry);
        p->queued_bytes -= sizeof(Parcel) + parcel->size;
        p->queued_fds -= parcel->n_fds;
        close_many(parcel->fds, parcel->n_fds);
        free(parcel);
}

static void drain(Peer *p) {
        Parcel *parcel;

        while (!p->broken && (parcel = STAILQ_FIRST(&p->queue))) {
                struct iovec iov = { parcel->data, parcel->size };

                if (send_now(p, &iov, 1, parcel->fds, parcel->n_fds) < 0)
                        break;
                drop_first(p);
        }
}

static int on_retry(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Peer *p = userdata;

        p->too_many = false;
        drain(p);
        update_events(p);
        return 0;
}

static int parcel_add_fds(Parcel *parcel, const int *fds, size_t n_fds) {
        for (; parcel->n_fds < n_fds; parcel->n_fds++) {
                int fd = fcntl(fds[parcel->n_fds], F_DUPFD_CLOEXEC, 0);
                if (fd < 0)
                        return -errno;
                parcel->fds[parcel->n_fds] = fd;
        }
        return 0;
}

static void enqueue(Peer *p, const VmmMessage *head, const TlvWriter *records, const int *fds, size_t n_fds) {
        size_t size = sizeof(*head) + head->len;

        if (sizeof(Parcel) + size > PEER_QUEUE_MAX - p->queued_bytes) {
                cut_off(p);
                return;
        }

        Parcel *parcel = malloc(sizeof(Parcel) + size);
        if (!parcel) {
                cut_off(p);
                return;
        }
        *parcel = (Parcel) { .size = size };
        if (parcel_add_fds(parcel, fds, n_fds) < 0) {
                close_many(parcel->fds, parcel->n_fds);
                free(parcel);
                cut_off(p);
                return;
        }
        memcpy(parcel->data, head, sizeof(*head));
        if (head->len > 0)
                memcpy(parcel->data + sizeof(*head), records->data, head->len);

        STAILQ_INSERT_TAIL(&p->queue, parcel, entry);
        p->queued_bytes += sizeof(Parcel) + size;
        p->queued_fds += n_fds;
}

void peer_send(Peer *p, VmmMessage head, const TlvWriter *records, const int *fds, size_t n_fds) {
        assert(p);
        assert(n_fds <= PEER_FDS_MAX);

        head.magic = VMM_PROTO_MAGIC;
        head.version = VMM_PROTO_VERSION;
        head.len = records ? (uint32_t) records->size : 0;

        if (!p->broken) {
                struct iovec iov[] = {
                        { &head, sizeof(head) },
                        { records ? records->data : NULL, head.len },
                };

                if (!STAILQ_EMPTY(&p->queue) || send_now(p, iov, ELEMENTSOF(iov), fds, n_fds) == -EAGAIN)
                        enqueue(p, &head, records, fds, n_fds);
        }
        update_events(p);
}

void peer_flush(Peer *p, uint64_t timeout_usec) {
        struct pollfd pfd = { .fd = p->fd, .events = POLLOUT };

        assert(p);

        drain(p);
        if (STAILQ_EMPTY(&p->queue) || p->broken)
                return;
        if (poll(&pfd, 1, (int) (timeout_usec / USEC_PER_MSEC)) > 0)
                drain(p);
}

static bool header_is_sound(const VmmMessage *head, size_t size) {
        return head->magic == VMM_PROTO_MAGIC && head->len == size - sizeof(*head);
}

/* One message a round, so that the loop's other sources get their turn. */
static void receive(Peer *p) {
        int fds[VMM_FDS_MAX];
        size_t n_fds = 0;
        VmmMessage head;

        ssize_t n = recv_packet(p->fd, p->buffer, sizeof(p->buffer), fds, ELEMENTSOF(fds), &n_fds);
        if (n == -EAGAIN)
                return;

        if (n < (ssize_t) sizeof(head)) {
                p->broken = true;
                if (n > 0)
                        close_many(fds, n_fds);
                return;
        }

        memcpy(&head, p->buffer, sizeof(head));
        if (header_is_sound(&head, (size_t) n))
                p->events.on_message(p->events.userdata, &head, p->buffer + sizeof(head), fds, n_fds);
        else
                p->broken = true;
        close_many(fds, n_fds);
}

static int on_peer(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Peer *p = userdata;

        if (events & EPOLLOUT)
                drain(p);
        if (!p->broken && (events & EPOLLIN))
                receive(p);
        /* What was sent before the other end left is still read, message by message. */
        else if (events & (EPOLLHUP|EPOLLERR))
                p->broken = true;

        if (p->broken) {
                p->events.on_gone(p->events.userdata);
                return 0;
        }
        update_events(p);
        return 0;
}

int peer_new(Loop *loop, int fd, const PeerEvents *events, Peer **ret) {
        _cleanup_close_ int owned = fd;
        int size = SEND_BUFFER_BYTES;

        assert(loop);
        assert(events);
        assert(ret);

        if (setsockopt(owned, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0)
                return -errno;

        /* The buffer takes memory only as far as messages have filled it. */
        _cleanup_free_ Peer *p = malloc(sizeof(Peer));
        if (!p)
                return -ENOMEM;
        memset(p, 0, offsetof(Peer, buffer));
        p->events = *events;
        STAILQ_INIT(&p->queue);

        int r = loop_add_timer(loop, on_retry, p, &p->retry);
        if (r < 0)
                return r;
        r = loop_add_fd(loop, owned, EPOLLIN, on_peer, p, &p->source);
        if (r < 0) {
                loop_remove(p->retry);
                return r;
        }

        p->fd = TAKE_FD(owned);
        *ret = TAKE_PTR(p);
        return 0;
}

Peer *peer_free(Peer *p) {
        if (!p)
                return NULL;

        while (!STAILQ_EMPTY(&p->queue))
                drop_first(p);
        loop_remove(p->source);
        loop_remove(p->retry);
        safe_close(p->fd);
        free(p);
        return NULL;
}
