/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a sandbox in a journal that is busy with others: what is in it, and when it wakes up, is the test's. */

#include <time.h>

#include "base/clock.h"
#include "ctl/gone.h"
#include "ctl/journal.h"
#include "tests/unit/test.h"

static uint64_t told_usec;      /* CLOCK_MONOTONIC, when the entry about the end is there */
static unsigned n_waits;
static bool known;              /* are there others about it? */

int journal_open(const char *id, sd_journal **ret) {
        *ret = NULL;
        return 0;
}

char *journal_field(sd_journal *j, const char *name) {
        if (now_usec() < told_usec)
                return strdup("");
        return strdup(streq(name, "CUBE_EVENT") ? "exit" : streq(name, "CUBE_REASON") ? "killed" : "");
}

int sd_journal_seek_tail(sd_journal *j) {
        return 0;
}

int sd_journal_seek_head(sd_journal *j) {
        return 0;
}

int sd_journal_next(sd_journal *j) {
        return known;
}

/* One entry, which is another one later. */
int sd_journal_previous(sd_journal *j) {
        static unsigned n;

        return known && n++ % 2 == 0;
}

int sd_journal_get_realtime_usec(sd_journal *j, uint64_t *ret) {
        *ret = 1;
        return 0;
}

/* Somebody writes something each millisecond. */
int sd_journal_wait(sd_journal *j, uint64_t timeout_usec) {
        const struct timespec pause = { .tv_nsec = 1000 * 1000 };

        n_waits++;
        (void) nanosleep(&pause, NULL);
        return SD_JOURNAL_APPEND;
}

void sd_journal_close(sd_journal *j) {
}

TEST(an_end_is_waited_for_however_much_others_write) {
        json_object *o, *reason;

        known = true;
        told_usec = now_usec() + USEC_PER_SEC;
        assert_eq(gone_properties("abcdefghijklmnop", &o), 0);
        assert_true(n_waits > 100);
        assert_true(json_object_object_get_ex(o, "Reason", &reason));
        assert_streq(json_object_get_string(reason), "killed");
        json_object_put(o);
}

TEST(one_that_never_was_is_not_waited_for) {
        json_object *o;

        known = false;
        n_waits = 0;
        told_usec = UINT64_MAX;
        assert_eq(gone_properties("abcdefghijklmnop", &o), -ENOENT);
        assert_eq(n_waits, 0);
}
