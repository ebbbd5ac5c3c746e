/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/macros.h"
#include "gateway/json-maker.h"
#include "gateway/labels.h"
#include "gateway/network.h"
#include "gateway/sandbox-json.h"
#include "gateway/template-names.h"

#define MEBIBYTE (1024 * 1024)

const char *sandbox_state(json_object *p) {
        return streq(info_string(p, "State"), "running") ? "running" : "paused";
}

uint64_t sandbox_started(json_object *p) {
        return info_u64(p, "CreatedTimestamp");
}

uint64_t sandbox_end(json_object *p) {
        return info_u64(p, streq(sandbox_state(p), "running") ? "Deadline" : "StateChangedTimestamp");
}

json_object *sandbox_metadata(json_object *p, json_object **hold) {
        const char *text = info_string(info_get(p, "Labels"), LABEL_METADATA);

        *hold = *text ? json_tokener_parse(text) : NULL;
        return json_object_is_type(*hold, json_type_object) ? *hold : NULL;
}

/* One of the tenant's is told by its id and name, whatever build of it this is. */
static void add_template(JsonMaker *m, json_object *p) {
        const char *name = info_string(p, "TemplateName"), *tenant = info_string(p, "Tenant");
        json_object *entry = json_object_new_array();
        char id[TEMPLATE_ID_SIZE], full[CUBED_NAME_MAX];
        TemplateName n;

        (void) snprintf(full, sizeof(full), "%.100s%s", name, strchr(name, ':') ? "" : ":" DEFAULT_TAG);
        bool own = json_append(entry, json_object_new_string(full)) && json_append(entry, json_object_new_uint64(info_u64(p, "Owner"))) &&
                   json_append(entry, json_object_new_string(info_string(p, "Template"))) &&
                   template_name_parse(entry, tenant, (uint32_t) info_u64(p, "Owner"), &n) && n.own;
        json_object_put(entry);
        if (own)
                template_public_id(tenant, n.name, id);
        json_put_string(m, "templateID", own ? id : info_string(p, "Template"));
        if (*name)
                json_put_string(m, "alias", own ? n.name : name);
}

static void add_identity(JsonMaker *m, json_object *p) {
        add_template(m, p);
        json_put_string(m, "sandboxID", info_string(p, "Id"));
        json_put_string(m, "clientID", CLIENT_ID);
        json_put_string(m, "envdVersion", ENVD_VERSION);
}

static void add_token(JsonMaker *m, const char *name, json_object *p, const HostKey *key, const char *purpose) {
        char token[TOKEN_SIZE];

        token_derive(key, purpose, info_string(p, "Id"), token);
        json_put_string(m, name, token);
        explicit_bzero(token, sizeof(token));
}

/* How a client reaches it. */
static void add_access(JsonMaker *m, json_object *p, const HostKey *key, const char *domain) {
        json_object *labels = info_get(p, "Labels");

        if (streq(info_string(labels, LABEL_SECURE), "yes"))
                add_token(m, "envdAccessToken", p, key, TOKEN_ENVD);
        if (*info_string(labels, LABEL_TRAFFIC))
                add_token(m, "trafficAccessToken", p, key, TOKEN_TRAFFIC);
        if (domain)
                json_put_string(m, "domain", domain);
}

json_object *sandbox_to_json(json_object *p, const HostKey *key, const char *domain) {
        JsonMaker m = json_maker_new();

        add_identity(&m, p);
        add_access(&m, p, key, domain);
        return json_maker_done(&m);
}

static void add_listed(JsonMaker *m, json_object *p) {
        json_object *hold, *metadata = sandbox_metadata(p, &hold);

        add_identity(m, p);
        json_put_time(m, "startedAt", sandbox_started(p));
        json_put_time(m, "endAt", sandbox_end(p));
        json_put_string(m, "state", sandbox_state(p));
        json_put(m, "cpuCount", json_object_new_uint64(info_u64(p, "CPUs")));
        json_put(m, "memoryMB", json_object_new_uint64(info_u64(p, "Memory") / MEBIBYTE));
        json_put(m, "diskSizeMB", json_object_new_uint64(info_u64(p, "Disk") / MEBIBYTE));
        json_put(m, "metadata", metadata ? json_object_get(metadata) : json_object_new_object());
        json_object_put(hold);
}

json_object *sandbox_to_json_listed(json_object *p) {
        JsonMaker m = json_maker_new();

        add_listed(&m, p);
        return json_maker_done(&m);
}

static json_object *lifecycle(json_object *p) {
        JsonMaker m = json_maker_new();

        json_put_string(&m, "onTimeout", streq(info_string(p, "OnTimeout"), "kill") ? "kill" : "pause");
        json_put(&m, "autoResume", json_object_new_boolean(json_object_get_boolean(info_get(p, "AutoResume"))));
        return json_maker_done(&m);
}

static json_object *https_ports_to_json(const char *text) {
        json_object *list = json_object_new_array();

        for (const char *at = text; list && *at; at += strspn(at, ":")) {
                char *end;
                json_object *port = json_object_new_int((int32_t) strtoul(at, &end, 10));
                if (end == at || !json_append(list, port))
                        break;
                at = end;
        }
        return list;
}

/* NULL: there is nothing to be said of it. */
static json_object *network(json_object *p) {
        json_object *labels = info_get(p, "Labels"), *rules = network_to_json(info_get(p, "NetworkPolicy"));
        const char *mask = info_string(labels, LABEL_MASK_HOST), *traffic = info_string(labels, LABEL_TRAFFIC);
        const char *https = info_string(labels, LABEL_HTTPS_PORTS);
        JsonMaker m = { .object = rules };

        if (!*mask && !*traffic && !*https)
                return rules;
        if (!rules)
                m = json_maker_new();
        json_put(&m, "allowPublicTraffic", json_object_new_boolean(!*traffic));
        if (*mask)
                json_put_string(&m, "maskRequestHost", mask);
        if (*https)
                json_put(&m, "httpsPorts", https_ports_to_json(https));
        return json_maker_done(&m);
}

json_object *sandbox_to_json_detail(json_object *p, const HostKey *key, const char *domain) {
        json_object *net = network(p);
        JsonMaker m = json_maker_new();

        add_listed(&m, p);
        add_access(&m, p, key, domain);
        json_put(&m, "allowInternetAccess", json_object_new_boolean(network_is_open(info_get(p, "NetworkPolicy"))));
        if (net)
                json_put(&m, "network", net);
        json_put(&m, "lifecycle", lifecycle(p));
        return json_maker_done(&m);
}
