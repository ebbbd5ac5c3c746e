/* SPDX-License-Identifier: Apache-2.0 */

/* The VMM client against a peer on a socketpair that plays the VMM, well or badly. */

#include <sys/socket.h>

#include "base/fd-util.h"
#include "daemon/vmm-client.h"
#include "tests/unit/test.h"

static sd_event *event;
static VmmClient *client;
static int peer = -EBADF;

static struct {
        unsigned n_agent, n_lost, n_device, n_exiting, n_gone;
        AgentFrameType type;
        int gone_error;
        VmmExitReason reason;
        uint32_t status;
        char device[VMM_TEXT_MAX], text[VMM_TEXT_MAX];
} seen;

typedef struct Answer {
        unsigned n, n_more;
        int error;
        char message[VMM_TEXT_MAX];
        size_t size;
        bool free_client;
} Answer;

static void on_agent(VmmClient *c, AgentFrameType type, const uint8_t *body, size_t size, void *userdata) {
        seen.n_agent++;
        seen.type = type;
}

static void on_agent_lost(VmmClient *c, void *userdata) {
        seen.n_lost++;
}

static void on_device(VmmClient *c, const char *device, const char *message, void *userdata) {
        seen.n_device++;
        memcpy(seen.device, device, strlen(device) + 1);
        memcpy(seen.text, message, strlen(message) + 1);
}

static void on_exiting(VmmClient *c, VmmExitReason reason, uint32_t status, void *userdata) {
        seen.n_exiting++;
        seen.reason = reason;
        seen.status = status;
}

static void on_gone(VmmClient *c, int error, void *userdata) {
        seen.n_gone++;
        seen.gone_error = error;
}

static const VmmEvents events = { on_agent, on_agent_lost, on_device, on_exiting, on_gone };

static void on_answer(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        Answer *a = userdata;

        a->n_more += more;
        a->n += !more;
        a->error = error;
        a->size = size;
        (void) snprintf(a->message, sizeof(a->message), "%s", message);
        if (a->free_client)
                client = vmm_client_free(client);
}

static void on_reply(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        on_answer(c, error, message, body->data, body->size, false, userdata);
}

static void setup(void) {
        int ends[2];

        client = vmm_client_free(client);
        peer = safe_close(peer);
        if (!event)
                assert_ok(sd_event_new(&event));
        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends));
        peer = ends[1];
        assert_ok(vmm_client_new(event, ends[0], &events, NULL, &client));
        memset(&seen, 0, sizeof(seen));
}

static void turn(void) {
        while (sd_event_run(event, 0) > 0)
                ;
}

static void send_message(uint16_t op, uint32_t flags, uint32_t seq, int32_t error, const TlvWriter *w) {
        VmmMessage h = {
                .magic = VMM_PROTO_MAGIC, .version = VMM_PROTO_VERSION, .op = op, .flags = flags, .seq = seq, .error = error,
                .len = w ? (uint32_t) w->size : 0,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { w ? w->data : NULL, h.len } };
        assert_ok(send_packet(peer, iov, 2, NULL, 0));
}

/* What came: header, and the frame in it if there is one. */
static VmmMessage receive(FrameHeader *ret_frame, size_t *ret_n_fds) {
        static uint8_t buf[PACKET_SIZE_MAX];
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds = 0;
        VmmMessage h;
        Tlv t;

        ssize_t n = recv_packet(peer, buf, sizeof(buf), fds, ELEMENTSOF(fds), &n_fds);
        assert_true(n >= (ssize_t) sizeof(h));
        close_many(fds, n_fds);
        if (ret_n_fds)
                *ret_n_fds = n_fds;
        memcpy(&h, buf, sizeof(h));
        TlvReader reader = TLV_READER_INIT(buf + sizeof(h), h.len);
        while (ret_frame && tlv_next(&reader, &t) > 0) {
                const uint8_t *body;
                if (t.tag == VMM_TAG_FRAME)
                        assert_ok(frame_split(t.data, t.len, ret_frame, &body));
        }
        return h;
}

