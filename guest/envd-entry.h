/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What envd says of one file: the message EntryInfo. */

#include "guest/json.h"
#include "guest/user.h"

/* The names last looked up: most files of a tree have the same owner. Begins as zeros. */
typedef struct EntryNames {
        bool user_known, group_known;
        uid_t uid;
        gid_t gid;
        char user[USER_NAME_MAX + 1], group[USER_NAME_MAX + 1];
} EntryNames;

/* Of path itself, shown as it is; a link's kind and mode are those of where it leads. A negative errno when it can't be seen.
 * ret_directory may be NULL: whether it is one itself. */
int entry_new(const char *path, EntryNames *names, json_object **ret, bool *ret_directory);
