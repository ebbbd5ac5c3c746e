/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <linux/close_range.h>

#include "base/fd-util.h"
#include "guest/spawn.h"

/* What a login on a current distribution gives; the agent's own limit is much higher. */
#define CHILD_NOFILE_SOFT 1024U
#define CHILD_NOFILE_HARD 524288U

typedef struct ChildEnds {
        int stdin_fd, stdout_fd, stderr_fd;
        int status_fd;
        bool pty;
} ChildEnds;

static _noreturn_ void child_tell(int status_fd, SpawnFailure *failure, const char *format, va_list ap) {
        int n = vsnprintf(failure->message, sizeof(failure->message), format, ap);
        if (n > 0 && (size_t) n < sizeof(failure->message))
                snprintf(failure->message + n, sizeof(failure->message) - (size_t) n, ": %s", strerror(failure->error));

        (void) write_full(status_fd, failure, sizeof(*failure));
        _exit(127);
}

static _noreturn_ void child_fail(int status_fd, int error, const char *format, ...) _printf_(3, 4);

static _noreturn_ void child_fail(int status_fd, int error, const char *format, ...) {
        SpawnFailure failure = { .error = error };
        va_list ap;

        va_start(ap, format);
        child_tell(status_fd, &failure, format, ap);
}

static _noreturn_ void child_fail_program(int status_fd, int error, const char *format, ...) _printf_(3, 4);

static _noreturn_ void child_fail_program(int status_fd, int error, const char *format, ...) {
        SpawnFailure failure = { .error = error, .program = 1 };
        va_list ap;

        va_start(ap, format);
        child_tell(status_fd, &failure, format, ap);
}

static bool env_has(const StringList *env, const char *name) {
        size_t n = strlen(name);

        for (size_t i = 0; i < env->n; i++)
                if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
                        return true;
        return false;
}

static char *assignment(const char *name, const char *value) {
        char *s = NULL;
        return asprintf(&s, "%s=%s", name, value) < 0 ? NULL : s;
}

/* Runs in the child, which exits or execs: nothing here is freed. */
static char **make_environment(const Request *q, const User *u) {
        const char *const defaults[][2] = {
                { "HOME", u->home },
                { "USER", u->name },
                { "LOGNAME", u->name },
                { "SHELL", u->shell },
                { "PATH", SPAWN_DEFAULT_PATH },
                { "TERM", q->pty ? "xterm-256color" : NULL },
        };
        char **env = new0(char *, ELEMENTSOF(defaults) + q->env.n + 1);
        size_t n = 0;

        if (!env)
                return NULL;
        for (size_t i = 0; i < ELEMENTSOF(defaults); i++) {
                if (!defaults[i][1] || env_has(&q->env, defaults[i][0]))
                        continue;
                env[n] = assignment(defaults[i][0], defaults[i][1]);
                if (!env[n++])
                        return NULL;
        }
        if (q->env.n > 0)
                memcpy(env + n, q->env.items, q->env.n * sizeof(char *));
        return env;
}

static void reset_signals(void) {
        struct sigaction sa = { .sa_handler = SIG_DFL };
        sigset_t none;

        for (int i = 1; i <= SIGRTMAX; i++)
                (void) sigaction(i, &sa, NULL);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_streams(const ChildEnds *ends) {
        if (setsid() < 0)
                child_fail(ends->status_fd, errno, "new session");
        if (ends->pty && ioctl(ends->stdin_fd, TIOCSCTTY, 0) < 0)
                child_fail(ends->status_fd, errno, "terminal");

        if (dup2(ends->stdin_fd, STDIN_FILENO) < 0 || dup2(ends->stdout_fd, STDOUT_FILENO) < 0 ||
            dup2(ends->stderr_fd, STDERR_FILENO) < 0)
                child_fail(ends->status_fd, errno, "standard streams");
        if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                child_fail(ends->status_fd, errno, "close_range");
}

static void set_limits(void) {
        struct rlimit limit = { .rlim_cur = CHILD_NOFILE_SOFT, .rlim_max = CHILD_NOFILE_HARD };

        /* The agent's hard limit is the same; it is lower where tests run without CAP_SYS_RESOURCE. */
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0 && getrlimit(RLIMIT_NOFILE, &limit) >= 0) {
                limit.rlim_cur = MIN(limit.rlim_max, (rlim_t) CHILD_NOFILE_SOFT);
                (void) setrlimit(RLIMIT_NOFILE, &limit);
        }

        /* The agent itself is never the kernel's choice when memory runs out; its children are. */
        int fd = open("/proc/self/oom_score_adj", O_WRONLY|O_CLOEXEC);
        if (fd >= 0) {
                (void) !write(fd, "0", 1);
                close(fd);
        }
        umask(022);
}

void spawn_reset_child(void) {
        reset_signals();
        set_limits();
}

