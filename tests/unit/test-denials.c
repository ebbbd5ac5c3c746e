/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/denials.h"
#include "base/macros.h"
#include "tests/unit/test.h"

TEST(those_of_one_are_counted_beyond_a_number) {
        char whom[DENIALS_WHOM_MAX] = "nobody";
        uint64_t now = USEC_PER_SEC;
        Denials d = {};

        for (unsigned i = 0; i < DENIALS_TOLD; i++)
                assert_true(denials_admit(&d, "1000", now + i));
        assert_true(denials_next(&d) == UINT64_MAX);
        for (unsigned i = 0; i < 500; i++)
                assert_true(!denials_admit(&d, "1000", now + 100 + i));
        /* another one's are told */
        assert_true(denials_admit(&d, "1001", now + 700));
        assert_eq(denials_next(&d), now + DENIALS_USEC);
        assert_eq(denials_take(&d, now + DENIALS_USEC - 1, whom), 0U);
        assert_streq(whom, "nobody");
        assert_eq(denials_take(&d, now + DENIALS_USEC, whom), 500U);
        assert_streq(whom, "1000");
        assert_eq(denials_take(&d, now + DENIALS_USEC, whom), 0U);
        /* and his are again */
        assert_true(denials_admit(&d, "1000", now + DENIALS_USEC));
}

TEST(those_of_too_many_are_counted_together) {
        uint64_t now = USEC_PER_SEC, withheld = 0;
        char whom[DENIALS_WHOM_MAX];
        unsigned told = 0;
        Denials d = {};

        for (unsigned i = 0; i < 1000; i++) {
                (void) snprintf(whom, sizeof(whom), "%u", 5000 + i);
                if (denials_admit(&d, whom, now))
                        told++;
                else
                        withheld++;
        }
        assert_eq(told, DENIALS_SEVERAL + DENIALS_TOLD);
        assert_eq(denials_take(&d, now + DENIALS_USEC, whom), withheld);
        assert_streq(whom, "");
        /* those before had nothing left to tell, and make room */
        assert_true(denials_admit(&d, "9999", now + DENIALS_USEC));
}
