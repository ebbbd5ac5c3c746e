/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/share.h"
#include "tests/unit/test.h"

TEST(one_of_each_tenant_while_it_is_used) {
        Shares all = {};
        Share *a, *again, *b;

        assert_ok(share_get(&all, "a", &a));
        assert_ok(share_get(&all, "b", &b));
        assert_ok(share_get(&all, "a", &again));
        assert_true(a == again && a != b && a->n_requests == 2 && all.n_requests == 3);
        assert_streq(b->tenant, "b");
        assert_true(!share_put(a));
        assert_ok(share_get(&all, "a", &again));
        assert_true(a == again);
        (void) share_put(again);
        (void) share_put(again);
        assert_true(all.first == b && !b->next);
        (void) share_put(b);
        assert_true(!all.first && all.n_requests == 0);
        assert_true(!share_put(NULL));
}

/* As each takes all that he gets, one after the other. */
static size_t fill(size_t own[], size_t n, size_t all) {
        size_t used = 0;
        bool took;

        do {
                took = false;
                for (size_t i = 0; i < n; i++)
                        if (share_may_take(own[i], used, all, 1)) {
                                own[i]++;
                                used++;
                                took = true;
                        }
        } while (took);
        return used;
}

TEST(nobody_has_more_than_is_left) {
        size_t own[9] = {};

        assert_eq(fill(own, 1, 100), 50);
        /* The next one finds room at once, and what a third one leaves is for a fourth one. */
        assert_true(share_may_take(0, 50, 100, 25) && share_may_take(0, 50, 100, 50) && !share_may_take(0, 50, 100, 51));
        memset(own, 0, sizeof(own));
        assert_eq(fill(own, 2, 99), 66);
        assert_true(own[0] == 33 && own[1] == 33);
        memset(own, 0, sizeof(own));
        assert_eq(fill(own, 9, 100), 90);
        for (size_t i = 0; i < 9; i++)
                assert_eq(own[i], 10);
        assert_true(!share_may_take(0, 100, 100, 1) && share_may_take(0, 99, 100, 1) && !share_may_take(1, 99, 100, 1));
        assert_true(!share_may_take(0, 0, 100, SIZE_MAX) && !share_may_take(SIZE_MAX, 10, 100, 10));
}
