/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/clock.h"
#include "base/fd-util.h"
#include "vmm/vsock-conn.h"

#define SHUTDOWN_BOTH ((uint32_t) (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND))
/* The guest learns of new room in steps of this. */
#define CREDIT_STEP (VSOCK_BUFFER_BYTES / 4)

enum {
        OWE_REQUEST = 1 << 0,
        OWE_RESPONSE = 1 << 1,
        OWE_SHUTDOWN = 1 << 2,
        OWE_CREDIT = 1 << 3,
        OWE_CREDIT_REQUEST = 1 << 4,
};

struct VsockFrame {
        STAILQ_ENTRY(VsockFrame) entry;
        size_t size;
        size_t offset;
        uint8_t data[];
};

/* Life */

static VsockConn *conn_new(uint32_t host_port, uint32_t guest_port, size_t frame_max) {
        VsockConn *c = new0(VsockConn, 1);
        if (!c)
                return NULL;

        c->host_port = host_port;
        c->guest_port = guest_port;
        c->fd = -EBADF;
        c->framed = true;
        STAILQ_INIT(&c->frames);
        frame_parser_init(&c->parser, frame_max);
        return c;
}

VsockConn *vsock_conn_new_control(uint32_t guest_port, const VsockControlEvents *events) {
        assert(events);

        VsockConn *c = conn_new(AGENT_CONTROL_PORT, guest_port, AGENT_FRAME_MAX);
        if (!c)
                return NULL;

        c->control = true;
        c->events = *events;
        c->state = VSOCK_OPEN;
        c->owed = OWE_RESPONSE;
        return c;
}

VsockConn *vsock_conn_new_stream(Loop *loop, LoopHandler handler, int fd, uint32_t host_port,
                                 uint32_t guest_port, StreamAnswer answer, void *userdata) {
        assert(loop);
        assert(handler);
        assert(answer);

        VsockConn *c = conn_new(host_port, guest_port, VSOCK_ANSWER_BYTES_MAX);
        if (!c) {
                safe_close(fd);
                return NULL;
        }

        c->loop = loop;
        c->handler = handler;
        c->fd = fd;
        c->answer = answer;
        c->answer_userdata = userdata;
        c->state = VSOCK_REQUESTED;
        c->owed = OWE_REQUEST;
        c->deadline_usec = now_usec() + VSOCK_CONNECT_TIMEOUT_USEC;
        return c;
}

static void drop_frames(VsockConn *c) {
        VsockFrame *f;

        while ((f = STAILQ_FIRST(&c->frames))) {
                STAILQ_REMOVE_HEAD(&c->frames, entry);
                free(f);
        }
        c->frames_bytes = 0;
}

/* A unix socket that is closed with something unread in it gives its peer ECONNRESET in place of the
 * end of the stream. So the peer is told to stop, and what it sent before is read away. */
