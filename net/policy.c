/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>

#include "base/parse.h"
#include "net/policy-private.h"

#define NAME_MAX_BYTES 253U
#define LABEL_MAX_BYTES 63U

int policy_new(PolicyDefault def, Policy **ret) {
        Policy *p = new0(Policy, 1);

        if (!p)
                return -ENOMEM;
        p->def = def;
        *ret = p;
        return 0;
}

Policy *policy_free(Policy *p) {
        if (!p)
                return NULL;
        for (size_t i = 0; i < p->n_rules; i++)
                free(p->rules[i].name);
        free(p->rules);
        free(p);
        return NULL;
}

/* NULL, or what is wrong with it. Lower case afterwards, the trailing dot gone. */
static const char *check_name(char *name) {
        size_t n = strlen(name), label = 0;

        if (n > 0 && name[n - 1] == '.')
                name[--n] = 0;
        if (n == 0 || n > NAME_MAX_BYTES)
                return "a name has 1 to 253 characters";
        for (size_t i = 0; i <= n; i++) {
                unsigned char c = (unsigned char) name[i];
                if (c == '.' || c == 0) {
                        if (label == 0)
                                return "it has an empty label";
                        if (label > LABEL_MAX_BYTES)
                                return "a label has 63 characters at most";
                        label = 0;
                        continue;
                }
                if (c >= 0x80)
                        return "write an international name in its ASCII form (xn--...)";
                if (c == '*')
                        return "\"*\" can only be the whole first label";
                if (!isalnum(c) && c != '-' && c != '_')
                        return "a name has letters, digits, \"-\" and \"_\" only";
                name[i] = (char) tolower(c);
                label++;
        }
        return NULL;
}

static bool looks_like_address(const char *s) {
        return strchr(s, ':') || strchr(s, '/') || s[strspn(s, "0123456789.")] == 0;
}

static const char *read_target(Rule *r, const char *word) {
        if (streq(word, "all"))
                return NULL;
        if (looks_like_address(word))
                return prefix_parse(word, &r->prefix) < 0 ? "that is no address, and no ADDRESS/LENGTH" : NULL;
        if (r->list != POLICY_ALLOW)
                return "names can only be allowed";

        const char *rest = startswith(word, "*.");
        r->below = rest;
        r->name = strdup(rest ?: word);
        if (!r->name)
                return "out of memory";
        return check_name(r->name);
}

