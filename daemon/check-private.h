/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What check.c and check-network.c share: one run of cubectl check. */

#include "daemon/manager-private.h"
#include "net/net-client.h"

typedef struct Check {
        Manager *manager;
        CheckFn fn;
        CheckDone done;
        void *userdata;
} Check;

void _printf_(5, 6) check_tell(const Check *c, const char *name, CheckLevel level, const char *advice, const char *format, ...);
/* what cube-netd found out; NULL when it does not answer. */
void check_network(const Check *c, const NetResult *found);
