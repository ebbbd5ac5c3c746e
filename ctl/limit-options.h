/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Limits of a sandbox as options on a command line: those of `create`, `fork` and `limit`. */

#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "ctl/ctl.h"

/* 0: not given; UINT64_MAX, UINT32_MAX: none. */
typedef struct LimitOptions {
        uint64_t mem_bytes, cpu_quota_usec;
        uint64_t bandwidth_out, bandwidth_in;                /* bytes a second */
        uint32_t packets_out, packets_in, new_connections;   /* a second */
        uint32_t open_connections;
} LimitOptions;

enum {
        LIMIT_BANDWIDTH_OUT = CTL_OPTION_LIMIT,
        LIMIT_BANDWIDTH_IN,
        LIMIT_PACKETS_OUT,
        LIMIT_PACKETS_IN,
        LIMIT_NEW_CONNECTIONS,
        LIMIT_OPEN_CONNECTIONS,
        LIMIT_MEMORY,
        LIMIT_CPU_QUOTA,
};

#define LIMIT_OPTIONS                                                                   \
        { "memory", required_argument, NULL, LIMIT_MEMORY },                            \
        { "cpu-quota", required_argument, NULL, LIMIT_CPU_QUOTA },                      \
        { "bandwidth-out", required_argument, NULL, LIMIT_BANDWIDTH_OUT },              \
        { "bandwidth-in", required_argument, NULL, LIMIT_BANDWIDTH_IN },                \
        { "packets-out", required_argument, NULL, LIMIT_PACKETS_OUT },                  \
        { "packets-in", required_argument, NULL, LIMIT_PACKETS_IN },                    \
        { "new-connections", required_argument, NULL, LIMIT_NEW_CONNECTIONS },          \
        { "open-connections", required_argument, NULL, LIMIT_OPEN_CONNECTIONS }

#define LIMIT_HELP                                                                      \
        "     --memory=SIZE        256M, 2G\n"                                          \
        "     --cpu-quota=PERCENT  CPU time, 100% for each CPU\n"                       \
        "     --bandwidth-out=SIZE --bandwidth-in=SIZE  Bytes a second: 10M, infinity\n" \
        "     --packets-out=N --packets-in=N            Packets a second\n"             \
        "     --new-connections=N                       Connections begun a second\n"   \
        "     --open-connections=N                      Connections at one time\n"

/* 1 when c was one of these, 0 when not, negative once it was said what is wrong. */
int limit_option(LimitOptions *o, int c);
/* As entries of an a{sv}. */
int limit_options_append(sd_bus_message *m, const LimitOptions *o);
