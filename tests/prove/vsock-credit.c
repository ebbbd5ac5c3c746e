/* SPDX-License-Identifier: Apache-2.0 */

/* P11: what a guest may send is never more than there is room for, whatever it sends and whatever its numbers say, and we
 * never send it more than it said it has room for; the counters wrap. What waits in the ring is not overwritten.
 * conn_holds() is true of a new connection and stays true over each packet: so it holds for any number of them.
 * Bounds: none for numbers (a packet of up to 64 KiB in a chain of up to 2 parts, any counters); a stream past its first
 * answer; the host's socket takes any part of it, once. Copies are judged by their ranges, not done. */

#include "prove.h"
#include "vmm/vsock-conn.h"

static uint64_t copied;
static const VsockConn *stream;

/* What lies in the ring and was not handed on stays. */
static void prove_behind_what_waits(const uint8_t *dst, size_t n) {
        uint64_t behind = ((uint64_t) (dst - stream->ring) + VSOCK_BUFFER_BYTES - stream->ring_start) % VSOCK_BUFFER_BYTES;

        prove(n == 0 || (behind >= stream->ring_used && behind + n <= VSOCK_BUFFER_BYTES));
}

/* Both ends exist; what moves doesn't matter here. */
static void copy(void *dst, const void *src, size_t n) {
        prove(__CPROVER_w_ok(dst, n));
        prove_behind_what_waits(dst, n);
        copied += n;
}

#define memcpy(dst, src, n) copy(dst, src, n)
#include "vmm/vsock-conn.c"

/* Any split of what is asked for, as virt-chain.c shows it to be. */
size_t virt_chain_readable_iov(const VirtChain *chain, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes) {
        uint64_t first = any_below(len + 1);

        iov[0].iov_len = first;
        iov[1].iov_len = len - first;
        *ret_bytes = len;
        return 2;
}

size_t virt_chain_writable_iov(const VirtChain *chain, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes) {
        *ret_bytes = any_below(len + 1);
        return 1;
}

ssize_t sendmsg(int fd, const struct msghdr *mh, int flags) {
        uint64_t all = mh->msg_iov[0].iov_len + (mh->msg_iovlen > 1 ? mh->msg_iov[1].iov_len : 0);

        errno = any_bool() ? EAGAIN : EPIPE;
        return any_bool() ? -1 : (ssize_t) any_below(all + 1);
}

/* What a connection does to its socket when it ends changes no counter. */
int shutdown(int fd, int how) {
        return 0;
}

ssize_t recv(int fd, void *buffer, size_t size, int flags) {
        return 0;
}

int close(int fd) {
        return 0;
}

LoopSource *loop_remove(LoopSource *s) {
        return NULL;
}

static uint64_t asked;

ssize_t readv(int fd, const struct iovec *iov, int n) {
        errno = any_bool() ? EAGAIN : EPIPE;
        return any_bool() ? -1 : (ssize_t) any_below(asked + 1);
}

/* What was received and not handed on lies in the ring, and the guest was told of less room than there is. */
static bool conn_holds(const VsockConn *c) {
        return c->received - c->reported <= VSOCK_BUFFER_BYTES &&
               c->forwarded - c->reported <= c->received - c->reported &&
               c->ring_used == c->received - c->forwarded && c->ring_start < VSOCK_BUFFER_BYTES &&
               (c->ring != NULL || c->ring_used == 0);
}

static VsockConn any_stream(void) {
        VsockConn c = {
                .state = VSOCK_OPEN,
                .fd = any_bool() ? 3 : -EBADF,
                .fd_broken = any_bool(),
                .held = any_bool(),
                .guest_shutdown = any_u32(),
                .host_shutdown = any_u32(),
                .peer_buf_alloc = any_u32(),
                .peer_fwd_cnt = any_u32(),
                .sent = any_u32(),
                .received = any_u32(),
                .forwarded = any_u32(),
                .reported = any_u32(),
                .ring_start = any_u32(),
                .ring_used = any_u32(),
        };

        if (any_bool())
                c.ring = malloc(VSOCK_BUFFER_BYTES);
        STAILQ_INIT(&c.frames);
        assume(conn_holds(&c));
        return c;
}

PROOF(what_a_guest_may_send_fits, 2) {
        VsockConn c = any_stream();
        VirtChain chain;
        uint32_t len = (uint32_t) any_below(VSOCK_PACKET_BYTES_MAX + 1);
        uint32_t room = VSOCK_BUFFER_BYTES - (c.received - c.reported);
        bool shut = c.guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND;

        stream = &c;
        receive(&c, &chain, NULL, len);
        prove(copied <= len);
        if (c.state == VSOCK_OPEN)
                prove(conn_holds(&c) && len <= room && !shut);
        else
                prove(c.reset_owed);
}

PROOF(what_the_socket_takes_is_room_again, 2) {
        VsockConn c = any_stream();
        uint32_t received = c.received;

        if (c.ring_used > 0 && c.fd >= 0)
                fd_broke(&c);
        prove(conn_holds(&c) && c.received == received);
}

PROOF(we_send_no_more_than_the_guest_has_room_for, 2) {
        VsockConn c = any_stream();
        VirtChain chain;
        uint32_t on_way = c.sent - c.peer_fwd_cnt;
        struct virtio_vsock_hdr h;

        asked = MIN((uint64_t) VSOCK_PACKET_BYTES_MAX, (uint64_t) credit(&c));
        size_t n = fill_from_fd(&c, &chain, NULL, asked);
        prove(n <= VSOCK_PACKET_BYTES_MAX);
        prove(n == 0 || (on_way < c.peer_buf_alloc && n <= c.peer_buf_alloc - on_way));

        fill_header(&c, VIRTIO_VSOCK_OP_RW, (uint32_t) n, 0, &h);
        prove(conn_holds(&c) && le32toh(h.buf_alloc) == VSOCK_BUFFER_BYTES);
        /* The guest's idea of our room is no more than the ring has. */
        prove(VSOCK_BUFFER_BYTES - (c.received - le32toh(h.fwd_cnt)) <= VSOCK_BUFFER_BYTES - c.ring_used);
}
