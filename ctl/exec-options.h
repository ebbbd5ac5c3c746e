/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `run`, `exec` and `shell` know about the process to be started, and the help texts that
 * main.c puts together. */

#include <stdint.h>

#include "base/macros.h"
#include "ctl/ctl.h"

typedef struct ExecOptions {
        char **env;             /* NAME=VALUE */
        const char *user, *cwd;
        uint64_t timeout_usec;  /* 0: none */
        bool pty;
} ExecOptions;

enum {
        EXEC_TIMEOUT = CTL_OPTION_EXEC,
};

#define EXEC_SHORT "e:u:C:t"
#define EXEC_OPTIONS                                            \
        { "env", required_argument, NULL, 'e' },                \
        { "user", required_argument, NULL, 'u' },               \
        { "cwd", required_argument, NULL, 'C' },                \
        { "exec-timeout", required_argument, NULL, EXEC_TIMEOUT }, \
        { "tty", no_argument, NULL, 't' }

#define EXEC_HELP                                                                       \
        "  -e --env=NAME=VALUE     May be repeated; NAME alone takes it from here\n"    \
        "  -u --user=USER          Name or number in the guest; default: root\n"        \
        "  -C --cwd=DIR\n"                                                              \
        "     --exec-timeout=TIME  Ends the command then, exit status 124\n"            \
        "  -t --tty                On a terminal of its own\n"

#define RUN_HELP                                                                        \
        "     --keep               Leave the sandbox running\n"                         \
        "     --in=FILE:PATH       Copy FILE to PATH before; may be repeated\n"         \
        "     --out=PATH:FILE      Copy PATH to FILE afterwards; may be repeated\n"

/* As create_option(). */
int exec_option(ExecOptions *o, int c);
/* NAME or NAME=VALUE. */
int exec_option_env(ExecOptions *o, const char *s);
void exec_options_done(ExecOptions *o);
