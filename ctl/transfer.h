/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies files and trees between here and a guest. Says itself what went wrong.
 *
 * What comes from a guest is hostile: names are checked before they become files here, nothing is
 * written through a symbolic link that was there before, and no link is ever made. A link to a
 * file is copied as the file; a link to a directory is left out with a warning, both ways. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

typedef struct Transfer {
        sd_bus *bus;
        const char *id;
        const char *user;    /* in the guest; NULL: root */
        bool recursive;
        unsigned n_skipped;
} Transfer;

/* `from` here to `to` there. into: `to` is a directory, the copy goes into it under from's name. */
int transfer_to(Transfer *t, const char *from, const char *to, bool into);
/* `from` there to `to` here. */
int transfer_from(Transfer *t, const char *from, const char *to, bool into);
/* 1 when path is a directory in the guest, 0 when not or not there, negative when it can't be told
 * (which was said). */
int transfer_is_directory(Transfer *t, const char *path);
