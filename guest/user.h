/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Users of the guest, as its /etc/passwd and /etc/group say: read directly, since a static binary
 * has no NSS and an image may have no C library at all. The files belong to the guest: anything but
 * a regular file is passed over, and root exists in an image without them too. */

#include <sys/types.h>

#include "base/macros.h"

typedef struct User {
        uid_t uid;
        gid_t gid;
        char *name;
        char *home;
        char *shell;
        gid_t *groups;
        size_t n_groups;
} User;

/* By name or number; NULL is root. A number that no entry has is accepted, with group 0 and home /,
 * as container engines do. "USER:GROUP" as these have it, too: of that group, and of no other one.
 * -ENOENT for an unknown name of either. */
int user_find(const char *user, User *ret);
void user_done(User *u);
#define _cleanup_user_ _cleanup_(user_done)

#define USER_NAME_MAX 63

/* Whose the number is, the number itself when it is nobody's. */
const char *user_name(uid_t uid, char ret[static USER_NAME_MAX + 1]);
const char *group_name(gid_t gid, char ret[static USER_NAME_MAX + 1]);

/* Between these two the agent reaches files with that user's rights and makes them in his name. */
int identity_enter(const User *u);
void identity_leave(void);
