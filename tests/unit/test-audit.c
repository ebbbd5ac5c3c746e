/* SPDX-License-Identifier: Apache-2.0 */

/* The audit trail into a socket of our own in place of the journal's. */

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "base/denials.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "tests/unit/test.h"

static char dir[] = "/tmp/cubed-test-audit-XXXXXX", path[64];
static int journal = -EBADF;
static char entry[16384];

static Sandbox sandbox = {
        .id = "abcdefghijkl", .owner_uid = 1000, .template_id = (char *) "tttttttttttt", .template_name = (char *) "python:latest",
        .mem_bytes = 1 << 20, .cpus = 2, .vmm_pid = 4711,
};

static void open_journal(void) {
        struct sockaddr_un addr = { .sun_family = AF_UNIX };

        if (!*path) {
                assert_true(mkdtemp(dir));
                (void) snprintf(path, sizeof(path), "%s/socket", dir);
        }
        journal = safe_close(journal);
        (void) unlink(path);
        memcpy(addr.sun_path, path, strlen(path) + 1);
        journal = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        assert_ok(bind(journal, (struct sockaddr *) &addr, sizeof(addr)));
}

static bool next_entry(void) {
        ssize_t n = recv(journal, entry, sizeof(entry) - 1, 0);
        entry[n > 0 ? n : 0] = 0;
        return n > 0;
}

static void assert_line(const char *line) {
        char *p = strstr(entry, line);
        if (!p || (p != entry && p[-1] != '\n') || p[strlen(line)] != '\n')
                test_stop(TEST_FAILED, __LINE__, "\"%s\" is not in the entry", line);
}

TEST(fields_of_requests_about_states) {
        const Snapshot snapshot = { .id = "saaaaaaaaaaa", .owner_uid = 1000, .sandbox_id = sandbox.id };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_asked(a, &sandbox, 1001, "rollback");
        assert_true(next_entry());
        assert_line("MESSAGE_ID=" AUDIT_ID_ASKED);
        assert_line("CUBE_EVENT=rollback");
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        assert_line("CUBE_ACTOR_UID=1001");
        audit_snapshot_remove(a, &snapshot, 1001);
        assert_true(next_entry());
        assert_line("MESSAGE_ID=" AUDIT_ID_SNAPSHOT_REMOVE);
        assert_line("CUBE_SNAPSHOT=saaaaaaaaaaa");
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        assert_line("CUBE_ACTOR_UID=1001");
        audit_free(a);
}

TEST(the_tenant_is_a_field_where_there_is_one) {
        Snapshot snapshot = { .id = "saaaaaaaaaaa", .owner_uid = 1000, .tenant = "acme" };
        Sandbox of_acme = sandbox;
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_created(a, &sandbox);
        assert_true(next_entry() && !strstr(entry, "CUBE_TENANT="));
        tenant_name_copy(of_acme.tenant, "acme");
        audit_created(a, &of_acme);
        assert_true(next_entry());
        assert_line("CUBE_OWNER_UID=1000");
        assert_line("CUBE_TENANT=acme");
        audit_snapshot_remove(a, &snapshot, 1001);
        assert_true(next_entry());
        assert_line("CUBE_TENANT=acme");
        audit_template_built(a, 1000, "acme", "tools:latest", "tttttttttttt");
        assert_true(next_entry());
        assert_line("CUBE_TENANT=acme");
        assert_line("CUBE_TEMPLATE_NAME=tools:latest");
        audit_template_removed(a, 1000, "", "tools:latest", "tttttttttttt");
        assert_true(next_entry() && !strstr(entry, "CUBE_TENANT="));
        audit_free(a);
}

TEST(fields_of_a_policy) {
        static char web[] = "example.com tcp:443", dns[] = "8.8.8.8 udp:53\nCUBE_OWNER_UID=0";
        static Manager manager;
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        assert_ok(host_network_new(&manager, &manager.network));
        assert_ok(host_network_get_policy(manager.network, &(SandboxPolicy) { .internet = true, .allow = (char *[]) { web, dns, NULL } },
                                          &sandbox.policy));
        audit_policy(a, &sandbox, 1001);
        assert_true(next_entry());
        assert_line("MESSAGE_ID=" AUDIT_ID_POLICY);
        assert_line("CUBE_EVENT=network-policy");
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        assert_line("CUBE_ACTOR_UID=1001");
        assert_line("CUBE_POLICY=internet");
        assert_line("CUBE_ALLOW=example.com tcp:443");
        assert_true(!strstr(entry, "CUBE_DENY") && !strstr(entry, "\nCUBE_OWNER_UID=0"));
        assert_true(strstr(entry, "network policy internet, 2 rules allow, 0 deny, 0 inbound"));
        audit_policy(a, &sandbox, AUDIT_UID_NONE);
        assert_true(next_entry() && !strstr(entry, "CUBE_ACTOR_UID"));
        sandbox.policy = loaded_policy_unref(sandbox.policy);
        host_network_free(manager.network);
        audit_free(a);
}

