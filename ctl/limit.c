/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/limit-options.h"

typedef struct Limits {
        uint64_t mem_bytes, cpu_quota_usec;
        LimitOptions net;
        bool given;
} Limits;

static int parse_option(Limits *l, int c) {
        switch (c) {
        case LIMIT_MEMORY:
                if (parse_size(optarg, &l->mem_bytes) < 0 || l->mem_bytes == 0)
                        return ctl_usage("--memory=%s is not a size; give one like 256M or 2G.", optarg);
                return 1;
        case LIMIT_CPU_QUOTA:
                if (parse_cpu_quota(optarg, &l->cpu_quota_usec) < 0 || l->cpu_quota_usec == 0)
                        return ctl_usage("--cpu-quota=%s is not a percentage; give one like 50%%.", optarg);
                return 1;
        }
        return limit_option(&l->net, c);
}

static int call_set_limits(sd_bus *bus, const char *id, const Limits *l, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                               CUBE_BUS_SANDBOX, "SetLimits");
        if (r >= 0)
                r = sd_bus_message_open_container(call, 'a', "{sv}");
        if (r >= 0 && l->mem_bytes > 0)
                r = sd_bus_message_append(call, "{sv}", "memory", "t", l->mem_bytes);
        if (r >= 0 && l->cpu_quota_usec > 0)
                r = sd_bus_message_append(call, "{sv}", "cpu-quota", "t", l->cpu_quota_usec);
        if (r >= 0)
                r = limit_options_append(call, &l->net);
        if (r >= 0)
                r = sd_bus_message_close_container(call);
        return r < 0 ? r : ctl_call_message(bus, "Waiting for the guest", call, NULL, error);
}

int verb_limit(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                LIMIT_OPTIONS,
                { "memory", required_argument, NULL, LIMIT_MEMORY },
                { "cpu-quota", required_argument, NULL, LIMIT_CPU_QUOTA },
                {},
        };
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        Limits l = {};
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = parse_option(&l, c);
                if (r > 0)
                        l.given = true;
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r >= 0 && !l.given)
                r = ctl_usage("'limit' needs a limit to change, as --memory=1G or --bandwidth-out=10M.");
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        r = call_set_limits(bus, argv[optind], &l, &error);
        return r < 0 ? ctl_fail(r, &error, "limit sandbox %s", argv[optind]) : 0;
}
