/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What COPY steps bring with them: a tar archive of each source, made by tar(1), in a directory that goes into the guest. */

#include "ctl/build-options.h"

typedef struct BuildArchives {
        char *directory;   /* NULL: there are none */
        int fd;            /* of it */
} BuildArchives;

#define BUILD_ARCHIVES_INIT ((BuildArchives) { .fd = -EBADF })

/* Completes the steps by where their archives are. Says what is wrong. SIGINT and SIGTERM are blocked from here on when there
 * are any. */
int build_archives_make(BuildOptions *o, BuildArchives *ret);
void build_archives_done(BuildArchives *a);
