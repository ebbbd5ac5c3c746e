/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A network policy as options on a command line: those of `create`, `fork`, `template build` and `policy set`. What the
 * rules mean is for cubed to judge; here they are passed on as they are. */

#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "ctl/ctl.h"

typedef struct PolicyOptions {
        const char *def;      /* "deny", "internet"; NULL: not given */
        char **allow, **deny, **inbound;
} PolicyOptions;

/* Counted from a base, for a verb may have two policies. */
enum {
        POLICY_DEFAULT,
        POLICY_ALLOW,
        POLICY_DENY,
        POLICY_INBOUND,
};

#define POLICY_OPTIONS(def)                                                                     \
        { def, required_argument, NULL, CTL_OPTION_POLICY + POLICY_DEFAULT },                   \
        { "allow", required_argument, NULL, CTL_OPTION_POLICY + POLICY_ALLOW },                 \
        { "deny", required_argument, NULL, CTL_OPTION_POLICY + POLICY_DENY },                   \
        { "inbound", required_argument, NULL, CTL_OPTION_POLICY + POLICY_INBOUND }

#define POLICY_RULE_OPTIONS_HELP                                                                \
        "     --allow=RULE         What it may reach nevertheless: 'example.com tcp:443',\n"     \
        "                          '8.8.8.0/24 udp:53'; may be repeated, as may the next two\n"  \
        "     --deny=RULE          What it may not\n"                                           \
        "     --inbound=RULE       Who may connect to it\n"

/* 1 when c was one of these, 0 when not, negative once it was said what is wrong. def: what the option for the default is
 * called. */
int policy_option(PolicyOptions *o, int base, const char *def, int c);
bool policy_options_given(const PolicyOptions *o);
void policy_options_done(PolicyOptions *o);
/* As an a{sv}. */
int policy_options_append(sd_bus_message *m, const PolicyOptions *o);
/* The same as an entry NAME: of an a{sv}; none when nothing was given. */
int policy_options_append_entry(sd_bus_message *m, const char *name, const PolicyOptions *o);
