/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/policy-options.h"
#include "ctl/text.h"

static int set_default(PolicyOptions *o, const char *option, const char *s) {
        if (!streq(s, "deny") && !streq(s, "internet"))
                return ctl_usage("--%s=%s is not known: deny or internet.", option, s);
        o->def = s;
        return 1;
}

static int add_rule(char ***list, const char *s) {
        int r = text_strv_add(list, s);
        return r < 0 ? r : 1;
}

int policy_option(PolicyOptions *o, int base, const char *def, int c) {
        switch (c - base) {
        case POLICY_DEFAULT:
                return set_default(o, def, optarg);
        case POLICY_ALLOW:
                return add_rule(&o->allow, optarg);
        case POLICY_DENY:
                return add_rule(&o->deny, optarg);
        case POLICY_INBOUND:
                return add_rule(&o->inbound, optarg);
        }
        return 0;
}

bool policy_options_given(const PolicyOptions *o) {
        return o->def || o->allow || o->deny || o->inbound;
}

void policy_options_done(PolicyOptions *o) {
        o->allow = text_strv_free(o->allow);
        o->deny = text_strv_free(o->deny);
        o->inbound = text_strv_free(o->inbound);
}

int policy_options_append(sd_bus_message *m, const PolicyOptions *o) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        if (r >= 0 && o->def)
                r = sd_bus_message_append(m, "{sv}", "default", "s", o->def);
        if (r >= 0)
                r = ctl_append_strings(m, "allow", o->allow);
        if (r >= 0)
                r = ctl_append_strings(m, "deny", o->deny);
        if (r >= 0)
                r = ctl_append_strings(m, "inbound", o->inbound);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int policy_options_append_entry(sd_bus_message *m, const char *name, const PolicyOptions *o) {
        if (!policy_options_given(o))
                return 0;
        int r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{sv}");
        if (r >= 0)
                r = policy_options_append(m, o);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}
