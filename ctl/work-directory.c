/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ctl/ctl.h"
#include "ctl/work-directory.h"

#define OPEN_DIRECTORIES_MAX 16

int work_directory_make(char **ret) {
        const char *above = getenv("TMPDIR");
        _cleanup_free_ char *path = NULL;
        sigset_t mask;

        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        if (asprintf(&path, "%s/cubectl-XXXXXX", isempty(above) ? "/var/tmp" : above) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        if (!mkdtemp(path))
                return ctl_fail(-errno, NULL, "make the directory %s", path);
        *ret = TAKE_PTR(path);
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

char *work_directory_remove(char *path) {
        if (path)
                (void) nftw(path, remove_entry, OPEN_DIRECTORIES_MAX, FTW_DEPTH|FTW_PHYS);
        free(path);
        return NULL;
}

/* Ours is for what scripts read: the template's id. */
static void child_streams(void) {
        int null = open("/dev/null", O_RDWR|O_CLOEXEC);

        (void) dup2(null, STDIN_FILENO);
        (void) dup2(ctl_options.quiet ? null : STDERR_FILENO, STDOUT_FILENO);
}

static _noreturn_ void child_run(const char *const *argv, const char *directory, pid_t parent) {
        sigset_t none;

        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (getppid() == parent) {
                child_streams();
                /* One that is killed leaves something. */
                (void) setenv("TMPDIR", directory, true);
                (void) execvp(argv[0], (char *const *) argv);
                fprintf(stderr, "%s: %s\n", argv[0], errno == ENOENT ? "not found: install the package of this name" :
                        strerror(errno));
        }
        _exit(127);
}

/* The child gets what the terminal sends as well; what was sent to us alone it gets from us. */
static int wait_child(pid_t pid, int *ret_status) {
        sigset_t set;
        siginfo_t si;

        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGCHLD);
        for (;;) {
                int n = sigwaitinfo(&set, &si);

                if (n == SIGINT || n == SIGTERM) {
                        (void) kill(pid, SIGTERM);
                        (void) waitpid(pid, ret_status, 0);
                        return -EINTR;
                }
                pid_t done = waitpid(pid, ret_status, WNOHANG);
                if (done != 0)
                        return done < 0 ? -errno : 0;
        }
}

static int run_child(const char *const *argv, const char *directory, int *ret_status) {
        sigset_t child, saved;
        pid_t self = getpid();

        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        (void) sigprocmask(SIG_BLOCK, &child, &saved);
        pid_t pid = fork();
        if (pid == 0)
                child_run(argv, directory, self);
        int r = pid < 0 ? -errno : wait_child(pid, ret_status);
        (void) sigprocmask(SIG_SETMASK, &saved, NULL);
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
