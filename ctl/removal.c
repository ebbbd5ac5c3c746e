/* SPDX-License-Identifier: Apache-2.0 */

#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/removal.h"

/* How long the reason may take to arrive. */
#define REASON_USEC (2 * USEC_PER_SEC)

static int match_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *id, *reason;
        Removal *x = userdata;

        if (!x->reason && sd_bus_message_read(m, "ssu", &id, &reason, NULL) >= 0 && streq(id, x->id))
                x->reason = strdup(reason);
        return 0;
}

int removal_watch(Removal *x, sd_bus *bus, const char *id) {
        *x = (Removal) { .bus = bus, .id = id };

        int r = sd_bus_match_signal(bus, &x->slot, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "SandboxRemoved",
                                    match_removed, x);
        return r < 0 ? ctl_fail(r, NULL, "watch sandbox %s", id) : 0;
}

const char *removal_reason(Removal *x) {
        uint64_t now, end = 0;

        do {
                while (!x->reason && sd_bus_process(x->bus, NULL) > 0)
                        ;
                now = now_usec();
                if (end == 0)
                        end = now + REASON_USEC;
        } while (!x->reason && now < end && sd_bus_wait(x->bus, end - now) >= 0);
        return x->reason;
}

void removal_done(Removal *x) {
        x->slot = sd_bus_slot_unref(x->slot);
        free(x->reason);
        x->reason = NULL;
}