TEST(fields_of_what_was_denied) {
        NetEventInfo e = { .kind = NET_DENIED, .protocol = 6, .port = 443, .count = 3, .reason = "policy", .address = "192.0.2.7", .uplink = "", .name = "" };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_network_denied(a, &sandbox, &e);
        assert_true(next_entry());
        assert_line("MESSAGE_ID=" AUDIT_ID_NETWORK_DENIED);
        assert_line("CUBE_EVENT=network-denied");
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        assert_line("CUBE_DIRECTION=out");
        assert_line("CUBE_DESTINATION=192.0.2.7");
        assert_line("CUBE_PROTOCOL=tcp");
        assert_line("CUBE_PORT=443");
        assert_line("CUBE_VERDICT=deny");
        assert_line("CUBE_REASON=policy");
        assert_line("CUBE_COUNT=3");
        assert_line("MESSAGE=Sandbox abcdefghijkl: tcp to 192.0.2.7 port 443 was denied (policy)");

        e.inbound = true;
        e.protocol = 1;
        audit_network_denied(a, &sandbox, &e);
        assert_true(next_entry());
        assert_line("CUBE_DIRECTION=in");
        assert_line("CUBE_SOURCE=192.0.2.7");
        assert_line("CUBE_PROTOCOL=icmp");
        assert_true(!strstr(entry, "CUBE_PORT") && !strstr(entry, "CUBE_DESTINATION"));
        e.protocol = 47;
        audit_network_denied(a, &sandbox, &e);
        assert_true(next_entry());
        assert_line("CUBE_PROTOCOL=47");
        audit_free(a);
}

TEST(fields_of_an_exec) {
        char *argv[] = { (char *) "/bin/sh", (char *) "-c", (char *) "secret", NULL };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_exec(a, &sandbox, 1001, argv, 42);
        assert_true(next_entry());
        assert_line("MESSAGE_ID=" AUDIT_ID_EXEC);
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        assert_line("CUBE_OWNER_UID=1000");
        assert_line("CUBE_ACTOR_UID=1001");
        assert_line("CUBE_EVENT=exec");
        assert_line("CUBE_PROGRAM=/bin/sh");
        assert_line("CUBE_ARGUMENT_COUNT=2");
        assert_line("CUBE_TEMPLATE=tttttttttttt");
        assert_line("OBJECT_PID=4711");
        assert_true(!strstr(entry, "secret"));
        audit_free(a);
}

TEST(arguments_when_asked_for_but_no_secrets) {
        char *argv[] = { (char *) "p", (char *) "--password", (char *) "hunter2", (char *) "TOKEN=abc", (char *) "plain", NULL };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, true, &a));
        audit_exec(a, &sandbox, 0, argv, 1);
        assert_true(next_entry());
        assert_line("CUBE_ARGUMENT=plain");
        assert_line("CUBE_ARGUMENT=TOKEN=***");
        assert_true(!strstr(entry, "hunter2") && !strstr(entry, "abc\n"));
        audit_free(a);
}

TEST(no_value_can_forge_a_field) {
        char *argv[] = { (char *) "x\nCUBE_OWNER_UID=0\nMESSAGE=forged", NULL };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_exec(a, &sandbox, 5, argv, 1);
        assert_true(next_entry());
        assert_line("CUBE_PROGRAM=x\\nCUBE_OWNER_UID=0\\nMESSAGE=forged");
        assert_true(!strstr(entry, "\nCUBE_OWNER_UID=0\n"));
        audit_device(a, &sandbox, "blk\n", "\x1b[2Jbad\xff");
        assert_true(next_entry());
        assert_line("CUBE_REASON=\\x1b[2Jbad\\xff");
        audit_free(a);
}

TEST(exits_and_denials) {
        Sandbox s = sandbox;
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        s.exit_reason = VMM_EXIT_PANIC;
        s.exit_status = 3;
        audit_exited(a, &s);
        assert_true(next_entry());
        assert_line("CUBE_REASON=panic");
        assert_line("CUBE_STATUS=3");
        assert_line("PRIORITY=4");
        s.exit_reason = VMM_EXIT_FORBIDDEN_CALL;
        s.exit_status = SYS_execve;
        audit_exited(a, &s);
        assert_true(next_entry());
        assert_line("CUBE_REASON=forbidden-call");
        assert_line("CUBE_SYSTEM_CALL=execve");
        assert_true(strstr(entry, "made system call 59 (execve)"));
        s.exit_status = UINT32_MAX;
        audit_exited(a, &s);
        assert_true(next_entry());
        assert_line("CUBE_SYSTEM_CALL=unknown");
        audit_denied(a, 1234, "org.cubed.cube1.create", "abcdefghijkl");
        assert_true(next_entry());
        assert_line("CUBE_EVENT=denied");
        assert_line("CUBE_ACTION=org.cubed.cube1.create");
        assert_line("CUBE_SANDBOX=abcdefghijkl");
        audit_denied(a, 1234, "x", NULL);
        assert_true(next_entry());
        audit_free(a);
}

