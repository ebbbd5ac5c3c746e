/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "ctl/limit-options.h"
#include "ctl/values.h"

static int parse_rate(const char *option, const char *s, uint64_t *ret) {
        if (streq(s, "infinity"))
                *ret = UINT64_MAX;
        else if (parse_size(s, ret) < 0 || *ret == 0)
                return ctl_usage("--%s=%s is not a number of bytes a second; give one like 500K, 10M or infinity.", option, s);
        return 1;
}

static int parse_count(const char *option, const char *s, uint32_t *ret) {
        if (streq(s, "infinity"))
                *ret = UINT32_MAX;
        else if (parse_u32(s, ret) < 0 || *ret == 0)
                return ctl_usage("--%s=%s is not a number from 1 on, or infinity.", option, s);
        return 1;
}

int limit_option(LimitOptions *o, int c) {
        switch (c) {
        case LIMIT_MEMORY:
                return value_size("memory", optarg, &o->mem_bytes);
        case LIMIT_CPU_QUOTA:
                return value_cpu_quota(optarg, &o->cpu_quota_usec);
        case LIMIT_BANDWIDTH_OUT:
                return parse_rate("bandwidth-out", optarg, &o->bandwidth_out);
        case LIMIT_BANDWIDTH_IN:
                return parse_rate("bandwidth-in", optarg, &o->bandwidth_in);
        case LIMIT_PACKETS_OUT:
                return parse_count("packets-out", optarg, &o->packets_out);
        case LIMIT_PACKETS_IN:
                return parse_count("packets-in", optarg, &o->packets_in);
        case LIMIT_NEW_CONNECTIONS:
                return parse_count("new-connections", optarg, &o->new_connections);
        case LIMIT_OPEN_CONNECTIONS:
                return parse_count("open-connections", optarg, &o->open_connections);
        }
        return 0;
}

int limit_options_append(sd_bus_message *m, const LimitOptions *o) {
        const struct {
                const char *name;
                uint64_t value;
                uint32_t count;
        } all[] = {
                { "memory", o->mem_bytes, 0 },
                { "cpu-quota", o->cpu_quota_usec, 0 },
                { "network-bandwidth-out", o->bandwidth_out, 0 },
                { "network-bandwidth-in", o->bandwidth_in, 0 },
                { "network-packets-out", 0, o->packets_out },
                { "network-packets-in", 0, o->packets_in },
                { "network-new-connections", 0, o->new_connections },
                { "network-open-connections", 0, o->open_connections },
        };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(all); i++)
                if (all[i].value > 0)
                        r = sd_bus_message_append(m, "{sv}", all[i].name, "t", all[i].value);
                else if (all[i].count > 0)
                        r = sd_bus_message_append(m, "{sv}", all[i].name, "u", all[i].count);
        return r;
}