static const char *read_ports(Rule *r, char *ports) {
        char *save = NULL;

        if (isempty(ports))
                return "there are no ports behind \":\"";
        for (char *one = strtok_r(ports, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
                char *dash = strchr(one, '-');
                uint32_t first, last;

                if (dash)
                        *dash = 0;
                if (parse_u32(one, &first) < 0 || parse_u32(dash ? dash + 1 : one, &last) < 0 || last > 65535 || first > last)
                        return "a port is 0 to 65535, a range FIRST-LAST";
                if (r->n_ranges >= NET_PORT_RANGES_MAX)
                        return "it has more than 32 ranges of ports";
                r->ranges[r->n_ranges++] = (NetPortRange) { (uint16_t) first, (uint16_t) last };
        }
        return NULL;
}

static const char *read_protocol(Rule *r, char *word) {
        char *ports = strchr(word, ':');

        if (ports)
                *ports++ = 0;
        if (streq(word, "tcp"))
                r->protocols = PROTO_TCP;
        else if (streq(word, "udp"))
                r->protocols = PROTO_UDP;
        else if (streq(word, "icmp"))
                r->protocols = PROTO_ICMP;
        else if (streq(word, "any"))
                r->protocols = ports ? PROTO_TCP|PROTO_UDP : PROTO_ANY;
        else
                return "a protocol is tcp, udp, icmp or any";
        if (!ports)
                return NULL;
        return r->protocols == PROTO_ICMP ? "ICMP has no ports" : read_ports(r, ports);
}

static const char *read_rule(Rule *r, char *text) {
        char *save = NULL, *word = strtok_r(text, " \t", &save);
        const char *wrong = word ? read_target(r, word) : "it is empty";

        r->protocols = PROTO_ANY;
        word = strtok_r(NULL, " \t", &save);
        if (!wrong && word && streq(word, "in")) {
                word = strtok_r(NULL, " \t", &save);
                if (!r->name)
                        return "\"in\" goes with a name";
                if (!word || prefix_parse(word, &r->prefix) < 0)
                        return "\"in\" is followed by ADDRESS/LENGTH";
                r->has_inside = true;
                word = strtok_r(NULL, " \t", &save);
        }
        if (!wrong && word && !streq(word, "host")) {
                wrong = read_protocol(r, word);
                word = strtok_r(NULL, " \t", &save);
        }
        if (!wrong && word && streq(word, "host")) {
                r->host = true;
                if (r->name || r->list != POLICY_ALLOW ||
                    r->prefix.len != (r->prefix.tag == NET_TAG4 ? 32 : 128) || r->prefix.tag == 0)
                        return "\"host\" goes with one address that is allowed";
                word = strtok_r(NULL, " \t", &save);
        }
        if (!wrong && word)
                return "there is more in it than TARGET [in CIDR] [PROTOCOL[:PORTS]] [host]";
        return wrong;
}

static int append(Policy *p, const Rule *r) {
        if (p->n_rules == p->n_allocated) {
                size_t n = p->n_allocated ? 2 * p->n_allocated : 16;
                Rule *rules = reallocarray(p->rules, n, sizeof(Rule));
                if (!rules)
                        return -ENOMEM;
                p->rules = rules;
                p->n_allocated = n;
        }
        p->rules[p->n_rules] = *r;
        p->rules[p->n_rules++].special = r->prefix.tag != 0 && prefix_is_special(&r->prefix);
        return 0;
}

/* "all", and 0.0.0.0/0 to deny, mean both families: who denies everything does not want IPv6 left open. */
static int append_all(Policy *p, const Rule *r) {
        for (uint8_t tag = NET_TAG4; tag <= NET_TAG6; tag += NET_TAG6 - NET_TAG4) {
                Rule one = *r;
                one.prefix = (Prefix) { .tag = tag };
                int k = append(p, &one);
                if (k < 0)
                        return k;
        }
        return 0;
}

int policy_add(Policy *p, PolicyList list, const char *text, char error[static POLICY_ERROR_MAX]) {
        char copy[POLICY_TEXT_MAX];
        Rule r = { .list = list };

        if (p->n_rules + 2 > POLICY_RULES_MAX) {
                (void) snprintf(error, POLICY_ERROR_MAX, "A policy has %u rules at most", POLICY_RULES_MAX - 1);
                return -E2BIG;
        }
        if (strlen(text) >= sizeof(copy)) {
                (void) snprintf(error, POLICY_ERROR_MAX, "Rule \"%.40s...\": it is too long", text);
                return -EINVAL;
        }
        memcpy(copy, text, strlen(text) + 1);
        const char *wrong = read_rule(&r, copy);
        if (wrong) {
                free(r.name);
                (void) snprintf(error, POLICY_ERROR_MAX, "Rule \"%.200s\": %s", text, wrong);
                return -EINVAL;
        }

        bool everything = !r.name && (r.prefix.tag == 0 ||
                                      (r.list == POLICY_DENY && r.prefix.tag == NET_TAG4 && r.prefix.len == 0));
        int k = everything ? append_all(p, &r) : append(p, &r);
        if (k < 0) {
                free(r.name);
                (void) snprintf(error, POLICY_ERROR_MAX, "Out of memory");
        }
        return k;
}

bool rule_is_special(const Rule *r, const Prefix *extra, size_t n_extra) {
        if (r->prefix.tag == 0)
                return false;
        for (size_t i = 0; i < n_extra; i++)
                if (prefix_covers(&extra[i], &r->prefix))
                        return true;
        return r->special;
}

bool policy_opens_special(const Policy *p, const Prefix *extra, size_t n_extra) {
        for (size_t i = 0; i < p->n_rules; i++) {
                const Rule *r = &p->rules[i];
                if (r->list != POLICY_DENY && (r->host || rule_is_special(r, extra, n_extra)))
                        return true;
        }
        return false;
}
