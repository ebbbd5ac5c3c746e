/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "ctl/ctl.h"
#include "ctl/program.h"

static int start(const char *const *argv, pid_t *ret) {
        posix_spawn_file_actions_t actions;

        int r = posix_spawn_file_actions_init(&actions);
        if (r == 0)
                r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (r == 0)
                r = ctl_options.quiet ? posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
                                      : posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
        if (r == 0)
                r = posix_spawnp(ret, argv[0], &actions, NULL, (char *const *) argv, environ);
        (void) posix_spawn_file_actions_destroy(&actions);
        return -r;
}

int program_run(const char *const *argv) {
        int status;
        pid_t pid;

        int r = start(argv, &pid);
        if (r == -ENOENT)
                return ctl_fail_text(r, "it is not there: install the package that has it", "run %s", argv[0]);
        if (r < 0)
                return ctl_fail(r, NULL, "run %s", argv[0]);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return ctl_fail(-errno, NULL, "wait for %s", argv[0]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return ctl_fail_text(-EIO, "it said why", "run %s", argv[0]);
        return 0;
}