static void set_user(const User *u, int status_fd) {
        if (setgroups(u->n_groups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
            setresuid(u->uid, u->uid, u->uid) < 0)
                child_fail(status_fd, errno, "user %s", u->name);
}

static void set_directory(const Request *q, const User *u, int status_fd) {
        if (q->cwd) {
                if (chdir(q->cwd) < 0)
                        child_fail(status_fd, errno, "directory %s", q->cwd);
        } else if (chdir(u->home) < 0 && chdir("/") < 0)
                child_fail(status_fd, errno, "directory /");
}

static _noreturn_ void child_run(const Request *q, const User *u, const ChildEnds *ends) {
        spawn_reset_child();
        set_streams(ends);
        set_user(u, ends->status_fd);
        set_directory(q, u, ends->status_fd);

        char **env = make_environment(q, u);
        if (!env)
                child_fail(ends->status_fd, ENOMEM, "environment");
        environ = env; /* execvpe() looks for the program along this PATH */
        (void) execvpe(q->argv.items[0], q->argv.items, env);

        if (errno == ENOENT && strchr(q->argv.items[0], '/') && access(q->argv.items[0], F_OK) == 0)
                child_fail_program(ends->status_fd, ENOENT, "interpreter of program %s", q->argv.items[0]);
        child_fail_program(ends->status_fd, errno, "program %s", q->argv.items[0]);
}

static int open_pty(const Request *q, ChildEnds *ends, Spawned *ret) {
        struct winsize size = {
                .ws_row = (unsigned short) (request_has(q, AGENT_TAG_ROWS) ? q->rows : 24),
                .ws_col = (unsigned short) (request_has(q, AGENT_TAG_COLS) ? q->cols : 80),
        };

        ret->pty_fd = posix_openpt(O_RDWR|O_NOCTTY|O_CLOEXEC|O_NONBLOCK);
        if (ret->pty_fd < 0 || unlockpt(ret->pty_fd) < 0)
                return -errno;

        ends->stdin_fd = ioctl(ret->pty_fd, TIOCGPTPEER, O_RDWR|O_NOCTTY|O_CLOEXEC);
        if (ends->stdin_fd < 0 || ioctl(ret->pty_fd, TIOCSWINSZ, &size) < 0)
                return -errno;
        ends->stdout_fd = ends->stderr_fd = ends->stdin_fd;
        ends->pty = true;
        return 0;
}

static int open_pipe(int *ret_read, int *ret_write, int *ours) {
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        *ret_read = fds[0];
        *ret_write = fds[1];
        return ours ? fd_set_nonblock(*ours, true) : 0;
}

static int open_null(int *ret_fd) {
        *ret_fd = open("/dev/null", O_RDONLY|O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

static int open_pipes(const Request *q, ChildEnds *ends, Spawned *ret) {
        int r = q->no_input ? open_null(&ends->stdin_fd) : open_pipe(&ends->stdin_fd, &ret->stdin_fd, &ret->stdin_fd);
        if (r >= 0)
                r = open_pipe(&ret->stdout_fd, &ends->stdout_fd, &ret->stdout_fd);
        if (r >= 0)
                r = open_pipe(&ret->stderr_fd, &ends->stderr_fd, &ret->stderr_fd);
        return r;
}

static void child_ends_done(ChildEnds *ends) {
        safe_close(ends->stdin_fd);
        if (!ends->pty) {
                safe_close(ends->stdout_fd);
                safe_close(ends->stderr_fd);
        }
        safe_close(ends->status_fd);
}

static int hand_terminal_over(const ChildEnds *ends, const User *u) {
        /* As login does, so that the user can open his own /dev/pts/N. */
        return u->uid != 0 && fchown(ends->stdin_fd, u->uid, (gid_t) -1) < 0 ? -errno : 0;
}

int spawn(const Request *q, const User *u, Spawned *ret) {
        _cleanup_(child_ends_done) ChildEnds ends = {
                .stdin_fd = -EBADF, .stdout_fd = -EBADF, .stderr_fd = -EBADF, .status_fd = -EBADF,
        };
        _cleanup_(spawned_done) Spawned s = {
                .status_fd = -EBADF, .stdin_fd = -EBADF, .stdout_fd = -EBADF, .stderr_fd = -EBADF, .pty_fd = -EBADF,
        };

        int r = q->pty ? open_pty(q, &ends, &s) : open_pipes(q, &ends, &s);
        if (r >= 0 && q->pty)
                r = hand_terminal_over(&ends, u);
        if (r >= 0)
                r = open_pipe(&s.status_fd, &ends.status_fd, &s.status_fd);
        if (r < 0)
                return r;

        s.pid = fork();
        if (s.pid < 0)
                return -errno;
        if (s.pid == 0)
                child_run(q, u, &ends);

        *ret = s;
        s = (Spawned) {
                .status_fd = -EBADF, .stdin_fd = -EBADF, .stdout_fd = -EBADF, .stderr_fd = -EBADF, .pty_fd = -EBADF,
        };
        return 0;
}

void spawned_done(Spawned *s) {
        s->status_fd = safe_close(s->status_fd);
        s->stdin_fd = safe_close(s->stdin_fd);
        s->stdout_fd = safe_close(s->stdout_fd);
        s->stderr_fd = safe_close(s->stderr_fd);
        s->pty_fd = safe_close(s->pty_fd);
}