static void put_frame(TlvWriter *w, AgentFrameType type, uint16_t flags, uint32_t id, const TlvWriter *body) {
        static uint8_t frame[FRAME_HEADER_SIZE + AGENT_FRAME_MAX];
        FrameHeader h = { .len = body ? (uint32_t) body->size : 0, .type = (uint16_t) type, .flags = flags, .id = id };

        frame_header_put(&h, frame);
        if (body)
                memcpy(frame + FRAME_HEADER_SIZE, body->data, body->size);
        tlv_put(w, VMM_TAG_FRAME, frame, FRAME_HEADER_SIZE + h.len);
}

static void agent_says(AgentFrameType type, uint16_t flags, uint32_t id, const TlvWriter *body) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(VMM_MESSAGE_MAX);

        put_frame(&w, type, flags, id, body);
        send_message(VMM_EVENT_AGENT, 0, 0, 0, &w);
}

TEST(a_request_and_its_answer) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(100);
        FrameHeader f;
        Answer a = {};

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        VmmMessage h = receive(&f, NULL);
        assert_eq(h.op, VMM_OP_AGENT);
        assert_eq(f.type, AGENT_PING);
        send_message(VMM_OP_AGENT, VMM_FLAG_REPLY, h.seq, 0, NULL);
        turn();
        assert_eq(a.n, 0);

        tlv_put_u32(&body, AGENT_TAG_PID, 5);
        agent_says(AGENT_OK, 0, f.id, &body);
        turn();
        assert_eq(a.n, 1);
        assert_eq(a.error, 0);
        assert_eq(a.size, body.size);
        agent_says(AGENT_OK, 0, f.id, &body);
        turn();
        assert_eq(a.n, 1);
}

TEST(an_answer_may_overtake_the_word_that_it_was_queued) {
        FrameHeader f;
        Answer a = {};

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        VmmMessage h = receive(&f, NULL);
        agent_says(AGENT_OK, 0, f.id, NULL);
        send_message(VMM_OP_AGENT, VMM_FLAG_REPLY, h.seq, -EAGAIN, NULL);
        turn();
        assert_eq(a.n, 1);
        assert_eq(a.error, 0);
}

TEST(errors_of_agent_and_vmm) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(1000), wrong = TLV_WRITER_INIT(100), text = TLV_WRITER_INIT(100);
        FrameHeader f;
        Answer a = {}, b = {}, c = {};

        setup();
        tlv_put_u32(&body, AGENT_TAG_ERRNO, ENOENT);
        tlv_put_str(&body, AGENT_TAG_MESSAGE, "no \033[31mfile\n");
        assert_ok(vmm_client_agent(client, AGENT_STAT, NULL, UINT64_MAX, on_answer, &a));
        (void) receive(&f, NULL);
        agent_says(AGENT_ERROR, 0, f.id, &body);
        turn();
        assert_eq(a.error, -ENOENT);
        assert_streq(a.message, "no \\x1b[31mfile\\n");

        /* An error without a number, or with one that is none, is an error all the same. */
        tlv_put_u32(&wrong, AGENT_TAG_ERRNO, 0);
        assert_ok(vmm_client_agent(client, AGENT_STAT, NULL, UINT64_MAX, on_answer, &b));
        (void) receive(&f, NULL);
        agent_says(AGENT_ERROR, 0, f.id, &wrong);
        turn();
        assert_eq(b.error, -EBADMSG);

        tlv_put_str(&text, VMM_TAG_MESSAGE, "the queue is full");
        assert_ok(vmm_client_agent(client, AGENT_STAT, NULL, UINT64_MAX, on_answer, &c));
        VmmMessage h = receive(&f, NULL);
        send_message(VMM_OP_AGENT, VMM_FLAG_REPLY, h.seq, -EAGAIN, &text);
        turn();
        assert_eq(c.error, -EAGAIN);
        assert_streq(c.message, "the queue is full");
}