static void close_fd(VsockConn *c) {
        uint8_t scratch[4096];

        if (c->fd < 0)
                return;

        c->source = loop_remove(c->source);
        (void) shutdown(c->fd, SHUT_RDWR);
        for (size_t n = 0; n < MIB(1); n += sizeof(scratch))
                if (recv(c->fd, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0)
                        break;
        c->fd = safe_close(c->fd);
}

VsockConn *vsock_conn_free(VsockConn *c) {
        if (!c)
                return NULL;

        close_fd(c);
        drop_frames(c);
        frame_parser_done(&c->parser);
        free(c->ring);
        free(c);
        return NULL;
}

static void give_answer(VsockConn *c, int error, const uint8_t *frame, size_t size) {
        StreamAnswer answer = TAKE_PTR(c->answer);

        if (answer)
                answer(c->answer_userdata, error, frame, size);
}

/* What follows from what has happened */

/* What the guest has to be told about directions that ended on the host's side. All data has been
 * read from the socket before its end is seen, so that this goes behind it. */
static uint32_t shutdown_due(const VsockConn *c) {
        uint32_t due = 0;

        if (c->fd_eof && !(c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV))
                due |= VIRTIO_VSOCK_SHUTDOWN_SEND;
        if (c->fd_broken && !(c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND))
                due |= VIRTIO_VSOCK_SHUTDOWN_RCV;
        return due & ~c->host_shutdown;
}

static void forward(VsockConn *c, size_t n) {
        c->forwarded += (uint32_t) n;
        if (c->forwarded - c->reported >= CREDIT_STEP && !c->held)
                c->owed |= OWE_CREDIT;
}

void vsock_conn_hold(VsockConn *c, bool hold) {
        assert(c);

        c->held = hold;
        forward(c, 0);
}

static void fd_broke(VsockConn *c) {
        c->fd_broken = true;
        forward(c, c->ring_used);
        c->ring_used = 0;
        free(TAKE_PTR(c->ring));
}

/* How much of the stream may still pass in each direction decides everything else. Called at the end
 * of every entry point. */
static void settle(VsockConn *c) {
        if (c->state == VSOCK_DEAD)
                return;

        /* The peer has closed: nothing that was sent now would be read. */
        if (c->fd_hangup && !c->framed && !c->fd_broken)
                fd_broke(c);

        if (c->fd >= 0 && (c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) && c->ring_used == 0 && !c->fd_shut) {
                (void) shutdown(c->fd, SHUT_WR);
                c->fd_shut = true;
        }
        if (c->fd >= 0 && (c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV) && !c->fd_eof) {
                (void) shutdown(c->fd, SHUT_RD);
                c->fd_eof = true;
        }

        /* Both directions given up by the guest: it waits for our RST (5.10.6.5). */
        if (c->state == VSOCK_OPEN && c->guest_shutdown == SHUTDOWN_BOTH) {
                c->reset_owed = true;
                vsock_conn_guest_gone(c, -ECONNRESET);
                return;
        }
        if (c->state == VSOCK_ORPHAN && c->ring_used == 0) {
                close_fd(c);
                c->state = VSOCK_DEAD;
                return;
        }

        if (c->fd >= 0 && c->fd_eof && (c->fd_shut || c->fd_broken))
                close_fd(c);
        if (c->state != VSOCK_OPEN || c->control)
                return;

        if (shutdown_due(c) != 0)
                c->owed |= OWE_SHUTDOWN;
}

/* Both directions are over and the guest knows: it may linger, but not for ever. */
static void start_linger(VsockConn *c) {
        bool to_guest_over = (c->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) ||
                             (c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV);
        bool to_host_over = (c->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV) ||
                            (c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND);

        if (c->state == VSOCK_OPEN && to_guest_over && to_host_over && c->deadline_usec == 0)
                c->deadline_usec = now_usec() + VSOCK_LINGER_TIMEOUT_USEC;
}

void vsock_conn_guest_gone(VsockConn *c, int error) {
        assert(c);

        if (c->state == VSOCK_ORPHAN || c->state == VSOCK_DEAD)
                return;

        c->state = VSOCK_ORPHAN;
        c->owed = 0;
        c->deadline_usec = 0;
        drop_frames(c);
        if (c->fd >= 0 && !c->fd_eof) {
                (void) shutdown(c->fd, SHUT_RD);
                c->fd_eof = true;
        }
        if (c->control && c->events.on_lost)
                c->events.on_lost(c->events.userdata);
        give_answer(c, error, NULL, 0);
        settle(c);
}

static void abort_conn(VsockConn *c, int error) {
        c->reset_owed = true;
        vsock_conn_guest_gone(c, error);
}

void vsock_conn_on_deadline(VsockConn *c) {
        assert(c);
        abort_conn(c, -ETIMEDOUT);
}

/* From the guest */

/* Bytes that the socket took; 0 when it is full or gone. */
static size_t send_iov(VsockConn *c, struct iovec *iov, size_t n_iov) {
        struct msghdr mh = { .msg_iov = iov, .msg_iovlen = n_iov };

        ssize_t n = sendmsg(c->fd, &mh, MSG_NOSIGNAL|MSG_DONTWAIT);
        if (n >= 0)
                return (size_t) n;
        if (errno != EAGAIN && errno != EINTR)
                fd_broke(c);
        return 0;
}

static void flush_ring(VsockConn *c) {
        while (c->ring_used > 0 && c->fd >= 0) {
                uint32_t first = MIN(c->ring_used, (uint32_t) VSOCK_BUFFER_BYTES - c->ring_start);
                struct iovec iov[2] = {
                        { .iov_base = c->ring + c->ring_start, .iov_len = first },
                        { .iov_base = c->ring, .iov_len = c->ring_used - first },
                };

                size_t n = send_iov(c, iov, 2);
                if (n == 0)
                        return;
                c->ring_start = (c->ring_start + n) % VSOCK_BUFFER_BYTES;
                c->ring_used -= n;
                forward(c, n);
        }

        if (c->ring_used == 0)
                free(TAKE_PTR(c->ring));
}

static int ring_append(VsockConn *c, const uint8_t *data, size_t size) {
        if (!c->ring) {
                c->ring = malloc(VSOCK_BUFFER_BYTES);
                if (!c->ring)
                        return -ENOMEM;
                c->ring_start = 0;
        }

        /* Credit was checked when the packet came in, so it fits. */
        assert(size <= VSOCK_BUFFER_BYTES - c->ring_used);

        uint32_t at = (c->ring_start + c->ring_used) % VSOCK_BUFFER_BYTES;
        size_t first = MIN(size, VSOCK_BUFFER_BYTES - at);
        memcpy(c->ring + at, data, first);
        memcpy(c->ring, data + first, size - first);
        c->ring_used += size;
        return 0;
}

/* The guest's bytes [offset, offset + len) of the chain, raw, to the socket or into the ring. */
static void receive_raw(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t offset, uint64_t len) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n, sent = 0;

        if (c->ring_used == 0 && !c->fd_broken && c->fd >= 0) {
                n = virt_chain_readable_iov(chain, m, offset, len, iov, &bytes);
                sent = send_iov(c, iov, n);
                forward(c, sent);
        }

        if (c->fd_broken || c->fd < 0) {
                /* Nobody is there to read it; the guest has been told, or will be. */
                forward(c, len - sent);
                return;
        }

        n = virt_chain_readable_iov(chain, m, offset + sent, len - sent, iov, &bytes);
        for (size_t i = 0; i < n; i++)
                if (ring_append(c, iov[i].iov_base, iov[i].iov_len) < 0) {
                        abort_conn(c, -ENOMEM);
                        return;
                }
}

