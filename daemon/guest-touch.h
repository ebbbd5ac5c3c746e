/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A small file in a guest that is written, read and removed: what a first transfer of a file would have to
 * fetch is there afterwards.
 *
 * Owned by whoever started it; freeing it forgets about the file. Whether the guest lets itself be written to
 * is its own matter: only a guest that does not answer is an error. */

#include "daemon/sandbox.h"

typedef struct GuestTouch GuestTouch;

/* Once, from the loop; the GuestTouch may be freed in it. r: 0, or negative when the guest did not answer. */
typedef void (*GuestTouchDone)(GuestTouch *t, int r, void *userdata);

/* path: absolute, a constant. */
int guest_touch_start(Sandbox *s, const char *path, GuestTouchDone done, void *userdata, GuestTouch **ret,
                      sd_bus_error *error);
GuestTouch *guest_touch_free(GuestTouch *t);
