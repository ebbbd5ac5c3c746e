/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "daemon/tool.h"
#include "test.h"

typedef struct Outcome {
        bool done;
        int r;
        char message[4096];
        char report[256];
        size_t logged;
} Outcome;

static void on_done(Tool *t, int r, const char *message, void *userdata) {
        Outcome *o = userdata;
        const char *report;
        size_t size;

        assert(!o->done);
        o->done = true;
        o->r = r;
        (void) snprintf(o->message, sizeof(o->message), "%s", strempty(message));
        report = tool_report(t, &size);
        (void) snprintf(o->report, sizeof(o->report), "%.*s", (int) size, report);
}

static void on_log(Tool *t, const char *text, size_t size, void *userdata) {
        Outcome *o = userdata;
        o->logged += size;
}

static Outcome run_spec(ToolSpec spec, const char *script, bool kill_it) {
        const char *const argv[] = { "/bin/sh", "-c", script, NULL };
        _cleanup_(tool_freep) Tool *t = NULL;
        sd_event *e = NULL;
        Outcome o = {};

        spec.argv = argv;
        assert_ok(sd_event_new(&e));
        assert_ok(tool_start(e, &spec, on_done, on_log, &o, &t));
        if (kill_it)
                tool_kill(t);
        for (int i = 0; i < 100000 && !o.done; i++)
                assert_ok(sd_event_run(e, 60 * USEC_PER_SEC));
        assert_true(o.done);
        t = tool_free(t);
        sd_event_unref(e);
        /* Nothing of it is left. */
        assert_eq(waitpid(-1, NULL, WNOHANG), -1);
        return o;
}

static Outcome run(const char *script) {
        ToolSpec spec = TOOL_SPEC_INIT;
        return run_spec(spec, script, false);
}

TEST(success) {
        Outcome o = run("exit 0");
        assert_eq(o.r, 0);
        assert_streq(o.message, "");
}

TEST(failure_says_how) {
        Outcome o = run("echo one >&2; echo two >&2; exit 7");
        assert_eq(o.r, -EIO);
        assert_streq(o.message, "sh: exit status 7: one;two");
        o = run("kill -SEGV $$");
        assert_eq(o.r, -EIO);
        assert_streq(o.message, "sh: killed by SIGSEGV");
        o = run("kill -PIPE $$");
        assert_eq(o.r, -EPIPE);
}

TEST(only_the_end_is_kept) {
        Outcome o = run("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done >&2; printf '\\033[1mx' >&2; exit 1");
        assert_true(strlen(o.message) < TOOL_TAIL_MAX + 64);
        assert_true(strstr(o.message, "line 1999;?[1mx"));
        assert_true(o.logged > 10000);
}

TEST(report) {
        ToolSpec spec = TOOL_SPEC_INIT;
        Outcome o;

        spec.report = true;
        o = run_spec(spec, "echo '{\"a\":1}' >&3", false);
        assert_eq(o.r, 0);
        assert_streq(o.report, "{\"a\":1}\n");
        /* More than is taken counts as nothing. */
        o = run_spec(spec, "yes | head -c 100000 >&3", false);
        assert_streq(o.report, "");
}

TEST(descriptors) {
        /* 0, 1, 2 and the directory that lists them */
        Outcome o = run("ls /proc/self/fd | tr '\\n' ' ' >&2; readlink /proc/self/fd/0 >&2; exit 1");
        assert_streq(o.message, "sh: exit status 1: 0 1 2 3 /dev/null");
        ToolSpec spec = TOOL_SPEC_INIT;
        int fd = open("/", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        spec.fds[4] = fd;
        o = run_spec(spec, "readlink /proc/self/fd/4 >&2; exit 1", false);
        close(fd);
        assert_streq(o.message, "sh: exit status 1: /");
}

TEST(limits_and_state) {
        ToolSpec spec = TOOL_SPEC_INIT;
        Outcome o = run("grep -E 'NoNewPrivs|SigBlk' /proc/self/status | tr -d '\\t\\n' >&2; pwd >&2; exit 1");
        assert_streq(o.message, "sh: exit status 1: SigBlk:0000000000000000NoNewPrivs:1/");

        char path[] = "/tmp/cube-test-tool.XXXXXX";
        int fd = mkstemp(path);
        spec.fds[1] = fd;
        spec.file_bytes_max = 5000;
        o = run_spec(spec, "exec head -c 10000 /dev/zero", false);
        close(fd);
        unlink(path);
        assert_streq(o.message, "sh: what it writes became too large");
}

TEST(time_out) {
        ToolSpec spec = TOOL_SPEC_INIT;
        Outcome o;

        spec.timeout_usec = 50 * USEC_PER_MSEC;
        /* the whole group, not the shell alone */
        o = run_spec(spec, "sleep 100 & sleep 100", false);
        assert_eq(o.r, -ETIMEDOUT);
        assert_true(strstr(o.message, "took too long"));
}

TEST(kill) {
        ToolSpec spec = TOOL_SPEC_INIT;
        Outcome o = run_spec(spec, "sleep 100", true);
        assert_eq(o.r, -EIO);
        assert_streq(o.message, "sh: killed by SIGKILL");
}

TEST(free_while_running) {
        const char *const argv[] = { "/bin/sleep", "100", NULL };
        ToolSpec spec = TOOL_SPEC_INIT;
        sd_event *e = NULL;
        Outcome o = {};
        Tool *t = NULL;

        spec.argv = argv;
        assert_ok(sd_event_new(&e));
        assert_ok(tool_start(e, &spec, on_done, on_log, &o, &t));
        t = tool_free(t);
        assert_eq(waitpid(-1, NULL, WNOHANG), -1);
        sd_event_unref(e);
        assert_true(!o.done);
}

TEST(no_such_program) {
        const char *const argv[] = { "/nonexistent/tool", NULL };
        ToolSpec spec = TOOL_SPEC_INIT;
        sd_event *e = NULL;
        Outcome o = {};
        Tool *t = NULL;

        spec.argv = argv;
        assert_ok(sd_event_new(&e));
        assert_ok(tool_start(e, &spec, on_done, NULL, &o, &t));
        while (!o.done)
                assert_ok(sd_event_run(e, USEC_PER_SEC));
        assert_streq(o.message, "tool: exit status 120: /nonexistent/tool: No such file or directory");
        tool_free(t);
        sd_event_unref(e);
}

TEST(other_user) {
        ToolSpec spec = TOOL_SPEC_INIT;
        Outcome o;

        if (geteuid() != 0)
                test_skip("only root can run tools as somebody else");
        spec.uid = 65534;
        spec.gid = 65534;
        o = run_spec(spec, "id -u >&2; id -G >&2; grep CapEff /proc/self/status | tr -d '\\t' >&2; exit 1", false);
        assert_streq(o.message, "sh: exit status 1: 65534;65534;CapEff:0000000000000000");
}
