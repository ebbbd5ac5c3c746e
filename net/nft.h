/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Our nftables table: masquerading, and the second barrier, which drops what comes from our links without the
 * filter's mark; guests' DNS queries are left out of the host's connection tracking. What the filter passes is forwarded
 * only where this table is.
 *
 * One in cube-netd; the table itself stays while cube-netd is away. Others may flush it: the owner waits for
 * nft_table_fd(), calls nft_table_event(), and soon after that nft_table_restore(). */

#include "net/policy.h"

typedef struct NftTable NftTable;

/* net6.tag 0: no IPv6. resolver_port: where guests' queries go at the first address of each network, or 0. */
int nft_table_open(const Prefix *net4, const Prefix *net6, unsigned mark, uint16_t resolver_port, NftTable **ret);
NftTable *nft_table_free(NftTable *t);
DEFINE_CLEANUP(NftTable *, nft_table_free);

/* Nothing but sandboxes is forwarded to from this link (of a host that forwarded nothing before); "" for none. */
int nft_table_guard(NftTable *t, const char *link);

/* Of changes to any ruleset in this namespace; readable. */
int nft_table_fd(const NftTable *t);
/* 1 when something of ours may have changed. */
int nft_table_event(NftTable *t);
/* Puts the table back when it is not as we made it: 1 when it was not. */
int nft_table_restore(NftTable *t);
/* Takes the table away, whoever made it. */
int nft_table_drop(void);
