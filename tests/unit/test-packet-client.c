/* SPDX-License-Identifier: Apache-2.0 */

/* The client against a peer on a socketpair. Answers are static: what is pending at a test's end is
 * answered by the next one's setup(). */

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "tests/unit/test.h"

#define MAGIC 0x11223344U

typedef struct Answer {
        unsigned n;
        int error;
        size_t size, n_fds;
        uint8_t data[64];
        PacketClient **free_client;   /* freed in the callback */
} Answer;

static unsigned n_events;
static uint16_t last_event;

static void on_reply(int error, const PacketBody *body, void *userdata) {
        Answer *a = userdata;

        a->n++;
        a->error = error;
        a->size = body->size;
        a->n_fds = body->n_fds;
        if (body->size > 0)
                memcpy(a->data, body->data, MIN(body->size, sizeof(a->data)));
        if (a->free_client)
                *a->free_client = packet_client_free(*a->free_client);
}

static void on_event(uint16_t op, const PacketBody *body, void *userdata) {
        n_events++;
        last_event = op;
}

static const PacketProtocol protocol = {
        .magic = MAGIC, .version = 1, .max_pending = 4, .max_queued_bytes = 100000, .event = on_event,
};

static PacketClient *client;
static int peer = -EBADF;

static void setup(void) {
        int ends[2];

        client = packet_client_free(client);
        peer = safe_close(peer);
        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends));
        peer = ends[1];
        assert_ok(packet_client_new(ends[0], &protocol, NULL, &client));
        n_events = 0;
}

static ssize_t peer_recv(PacketHeader *ret, int *fds, size_t *n_fds) {
        static uint8_t buf[PACKET_SIZE_MAX];
        size_t none = 0;
        int few[PACKET_FDS_LIMIT];

        *ret = (PacketHeader) {};
        ssize_t n = recv_packet(peer, buf, sizeof(buf), fds ? fds : few, PACKET_FDS_LIMIT, n_fds ? n_fds : &none);
        if (n >= (ssize_t) sizeof(*ret))
                memcpy(ret, buf, sizeof(*ret));
        return n;
}

static void peer_send_raw(PacketHeader h, const void *body, size_t size, const int *fds, size_t n_fds) {
        struct iovec iov[2] = { { &h, sizeof(h) }, { (void *) body, size } };
        assert_ok(send_packet(peer, iov, 2, fds, n_fds));
}

static void peer_reply(uint32_t seq, int error, const void *body, size_t size) {
        peer_send_raw((PacketHeader) { .magic = MAGIC, .version = 1, .flags = PACKET_FLAG_REPLY, .seq = seq, .error = error,
                                       .len = (uint32_t) size }, body, size, NULL, 0);
}

static int call(Answer *a) {
        return packet_client_call(client, 7, NULL, NULL, 0, UINT64_MAX, on_reply, a);
}

TEST(answers_find_their_requests_in_any_order) {
        static Answer a, b;
        PacketHeader x, y;

        setup();
        assert_ok(call(&a));
        assert_ok(call(&b));
        assert_true(peer_recv(&x, NULL, NULL) > 0 && peer_recv(&y, NULL, NULL) > 0);
        assert_eq(x.op, 7);
        assert_true(x.seq != y.seq && x.seq != 0);
        peer_reply(y.seq, -ENOENT, "bb", 2);
        peer_reply(x.seq, 0, "a", 1);
        assert_ok(packet_client_process(client, EPOLLIN));
        assert_eq(a.n, 1);
        assert_eq(a.size, 1);
        assert_eq(b.error, -ENOENT);
        assert_eq(b.size, 2);
}

TEST(of_a_peer_that_is_gone_a_request_is_told_at_once) {
        static Answer before, a;

        setup();
        assert_ok(call(&before));
        peer = safe_close(peer);
        assert_eq(call(&a), -ENOTCONN);
        assert_eq(call(&a), -ENOTCONN);
        assert_eq(before.n, 0);
        assert_true(packet_client_process(client, EPOLLIN|EPOLLHUP) < 0);
        client = packet_client_free(client);
        assert_eq(before.error, -ECONNRESET);
        assert_eq(a.n, 0);
}

