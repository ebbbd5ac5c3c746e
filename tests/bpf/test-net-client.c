/* SPDX-License-Identifier: Apache-2.0 */

/* cubed's side of cube-netd, against the real one in namespaces of its own. Needs root. */

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd-util.h"
#include "net/net-client.h"
#include "net/resolver-proto.h"
#include "tests/unit/test.h"

/* The mount is seen by nobody else. */
#define BPF_FS "/sys/fs/bpf"
#define PIN_DIR BPF_FS "/cube-test"
#define RUN_DIR "/run"
#define SOCKET_PATH RUN_DIR "/resolver"

typedef struct Answer {
        bool done;
        int error, fds[2];
        NetResult result;
        char message[300], address4[64];
} Answer;

static sd_event *loop;
static NetClient *client;
static pid_t netd;
static NetEventInfo seen;
static char seen_reason[32], seen_name[260], seen_address[64];

static void on_done(int error, const NetResult *result, void *userdata) {
        Answer *a = userdata;

        *a = (Answer) { .done = true, .error = error, .fds = { -EBADF, -EBADF }, .result = *result };
        (void) snprintf(a->message, sizeof(a->message), "%s", result->message);
        (void) snprintf(a->address4, sizeof(a->address4), "%s", result->address4);
        for (size_t i = 0; i < result->n_fds && i < 2; i++)
                a->fds[i] = TAKE_FD(result->fds[i]);
}

static void on_event(const NetEventInfo *event, void *userdata) {
        seen = *event;
        (void) snprintf(seen_reason, sizeof(seen_reason), "%s", event->reason);
        (void) snprintf(seen_name, sizeof(seen_name), "%s", event->name);
        (void) snprintf(seen_address, sizeof(seen_address), "%s", event->address);
}

static void await(Answer *a) {
        for (unsigned i = 0; !a->done && i < 3000; i++)
                assert_ok(sd_event_run(loop, 20 * USEC_PER_MSEC));
        assert_true(a->done);
}

static void start_netd(void) {
        int pair[2];

        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, pair));
        netd = fork();
        if (netd == 0) {
                if (pair[1] == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(pair[1], 3) < 0)
                        _exit(126);
                (void) fcntl(3, F_SETFL, 0);
                execl(getenv("CUBE_NETD"), "cube-netd", (char *) NULL);
                _exit(127);
        }
        close(pair[1]);
        assert_ok(net_client_attach(client, pair[0]));
}

static void need_netd(void) {
        static const NetSetup setup = { .net4 = "10.77.0.0/24", .mark = 0x100, .audit_sec = 60, .limits = { .flows_open = 100 } };
        Answer a = {};

        if (client)
                return;
        if (geteuid() != 0)
                test_skip("needs root");
        if (unshare(CLONE_NEWNS|CLONE_NEWNET) < 0)
                test_skip("namespaces are not allowed here");
        assert_ok(mount("none", "/", NULL, MS_REC|MS_PRIVATE, NULL));
        assert_ok(mount("bpf", BPF_FS, "bpf", 0, NULL));
        assert_ok(mount("tmpfs", RUN_DIR, "tmpfs", 0, NULL));
        assert_ok(setenv("CUBE_BPF_DIR", PIN_DIR, 1));
        assert_ok(setenv("CUBE_RESOLVER_SOCKET", SOCKET_PATH, 1));
        assert_ok(sd_event_new(&loop));
        assert_ok(net_client_new(loop, &client));
        net_client_on_event(client, on_event, NULL);
        start_netd();
        assert_eq(net_client_claim(client, 2, &(NetEntry) {}), -ENOTCONN);
        assert_ok(net_client_setup(client, &setup, on_done, &a));
        await(&a);
        assert_streq(a.message, "");
        assert_ok(a.error);
        assert_eq(a.result.mtu, 1500);
}

static void new_slot(Answer *a) {
        *a = (Answer) {};
        assert_ok(net_client_new_slot(client, 0, on_done, a));
        await(a);
        assert_ok(a->error);
        assert_true(a->fds[0] >= 0 && a->fds[1] >= 0);
}

static void drop_slot(Answer *a) {
        close(a->fds[0]);
        close(a->fds[1]);
}

