/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a sandbox in a journal that is busy with others: what is in it, and when it wakes up, is the test's. */

#include <limits.h>

#include "ctl/gone.h"
#include "ctl/journal.h"
#include "tests/unit/test.h"

static unsigned n_waits;
static unsigned told_after;     /* so many of them: then the entry about the end is there */
static bool known;              /* are there others about it? */

int journal_open(const char *id, sd_journal **ret) {
        *ret = NULL;
        return 0;
}

char *journal_field(sd_journal *j, const char *name) {
        if (n_waits < told_after)
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

/* Somebody has written something at once. */
int sd_journal_wait(sd_journal *j, uint64_t timeout_usec) {
        n_waits++;
        return SD_JOURNAL_APPEND;
}

void sd_journal_close(sd_journal *j) {
}

TEST(an_end_is_waited_for_however_much_others_write) {
        json_object *o, *reason;

        known = true;
        told_after = 1000;
        assert_eq(gone_properties("abcdefghijklmnop", &o), 0);
        assert_eq(n_waits, 1000U);
        assert_true(json_object_object_get_ex(o, "Reason", &reason));
        assert_streq(json_object_get_string(reason), "killed");
        json_object_put(o);
}

TEST(one_that_never_was_is_not_waited_for) {
        json_object *o;

        known = false;
        n_waits = 0;
        told_after = UINT_MAX;
        assert_eq(gone_properties("abcdefghijklmnop", &o), -ENOENT);
        assert_eq(n_waits, 0);
}
