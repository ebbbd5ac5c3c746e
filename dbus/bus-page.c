/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "dbus/bus-page.h"
#include "dbus/bus-util.h"

static int parse_place(BusPage *p) {
        const char *id = strchr(p->after, '_');
        char number[24];

        if (!id || (size_t) (id - p->after) >= sizeof(number) || !sandbox_id_valid(id + 1))
                return -EINVAL;
        (void) snprintf(number, sizeof(number), "%.*s", (int) (id - p->after), p->after);
        strcpy(p->after_id, id + 1);
        return parse_u64(number, &p->after_usec);
}

int bus_page_check(BusPage *p, uint32_t fallback, uint32_t max, sd_bus_error *error) {
        if (p->after && parse_place(p) < 0)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "Option 'after' is not what an earlier page gave");
        if (p->limit > max)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option 'limit' is 1 to %u", max);
        if (p->limit == 0)
                p->limit = fallback;
        return 0;
}

int bus_page_compare(const BusPage *p, uint64_t a_usec, const char *a_id, uint64_t b_usec, const char *b_id) {
        int order = a_usec != b_usec ? (a_usec < b_usec ? -1 : 1) : strcmp(a_id, b_id);

        return p->newest_first ? -order : order;
}

bool bus_page_has(const BusPage *p, uint64_t created_usec, const char *id) {
        return !p->after || bus_page_compare(p, created_usec, id, p->after_usec, p->after_id) > 0;
}

const char *bus_place_put(char buf[static BUS_PLACE_MAX], uint64_t created_usec, const char *id) {
        (void) snprintf(buf, BUS_PLACE_MAX, "%llu_%s", (unsigned long long) created_usec, id);
        return buf;
}
