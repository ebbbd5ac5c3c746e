/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `run` and `create` know about the sandbox to be made. */

#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "ctl/ctl.h"

typedef struct CreateOptions {
        const char *template; /* NULL: cubed's default */
        const char *hostname, *request_id;
        uint64_t mem_bytes, disk_bytes, timeout_usec, cpu_quota_usec;
        uint32_t cpus;
        char **labels;        /* KEY=VALUE */
        bool bind_client;
} CreateOptions;

enum {
        CREATE_TEMPLATE = CTL_OPTION_CREATE,
        CREATE_MEMORY,
        CREATE_CPUS,
        CREATE_DISK,
        CREATE_TIMEOUT,
        CREATE_CPU_QUOTA,
        CREATE_HOSTNAME,
        CREATE_LABEL,
        CREATE_REQUEST_ID,
};

#define CREATE_OPTIONS                                                          \
        { "template", required_argument, NULL, CREATE_TEMPLATE },               \
        { "memory", required_argument, NULL, CREATE_MEMORY },                   \
        { "cpus", required_argument, NULL, CREATE_CPUS },                       \
        { "disk", required_argument, NULL, CREATE_DISK },                       \
        { "timeout", required_argument, NULL, CREATE_TIMEOUT },                 \
        { "cpu-quota", required_argument, NULL, CREATE_CPU_QUOTA },             \
        { "hostname", required_argument, NULL, CREATE_HOSTNAME },               \
        { "label", required_argument, NULL, CREATE_LABEL },                     \
        { "request-id", required_argument, NULL, CREATE_REQUEST_ID }

#define CREATE_HELP                                                                     \
        "     --template=NAME[:TAG]|ID  What to start from\n"                           \
        "     --memory=SIZE        256M, 2G\n"                                          \
        "     --cpus=N             1 to 16\n"                                           \
        "     --cpu-quota=PERCENT  CPU time, 100% for each CPU\n"                       \
        "     --disk=SIZE\n"                                                            \
        "     --timeout=TIME       Lifetime of the sandbox: 30s, 1h, infinity\n"        \
        "     --hostname=NAME\n"                                                        \
        "     --label=KEY=VALUE    May be repeated\n"                                   \
        "     --request-id=ID      The same id gives the same sandbox\n"

/* 1 when c was one of these, 0 when not, negative once it was said what is wrong. */
int create_option(CreateOptions *o, int c);
void create_options_done(CreateOptions *o);

#define SANDBOX_ID_MAX 21
/* Creates the sandbox; says what went wrong. */
int create_sandbox(sd_bus *bus, const CreateOptions *o, char ret_id[static SANDBOX_ID_MAX]);