TEST(of_a_peer_that_is_gone_what_had_to_wait_is_told_the_same) {
        static uint8_t blob[30000];
        static Answer a;

        setup();
        while (send(packet_client_fd(client), blob, sizeof(blob), MSG_DONTWAIT) > 0)
                ;
        assert_ok(call(&a));
        assert_true(packet_client_events(client) & EPOLLOUT);
        while (recv(peer, blob, sizeof(blob), MSG_DONTWAIT) > 0)
                ;
        peer = safe_close(peer);
        assert_eq(packet_client_process(client, EPOLLOUT), -ECONNRESET);
}

TEST(a_second_answer_and_a_late_one_are_ignored) {
        static Answer a;
        PacketHeader h;

        setup();
        assert_ok(call(&a));
        assert_true(peer_recv(&h, NULL, NULL) > 0);
        peer_reply(h.seq, 0, NULL, 0);
        peer_reply(h.seq, 0, NULL, 0);
        peer_reply(12345, 0, NULL, 0);
        assert_ok(packet_client_process(client, EPOLLIN));
        assert_eq(a.n, 1);
}

TEST(descriptors_of_an_answer_do_not_leak) {
        int fds[3] = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO }, before, after;
        static Answer a;
        PacketHeader h;

        setup();
        assert_ok(call(&a));
        assert_true(peer_recv(&h, NULL, NULL) > 0);
        before = dup(0);
        close(before);
        peer_send_raw((PacketHeader) { .magic = MAGIC, .version = 1, .flags = PACKET_FLAG_REPLY, .seq = h.seq }, NULL, 0, fds, 3);
        peer_send_raw((PacketHeader) { .magic = MAGIC, .version = 1, .flags = PACKET_FLAG_REPLY, .seq = 999 }, NULL, 0, fds, 3);
        assert_ok(packet_client_process(client, EPOLLIN));
        assert_eq(a.n_fds, 3);
        after = dup(0);
        close(after);
        assert_eq(after, before);
}

TEST(the_end_of_the_peer_answers_what_is_pending) {
        static Answer a, b;

        setup();
        assert_ok(call(&a));
        assert_ok(call(&b));
        peer = safe_close(peer);
        assert_eq(packet_client_process(client, EPOLLIN|EPOLLHUP), -ECONNRESET);
        client = packet_client_free(client);
        assert_eq(a.n, 1);
        assert_eq(a.error, -ECONNRESET);
        assert_eq(b.error, -ECONNRESET);
}

TEST(pending_requests_are_bounded) {
        static Answer a[5];

        setup();
        for (unsigned i = 0; i < 4; i++)
                assert_ok(call(a + i));
        assert_eq(call(a + 4), -EBUSY);
}

TEST(time_outs) {
        static Answer a, b;
        PacketHeader h;

        setup();
        assert_ok(packet_client_call(client, 1, NULL, NULL, 0, 1000, on_reply, &a));
        assert_ok(call(&b));
        uint64_t deadline = packet_client_deadline(client);
        assert_true(deadline != UINT64_MAX);
        packet_client_expire(client, deadline - 1);
        assert_eq(a.n, 0);
        packet_client_expire(client, deadline);
        assert_eq(a.error, -ETIMEDOUT);
        assert_true(packet_client_deadline(client) == UINT64_MAX);
        assert_true(peer_recv(&h, NULL, NULL) > 0);
        peer_reply(h.seq, 0, NULL, 0);
        assert_ok(packet_client_process(client, EPOLLIN));
        assert_eq(a.n, 1);
        assert_eq(b.n, 0);
}

static void expect_refused(PacketHeader h, size_t size) {
        setup();
        peer_send_raw(h, "12345678", size, NULL, 0);
        assert_eq(packet_client_process(client, EPOLLIN), -EBADMSG);
}

TEST(what_breaks_the_protocol_ends_it) {
        expect_refused((PacketHeader) { .magic = 1, .version = 1 }, 0);
        expect_refused((PacketHeader) { .magic = MAGIC, .version = 2 }, 0);
        expect_refused((PacketHeader) { .magic = MAGIC, .version = 1, .len = 5 }, 4);
        expect_refused((PacketHeader) { .magic = MAGIC, .version = 1, .len = UINT32_MAX }, 4);
        expect_refused((PacketHeader) { .magic = MAGIC, .version = 1, .error = 5 }, 0);
        expect_refused((PacketHeader) { .magic = MAGIC, .version = 1, .error = INT32_MIN }, 0);

        setup();
        assert_eq(send(peer, "short", 5, 0), 5);
        assert_eq(packet_client_process(client, EPOLLIN), -EBADMSG);
}

