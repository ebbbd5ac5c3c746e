/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What each tenant has of what all of them share: requests under way, room for bodies, calls to cubed. Nobody may have more
 * of it than is left, so that one alone gets half, two a third each, and there is always some for who comes next.
 *
 * A Share is there while a request of its tenant is; who counts in it takes back what he counted before he puts it. Owned by
 * the Gateway. */

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "gateway/key-file.h"

typedef struct Shares Shares;

typedef struct Share {
        Shares *shares;
        char tenant[TENANT_MAX];
        size_t n_requests;
        size_t bodies;             /* bytes */
        unsigned n_calls, n_asking; /* to cubed, sent and not answered; those of them that ask polkit */
        uint64_t last_turn;        /* when it had a call sent last: the higher, the later */
        struct Share *next;
} Share;

struct Shares {
        Share *first;
        size_t n_requests;         /* of all */
};

/* For one request more. -ENOMEM. */
int share_get(Shares *s, const char *tenant, Share **ret);
/* Returns NULL. */
Share *share_put(Share *s);

/* own and used are without more, used is of all together with own. */
static inline bool share_may_take(size_t own, size_t used, size_t all, size_t more) {
        size_t left = used < all ? all - used : 0;

        return own <= left && more <= left - own;
}
