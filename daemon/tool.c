/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "daemon/tool.h"

/* The exit status of a child that did not get as far as its program. */
#define EXIT_SETUP 120

/* What comes out of a pipe: all of it up to a ceiling, or its end. */
typedef struct Capture {
        int fd;
        sd_event_source *source;
        char *data;
        size_t size, max;
        bool keep_end;
        bool overflow;
} Capture;

struct Tool {
        char *name;
        pid_t pid;
        int pidfd;
        sd_event_source *exited;
        sd_event_source *timeout;
        bool timed_out;
        Capture tail;
        Capture report;
        ToolDone done;
        ToolLog log;
        void *userdata;
};

static void capture_done(Capture *c) {
        sd_event_source_disable_unref(c->source);
        c->source = NULL;
        c->fd = safe_close(c->fd);
        free(c->data);
        c->data = NULL;
}

static void capture_add(Capture *c, const char *p, size_t n) {
        if (n > c->max) {
                p += n - c->max;
                n = c->max;
                c->overflow = true;
        }
        if (c->size + n > c->max) {
                size_t drop = c->size + n - c->max;

                c->overflow = true;
                if (!c->keep_end)
                        return;
                memmove(c->data, c->data + drop, c->size - drop);
                c->size -= drop;
        }
        memcpy(c->data + c->size, p, n);
        c->size += n;
        c->data[c->size] = 0;
}

/* Everything that is there now. */
static void capture_drain(Tool *t, Capture *c) {
        char buffer[4096];

        /* Bounded: a tool that prints without end shall not hold the loop. */
        for (unsigned i = 0; c->fd >= 0 && i < 64; i++) {
                ssize_t n = read(c->fd, buffer, sizeof(buffer));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n <= 0) {
                        c->source = sd_event_source_disable_unref(c->source);
                        c->fd = safe_close(c->fd);
                        return;
                }
                if (c == &t->tail && t->log)
                        t->log(t, buffer, (size_t) n, t->userdata);
                capture_add(c, buffer, (size_t) n);
        }
}

static int on_tail(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Tool *t = userdata;
        capture_drain(t, &t->tail);
        return 0;
}

static int on_report(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Tool *t = userdata;
        capture_drain(t, &t->report);
        return 0;
}

/* Takes over fd. */
static int capture_init(Capture *c, sd_event *e, int fd, size_t max, sd_event_io_handler_t handler, Tool *t) {
        c->fd = fd;
        c->max = max;
        c->data = calloc(1, max + 1);
        if (!c->data)
                return -ENOMEM;
        return sd_event_add_io(e, &c->source, fd, EPOLLIN, handler, t);
}

/* The tail as one piece of text, its last lines joined; nothing but printable ASCII. */
static void clean_tail(char *s) {
        size_t n = 0;

        for (const char *p = s; *p; p++) {
                bool printable = *p >= ' ' && *p < 0x7f;

                if (*p == '\n' || *p == '\r') {
                        if (n > 0 && s[n - 1] != ';' && p[1])
                                s[n++] = ';';
                } else
                        s[n++] = printable ? *p : '?';
        }
        while (n > 0 && strchr("; ", s[n - 1]))
                n--;
        s[n] = 0;
}

static int tool_result(Tool *t, const siginfo_t *si, char *message, size_t size) {
        const char *prefix, *tail = t->tail.data;
        char how[64];

        if (t->timed_out)
                (void) snprintf(how, sizeof(how), "took too long");
        else if (si->si_code == CLD_EXITED && si->si_status == 0)
                return 0;
        else if (si->si_code == CLD_EXITED)
                (void) snprintf(how, sizeof(how), "exit status %d", si->si_status);
        else if (si->si_status == SIGXFSZ)
                (void) snprintf(how, sizeof(how), "what it writes became too large");
        else
                (void) snprintf(how, sizeof(how), "killed by SIG%s", strempty(sigabbrev_np(si->si_status)));

        clean_tail(t->tail.data);
        /* Our own program says its name already, and one line that needs no more. */
        prefix = startswith(tail, t->name);
        if (prefix && startswith(prefix, ": ") && !t->timed_out && si->si_code == CLD_EXITED)
                (void) snprintf(message, size, "%s", tail);
        else
                (void) snprintf(message, size, "%s: %s%s%s", t->name, how, *tail ? ": " : "", tail);
        if (t->timed_out)
                return -ETIMEDOUT;
        return si->si_code != CLD_EXITED && si->si_status == SIGPIPE ? -EPIPE : -EIO;
}

