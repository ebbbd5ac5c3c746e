/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "ctl/gone.h"
#include "ctl/journal.h"

/* cubed never waits for the journal, so the entry about an end may come after the end. */
#define LATE_ENTRY_USEC (10 * USEC_PER_SEC)
#define LATE_ENTRY_STEP_USEC (100 * USEC_PER_MSEC)

static const struct {
        const char *property, *field;
        bool number;
} fields[] = {
        { "Owner", "CUBE_OWNER_UID", true },
        { "Tenant", "CUBE_TENANT", false },
        { "Template", "CUBE_TEMPLATE", false },
        { "TemplateName", "CUBE_TEMPLATE_NAME", false },
        { "Reason", "CUBE_REASON", false },
        { "Status", "CUBE_STATUS", true },
        { "Message", "MESSAGE", false },
};

static int add(json_object *o, const char *name, json_object *v) {
        if (!v || json_object_object_add(o, name, v) < 0) {
                json_object_put(v);
                return -ENOMEM;
        }
        return 0;
}

static int read_entry(sd_journal *j, const char *id, json_object *o) {
        uint64_t usec;

        int r = sd_journal_get_realtime_usec(j, &usec);
        if (r >= 0)
                r = add(o, "Id", json_object_new_string(id));
        if (r >= 0)
                r = add(o, "State", json_object_new_string("gone"));
        if (r >= 0)
                r = add(o, "EndedTimestamp", json_object_new_uint64(usec));
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(fields); i++) {
                _cleanup_free_ char *text = journal_field(j, fields[i].field);
                if (!text)
                        return -ENOMEM;
                if (*text)
                        r = add(o, fields[i].property,
                                fields[i].number ? json_object_new_uint64(strtoull(text, NULL, 10))
                                                 : json_object_new_string(text));
        }
        return r;
}

/* What was denied or has failed has a reason, too, and is no end. */
static int tells_end(sd_journal *j) {
        _cleanup_free_ char *event = journal_field(j, "CUBE_EVENT");

        return event ? streq(event, "exit") || streq(event, "create-failed") : -ENOMEM;
}

/* Backwards to the entry that tells an end. */
static int find_end(sd_journal *j) {
        int r = sd_journal_seek_tail(j);

        while (r >= 0 && (r = sd_journal_previous(j)) > 0) {
                r = tells_end(j);
                if (r != 0)
                        return MIN(r, 0);
        }
        return r < 0 ? r : -ENOENT;
}

/* Was there ever such a sandbox? */
static bool has_entries(sd_journal *j) {
        return sd_journal_seek_head(j) >= 0 && sd_journal_next(j) > 0;
}

int gone_properties(const char *id, json_object **ret) {
        _cleanup_(sd_journal_closep) sd_journal *j = NULL;
        uint64_t late = now_usec() + LATE_ENTRY_USEC;

        int r = journal_open(id, &j);
        if (r >= 0)
                r = find_end(j);
        /* Entries of everybody end a wait. */
        while (r == -ENOENT && now_usec() < late && has_entries(j)) {
                r = sd_journal_wait(j, LATE_ENTRY_STEP_USEC);
                if (r >= 0)
                        r = find_end(j);
        }
        if (r < 0)
                return r;

        json_object *o = json_object_new_object();
        r = o ? read_entry(j, id, o) : -ENOMEM;
        if (r < 0) {
                json_object_put(o);
                return r;
        }
        *ret = o;
        return 0;
}