TEST(an_answer_in_parts) {
        FrameHeader f;
        Answer a = {};

        setup();
        assert_ok(vmm_client_agent(client, AGENT_LIST_DIRECTORY, NULL, UINT64_MAX, on_answer, &a));
        (void) receive(&f, NULL);
        agent_says(AGENT_OK, FRAME_FLAG_MORE, f.id, NULL);
        agent_says(AGENT_OK, FRAME_FLAG_MORE, f.id, NULL);
        agent_says(AGENT_OK, 0, f.id, NULL);
        turn();
        assert_eq(a.n_more, 2);
        assert_eq(a.n, 1);
}

TEST(an_answer_without_end_is_cut_off) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        static uint8_t blob[200 * 1024];
        FrameHeader f;
        Answer a = {};

        setup();
        tlv_put(&body, AGENT_TAG_FILE, blob, sizeof(blob));
        assert_ok(vmm_client_agent(client, AGENT_LIST_DIRECTORY, NULL, UINT64_MAX, on_answer, &a));
        (void) receive(&f, NULL);
        for (unsigned i = 0; i < VMM_AGENT_ANSWER_MAX / sizeof(blob) + 1 && a.n == 0; i++) {
                agent_says(AGENT_OK, FRAME_FLAG_MORE, f.id, &body);
                turn();
        }
        assert_eq(a.n, 1);
        assert_eq(a.error, -EMSGSIZE);
}

TEST(streams) {
        FrameHeader f;
        Answer a = {}, b = {};
        size_t n_fds;
        int ends[2];

        setup();
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends));
        assert_ok(vmm_client_stream(client, AGENT_STREAM_TCP, NULL, ends[0], UINT64_MAX, on_answer, &a));
        VmmMessage h = receive(&f, &n_fds);
        assert_eq(h.op, VMM_OP_STREAM);
        assert_eq(n_fds, 1);
        {
                _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(1000);
                put_frame(&w, AGENT_OK, 0, f.id, NULL);
                send_message(VMM_OP_STREAM, VMM_FLAG_REPLY, h.seq, 0, &w);
        }
        turn();
        assert_eq(a.n, 1);
        assert_eq(a.error, 0);

        assert_ok(vmm_client_stream(client, AGENT_STREAM_TCP, NULL, ends[0], UINT64_MAX, on_answer, &b));
        h = receive(&f, &n_fds);
        /* Over the control stream nobody can answer for it. */
        agent_says(AGENT_OK, 0, f.id, NULL);
        turn();
        assert_eq(b.n, 0);
        send_message(VMM_OP_STREAM, VMM_FLAG_REPLY, h.seq, -ECONNREFUSED, NULL);
        turn();
        assert_eq(b.error, -ECONNREFUSED);
        close(ends[0]);
        close(ends[1]);
}

TEST(events_are_told_and_their_texts_escaped) {
        _cleanup_tlv_ TlvWriter device = TLV_WRITER_INIT(4096), end = TLV_WRITER_INIT(100), odd = TLV_WRITER_INIT(100);
        char long_text[1000];

        setup();
        agent_says(AGENT_READY, 0, 0, NULL);
        send_message(VMM_EVENT_AGENT_LOST, 0, 0, 0, NULL);
        memset(long_text, 'x', sizeof(long_text));
        long_text[sizeof(long_text) - 1] = 0;
        tlv_put_str(&device, VMM_TAG_DEVICE, "blk\n0");
        tlv_put_str(&device, VMM_TAG_MESSAGE, long_text);
        send_message(VMM_EVENT_DEVICE, 0, 0, 0, &device);
        tlv_put_u32(&end, VMM_TAG_REASON, VMM_EXIT_PANIC);
        tlv_put_u32(&end, VMM_TAG_STATUS, 3);
        send_message(VMM_EVENT_EXIT, 0, 0, 0, &end);
        turn();
        assert_eq(seen.n_agent, 1);
        assert_eq(seen.type, AGENT_READY);
        assert_eq(seen.n_lost, 1);
        assert_streq(seen.device, "blk\\n0");
        assert_eq(strlen(seen.text), VMM_TEXT_MAX / 2);
        assert_eq(seen.reason, VMM_EXIT_PANIC);
        assert_eq(seen.status, 3);

        /* A reason that only cubed may give. */
        tlv_put_u32(&odd, VMM_TAG_REASON, VMM_EXIT_TIMEOUT);
        send_message(VMM_EVENT_EXIT, 0, 0, 0, &odd);
        turn();
        assert_eq(seen.reason, VMM_EXIT_NONE);
}

