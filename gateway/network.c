/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>

#include "base/parse.h"
#include "gateway/ingress-route.h"
#include "gateway/network.h"

#define ALL "0.0.0.0/0"
#define NAME_LENGTH_MAX 253U
#define ENVD_PORT 49983

static bool address_valid(const char *s) {
        _cleanup_free_ char *copy = strdup(s);
        unsigned char address[sizeof(struct in6_addr)];
        char *prefix;
        uint32_t bits;

        if (!copy)
                return false;
        prefix = copy;
        (void) strsep(&prefix, "/");
        int family = strchr(copy, ':') ? AF_INET6 : AF_INET;
        if (inet_pton(family, copy, address) != 1)
                return false;
        return !prefix || (parse_u32(prefix, &bits) >= 0 && bits <= (family == AF_INET ? 32U : 128U));
}

/* *.example.com, example.com; what is one exactly cubed says. */
static bool name_valid(const char *s) {
        const char *rest = startswith(s, "*.") ?: s;
        bool letter = false;

        if (!*rest || strlen(s) > NAME_LENGTH_MAX)
                return false;
        for (const char *p = rest; *p; p++) {
                if (!isalnum((unsigned char) *p) && !strchr("-._", *p))
                        return false;
                letter |= isalpha((unsigned char) *p) != 0;
        }
        return letter;
}

static int check_lists(const NetworkSpec *n, bool all_denied, ErrorText *error) {
        for (size_t i = 0; n->deny && i < json_object_array_length(n->deny); i++) {
                const char *s = json_object_get_string(json_object_array_get_idx(n->deny, i));
                if (!address_valid(s))
                        return error_text(error, "invalid denied CIDR %.100s", s);
        }
        for (size_t i = 0; n->allow && i < json_object_array_length(n->allow); i++) {
                const char *s = json_object_get_string(json_object_array_get_idx(n->allow, i));
                if (address_valid(s))
                        continue;
                if (!name_valid(s))
                        return error_text(error, "invalid allowed address %.100s", s);
                if (!all_denied)
                        return error_text(error, "When specifying allowed domains in allow out, you must include "
                                                 "'ALL_TRAFFIC' in deny out to block all other traffic.");
        }
        return 0;
}

static int refuse_others(json_object *of, ErrorText *error) {
        if (field_given(of, "rules"))
                return error_text(error, "Network transform rules are not available for your team.");
        if (field_given(of, "egressProxy"))
                return error_text(error, "network.egressProxy is not supported by this host");
        return 0;
}

/* envd speaks no TLS. */
static bool https_port_valid(json_object *v) {
        int64_t port = json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : 0;

        return port > 0 && port <= UINT16_MAX && port != ENVD_PORT;
}

static int parse_https_ports(json_object *of, NetworkSpec *ret, ErrorText *error) {
        char *at = ret->https_ports;
        json_object *ports = NULL;

        if (!field_given(of, "httpsPorts"))
                return 0;
        (void) json_object_object_get_ex(of, "httpsPorts", &ports);
        if (!json_object_is_type(ports, json_type_array) || json_object_array_length(ports) > HTTPS_PORTS_MAX)
                return error_text(error, "httpsPorts is a list of %u ports at most", HTTPS_PORTS_MAX);
        for (size_t i = 0; i < json_object_array_length(ports); i++) {
                json_object *v = json_object_array_get_idx(ports, i);
                if (!https_port_valid(v))
                        return error_text(error, "https port is not valid: %.32s", json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN));
                at += snprintf(at, (size_t) (ret->https_ports + sizeof(ret->https_ports) - at), "%s%d", i > 0 ? ":" : "",
                               json_object_get_int(v));
        }
        return 0;
}

/* How requests come in. */
static int parse_inbound(json_object *of, NetworkSpec *ret, ErrorText *error) {
        bool public = true;

        int r = field_bool(of, "allowPublicTraffic", &public, error);
        if (r >= 0)
                r = field_string(of, "maskRequestHost", &ret->mask_host, error);
        if (r >= 0)
                r = parse_https_ports(of, ret, error);
        if (r < 0)
                return r;
        ret->secured = !public;
        if (ret->mask_host && *ret->mask_host && !mask_host_valid(ret->mask_host))
                return error_text(error, "mask request host is not valid: %.100s", ret->mask_host);
        return 0;
}

static bool has_all(json_object *list) {
        for (size_t i = 0; list && i < json_object_array_length(list); i++)
                if (streq(json_object_get_string(json_object_array_get_idx(list, i)), ALL))
                        return true;
        return false;
}

int network_parse(json_object *of, bool internet, NetworkSpec *ret, ErrorText *error) {
        *ret = (NetworkSpec) { .internet = internet };

        int r = refuse_others(of, error);
        if (r >= 0)
                r = parse_inbound(of, ret, error);
        if (r >= 0)
                r = field_strings(of, "allowOut", &ret->allow, error);
        if (r >= 0)
                r = field_strings(of, "denyOut", &ret->deny, error);
        if (r < 0)
                return r;
        if (has_all(ret->deny))
                ret->internet = false;
        return check_lists(ret, !ret->internet, error);
}

static int append_list(sd_bus_message *m, const char *name, json_object *list) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append_basic(m, 's', name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; r >= 0 && list && i < json_object_array_length(list); i++) {
                const char *s = json_object_get_string(json_object_array_get_idx(list, i));
                /* The default says it, for IPv6 as well. */
                if (!streq(s, ALL) || streq(name, "allow"))
                        r = sd_bus_message_append_basic(m, 's', s);
        }
        for (unsigned i = 0; r >= 0 && i < 3; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

int network_append(sd_bus_message *m, const NetworkSpec *n) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}", "default", "s", n->internet ? "internet" : "deny");
        if (r >= 0)
                r = append_list(m, "allow", n->allow);
        if (r >= 0)
                r = append_list(m, "deny", n->deny);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

bool network_is_open(json_object *policy) {
        json_object *v;

        return policy && json_object_object_get_ex(policy, "default", &v) &&
               streq(strempty(json_object_get_string(v)), "internet");
}

static json_object *copy_list(json_object *policy, const char *name) {
        json_object *list, *copy = json_object_new_array();

        if (!policy || !json_object_object_get_ex(policy, name, &list) || !json_object_is_type(list, json_type_array))
                return copy;
        for (size_t i = 0; copy && i < json_object_array_length(list); i++)
                if (json_object_array_add(copy, json_object_get(json_object_array_get_idx(list, i))) < 0) {
                        json_object_put(copy);
                        return NULL;
                }
        return copy;
}

json_object *network_to_json(json_object *policy) {
        json_object *o = json_object_new_object(), *allow = copy_list(policy, "allow"), *deny = copy_list(policy, "deny");

        if (o && allow && deny && json_object_array_length(allow) + json_object_array_length(deny) > 0 &&
            (network_is_open(policy) || json_object_array_add(deny, json_object_new_string(ALL)) == 0) &&
            json_object_object_add(o, "allowOut", json_object_get(allow)) == 0 &&
            json_object_object_add(o, "denyOut", json_object_get(deny)) == 0) {
                json_object_put(allow);
                json_object_put(deny);
                return o;
        }
        json_object_put(allow);
        json_object_put(deny);
        json_object_put(o);
        return NULL;
}