/* A whole frame lies in the parser. */
static void take_frame(VsockConn *c) {
        FrameHeader h;
        const uint8_t *body;

        if (frame_parser_peek(&c->parser, &h, &body) <= 0)
                return;

        if (c->control) {
                c->events.on_frame(c->events.userdata, &h, body);
                frame_parser_next(&c->parser);
                return;
        }

        c->framed = false;
        c->deadline_usec = 0;
        give_answer(c, 0, c->parser.buffer, c->parser.size);
        frame_parser_done(&c->parser);
        if (h.type != AGENT_OK)
                abort_conn(c, -ECONNRESET);
}

/* Feeds the parser from chain. Returns how many bytes it took: all, or those up to the end of a
 * stream's first frame. */
static uint64_t receive_framed(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t offset, uint64_t len) {
        uint8_t piece[1024];
        uint64_t done = 0;

        while (done < len && c->framed && c->state == VSOCK_OPEN) {
                size_t want = MIN(MIN(frame_parser_missing(&c->parser), sizeof(piece)), len - done);
                size_t n = virt_chain_read(chain, m, offset + done, piece, want);
                ssize_t fed = frame_parser_feed(&c->parser, piece, n);
                if (fed <= 0) {
                        abort_conn(c, -EBADMSG);
                        return done;
                }
                done += fed;
                if (frame_parser_missing(&c->parser) == 0)
                        take_frame(c);
        }

        forward(c, done);
        return done;
}

static void receive(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint32_t len) {
        if ((c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) ||
            c->received + len - c->reported > VSOCK_BUFFER_BYTES) {
                abort_conn(c, -EBADMSG);
                return;
        }
        c->received += len;

        uint64_t done = 0;
        if (c->framed)
                done = receive_framed(c, chain, m, VSOCK_HEADER_BYTES, len);
        if (done < len && c->state == VSOCK_OPEN)
                receive_raw(c, chain, m, VSOCK_HEADER_BYTES + done, len - done);
}

static void on_shutdown(VsockConn *c, uint32_t flags) {
        c->guest_shutdown |= flags & SHUTDOWN_BOTH;

        /* Neither the control stream nor a stream without its answer has a use for one direction. */
        if (c->guest_shutdown != 0 && c->framed)
                abort_conn(c, -ECONNRESET);
        start_linger(c);
}

static void open_packet(VsockConn *c, const struct virtio_vsock_hdr *h, const VirtChain *chain, const GuestMem *m) {
        switch (le16toh(h->op)) {
        case VIRTIO_VSOCK_OP_RW:
                receive(c, chain, m, le32toh(h->len));
                break;
        case VIRTIO_VSOCK_OP_SHUTDOWN:
                on_shutdown(c, le32toh(h->flags));
                break;
        case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
                break;
        case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
                c->owed |= OWE_CREDIT;
                break;
        case VIRTIO_VSOCK_OP_RST:
                vsock_conn_guest_gone(c, -ECONNRESET);
                break;
        default:
                abort_conn(c, -EBADMSG);
        }
}