TEST(a_lost_agent_is_not_waited_for) {
        FrameHeader f;
        Answer a = {};

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        (void) receive(&f, NULL);
        send_message(VMM_EVENT_AGENT_LOST, 0, 0, 0, NULL);
        turn();
        assert_eq(a.n, 0);
        assert_true(sd_event_run(event, 60 * USEC_PER_SEC) > 0);
        assert_eq(a.n, 1);
        assert_eq(a.error, -ETIMEDOUT);
}

TEST(nonsense_in_events_is_dropped) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(100);

        setup();
        send_message(VMM_EVENT_AGENT, 0, 0, 0, NULL);
        tlv_put(&w, VMM_TAG_FRAME, "abc", 3);
        send_message(VMM_EVENT_AGENT, 0, 0, 0, &w);
        send_message(200, 0, 0, 0, NULL);
        agent_says(AGENT_OK, 0, 77, NULL);
        turn();
        assert_eq(seen.n_agent, 0);
        assert_eq(seen.n_gone, 0);
}

TEST(a_broken_protocol_is_told_as_gone) {
        setup();
        assert_eq(send(peer, "x", 1, 0), 1);
        turn();
        assert_eq(seen.n_gone, 1);
        assert_eq(seen.gone_error, -EBADMSG);
        assert_eq(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &(Answer) {}), -ENOTCONN);
}

static bool nothing_came(void) {
        char c;

        return recv(peer, &c, 1, MSG_PEEK|MSG_DONTWAIT) < 0;
}

TEST(what_is_for_a_paused_guest_waits_in_its_order) {
        Answer a = {}, b = {}, stop = {}, other = {};
        _cleanup_close_ int ours = -EBADF;
        FrameHeader f;
        int ends[2];
        size_t n_fds;

        setup();
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends));
        ours = ends[1];
        vmm_client_hold(client);
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        assert_ok(vmm_client_stream(client, AGENT_STREAM_TCP, NULL, ends[0], UINT64_MAX, on_answer, &b));
        /* The client has an end of its own. */
        ends[0] = safe_close(ends[0]);
        assert_ok(vmm_client_call(client, VMM_OP_STOP, NULL, NULL, 0, UINT64_MAX, on_reply, &stop));
        assert_true(nothing_came());

        assert_ok(vmm_client_call(client, VMM_OP_STATISTICS, NULL, NULL, 0, UINT64_MAX, on_reply, &other));
        VmmMessage h = receive(NULL, NULL);
        assert_eq(h.op, VMM_OP_STATISTICS);
        send_message(VMM_OP_STATISTICS, VMM_FLAG_REPLY, h.seq, 0, NULL);
        turn();
        assert_eq(other.n, 1);

        vmm_client_let_go(client);
        h = receive(&f, NULL);
        assert_eq(h.op, VMM_OP_AGENT);
        assert_eq(f.type, AGENT_PING);
        agent_says(AGENT_OK, 0, f.id, NULL);
        h = receive(&f, &n_fds);
        assert_eq(h.op, VMM_OP_STREAM);
        assert_eq(f.type, AGENT_STREAM_TCP);
        assert_eq(n_fds, 1);
        h = receive(NULL, NULL);
        assert_eq(h.op, VMM_OP_STOP);
        send_message(VMM_OP_STOP, VMM_FLAG_REPLY, h.seq, -EPROTO, NULL);
        turn();
        assert_true(a.n == 1 && a.error == 0);
        assert_eq(b.n, 0);
        assert_true(stop.n == 1 && stop.error == -EPROTO);
        assert_true(nothing_came());
        client = vmm_client_free(client);
}