TEST(denials_that_were_not_told_are_told_together) {
        _cleanup_(sd_event_unrefp) sd_event *e = NULL;
        Audit *a;

        open_journal();
        assert_ok(sd_event_new(&e));
        assert_ok(audit_new(e, path, false, &a));
        /* Beyond those that are told the socket would be full, too. */
        for (unsigned i = 0; i < DENIALS_TOLD; i++) {
                audit_denied(a, 1234, "org.cubed.cube1.create", NULL);
                assert_true(next_entry());
        }
        for (unsigned i = 0; i < 7; i++)
                audit_denied(a, 1234, "org.cubed.cube1.create", NULL);
        assert_true(!next_entry());
        while (!next_entry())
                assert_ok(sd_event_run(e, UINT64_MAX));
        assert_line("CUBE_EVENT=denied");
        assert_line("CUBE_ACTION=several");
        assert_line("CUBE_ACTOR_UID=1234");
        assert_line("CUBE_COUNT=7");
        /* what is left at the end is told then */
        for (unsigned i = 0; i < DENIALS_TOLD; i++) {
                audit_denied(a, 1234, "org.cubed.cube1.create", NULL);
                assert_true(next_entry());
        }
        audit_denied(a, 1234, "org.cubed.cube1.create", NULL);
        assert_true(!next_entry());
        audit_free(a);
        assert_true(next_entry());
        assert_line("CUBE_COUNT=1");
}

TEST(a_denied_name_is_the_guests_words) {
        NetEventInfo e = { .kind = NET_NAME_DENIED, .count = 1, .reason = "name", .address = "", .uplink = "",
                           .name = "secret\nCUBE_OWNER_UID=0\n.example.com" };
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_name_denied(a, &sandbox, &e);
        assert_true(next_entry());
        assert_line("CUBE_EVENT=name-denied");
        assert_line("CUBE_NAME=secret\\nCUBE_OWNER_UID=0\\n.example.com");
        assert_true(!strstr(entry, "\nCUBE_OWNER_UID=0\n"));
        assert_true(!strstr(entry, "CUBE_DESTINATION="));
        e.reason = "answer";
        e.address = "10.0.0.1";
        audit_name_denied(a, &sandbox, &e);
        assert_true(next_entry());
        assert_line("CUBE_DESTINATION=10.0.0.1");
        assert_line("CUBE_REASON=answer");
        audit_free(a);
}

TEST(a_journal_that_stalls_never_blocks_and_gets_the_rest_later) {
        unsigned n = 0, lost_entries = 0;
        sd_event *event;
        Audit *a;

        open_journal();
        assert_ok(sd_event_new(&event));
        assert_ok(audit_new(event, path, false, &a));
        for (unsigned i = 0; i < 2000; i++)
                audit_started(a, &sandbox);
        assert_true(audit_lost(a) > 0);
        for (unsigned rounds = 0; rounds < 2000; rounds++) {
                while (next_entry()) {
                        n++;
                        lost_entries += strstr(entry, "CUBE_EVENT=lost") != NULL;
                }
                assert_ok(sd_event_run(event, 0));
        }
        assert_eq(lost_entries, 1);
        assert_eq(n - lost_entries + audit_lost(a), 2000);
        audit_free(a);
        sd_event_unref(event);
}

TEST(a_journal_that_was_restarted_is_found_again) {
        Audit *a;

        open_journal();
        assert_ok(audit_new(NULL, path, false, &a));
        audit_started(a, &sandbox);
        assert_true(next_entry());
        open_journal();
        audit_started(a, &sandbox);
        assert_true(next_entry());
        assert_eq(audit_lost(a), 0);
        audit_free(a);
}

TEST(no_journal_at_all_only_counts) {
        Audit *a;

        log_set_max_level(LOG_EMERG);
        assert_ok(audit_new(NULL, "/nonexistent/socket", false, &a));
        audit_started(a, &sandbox);
        assert_eq(audit_lost(a), 1);
        audit_free(a);
        audit_started(NULL, &sandbox);
        (void) unlink(path);
        (void) rmdir(dir);
        journal = safe_close(journal);
}

TEST(escaping) {
        _cleanup_free_ char *a = escape_text("a\tb\\\n\x7f", 6, 100), *b = escape_text("abcdef", 6, 3), *c = escape_text("", 0, 5);

        assert_streq(a, "a\\x09b\\\\\\n\\x7f");
        assert_streq(b, "abc");
        assert_streq(c, "");
}
