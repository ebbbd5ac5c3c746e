/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/uid-range.h"
#include "tests/unit/test.h"

TEST(each_is_handed_out_once) {
        _cleanup_(uid_range_freep) UidRange *u = NULL;
        bool seen[10] = {};
        uint32_t uid;

        assert_ok(uid_range_new(1000000, 10, &u));
        for (unsigned i = 0; i < 10; i++) {
                assert_ok(uid_range_acquire(u, &uid));
                assert_true(uid >= 1000000 && uid < 1000010 && !seen[uid - 1000000]);
                seen[uid - 1000000] = true;
        }
        assert_eq(uid_range_acquire(u, &uid), -ENOSPC);
        uid_range_release(u, 1000004);
        assert_ok(uid_range_acquire(u, &uid));
        assert_eq(uid, 1000004);
}

TEST(one_given_back_is_the_last_to_come_again) {
        _cleanup_(uid_range_freep) UidRange *u = NULL;
        uint32_t first, uid;

        assert_ok(uid_range_new(0x70000000, 100, &u));
        assert_ok(uid_range_acquire(u, &first));
        uid_range_release(u, first);
        for (unsigned i = 0; i < 99; i++) {
                assert_ok(uid_range_acquire(u, &uid));
                assert_true(uid != first);
        }
        assert_ok(uid_range_acquire(u, &uid));
        assert_eq(uid, first);
}

TEST(taking_one_in_particular) {
        _cleanup_(uid_range_freep) UidRange *u = NULL;
        uint32_t uid;

        assert_ok(uid_range_new(100000, 3, &u));
        assert_ok(uid_range_take(u, 100001));
        assert_eq(uid_range_take(u, 100001), -EBUSY);
        assert_eq(uid_range_take(u, 100003), -ERANGE);
        assert_eq(uid_range_take(u, 99999), -ERANGE);
        assert_ok(uid_range_acquire(u, &uid));
        assert_eq(uid, 100000);
        assert_ok(uid_range_acquire(u, &uid));
        assert_eq(uid, 100002);
        /* What was never given, twice given back, or foreign changes nothing. */
        uid_range_release(u, 5);
        uid_range_release(u, 100002);
        uid_range_release(u, 100002);
        assert_ok(uid_range_acquire(u, &uid));
        assert_eq(uid, 100002);
        assert_eq(uid_range_acquire(u, &uid), -ENOSPC);
}

TEST(the_range_of_the_design_is_free) {
        _cleanup_free_ char *conflict = NULL;

        int r = uid_range_check(0x70000000, 65536, 60 * USEC_PER_SEC, &conflict);
        if (r == -ETIMEDOUT)
                test_skip("NSS does not answer");
        assert_ok(r);
        if (r > 0)
                test_stop(TEST_FAILED, __LINE__, "%s", conflict);
}

TEST(a_range_with_a_user_in_it_is_found) {
        _cleanup_free_ char *conflict = NULL;

        assert_eq(uid_range_check(65534, 1, 60 * USEC_PER_SEC, &conflict), 1);
        assert_streq(conflict, "user nobody has uid 65534");
}