TEST(what_is_for_a_guest_that_is_no_more_is_answered) {
        Answer sent = {}, held = {}, stop = {}, claim = {}, later = {};
        FrameHeader f, old;

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &sent));
        (void) receive(&old, NULL);
        vmm_client_hold(client);
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &held));
        assert_ok(vmm_client_call(client, VMM_OP_STOP, NULL, NULL, 0, UINT64_MAX, on_reply, &stop));
        vmm_client_forget(client, "it was rolled back");
        assert_true(sent.n == 1 && sent.error == -ECONNRESET && held.n == 1 && held.error == -ECONNRESET);
        assert_streq(held.message, "it was rolled back");
        assert_eq(stop.n, 0);

        /* The claim passes, what is asked from here on waits for the one that takes over. */
        assert_ok(vmm_client_agent(client, AGENT_LIST_PROCESSES, NULL, UINT64_MAX, on_answer, &later));
        assert_ok(vmm_client_resume(client, NULL, UINT64_MAX, on_answer, &claim));
        VmmMessage h = receive(&f, NULL);
        assert_eq(h.op, VMM_OP_RESUME);
        assert_eq(f.type, AGENT_CLAIM);
        send_message(VMM_OP_RESUME, VMM_FLAG_REPLY, h.seq, 0, NULL);
        agent_says(AGENT_OK, 0, old.id, NULL);
        agent_says(AGENT_OK, 0, f.id, NULL);
        turn();
        assert_true(claim.n == 1 && claim.error == 0);
        assert_eq(sent.n, 1);
        assert_true(nothing_came());

        vmm_client_let_go(client);
        h = receive(NULL, NULL);
        assert_eq(h.op, VMM_OP_STOP);
        h = receive(&f, NULL);
        assert_eq(f.type, AGENT_LIST_PROCESSES);
        agent_says(AGENT_OK, 0, f.id, NULL);
        turn();
        assert_true(later.n == 1 && later.error == 0);
        client = vmm_client_free(client);
}

TEST(what_waits_is_bounded_and_answered_when_the_client_goes) {
        static uint8_t blob[200000];
        static Answer a[32];
        size_t n = 0;
        int r = 0;

        setup();
        vmm_client_hold(client);
        while (n < ELEMENTSOF(a) && r >= 0) {
                _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);

                tlv_put(&w, AGENT_TAG_ENV, blob, sizeof(blob));
                r = vmm_client_agent(client, AGENT_EXEC, &w, UINT64_MAX, on_answer, a + n);
                n += r >= 0;
        }
        assert_eq(r, -ENOBUFS);
        assert_true(n > 1 && nothing_came());
        client = vmm_client_free(client);
        for (size_t i = 0; i < n; i++)
                assert_true(a[i].n == 1 && a[i].error == -ECONNRESET);
}

TEST(what_waited_for_a_vmm_that_is_gone_is_answered_with_that) {
        Answer a = {};

        setup();
        vmm_client_hold(client);
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        peer = safe_close(peer);
        vmm_client_let_go(client);
        assert_true(a.n == 1 && a.error == -ECONNRESET);
        client = vmm_client_free(client);
        assert_eq(a.n, 1);
}

