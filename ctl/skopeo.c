/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ctl/ctl.h"
#include "ctl/skopeo.h"

#define ARGUMENTS_MAX 20U

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

static int run(const char *const *argv, const char *directory, int *ret_status) {
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

int skopeo_copy(const char *ref, const char *directory, const SkopeoOptions *options) {
        _cleanup_free_ char *target = NULL;
        const char *argv[ARGUMENTS_MAX] = {
                "skopeo", "--override-os=linux", "--override-arch=amd64", "copy", "--dest-oci-accept-uncompressed-layers",
                /* A layout has no place for them, which would be an error. They are checked before, if the host says so. */
                "--remove-signatures",
        };
        size_t n = 6;
        int status;

        if (asprintf(&target, "oci:%s/" SKOPEO_LAYOUT, directory) < 0) {
                target = NULL;
                return -ENOMEM;
        }
        if (options->authfile) {
                argv[n++] = "--src-authfile";
                argv[n++] = options->authfile;
        }
        if (options->cert_dir) {
                argv[n++] = "--src-cert-dir";
                argv[n++] = options->cert_dir;
        }
        if (options->insecure)
                argv[n++] = "--src-tls-verify=false";
        argv[n++] = ref;
        argv[n++] = target;

        int r = run(argv, directory, &status);
        if (r == -EINTR)
                return ctl_fail_text(r, "interrupted", "bring in %s", ref);
        if (r < 0)
                return ctl_fail(r, NULL, "run skopeo");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return ctl_fail_text(-EIO, "skopeo said why", "bring in %s", ref);
        return 0;
}