static int next_free_fd(void) {
        int fd = dup(peer);

        assert_ok(fd);
        close(fd);
        return fd;
}

TEST(descriptors_of_an_empty_packet_are_closed) {
        setup();
        int fds[3] = { peer, peer, peer }, before = next_free_fd();
        assert_ok(send_packet(peer, NULL, 0, fds, ELEMENTSOF(fds)));
        assert_eq(packet_client_process(client, EPOLLIN), -ECONNRESET);
        assert_eq(next_free_fd(), before);
}

TEST(events) {
        setup();
        peer_send_raw((PacketHeader) { .magic = MAGIC, .version = 1, .op = 64 }, NULL, 0, NULL, 0);
        assert_ok(packet_client_process(client, EPOLLIN));
        assert_eq(n_events, 1);
        assert_eq(last_event, 64);
}

TEST(a_full_socket_queues_up_to_the_ceiling) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(100000);
        static uint8_t blob[30000];
        static Answer a[4];
        PacketHeader h;
        int fd = STDIN_FILENO, fds[PACKET_FDS_LIMIT];
        size_t n_fds = 0;

        setup();
        /* Fill the socket by hand, so that the next ones have to wait. */
        while (send(packet_client_fd(client), blob, sizeof(blob), MSG_DONTWAIT) > 0)
                ;
        tlv_put(&w, 1, blob, sizeof(blob));
        assert_ok(packet_client_call(client, 1, &w, &fd, 1, UINT64_MAX, on_reply, a));
        assert_ok(packet_client_call(client, 2, &w, NULL, 0, UINT64_MAX, on_reply, a + 1));
        assert_ok(packet_client_call(client, 3, &w, NULL, 0, UINT64_MAX, on_reply, a + 2));
        assert_eq(packet_client_call(client, 4, &w, NULL, 0, UINT64_MAX, on_reply, a + 3), -ENOBUFS);
        assert_true(packet_client_events(client) & EPOLLOUT);

        static uint8_t buf[PACKET_SIZE_MAX];
        while (recv(peer, buf, sizeof(buf), MSG_DONTWAIT) == (ssize_t) sizeof(blob))
                ;
        assert_ok(packet_client_process(client, EPOLLOUT));
        for (uint16_t op = 1; op <= 3; op++) {
                assert_true(peer_recv(&h, fds, &n_fds) > 0);
                assert_eq(h.op, op);
                assert_eq(n_fds, op == 1 ? 1 : 0);
                close_many(fds, n_fds);
        }
        assert_true(!(packet_client_events(client) & EPOLLOUT));
}

TEST(freed_in_its_own_callback) {
        static Answer a = { .free_client = &client }, b;
        PacketHeader h;

        setup();
        assert_ok(call(&a));
        assert_ok(call(&b));
        assert_true(peer_recv(&h, NULL, NULL) > 0);
        peer_reply(h.seq, 0, NULL, 0);
        peer_reply(h.seq + 1, 0, NULL, 0);
        PacketClient *c = client;
        assert_eq(packet_client_process(c, EPOLLIN), 0);
        assert_true(!client);
        assert_eq(a.n, 1);
        assert_eq(b.error, -ECONNRESET);
}

TEST(the_largest_packet_passes) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(PACKET_SIZE_MAX);
        static uint8_t blob[320 * 1024];
        PacketHeader h;
        static Answer a;

        setup();
        tlv_put(&w, 1, blob, sizeof(blob));
        assert_ok(packet_client_call(client, 1, &w, NULL, 0, UINT64_MAX, on_reply, &a));
        if (packet_client_events(client) & EPOLLOUT)
                test_skip("the send buffer may not be that large here");
        assert_eq(peer_recv(&h, NULL, NULL), sizeof(h) + w.size);
        client = packet_client_free(client);
        peer = safe_close(peer);
}
