/* SPDX-License-Identifier: Apache-2.0 */

#include "net/denied-names.h"
#include "tests/unit/test.h"

#define INTERVAL (60 * USEC_PER_SEC)

typedef struct Told {
        unsigned n;
        char last[DENIED_TEXT_MAX], reason[16], address[PREFIX_TEXT_MAX];
        uint32_t count;
} Told;

static void tell(const char *reason, const char *name, const char *address, uint32_t count, void *userdata) {
        Told *t = userdata;

        t->n++;
        t->count = count;
        (void) snprintf(t->last, sizeof(t->last), "%s", name);
        (void) snprintf(t->reason, sizeof(t->reason), "%s", reason);
        (void) snprintf(t->address, sizeof(t->address), "%s", address);
}

static void done(DeniedNames *d) {
        denied_names_done(d);
}

TEST(at_once_the_first_time_then_once_an_interval) {
        _cleanup_(done) DeniedNames d = {};
        Told told = {};

        denied_names_add(&d, "name", "a.example", "", 1000, INTERVAL, tell, &told);
        assert_eq(told.n, 1);
        assert_streq(told.last, "a.example");
        assert_eq(told.count, 1);
        for (unsigned i = 0; i < 9; i++)
                denied_names_add(&d, "name", "a.example", "", 2000, INTERVAL, tell, &told);
        assert_eq(told.n, 1);
        denied_names_add(&d, "name", "a.example", "", 1000 + INTERVAL, INTERVAL, tell, &told);
        assert_eq(told.n, 2);
        assert_eq(told.count, 10);
}

TEST(what_has_gathered_is_told_also_when_nothing_comes_any_more) {
        _cleanup_(done) DeniedNames d = {};
        Told told = {};

        denied_names_add(&d, "name", "a.example", "", 1000, INTERVAL, tell, &told);
        denied_names_add(&d, "name", "a.example", "", 1001, INTERVAL, tell, &told);
        assert_true(denied_names_flush(&d, 2000, INTERVAL, tell, &told));
        assert_eq(told.n, 1);
        assert_true(!denied_names_flush(&d, 1000 + INTERVAL, INTERVAL, tell, &told));
        assert_eq(told.n, 2);
        assert_eq(told.count, 1);
        /* Nothing twice. */
        assert_true(!denied_names_flush(&d, 1000 + 2 * INTERVAL, INTERVAL, tell, &told));
        assert_eq(told.n, 2);
}

TEST(reasons_are_told_apart) {
        _cleanup_(done) DeniedNames d = {};
        Told told = {};

        denied_names_add(&d, "name", "a.example", "", 1000, INTERVAL, tell, &told);
        denied_names_add(&d, "answer", "a.example", "10.0.0.1", 1000, INTERVAL, tell, &told);
        assert_eq(told.n, 2);
        assert_streq(told.reason, "answer");
        assert_streq(told.address, "10.0.0.1");
}

TEST(too_many_names_are_a_number) {
        _cleanup_(done) DeniedNames d = {};
        Told told = {};
        char name[32];

        for (unsigned i = 0; i < 1000; i++) {
                (void) snprintf(name, sizeof(name), "n%u.example", i);
                denied_names_add(&d, "name", name, "", 1000, INTERVAL, tell, &told);
        }
        assert_eq(told.n, DENIED_MAX);
        (void) denied_names_flush(&d, 2000, INTERVAL, tell, &told);
        assert_eq(told.n, DENIED_MAX + 1);
        assert_streq(told.last, "");
        assert_eq(told.count, 1000 - DENIED_MAX);
        (void) denied_names_flush(&d, 3000, INTERVAL, tell, &told);
        assert_eq(told.n, DENIED_MAX + 1);
}
