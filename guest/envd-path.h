/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which file a client of envd means. An absolute path stays as it is, a relative one is below the user's home, an empty one is
 * the sandbox's working directory; "~" is the home. -EINVAL for the home of another user, "~name". */

#include "guest/envd.h"
#include "guest/user.h"

/* Makes the directories above a path, or the path too: 0755, and the user's. Those that are there stay as they are. */
int envd_make_parents(const char *path, const User *u);
int envd_make_directory(const char *path, const User *u);

int envd_path(const Envd *e, const User *u, const char *path, char **ret);
