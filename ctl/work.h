/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What lies in a directory while a verb works, and is made in it by programs that we run. */

#include "base/macros.h"

/* The caller removes it in the end (work_directory_remove()): SIGINT and SIGTERM are blocked from here on, for it has to go.
 * Says what is wrong. */
int work_begin(char **ret);

/* Runs argv as the caller, with TMPDIR in directory, nothing on stdin, stdout on our stderr, and stderr there too once nothing in
 * it can command a terminal. SIGINT and SIGTERM are blocked. Says what is wrong, as "Failed to WHAT ABOUT: ...", when it does not
 * succeed; -EINTR after one of these signals. */
int work_run(const char *const *argv, const char *directory, const char *what, const char *about);
