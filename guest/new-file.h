/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file on its way into place: written under a temporary name beside its target and renamed over
 * it at the end, so that nobody sees half of it. What can't be replaced like that is written
 * directly: devices and FIFOs, and files whose directory takes no new ones (/proc, /sys, or one
 * that the user may not write to).
 *
 * Links in the path are followed, the last component's too. A file that is replaced keeps its mode
 * and owner unless the request says otherwise. new_file_done() removes what was not finished. */

#include <sys/types.h>

#include "guest/user.h"

typedef struct NewFile {
        int fd;
        int directory_fd;       /* with both names; -EBADF when written directly */
        char *name;
        char *temporary;
        mode_t mode;
        uid_t uid;              /* -1: whoever made it */
        gid_t gid;
        bool set_mode;
} NewFile;

/* mode: (mode_t) -1 for none asked for. keep_owner: a replaced file's owner stays. */
int new_file_open(NewFile *ret, const char *path, mode_t mode, bool keep_owner, const User *user);
int new_file_finish(NewFile *f, const User *user);
void new_file_done(NewFile *f);
