/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "ctl/journal.h"
#include "ctl/text.h"

int journal_open(const char *id, sd_journal **ret) {
        _cleanup_free_ char *match = NULL;
        sd_journal *j = NULL;

        if (asprintf(&match, "CUBE_SANDBOX=%s", id) < 0)
                return -ENOMEM;
        int r = sd_journal_open(&j, SD_JOURNAL_LOCAL_ONLY);
        if (r < 0)
                return r;

        /* Of root's only: everybody may write entries that claim to be about a sandbox. */
        r = sd_journal_add_match(j, match, 0);
        if (r >= 0)
                r = sd_journal_add_match(j, "_UID=0", 0);
        if (r < 0) {
                sd_journal_close(j);
                return r;
        }
        *ret = j;
        return 0;
}

char *journal_field(sd_journal *j, const char *name) {
        const void *data;
        size_t size, n = strlen(name) + 1;

        if (sd_journal_get_data(j, name, &data, &size) < 0 || size < n)
                return strdup("");
        return text_printable((const char *) data + n, size - n, false);
}

int journal_print(sd_journal *j) {
        _cleanup_free_ char *message = journal_field(j, "MESSAGE"), *priority = journal_field(j, "PRIORITY");
        char when[TEXT_TIME_MAX] = "";
        uint64_t usec;
        struct tm tm;

        if (!message || !priority)
                return -ENOMEM;
        int r = sd_journal_get_realtime_usec(j, &usec);
        if (r < 0)
                return r;

        time_t t = (time_t) (usec / USEC_PER_SEC);
        if (localtime_r(&t, &tm))
                (void) strftime(when, sizeof(when), "%b %d %H:%M:%S", &tm);
        TextColor color = *priority && *priority <= '3' ? TEXT_RED : *priority == '4' ? TEXT_YELLOW : TEXT_NORMAL;
        printf("%s %s%s%s\n", when, color == TEXT_NORMAL ? "" : text_color(color), message,
               color == TEXT_NORMAL ? "" : text_color(TEXT_NORMAL));
        return 0;
}

int journal_print_last(sd_journal *j, unsigned n) {
        int printed = 0;

        int r = sd_journal_seek_tail(j);
        if (r >= 0)
                r = n > 0 ? sd_journal_previous_skip(j, n) : 0;
        while (r > 0) {
                r = journal_print(j);
                if (r < 0)
                        break;
                printed++;
                r = sd_journal_next(j);
        }
        return r < 0 ? r : printed;
}
