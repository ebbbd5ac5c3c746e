/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/text.h"

static pid_t pager_pid = 0;

static const char *pager_command(void) {
        static const char *const variables[] = { "CUBE_PAGER", "SYSTEMD_PAGER", "PAGER" };

        for (size_t i = 0; i < ELEMENTSOF(variables); i++) {
                const char *e = getenv(variables[i]);
                if (e)
                        return e;
        }
        return "less";
}

static void run_pager(const char *command) _noreturn_;
static void run_pager(const char *command) {
        (void) setenv("LESS", "FRSXMK", 0);
        (void) setenv("LESSCHARSET", "utf-8", 0);
        /* A pager can start other programs and read other files: not with more rights than its user. */
        (void) setenv("LESSSECURE", "1", geteuid() == 0 || geteuid() != getuid());

        (void) signal(SIGPIPE, SIG_DFL);
        execlp("sh", "sh", "-c", command, NULL);
        _exit(127);
}

void pager_open(void) {
        const char *command = pager_command();
        int fds[2];

        if (!ctl_options.pager || pager_pid > 0 || !text_stdout_is_terminal() || ctl_options.json != JSON_OFF)
                return;
        if (isempty(command) || streq(command, "cat"))
                return;
        if (streq(command, "less") && access("/usr/bin/less", X_OK) < 0)
                return;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return;

        fflush(stdout);
        pager_pid = fork();
        if (pager_pid == 0) {
                (void) dup2(fds[0], STDIN_FILENO);
                run_pager(command);
        }
        if (pager_pid > 0)
                (void) dup2(fds[1], STDOUT_FILENO);
        safe_close(fds[0]);
        safe_close(fds[1]);
}

void pager_close(void) {
        if (pager_pid <= 0)
                return;

        fflush(stdout);
        (void) fclose(stdout);
        (void) waitpid(pager_pid, NULL, 0);
        pager_pid = 0;
}
