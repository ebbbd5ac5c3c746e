/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/snapshot.h"

enum {
        ROLLBACK_TO = CTL_OPTION_VERB,
};

/* The id of a checkpoint, into ret; says so when there is none. */
static int find_checkpoint(sd_bus *bus, const char *id, uint64_t number, char *ret, size_t size) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *snapshot;
        uint64_t n;

        int r = snapshot_call_list(bus, id, "checkpoint", &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(" CUBE_BUS_SNAPSHOT_ITEM ")", &snapshot, NULL, NULL, &n, NULL,
                                                  NULL, NULL, NULL, NULL)) > 0)
                if (n == number) {
                        (void) snprintf(ret, size, "%s", snapshot);
                        return 0;
                }
        if (r < 0)
                return ctl_fail(r, NULL, "list checkpoints of sandbox %s", id);
        return ctl_usage("Sandbox %s has no checkpoint %llu; 'cubectl checkpoints %s' shows them.", id,
                         (unsigned long long) number, id);
}

static int roll_back(const char *id, const char *snapshot, uint64_t number) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char found[64];
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r >= 0 && !snapshot)
                r = find_checkpoint(bus, id, number, found, sizeof(found));
        if (r < 0)
                return r;
        r = ctl_call_sandbox(bus, "Rolling back", id, "Rollback", NULL, &error, "sa{sv}", snapshot ? snapshot : found, 0);
        return r < 0 ? ctl_fail(r, &error, "roll sandbox %s back", id) : 0;
}

int verb_rollback(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "to", required_argument, NULL, ROLLBACK_TO },
                {},
        };
        uint64_t number = 0;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = 0;
                if (c != ROLLBACK_TO)
                        r = ctl_global_option(c);
                else if (parse_u64(optarg, &number) < 0 || number == 0)
                        r = ctl_usage("--to=%s is not the number of a checkpoint.", optarg);
                if (r < 0)
                        return r;
        }
        if (number == 0 && optind + 1 == argc)
                return ctl_usage("'rollback' needs a snapshot or --to=N; 'cubectl snapshot list --sandbox=%s' shows what "
                                 "there is.", argv[optind]);
        r = number > 0 ? ctl_check_arguments(argc, argv, 1, 1) : ctl_check_arguments(argc, argv, 2, 2);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        return r < 0 ? r : roll_back(argv[optind], number > 0 ? NULL : argv[optind + 1], number);
}