/* A pidfd becomes readable at the exit. sd_event_add_child() would want SIGCHLD blocked everywhere. */
static int on_exit_of_tool(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        char message[TOOL_TAIL_MAX + 256] = "";
        siginfo_t si = {};
        Tool *t = userdata;
        int r;

        if (waitid(P_PIDFD, (id_t) t->pidfd, &si, WEXITED|WNOHANG) < 0)
                /* Somebody else reaped it, which can't be: the worst is assumed. */
                si = (siginfo_t) { .si_pid = t->pid, .si_code = CLD_EXITED, .si_status = EXIT_SETUP };
        if (si.si_pid == 0)
                return 0;
        /* From here on its pid may be anybody's. */
        t->pid = 0;
        t->exited = sd_event_source_disable_unref(t->exited);
        t->timeout = sd_event_source_disable_unref(t->timeout);
        capture_drain(t, &t->tail);
        capture_drain(t, &t->report);
        r = tool_result(t, &si, message, sizeof(message));
        t->done(t, r, r < 0 ? message : NULL, t->userdata);
        return 0;
}

void tool_kill(Tool *t) {
        if (t->pid <= 0)
                return;
        (void) kill(-t->pid, SIGKILL);
        /* Before its setpgid() there is no such group. */
        (void) kill(t->pid, SIGKILL);
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata) {
        Tool *t = userdata;

        t->timed_out = true;
        tool_kill(t);
        return 0;
}

const char *tool_report(const Tool *t, size_t *ret_size) {
        *ret_size = t->report.overflow ? 0 : t->report.size;
        return strempty(t->report.data);
}

