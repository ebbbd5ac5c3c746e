/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which addresses images may come from: those of the internet, and of the special ranges and of this host's own those that its
 * administrator has opened (ImageNetworks=). A name is judged by what it leads to, and that is what is connected to. */

#include <stdint.h>

#include "fetch/fetch-proto.h"
#include "net/policy.h"

typedef struct Reach {
        Prefix opened[FETCH_NETWORKS_MAX];
        size_t n_opened;
} Reach;

/* Networks with blanks between. -EINVAL; -E2BIG. */
int reach_parse(const char *text, Reach *ret);
bool reach_allows(const Reach *r, const char *address);
/* -EACCES: it leads to nothing that is allowed; -EHOSTUNREACH: to nothing at all; else as connect() says. */
int reach_connect(const Reach *r, const char *host, uint16_t port, int *ret_fd);