static void requested_packet(VsockConn *c, const struct virtio_vsock_hdr *h) {
        switch (le16toh(h->op)) {
        case VIRTIO_VSOCK_OP_RESPONSE:
                c->state = VSOCK_OPEN;
                c->deadline_usec = now_usec() + VSOCK_ANSWER_TIMEOUT_USEC;
                break;
        case VIRTIO_VSOCK_OP_RST:
                vsock_conn_guest_gone(c, -ECONNREFUSED);
                break;
        default:
                abort_conn(c, -EBADMSG);
        }
}

void vsock_conn_packet(VsockConn *c, const struct virtio_vsock_hdr *h, const VirtChain *chain, const GuestMem *m) {
        assert(c);
        assert(h);

        c->peer_buf_alloc = le32toh(h->buf_alloc);
        c->peer_fwd_cnt = le32toh(h->fwd_cnt);

        if (c->state == VSOCK_OPEN)
                open_packet(c, h, chain, m);
        else if (c->state == VSOCK_REQUESTED)
                requested_packet(c, h);
        settle(c);
}

/* To the guest */

/* Bytes that the guest says it has room for; 0 as well when its numbers make no sense. */
static uint32_t credit(const VsockConn *c) {
        uint32_t on_way = c->sent - c->peer_fwd_cnt;

        return on_way < c->peer_buf_alloc ? c->peer_buf_alloc - on_way : 0;
}

static bool may_send(const VsockConn *c) {
        return c->state == VSOCK_OPEN && !(c->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV) &&
               !(c->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND);
}

static bool has_data(const VsockConn *c) {
        if (!may_send(c))
                return false;
        return !STAILQ_EMPTY(&c->frames) || (c->fd >= 0 && !c->framed && c->fd_readable && !c->fd_eof);
}

bool vsock_conn_has_output(const VsockConn *c) {
        assert(c);

        if (c->state == VSOCK_ORPHAN || c->state == VSOCK_DEAD)
                return false;
        if (c->owed != 0)
                return true;
        return has_data(c) && (credit(c) > 0 || !c->credit_asked);
}

int vsock_conn_queue_frame(VsockConn *c, const uint8_t *frame, size_t size) {
        assert(c);
        assert(frame);

        if (size > VSOCK_QUEUE_BYTES_MAX - c->frames_bytes)
                return -EAGAIN;

        VsockFrame *f = malloc(sizeof(VsockFrame) + size);
        if (!f)
                return -ENOMEM;

        f->size = size;
        f->offset = 0;
        memcpy(f->data, frame, size);
        STAILQ_INSERT_TAIL(&c->frames, f, entry);
        c->frames_bytes += size;
        return 0;
}

static size_t fill_from_frames(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t room) {
        size_t done = 0;
        VsockFrame *f;

        while (done < room && (f = STAILQ_FIRST(&c->frames))) {
                size_t n = virt_chain_write(chain, m, VSOCK_HEADER_BYTES + done, f->data + f->offset,
                                            MIN(f->size - f->offset, room - done));
                f->offset += n;
                done += n;
                if (f->offset < f->size)
                        break;

                STAILQ_REMOVE_HEAD(&c->frames, entry);
                c->frames_bytes -= f->size;
                free(f);
        }
        return done;
}

static size_t fill_from_fd(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t room) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n_iov = virt_chain_writable_iov(chain, m, VSOCK_HEADER_BYTES, room, iov, &bytes);

        if (bytes == 0)
                return 0;

        ssize_t n = readv(c->fd, iov, (int) n_iov);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
                c->fd_readable = errno == EINTR;
                return 0;
        }

        /* An error is an end too: the peer closed with something of ours unread. */
        if (n <= 0) {
                c->fd_eof = true;
                settle(c);
                return 0;
        }

        /* Less than asked for: empty for now, epoll says when not, or that it was the end. */
        if ((size_t) n < bytes)
                c->fd_readable = false;
        return (size_t) n;
}

