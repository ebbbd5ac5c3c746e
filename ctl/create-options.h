/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `run`, `create` and `fork` know about sandboxes to be made. */

#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "ctl/ctl.h"
#include "ctl/limit-options.h"
#include "ctl/policy-options.h"

typedef struct CreateOptions {
        const char *template; /* NULL: cubed's default */
        const char *source;   /* in place of it: "snapshot:ID" or "template:NAME" */
        const char *hostname, *request_id;
        const char *on_timeout;
        uint64_t disk_bytes, timeout_usec, idle_timeout_usec;
        uint64_t checkpoint_usec; /* UINT64_MAX: before each exec */
        uint32_t cpus;
        char **labels;        /* KEY=VALUE */
        PolicyOptions policy;
        LimitOptions limits;
        bool auto_resume, auto_resume_given;
        bool bind_client;
} CreateOptions;

enum {
        CREATE_TEMPLATE = CTL_OPTION_CREATE,
        CREATE_CPUS,
        CREATE_DISK,
        CREATE_TIMEOUT,
        CREATE_IDLE_TIMEOUT,
        CREATE_ON_TIMEOUT,
        CREATE_AUTO_RESUME,
        CREATE_CHECKPOINT,
        CREATE_HOSTNAME,
        CREATE_LABEL,
        CREATE_REQUEST_ID,
};

/* Those that a copy can have otherwise than what it is a copy of. */
#define FORK_OPTIONS                                                            \
        { "timeout", required_argument, NULL, CREATE_TIMEOUT },                 \
        { "idle-timeout", required_argument, NULL, CREATE_IDLE_TIMEOUT },       \
        { "on-timeout", required_argument, NULL, CREATE_ON_TIMEOUT },           \
        { "auto-resume", optional_argument, NULL, CREATE_AUTO_RESUME },         \
        { "checkpoint", required_argument, NULL, CREATE_CHECKPOINT },           \
        { "label", required_argument, NULL, CREATE_LABEL },                     \
        POLICY_OPTIONS("network"),                                              \
        LIMIT_OPTIONS

#define CREATE_OPTIONS                                                          \
        FORK_OPTIONS,                                                           \
        { "template", required_argument, NULL, CREATE_TEMPLATE },               \
        { "cpus", required_argument, NULL, CREATE_CPUS },                       \
        { "disk", required_argument, NULL, CREATE_DISK },                       \
        { "hostname", required_argument, NULL, CREATE_HOSTNAME },               \
        { "request-id", required_argument, NULL, CREATE_REQUEST_ID }

#define FORK_HELP                                                                       \
        "     --timeout=TIME       Lifetime of the sandbox: 30s, 1h, infinity\n"        \
        "     --idle-timeout=TIME  How long it may do nothing\n"                        \
        "     --on-timeout=kill|pause|pause-disk  What either of them does\n"           \
        "     --auto-resume[=BOOL] Paused, it is resumed by connections of this host\n"  \
        "     --checkpoint=exec|INTERVAL  Save its state before each exec, or that often\n" \
        "     --label=KEY=VALUE    May be repeated\n"                                   \
        "     --network=deny|internet  What it may reach: nothing, or all but private networks\n" \
        POLICY_RULE_OPTIONS_HELP LIMIT_HELP

#define CREATE_HELP                                                                     \
        "     --template=NAME[:TAG]|ID  What to start from\n"                           \
        "     --cpus=N             1 to 16\n"                                           \
        "     --disk=SIZE\n"                                                            \
        "     --hostname=NAME\n"                                                        \
        "     --request-id=ID      The same id gives the same sandbox\n"                \
        FORK_HELP

/* 1 when c was one of these, 0 when not, negative once it was said what is wrong. */
int create_option(CreateOptions *o, int c);
/* A source that stands on the command line without an option. 1, 0 when it is no source, or negative. */
int create_source(CreateOptions *o, const char *s);
void create_options_done(CreateOptions *o);
/* As the a{sv} of CreateSandbox and Fork. */
int create_options_append(sd_bus_message *m, const CreateOptions *o);

/* An entry "labels" of such an a{sv}. */
int create_append_labels(sd_bus_message *m, char **labels);

#define SANDBOX_ID_MAX 21
/* Creates the sandbox; says what went wrong. */
int create_sandbox(sd_bus *bus, const CreateOptions *o, char ret_id[static SANDBOX_ID_MAX]);
/* Ends one that was made for a single command; says what went wrong, but not that it has gone by itself. */
void end_sandbox(sd_bus *bus, const char *id);
