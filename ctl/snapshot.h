/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `snapshot`, `checkpoints` and `rollback` have in common. */

#include <systemd/sd-bus.h>

#define SNAPSHOT_LIST_HELP                                                      \
        "     --sandbox=ID         Those of one sandbox\n"                      \
        "     --kind=snapshot|checkpoint|pause|template\n"
#define SNAPSHOT_HELP                                                           \
        "     --name=NAME          Kept with it and shown\n"                    \
        "With list:\n"                                                          \
        SNAPSHOT_LIST_HELP

/* Its reply stands before an a(CUBE_BUS_SNAPSHOT_ITEM). Of all sandboxes and kinds where these are NULL. Says
 * what went wrong. */
int snapshot_call_list(sd_bus *bus, const char *sandbox, const char *kind, sd_bus_message **ret);
