/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory for what has to lie somewhere while a verb works, and what is made in it by programs that we run. The caller
 * removes it in the end. */

#include "base/macros.h"

/* In $TMPDIR, else in /var/tmp: /tmp may be memory. Says what is wrong. SIGINT and SIGTERM are blocked from here on, for it has
 * to go. */
int work_directory_make(char **ret);
/* With all that is in it; frees the path. NULL is fine. */
char *work_directory_remove(char *path);

/* Runs argv as the caller, with TMPDIR in directory, nothing on stdin, stdout on our stderr, and stderr there too once nothing in
 * it can command a terminal. SIGINT and SIGTERM are blocked. Says what is wrong, as "Failed to WHAT ABOUT: ...", when it does not
 * succeed; -EINTR after one of these signals. */
int work_run(const char *const *argv, const char *directory, const char *what, const char *about);
