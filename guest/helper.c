/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/close_range.h>
#include <signal.h>
#include <sys/wait.h>

#include "guest/agent.h"
#include "guest/helper.h"
#include "guest/process.h"
#include "guest/spawn.h"

static _noreturn_ void child_run(int (*run)(const void *userdata), const void *userdata, int keep_fd) {
        (void) setsid();
        spawn_reset_child();

        /* The ends of users' pipes are among them, which would stay open for as long as this runs. */
        unsigned keep = keep_fd > STDERR_FILENO ? (unsigned) keep_fd : STDERR_FILENO;
        if (keep > STDERR_FILENO + 1)
                (void) close_range(STDERR_FILENO + 1, keep - 1, 0);
        (void) close_range(keep + 1, ~0U, 0);
        _exit(run(userdata));
}

int helper_start(
        Helper *h, Agent *a, int (*run)(const void *userdata), const void *userdata, int keep_fd,
        void (*exited)(Helper *h, int status)) {

        assert(h->pid == 0);

        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                child_run(run, userdata, keep_fd);

        process_forget_pid(a, pid);
        *h = (Helper) { .agent = a, .pid = pid, .exited = exited };
        LIST_PREPEND(a->helpers, h);
        return 0;
}

static void helper_forget(Helper *h) {
        LIST_REMOVE(h->agent->helpers, h);
        h->pid = 0;
}

static void send_kill(const Helper *h) {
        /* Its session may not have begun yet. */
        (void) kill(-h->pid, SIGKILL);
        (void) kill(h->pid, SIGKILL);
}

void helper_kill(Helper *h) {
        if (h->pid == 0)
                return;
        send_kill(h);
        helper_forget(h);
}

static void helper_exited(Helper *h, int status) {
        helper_forget(h);
        h->exited(h, status);
}

void helper_end(Helper *h) {
        int status = 0;

        if (h->pid == 0)
                return;
        send_kill(h);
        while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
                ;
        helper_exited(h, status);
}

bool helper_reaped(Agent *a, pid_t pid, int status) {
        for (Helper *h = a->helpers; h; h = h->list_next)
                if (h->pid == pid) {
                        helper_exited(h, status);
                        return true;
                }
        return false;
}
