/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A cube-stored of a test's own, the program that CUBE_STORED names, with a client of it and a directory as its
 * root. Owned by the test. */

#include "daemon/store-client.h"

typedef struct RealStored {
        sd_event *event;
        StoreClient *client;
        pid_t pid;
        char root[64];
} RealStored;

/* -ENOENT: it is not built. */
int real_stored_start(RealStored *s);
/* Also when it is gone already. */
void real_stored_stop(RealStored *s);
/* Runs the loop until *result isn't 1 any more. What a call gave is passed through when negative. */
int real_stored_wait(RealStored *s, int r, const int *result);
/* A file without a name: of /tmp, in memory, or in a file system of so many bytes (-EPERM without privileges). */
int real_stored_file(void);
int real_stored_memory_file(void);
int real_stored_small_file(uint64_t bytes);
