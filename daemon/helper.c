/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd-util.h"
#include "daemon/helper.h"
#include "daemon/log.h"

#define HELPER_DELAY_MIN_USEC (100 * USEC_PER_MSEC)
#define HELPER_DELAY_MAX_USEC (30 * USEC_PER_SEC)
/* One that ran this long has earned a quick restart again. */
#define HELPER_GOOD_USEC (60 * USEC_PER_SEC)

struct Helper {
        sd_event *event;
        char *name;
        char *path;
        HelperAttach attach;
        void *userdata;
        pid_t pid;
        sd_event_source *child;
        sd_event_source *restart;
        uint64_t started_usec;
        uint64_t delay_usec;
};

int helper_path(const char *name, char **ret) {
        const char *dir = secure_getenv("CUBED_LIBEXEC_DIR");

        return asprintf(ret, "%s/%s", dir ? dir : CUBED_LIBEXEC_DIR, name) < 0 ? -ENOMEM : 0;
}

pid_t helper_pid(const Helper *h) {
        return h->pid;
}

Helper *helper_free(Helper *h) {
        if (!h)
                return NULL;

        sd_event_source_disable_unref(h->restart);
        sd_event_source_disable_unref(h->child);
        /* Its exit is init's business from here, ours is to leave. */
        if (h->pid > 0)
                (void) kill(h->pid, SIGTERM);
        sd_event_unref(h->event);
        free(h->name);
        free(h->path);
        free(h);
        return NULL;
}

/* Runs between fork and exec: system calls only. */
static _noreturn_ void helper_exec(const Helper *h, int fd, char *const env[]) {
        char *const argv[] = { h->path, NULL };
        sigset_t none;

        if (fd == HELPER_FD)
                (void) fd_set_cloexec(fd, false);
        else if (dup2(fd, HELPER_FD) < 0)
                _exit(126);
        (void) syscall(SYS_close_range, HELPER_FD + 1, ~0U, 0);

        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) signal(SIGPIPE, SIG_DFL);
        execve(h->path, argv, env);
        _exit(127);
}

static int helper_spawn(Helper *h);

static int on_restart(sd_event_source *s, uint64_t usec, void *userdata) {
        Helper *h = userdata;

        h->restart = sd_event_source_disable_unref(h->restart);
        int r = helper_spawn(h);
        if (r < 0)
                log_error_errno(r, "Failed to start %s again: %m", h->name);
        return 0;
}

static void helper_schedule(Helper *h) {
        uint64_t now = 0;

        (void) sd_event_now(h->event, CLOCK_MONOTONIC, &now);
        if (now - h->started_usec > HELPER_GOOD_USEC)
                h->delay_usec = 0;
        int r = sd_event_add_time_relative(h->event, &h->restart, CLOCK_MONOTONIC, h->delay_usec, 0, on_restart, h);
        if (r < 0)
                log_error_errno(r, "Failed to schedule the restart of %s: %m", h->name);
        h->delay_usec = MIN(MAX(h->delay_usec * 2, HELPER_DELAY_MIN_USEC), HELPER_DELAY_MAX_USEC);
}

static int on_child(sd_event_source *s, const siginfo_t *si, void *userdata) {
        Helper *h = userdata;

        h->child = sd_event_source_disable_unref(h->child);
        h->pid = 0;
        if (si->si_code == CLD_EXITED && si->si_status == 127)
                log_error("%s can't be executed", h->path);
        else
                log_warning("%s ended (%s %d), starting it again", h->name,
                            si->si_code == CLD_EXITED ? "status" : "signal", si->si_status);
        helper_schedule(h);
        return 0;
}

static int helper_spawn(Helper *h) {
        _cleanup_close_ int ours = -EBADF, theirs = -EBADF;
        static char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", lang[] = "LANG=C.UTF-8";
        char *env[] = { path, lang, NULL };
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        ours = ends[0];
        theirs = ends[1];

        (void) sd_event_now(h->event, CLOCK_MONOTONIC, &h->started_usec);
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                helper_exec(h, theirs, env);

        h->pid = pid;
        int r = sd_event_add_child(h->event, &h->child, pid, WEXITED, on_child, h);
        if (r >= 0)
                r = h->attach(ours, h->userdata);
        if (r < 0) {
                h->child = sd_event_source_disable_unref(h->child);
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                h->pid = 0;
                return r;
        }
        (void) TAKE_FD(ours);
        return 0;
}

int helper_start(sd_event *event, const char *name, HelperAttach attach, void *userdata, Helper **ret) {
        _cleanup_(helper_freep) Helper *h = new0(Helper, 1);
        if (!h)
                return -ENOMEM;

        h->event = sd_event_ref(event);
        h->attach = attach;
        h->userdata = userdata;
        h->name = strdup(name);
        int r = h->name ? helper_path(name, &h->path) : -ENOMEM;
        if (r >= 0)
                r = helper_spawn(h);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(h);
        return 0;
}