Tool *tool_free(Tool *t) {
        if (!t)
                return NULL;
        sd_event_source_disable_unref(t->exited);
        if (t->pid > 0) {
                tool_kill(t);
                while (waitpid(t->pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        sd_event_source_disable_unref(t->timeout);
        capture_done(&t->tail);
        capture_done(&t->report);
        safe_close(t->pidfd);
        free(t->name);
        free(t);
        return NULL;
}

/* From here on in the child, between fork and exec: nothing but system calls. */
_noreturn_ static void child_fail(const char *what) {
        dprintf(STDERR_FILENO, "%s: %s\n", what, strerror(errno));
        _exit(EXIT_SETUP);
}

/* The listed descriptors to 0, 1, 2 ..., by way of numbers above them so that none overwrites another. */
static void child_fds(const ToolSpec *spec, int null_fd, int stderr_fd, int report_fd) {
        int fds[TOOL_FDS_MAX];

        for (int i = 0; i < (int) TOOL_FDS_MAX; i++) {
                int fd = spec->fds[i];

                if (i == STDERR_FILENO)
                        fd = stderr_fd;
                else if (i == TOOL_REPORT_FD && report_fd >= 0)
                        fd = report_fd;
                else if (fd < 0 && i < 2)
                        fd = null_fd;
                fds[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD, (int) TOOL_FDS_MAX);
                if (fd >= 0 && fds[i] < 0)
                        child_fail("duplicating descriptors");
        }
        for (int i = 0; i < (int) TOOL_FDS_MAX; i++)
                if (fds[i] < 0)
                        (void) close(i);
                else if (dup2(fds[i], i) < 0)
                        child_fail("duplicating descriptors");
        if (syscall(SYS_close_range, (unsigned) TOOL_FDS_MAX, ~0U, 0) < 0)
                child_fail("closing descriptors");
}

static void child_become(const ToolSpec *spec) {
        if (spec->uid != (uid_t) -1 &&
            (setgroups(0, NULL) < 0 || setresgid(spec->gid, spec->gid, spec->gid) < 0 ||
             setresuid(spec->uid, spec->uid, spec->uid) < 0))
                child_fail("changing to the tools' user");
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                child_fail("no_new_privs");
        /* A change of uid clears it, so it comes after. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
                child_fail("parent death signal");
}

static void child_limits(const ToolSpec *spec) {
        struct rlimit none = {}, size = { spec->file_bytes_max, spec->file_bytes_max };

        if (setrlimit(RLIMIT_CORE, &none) < 0 || (spec->file_bytes_max > 0 && setrlimit(RLIMIT_FSIZE, &size) < 0))
                child_fail("limits");
}

_noreturn_ static void child_run(const ToolSpec *spec, pid_t parent, int null_fd, int stderr_fd, int report_fd) {
        /* mke2fs takes the times in a file system from here, for the sake of reproducible ones. */
        static char *const environment[] = {
                (char *) "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                (char *) "LC_ALL=C.UTF-8",
                (char *) "E2FSPROGS_FAKE_TIME=1",
                NULL,
        };
        sigset_t none;

        (void) setpgid(0, 0);
        for (int s = 1; s < _NSIG; s++)
                (void) signal(s, SIG_DFL);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);

        child_fds(spec, null_fd, stderr_fd, report_fd);
        child_limits(spec);
        child_become(spec);
        if (getppid() != parent)
                _exit(EXIT_SETUP);
        (void) umask(077);
        if (chdir("/") < 0)
                child_fail("/");
        (void) execve(spec->argv[0], (char *const *) spec->argv, environment);
        child_fail(spec->argv[0]);
}

static int open_pipe(int *ret_read, int *ret_write) {
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        *ret_read = fds[0];
        *ret_write = fds[1];
        return fd_set_nonblock(fds[0], true);
}

static int tool_watch(Tool *t, sd_event *e, uint64_t timeout_usec) {
        int r;

        t->pidfd = (int) syscall(SYS_pidfd_open, t->pid, 0);
        if (t->pidfd < 0)
                return -errno;
        r = sd_event_add_io(e, &t->exited, t->pidfd, EPOLLIN, on_exit_of_tool, t);
        if (r >= 0 && timeout_usec > 0)
                r = sd_event_add_time_relative(e, &t->timeout, CLOCK_MONOTONIC, timeout_usec, 0, on_timeout, t);
        return r;
}

int tool_start(sd_event *e, const ToolSpec *spec, ToolDone done, ToolLog log, void *userdata, Tool **ret) {
        _cleanup_close_ int null_fd = -EBADF, tail_read = -EBADF, tail_write = -EBADF;
        _cleanup_close_ int report_read = -EBADF, report_write = -EBADF;
        const char *slash = strrchr(spec->argv[0], '/');
        _cleanup_(tool_freep) Tool *t = new0(Tool, 1);
        pid_t parent = getpid();
        int r;

        if (!t)
                return -ENOMEM;
        t->pidfd = t->tail.fd = t->report.fd = -EBADF;
        t->tail.keep_end = true;
        t->done = done;
        t->log = log;
        t->userdata = userdata;
        t->name = strdup(slash ? slash + 1 : spec->argv[0]);
        null_fd = open("/dev/null", O_RDWR|O_CLOEXEC);
        if (!t->name || null_fd < 0)
                return !t->name ? -ENOMEM : -errno;

        r = open_pipe(&tail_read, &tail_write);
        if (r >= 0 && spec->report)
                r = open_pipe(&report_read, &report_write);
        if (r >= 0)
                r = capture_init(&t->tail, e, TAKE_FD(tail_read), TOOL_TAIL_MAX, on_tail, t);
        if (r >= 0 && spec->report)
                r = capture_init(&t->report, e, TAKE_FD(report_read), TOOL_REPORT_MAX, on_report, t);
        if (r < 0)
                return r;

        t->pid = fork();
        if (t->pid < 0)
                return -errno;
        if (t->pid == 0)
                child_run(spec, parent, null_fd, tail_write, report_write);

        r = tool_watch(t, e, spec->timeout_usec);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(t);
        return 0;
}