TEST(a_slot_brings_its_fds_and_address) {
        Answer one, two;

        need_netd();
        new_slot(&one);
        new_slot(&two);
        assert_streq(one.address4, "10.77.0.2");
        assert_streq(two.address4, "10.77.0.3");
        assert_eq(two.result.slot, 3);
        drop_slot(&one);
        drop_slot(&two);
}

TEST(a_claim_is_a_write_to_a_map) {
        const char *const allow[] = { "8.8.8.8 udp:53", NULL };
        NetRules rules = { .allow = allow };
        Answer slot, policy = {}, statistics = {};

        need_netd();
        new_slot(&slot);
        assert_ok(net_client_load_policy(client, &rules, on_done, &policy));
        await(&policy);
        assert_ok(policy.error);
        assert_true(policy.result.policy > NET_POLICY_INTERNET && !policy.result.special);
        assert_ok(net_client_claim(client, slot.result.slot, &(NetEntry) { .policy = policy.result.policy, .owner = 1000 }));
        assert_eq(net_client_claim(client, 250, &(NetEntry) {}), -ENOENT);
        assert_ok(net_client_get_statistics(client, slot.result.slot, on_done, &statistics));
        await(&statistics);
        assert_ok(statistics.error);
        assert_eq(statistics.result.stats.flows_open, 0);
        drop_slot(&slot);
}

TEST(a_policy_that_is_wrong_says_why) {
        const char *const allow[] = { "8.8.8.8", "8.8.8.8 tcp:70000", NULL };
        Answer slot, policy = {};

        need_netd();
        new_slot(&slot);
        assert_ok(net_client_set_policy(client, slot.result.slot, &(NetRules) { .allow = allow }, on_done, &policy));
        await(&policy);
        assert_eq(policy.error, -EINVAL);
        assert_true(strstr(policy.message, "8.8.8.8 tcp:70000"));
        drop_slot(&slot);
}

TEST(policies_limits_and_quiescing_are_answered) {
        const char *const allow[] = { "10.0.0.0/8", "example.com", NULL };
        Answer slot, a = {}, b = {}, c = {};

        need_netd();
        new_slot(&slot);
        assert_ok(net_client_set_policy(client, slot.result.slot, &(NetRules) { .allow = allow }, on_done, &a));
        assert_ok(net_client_set_limits(client, slot.result.slot, &(NetLimits) { .bytes_out = 1000 }, on_done, &b));
        assert_ok(net_client_quiesce(client, slot.result.slot, on_done, &c));
        await(&c);
        assert_true(a.done && b.done);
        assert_ok(a.error);
        assert_ok(b.error);
        assert_ok(c.error);
        assert_true(a.result.special);
        assert_eq(a.result.flags, NET_ENTRY_DNS);
        drop_slot(&slot);
}

TEST(what_was_denied_is_told) {
        /* To the world from another address than the guest's. */
        static const uint8_t frame[12 + 14 + 28] = {
                [12] = 0x02, 0xcb, 0xff, 0, 0, 1, 0x02, 0xcb, 0xff, 0, 0, 2, 0x08, 0x00,
                0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 8, 8, 8, 8, 0, 9, 0, 9, 0, 8, 0, 0,
        };
        Answer slot;

        need_netd();
        new_slot(&slot);
        assert_eq(write(slot.fds[1], frame, sizeof(frame)), sizeof(frame));
        for (unsigned i = 0; !*seen_reason && i < 3000; i++)
                assert_ok(sd_event_run(loop, 20 * USEC_PER_MSEC));
        assert_eq(seen.kind, NET_DENIED);
        assert_streq(seen_reason, "spoofed");
        assert_eq(seen.slot, slot.result.slot);
        drop_slot(&slot);
}

static int connect_resolver(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET_PATH };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);

        assert_ok(fd);
        assert_ok(connect(fd, (struct sockaddr *) &address, sizeof(address)));
        return fd;
}