static size_t fill_data(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t room) {
        room = MIN(MIN(room, VSOCK_PACKET_BYTES_MAX), (uint64_t) credit(c));
        if (room == 0)
                return 0;
        if (!STAILQ_EMPTY(&c->frames))
                return fill_from_frames(c, chain, m, room);
        return fill_from_fd(c, chain, m, room);
}

static void fill_header(VsockConn *c, unsigned op, uint32_t len, uint32_t flags, struct virtio_vsock_hdr *ret) {
        *ret = (struct virtio_vsock_hdr) {
                .src_port = htole32(c->host_port),
                .dst_port = htole32(c->guest_port),
                .len = htole32(len),
                .type = htole16(VIRTIO_VSOCK_TYPE_STREAM),
                .op = htole16(op),
                .flags = htole32(flags),
                .buf_alloc = htole32(VSOCK_BUFFER_BYTES),
                .fwd_cnt = htole32(c->held ? c->reported : c->forwarded),
        };
        c->reported = le32toh(ret->fwd_cnt);
        c->owed &= ~OWE_CREDIT;
}

static bool settle_debt(VsockConn *c, unsigned debt) {
        if (!(c->owed & debt))
                return false;
        c->owed &= ~debt;
        return true;
}

/* Packets that go before data. */
static bool fill_opening(VsockConn *c, struct virtio_vsock_hdr *ret) {
        if (settle_debt(c, OWE_REQUEST))
                fill_header(c, VIRTIO_VSOCK_OP_REQUEST, 0, 0, ret);
        else if (settle_debt(c, OWE_RESPONSE))
                fill_header(c, VIRTIO_VSOCK_OP_RESPONSE, 0, 0, ret);
        else
                return false;
        return true;
}

/* Packets that go behind it. */
static bool fill_closing(VsockConn *c, struct virtio_vsock_hdr *ret) {
        if (settle_debt(c, OWE_SHUTDOWN)) {
                c->host_shutdown |= shutdown_due(c);
                fill_header(c, VIRTIO_VSOCK_OP_SHUTDOWN, 0, c->host_shutdown, ret);
                start_linger(c);
        } else if (settle_debt(c, OWE_CREDIT_REQUEST))
                fill_header(c, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0, 0, ret);
        else if (settle_debt(c, OWE_CREDIT))
                fill_header(c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, 0, ret);
        else
                return false;
        return true;
}

int vsock_conn_fill(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t room,
                    struct virtio_vsock_hdr *ret) {
        assert(c);
        assert(chain);
        assert(ret);

        if (!vsock_conn_has_output(c))
                return 0;
        if (fill_opening(c, ret))
                return 1;

        if (has_data(c)) {
                if (credit(c) == 0 && !c->credit_asked) {
                        c->credit_asked = true;
                        c->owed |= OWE_CREDIT_REQUEST;
                }

                size_t n = fill_data(c, chain, m, room);
                if (n > 0) {
                        c->sent += n;
                        c->credit_asked = false;
                        fill_header(c, VIRTIO_VSOCK_OP_RW, n, 0, ret);
                        return 1;
                }
        }

        return fill_closing(c, ret);
}

/* The host's socket */

void vsock_conn_on_fd(VsockConn *c, uint32_t events) {
        assert(c);

        if (events & (EPOLLIN|EPOLLHUP|EPOLLERR))
                c->fd_readable = true;
        if (events & (EPOLLOUT|EPOLLHUP|EPOLLERR))
                flush_ring(c);
        if (events & EPOLLHUP)
                c->fd_hangup = true;
        settle(c);
}

static uint32_t wanted_events(const VsockConn *c) {
        uint32_t events = 0;

        if (may_send(c) && !c->framed && !c->fd_eof && !c->fd_readable)
                events |= EPOLLIN;
        if (c->ring_used > 0)
                events |= EPOLLOUT;
        return events;
}

void vsock_conn_update_events(VsockConn *c) {
        assert(c);

        if (c->fd < 0)
                return;

        uint32_t events = wanted_events(c);
        /* A hang-up is reported whether one asks for it or not, again and again: don't even listen
         * while nothing can be done about it. */
        if (events == 0 && c->fd_hangup) {
                c->source = loop_remove(c->source);
                return;
        }

        int r = c->source ? loop_set_events(c->source, events) :
                            loop_add_fd(c->loop, c->fd, events, c->handler, c, &c->source);
        if (r < 0)
                abort_conn(c, r);
}

/* Snapshots */

