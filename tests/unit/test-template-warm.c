/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/template-warm.h"
#include "tests/unit/test.h"

TEST(a_quick_ready_command_is_tried_often) {
        assert_eq(template_warm_ready_pause(0), 200 * USEC_PER_MSEC);
        assert_eq(template_warm_ready_pause(20 * USEC_PER_MSEC), 200 * USEC_PER_MSEC);
}

TEST(a_slow_one_leaves_the_guest_to_what_is_awaited) {
        assert_eq(template_warm_ready_pause(3 * USEC_PER_SEC), 6 * USEC_PER_SEC);
}

TEST(one_that_waits_itself_is_tried_again_all_the_same) {
        assert_eq(template_warm_ready_pause(60 * USEC_PER_SEC), 10 * USEC_PER_SEC);
        assert_eq(template_warm_ready_pause(UINT64_MAX), 10 * USEC_PER_SEC);
}