TEST(what_waits_has_its_time_out_and_is_not_sent_behind_it) {
        Answer late = {}, stream = {}, stop = {}, after = {};
        _cleanup_close_ int ours = -EBADF;
        char byte;
        int ends[2];
        FrameHeader f;

        setup();
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends));
        ours = ends[1];
        vmm_client_hold(client);
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, 1000, on_answer, &late));
        assert_ok(vmm_client_call(client, VMM_OP_STOP, NULL, NULL, 0, UINT64_MAX, on_reply, &stop));
        assert_ok(vmm_client_stream(client, AGENT_STREAM_TCP, NULL, ends[0], 1000, on_answer, &stream));
        ends[0] = safe_close(ends[0]);
        while (late.n == 0 || stream.n == 0)
                assert_ok(sd_event_run(event, UINT64_MAX));
        assert_true(late.n == 1 && late.error == -ETIMEDOUT && stream.n == 1 && stream.error == -ETIMEDOUT);
        /* Nobody keeps the other end of the stream. */
        assert_eq(read(ours, &byte, 1), 0);

        assert_ok(vmm_client_agent(client, AGENT_LIST_PROCESSES, NULL, UINT64_MAX, on_answer, &after));
        vmm_client_let_go(client);
        VmmMessage h = receive(NULL, NULL);
        assert_eq(h.op, VMM_OP_STOP);
        (void) receive(&f, NULL);
        assert_eq(f.type, AGENT_LIST_PROCESSES);
        assert_true(nothing_came());
        assert_eq(late.n + stream.n, 2);
        client = vmm_client_free(client);
}

TEST(requests_are_answered_when_the_client_goes) {
        Answer a = {}, b = {};

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        assert_ok(vmm_client_call(client, VMM_OP_STATISTICS, NULL, NULL, 0, UINT64_MAX, on_reply, &b));
        peer = safe_close(peer);
        turn();
        assert_eq(seen.n_gone, 1);
        assert_eq(a.n + b.n, 0);
        client = vmm_client_free(client);
        assert_eq(a.n, 1);
        assert_eq(a.error, -ECONNRESET);
        assert_eq(b.n, 1);
        assert_eq(b.error, -ECONNRESET);
}

TEST(freed_in_an_answer) {
        Answer a = { .free_client = true }, b = {};
        FrameHeader f;

        setup();
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &a));
        assert_ok(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, &b));
        (void) receive(&f, NULL);
        agent_says(AGENT_OK, 0, f.id, NULL);
        turn();
        assert_true(!client);
        assert_eq(a.n, 1);
        assert_eq(b.error, -ECONNRESET);
}

TEST(too_many_requests_and_time_outs) {
        static Answer a[VMM_AGENT_PENDING_MAX + 1];

        setup();
        for (unsigned i = 0; i < VMM_AGENT_PENDING_MAX; i++)
                assert_ok(vmm_client_agent(client, AGENT_PING, NULL, i == 0 ? 1000 : UINT64_MAX, on_answer, a + i));
        assert_eq(vmm_client_agent(client, AGENT_PING, NULL, UINT64_MAX, on_answer, a + VMM_AGENT_PENDING_MAX), -EBUSY);
        while (a[0].n == 0)
                assert_ok(sd_event_run(event, UINT64_MAX));
        assert_eq(a[0].error, -ETIMEDOUT);
        assert_eq(a[1].n, 0);
        client = vmm_client_free(client);
}

TEST(a_request_that_is_too_large) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX + 1000);
        static uint8_t blob[AGENT_FRAME_MAX];
        Answer a = {};

        setup();
        tlv_put(&w, AGENT_TAG_ENV, blob, sizeof(blob));
        assert_eq(vmm_client_agent(client, AGENT_EXEC, &w, UINT64_MAX, on_answer, &a), -EMSGSIZE);
        assert_eq(a.n, 0);
        client = vmm_client_free(client);
        event = sd_event_unref(event);
        peer = safe_close(peer);
}
