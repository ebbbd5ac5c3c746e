/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "base/work-directory.h"
#include "ctl/ctl.h"
#include "ctl/text.h"
#include "ctl/work.h"

int work_begin(char **ret) {
        sigset_t mask;

        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        int r = work_directory_make("cubectl", ret);
        return r < 0 ? ctl_fail(r, NULL, "make a directory below %s", work_directory_above()) : 0;
}

typedef struct Child {
        pid_t pid;
        int pidfd, said_fd;     /* the latter: its stderr */
        char said[4096];        /* what of that is still to be printed */
        size_t n_said;
} Child;

/* Ours is for what scripts read: the template's id. What it says on stderr may be what a registry said. */
static void child_streams(int said_fd) {
        int null = open("/dev/null", O_RDWR|O_CLOEXEC);

        (void) dup2(null, STDIN_FILENO);
        (void) dup2(ctl_options.quiet ? null : STDERR_FILENO, STDOUT_FILENO);
        (void) dup2(said_fd, STDERR_FILENO);
}

static _noreturn_ void child_run(const char *const *argv, const char *directory, pid_t parent, int said_fd) {
        sigset_t none;

        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (getppid() == parent) {
                child_streams(said_fd);
                /* One that is killed leaves something. */
                (void) setenv("TMPDIR", directory, true);
                (void) execvp(argv[0], (char *const *) argv);
                fprintf(stderr, "%s: %s\n", argv[0], errno == ENOENT ? "not found: install the package of this name" :
                        strerror(errno));
        }
        _exit(127);
}

static void print_said(Child *c, size_t size) {
        _cleanup_free_ char *text = text_printable(c->said, size, true);

        fputs(strempty(text), stderr);
        c->n_said -= size;
        memmove(c->said, c->said + size, c->n_said);
}

/* False at its end, or where there is nothing for now. */
static bool pass_on(Child *c) {
        ssize_t n = read(c->said_fd, c->said + c->n_said, sizeof(c->said) - c->n_said);

        if (n <= 0)
                return n < 0 && errno == EINTR;
        c->n_said += (size_t) n;
        print_said(c, text_whole(c->said, c->n_said));
        return true;
}

/* The child gets what the terminal sends as well; what was sent to us alone it gets from us. */
static int wait_child(Child *c, int signal_fd) {
        enum { ENDED, SIGNAL, SAID };
        struct pollfd fds[] = {
                [ENDED] = { .fd = c->pidfd, .events = POLLIN },
                [SIGNAL] = { .fd = signal_fd, .events = POLLIN },
                [SAID] = { .fd = c->said_fd, .events = POLLIN },
        };
        struct signalfd_siginfo si;

        for (;;) {
                if (poll(fds, ELEMENTSOF(fds), -1) < 0 && errno != EINTR)
                        return -errno;
                if (fds[SIGNAL].revents && read(signal_fd, &si, sizeof(si)) > 0)
                        return -EINTR;
                if (fds[SAID].revents && !pass_on(c))
                        fds[SAID].fd = -1;
                if (fds[ENDED].revents)
                        return 0;
        }
}

static int child_start(Child *c, const char *const *argv, const char *directory) {
        _cleanup_close_ int said = -EBADF;
        pid_t self = getpid();
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        c->said_fd = fds[0];
        said = fds[1];
        int r = fd_set_nonblock(c->said_fd, true);
        if (r < 0)
                return r;
        c->pid = fork();
        if (c->pid == 0)
                child_run(argv, directory, self, said);
        if (c->pid < 0)
                return -errno;
        c->pidfd = (int) syscall(SYS_pidfd_open, c->pid, 0);
        return c->pidfd < 0 ? -errno : 0;
}

static int run_child(const char *const *argv, const char *directory, int *ret_status) {
        Child c = { .pidfd = -EBADF, .said_fd = -EBADF };
        sigset_t mask;

        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        _cleanup_close_ int signal_fd = signalfd(-1, &mask, SFD_CLOEXEC);
        int r = signal_fd < 0 ? -errno : child_start(&c, argv, directory);
        if (r >= 0)
                r = wait_child(&c, signal_fd);
        if (r < 0 && c.pid > 0)
                (void) kill(c.pid, SIGTERM);
        if (c.pid > 0)
                (void) waitpid(c.pid, ret_status, 0);
        while (c.said_fd >= 0 && pass_on(&c))
                ;
        print_said(&c, c.n_said);
        safe_close(c.said_fd);
        safe_close(c.pidfd);
        return r;
}

int work_run(const char *const *argv, const char *directory, const char *what, const char *about) {
        int status, r = run_child(argv, directory, &status);

        if (r == -EINTR)
                return ctl_fail_text(r, "interrupted", "%s %s", what, about);
        if (r < 0)
                return ctl_fail(r, NULL, "run %s", argv[0]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                char why[64];
                (void) snprintf(why, sizeof(why), "%s said why", argv[0]);
                return ctl_fail_text(-EIO, why, "%s %s", what, about);
        }
        return 0;
}