typedef struct ControlState {
        uint32_t guest_port;
        uint32_t owed;
        uint32_t peer_buf_alloc;
        uint32_t peer_fwd_cnt;
        uint32_t sent;
        uint32_t received;
        uint32_t reported;
        uint32_t credit_asked;
        uint32_t parser_bytes;
        uint32_t frame_bytes;
} ControlState;

#define OWED_BY_CONTROL ((uint32_t) (OWE_RESPONSE | OWE_CREDIT | OWE_CREDIT_REQUEST))

void vsock_conn_save_control(const VsockConn *c, SnapshotWriter *w) {
        assert(c);
        assert(c->control && c->state == VSOCK_OPEN);

        const VsockFrame *f = STAILQ_FIRST(&c->frames);
        ControlState s = {
                .guest_port = c->guest_port,
                .owed = c->owed,
                .peer_buf_alloc = c->peer_buf_alloc,
                .peer_fwd_cnt = c->peer_fwd_cnt,
                .sent = c->sent,
                .received = c->received,
                .reported = c->reported,
                .credit_asked = c->credit_asked,
                .parser_bytes = (uint32_t) c->parser.size,
                .frame_bytes = f && f->offset > 0 ? (uint32_t) (f->size - f->offset) : 0,
        };

        snapshot_writer_put(w, &s, sizeof(s));
        snapshot_writer_put(w, c->parser.buffer, s.parser_bytes);
        if (s.frame_bytes > 0)
                snapshot_writer_put(w, f->data + f->offset, s.frame_bytes);
}

static int check_control(const SnapshotReader *r, const ControlState *s, ErrorText *e) {
        if (s->guest_port > AGENT_CONTROL_GUEST_PORT_MAX)
                return snapshot_bad(r, e, "a control stream from port %u", s->guest_port);
        if ((s->owed & ~OWED_BY_CONTROL) || s->credit_asked > 1 ||
            s->received - s->reported > VSOCK_BUFFER_BYTES)
                return snapshot_bad(r, e, "a control stream in an impossible state");
        if (s->parser_bytes >= FRAME_HEADER_SIZE + AGENT_FRAME_MAX ||
            s->frame_bytes >= FRAME_HEADER_SIZE + AGENT_FRAME_MAX)
                return snapshot_bad(r, e, "a control stream with too large a frame");
        return 0;
}

/* By the parser itself, which judges what the guest announced. A frame that is complete would have been
 * handed on before. */
static int load_parser(VsockConn *c, SnapshotReader *r, size_t size, ErrorText *e) {
        const uint8_t *data;

        int k = snapshot_read_view(r, size, &data, e);
        if (k < 0)
                return k;
        while (size > 0) {
                ssize_t n = frame_parser_feed(&c->parser, data, size);
                if (n == -ENOMEM)
                        return error_set(e, -ENOMEM, "out of memory");
                if (n <= 0 || frame_parser_missing(&c->parser) == 0)
                        return snapshot_bad(r, e, "a frame of the control stream that makes no sense");
                data += n;
                size -= (size_t) n;
        }
        return 0;
}

static int load_frame(VsockConn *c, SnapshotReader *r, size_t size, ErrorText *e) {
        const uint8_t *data;

        int k = snapshot_read_view(r, size, &data, e);
        if (k < 0 || size == 0)
                return k;
        k = vsock_conn_queue_frame(c, data, size);
        return k < 0 ? error_set_errno(e, k, "control stream") : 0;
}

int vsock_conn_load_control(SnapshotReader *r, const VsockControlEvents *events, VsockConn **ret, ErrorText *e) {
        ControlState s;

        assert(ret);

        int k = snapshot_read(r, &s, sizeof(s), e);
        if (k >= 0)
                k = check_control(r, &s, e);
        if (k < 0)
                return k;

        VsockConn *c = vsock_conn_new_control(s.guest_port, events);
        if (!c)
                return error_set(e, -ENOMEM, "out of memory");
        c->owed = s.owed;
        c->peer_buf_alloc = s.peer_buf_alloc;
        c->peer_fwd_cnt = s.peer_fwd_cnt;
        c->sent = s.sent;
        c->received = c->forwarded = s.received;
        c->reported = s.reported;
        c->credit_asked = s.credit_asked;

        k = load_parser(c, r, s.parser_bytes, e);
        if (k >= 0)
                k = load_frame(c, r, s.frame_bytes, e);
        if (k < 0) {
                vsock_conn_free(c);
                return k;
        }
        *ret = c;
        return 0;
}
