/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What changes the template store: putting a finished build into it, and taking things out.
 *
 * Runs in a child of cubed that may wait for the disk. store_fd is the store's root directory,
 * which only root writes; everything in here goes through it. */

#include <sys/types.h>

#include "daemon/image/fault.h"
#include "daemon/kernel-info.h"

/* By which later builds find what this one made; NULL: they don't. */
typedef struct StoreKeys {
        const char *input;        /* of the root image, see image/objects.h */
        const char *disk, *disk_id; /* see image/layers.h */
} StoreKeys;

/* Completes the description (template.json without "files"), writes everything to disk and shares what
 * other templates have as well: directory build is a whole template from here on, but nobody finds it.
 * -EBUSY when a file is still open for writing somewhere. */
int store_seal(int store_fd, const char *build, json_object *description, const StoreKeys *keys, Fault *fault);

/* Makes a sealed directory build the template id, and lets names ("NAME:TAG") of the owner stand for it. owner: as of
 * tenant_dir_format(). */
int store_commit(int store_fd, const char *build, const char *id, const char *owner, char *const *names, size_t n_names,
                 Fault *fault);

/* In place of that: the build came to what template id is already, and goes. */
int store_reuse(int store_fd, const char *build, const char *id, const char *owner, char *const *names, size_t n_names,
                Fault *fault);

/* Lets one more name stand for a template, and no longer for another; takes a name away. */
int store_name(int store_fd, const char *owner, const char *name, const char *id, Fault *fault);
int store_unname(int store_fd, const char *owner, const char *name, Fault *fault);

/* Deletes a template or a leftover, the names that point to it, and what was shared and nobody has any more. Of what a build
 * had that stays: the next one can use it. Fine when it is gone already. */
int store_remove(int store_fd, const char *entry, Fault *fault);
/* What nobody has any more of what is shared. */
int store_sweep_shared(int store_fd);
/* Leftovers, and what a crash left among the names: for the start. */
int store_clean(int store_fd, char *const *entries, size_t n, Fault *fault);
