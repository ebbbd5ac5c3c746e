/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ctl/ctl.h"
#include "ctl/polkit-agent.h"

#define AGENT_PATH "/usr/bin/pkttyagent"
#define AGENT_READY_MSEC 3000

static pid_t agent_pid = 0;

static void run_agent(int notify_fd) _noreturn_;
static void run_agent(int notify_fd) {
        char option[32];

        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) fcntl(notify_fd, F_SETFD, 0);
        snprintf(option, sizeof(option), "--notify-fd=%i", notify_fd);
        execl(AGENT_PATH, "pkttyagent", option, "--fallback", NULL);
        _exit(127);
}

void polkit_agent_open(void) {
        int fds[2];

        if (agent_pid > 0 || !ctl_options.ask_password || geteuid() == 0)
                return;
        if (!isatty(STDIN_FILENO) || access(AGENT_PATH, X_OK) < 0 || pipe2(fds, O_CLOEXEC) < 0)
                return;

        agent_pid = fork();
        if (agent_pid == 0)
                run_agent(fds[1]);
        safe_close(fds[1]);

        /* It closes its end once it is registered. */
        if (agent_pid > 0)
                (void) poll(&(struct pollfd) { .fd = fds[0], .events = POLLIN }, 1, AGENT_READY_MSEC);
        safe_close(fds[0]);
}

void polkit_agent_close(void) {
        if (agent_pid <= 0)
                return;

        /* It has put the terminal right by then. */
        (void) kill(agent_pid, SIGTERM);
        (void) kill(agent_pid, SIGCONT);
        (void) waitpid(agent_pid, NULL, 0);
        agent_pid = 0;
}
