/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/denials.h"
#include "gateway/key-file.h"
#include "gateway/refusals.h"

/* Whom no key is known of; an id has no such character. */
#define NOBODY "-"

_Static_assert(KEY_ID_MAX <= DENIALS_WHOM_MAX, "an id is kept whole");

struct Refusals {
        Denials denials;
        sd_event_source *timer;    /* off unless some wait to be told */
};

static void tell(Refusals *r, uint64_t now) {
        char whom[DENIALS_WHOM_MAX];
        uint32_t n;

        while ((n = denials_take(&r->denials, now, whom)) > 0)
                audit_refused(streq(whom, NOBODY) ? "" : isempty(whom) ? NULL : whom, n);
}

/* Tells those whose time has come, and sees to it that it is called for the others. */
static int settle(Refusals *r) {
        tell(r, now_usec());
        uint64_t next = denials_next(&r->denials);
        if (next == UINT64_MAX)
                return 0;
        int k = sd_event_source_set_time(r->timer, next);
        return k < 0 ? k : sd_event_source_set_enabled(r->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        return settle(userdata);
}

bool refusals_admit(Refusals *r, const char *key) {
        bool told = denials_admit(&r->denials, isempty(key) ? NOBODY : key, now_usec());

        int k = settle(r);
        if (k < 0)
                (void) log_full_errno(LOG_WARNING, k, "The number of refused requests is told at the end only: %m");
        return told;
}

int refusals_new(sd_event *event, Refusals **ret) {
        Refusals *r = new0(Refusals, 1);
        if (!r)
                return -ENOMEM;

        int k = sd_event_add_time(event, &r->timer, CLOCK_MONOTONIC, 0, 0, on_timer, r);
        if (k >= 0)
                k = sd_event_source_set_enabled(r->timer, SD_EVENT_OFF);
        if (k < 0) {
                refusals_free(r);
                return k;
        }
        *ret = r;
        return 0;
}

Refusals *refusals_free(Refusals *r) {
        if (!r)
                return NULL;

        tell(r, UINT64_MAX);
        sd_event_source_disable_unref(r->timer);
        free(r);
        return NULL;
}
