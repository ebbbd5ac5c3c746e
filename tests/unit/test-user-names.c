/* SPDX-License-Identifier: Apache-2.0 */

/* Names of users to numbers, and names that nobody has. */

#include "daemon/user-names.h"
#include "tests/unit/test.h"

#define TIMEOUT (60 * USEC_PER_SEC)

TEST(numbers_in_the_order_of_names) {
        char *unknown = NULL;
        uint32_t uids[8];
        size_t n;

        assert_ok(user_names_find("root  nobody", TIMEOUT, uids, 8, &n, &unknown));
        assert_true(n == 2 && uids[0] == 0 && uids[1] == 65534 && !unknown);
}

TEST(names_that_nobody_has_are_told_and_the_others_count) {
        _cleanup_free_ char *unknown = NULL;
        uint32_t uids[8];
        size_t n;

        assert_ok(user_names_find("no-such-user root nor-such-a-one", TIMEOUT, uids, 8, &n, &unknown));
        assert_true(n == 1 && uids[0] == 0);
        assert_streq(unknown, "no-such-user, nor-such-a-one");
}

TEST(there_are_bounds) {
        char *unknown = NULL;
        uint32_t uids[1];
        size_t n;

        assert_eq(user_names_find("root nobody", TIMEOUT, uids, 1, &n, &unknown), -E2BIG);
        /* What is over is not passed by in silence. */
        char many[65 * 5 + 1] = "";
        uint32_t places[80];
        for (unsigned i = 0; i < 64; i++)
                strcat(many, "root ");
        assert_ok(user_names_find(many, TIMEOUT, places, 80, &n, &unknown));
        assert_eq(n, 64);
        strcat(many, "root ");
        assert_eq(user_names_find(many, TIMEOUT, places, 80, &n, &unknown), -E2BIG);
        assert_ok(user_names_find(" ", TIMEOUT, uids, 1, &n, &unknown));
        assert_true(n == 0 && !unknown);
}
