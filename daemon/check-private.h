/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What check.c and check-network.c share: one run of cubectl check. */

#include "daemon/manager-private.h"

typedef struct Check {
        Manager *manager;
        CheckFn fn;
        CheckDone done;
        void *userdata;
} Check;

void _printf_(5, 6) check_tell(const Check *c, const char *name, CheckLevel level, const char *advice, const char *format, ...);
/* chains: of forward_chains_find(), or NULL when they are not known. */
void check_network(const Check *c, const char *chains);