static void send_denied(int fd, uint32_t slot, const char *reason, const char *name) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);

        tlv_put_u32(&w, RESOLVER_TAG_SLOT, slot);
        tlv_put_str(&w, RESOLVER_TAG_REASON, reason);
        tlv_put_str(&w, RESOLVER_TAG_DENIED_NAME, name);
        tlv_put_str(&w, RESOLVER_TAG_ADDRESS, "10.1.2.3");
        tlv_put_u32(&w, RESOLVER_TAG_COUNT, 7);
        PacketHeader h = { .magic = RESOLVER_PROTO_MAGIC, .version = RESOLVER_PROTO_VERSION, .op = RESOLVER_OP_DENIED,
                           .len = (uint32_t) w.size };
        struct iovec iov[2] = { { &h, sizeof(h) }, { w.data, w.size } };
        assert_ok(send_packet(fd, iov, 2, NULL, 0));
}

/* What cube-netd has to say first; then whether it hangs up. */
static bool is_hung_up(int fd) {
        static uint8_t packet[PACKET_SIZE_MAX];

        for (;;) {
                int fds[8];
                size_t n_fds;
                ssize_t n = recv_packet(fd, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
                if (n <= 0)
                        return n == 0 || n == -ECONNRESET;
                close_many(fds, n_fds);
        }
}

TEST(a_name_that_was_denied_is_told) {
        _cleanup_close_ int fd = -EBADF;

        need_netd();
        fd = connect_resolver();
        *seen_reason = 0;
        send_denied(fd, 5, "answer", "db.example");
        for (unsigned i = 0; !*seen_reason && i < 3000; i++)
                assert_ok(sd_event_run(loop, 20 * USEC_PER_MSEC));
        assert_eq(seen.kind, NET_NAME_DENIED);
        assert_eq(seen.slot, 5);
        assert_eq(seen.count, 7);
        assert_streq(seen_reason, "answer");
        assert_streq(seen_name, "db.example");
        assert_streq(seen_address, "10.1.2.3");
}

TEST(what_the_resolver_may_not_say_ends_its_connection) {
        static const struct { uint32_t slot; const char *reason, *name; } cases[] = {
                { 0, "name", "a.example" }, { 65536, "name", "a.example" }, { 5, "policy", "a.example" },
                { 5, "name", "a b" }, { 5, "name", "a\nb" }, { 5, "name", "\x80" },
        };

        need_netd();
        *seen_reason = 0;
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_close_ int fd = connect_resolver();
                send_denied(fd, cases[i].slot, cases[i].reason, cases[i].name);
                assert_true(is_hung_up(fd));
        }
        _cleanup_close_ int fd = connect_resolver();
        assert_eq(send(fd, "x", 1, 0), 1);
        assert_true(is_hung_up(fd));
        /* Of all that nothing has come through. */
        Answer a = {};
        assert_ok(net_client_get_statistics(client, 2, on_done, &a));
        await(&a);
        assert_streq(seen_reason, "");
}

TEST(the_resolver_that_came_last_counts) {
        _cleanup_close_ int first = -EBADF, second = -EBADF;

        need_netd();
        first = connect_resolver();
        second = connect_resolver();
        assert_true(is_hung_up(first));
        *seen_reason = 0;
        send_denied(second, 6, "name", "a.example");
        for (unsigned i = 0; !*seen_reason && i < 3000; i++)
                assert_ok(sd_event_run(loop, 20 * USEC_PER_MSEC));
        assert_eq(seen.slot, 6);
}

TEST(a_request_that_is_cancelled_is_not_called_back) {
        Answer a = {}, after = {};

        need_netd();
        assert_ok(net_client_get_statistics(client, 2, on_done, &a));
        net_client_cancel(client, &a);
        assert_ok(net_client_get_statistics(client, 2, on_done, &after));
        await(&after);
        assert_true(!a.done);
}

TEST(requests_end_with_cube_netd) {
        Answer a = {};

        need_netd();
        assert_ok(kill(netd, SIGSTOP));
        assert_ok(net_client_new_slot(client, 0, on_done, &a));
        assert_ok(kill(netd, SIGKILL));
        assert_eq(waitpid(netd, NULL, 0), netd);
        await(&a);
        assert_eq(a.error, -ECONNRESET);
        assert_true(strstr(a.message, "being restarted"));
        assert_eq(net_client_new_slot(client, 0, on_done, &a), -ENOTCONN);
}
