/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "gateway/labels.h"
#include "gateway/network.h"
#include "gateway/sandbox-json.h"

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

/* An object in the making: the first failure sticks, and makes it NULL. */
typedef struct Maker {
        json_object *object;
        bool failed;
} Maker;

static void add(Maker *m, const char *name, json_object *v) {
        if (!m->failed && v && json_object_object_add(m->object, name, v) == 0)
                return;
        m->failed = true;
        json_object_put(v);
}

static void add_string(Maker *m, const char *name, const char *s) {
        add(m, name, json_object_new_string(s));
}

static void add_time(Maker *m, const char *name, uint64_t usec) {
        char text[TIMESTAMP_MAX];

        add_string(m, name, timestamp_format(text, usec));
}

static Maker maker_new(void) {
        json_object *o = json_object_new_object();

        return (Maker) { .object = o, .failed = !o };
}

static json_object *maker_done(Maker *m) {
        if (m->failed) {
                json_object_put(m->object);
                return NULL;
        }
        return m->object;
}

static void add_identity(Maker *m, json_object *p) {
        add_string(m, "templateID", info_string(p, "Template"));
        add_string(m, "sandboxID", info_string(p, "Id"));
        add_string(m, "clientID", CLIENT_ID);
        add_string(m, "envdVersion", ENVD_VERSION);
        if (*info_string(p, "TemplateName"))
                add_string(m, "alias", info_string(p, "TemplateName"));
}

static void add_token(Maker *m, json_object *p, const HostKey *key) {
        char token[TOKEN_SIZE];

        if (!streq(info_string(info_get(p, "Labels"), LABEL_SECURE), "yes"))
                return;
        token_derive(key, "envd", info_string(p, "Id"), token);
        add_string(m, "envdAccessToken", token);
        explicit_bzero(token, sizeof(token));
}

json_object *sandbox_to_json(json_object *p, const HostKey *key) {
        Maker m = maker_new();

        add_identity(&m, p);
        add_token(&m, p, key);
        return maker_done(&m);
}

static void add_listed(Maker *m, json_object *p) {
        json_object *hold, *metadata = sandbox_metadata(p, &hold);

        add_identity(m, p);
        add_time(m, "startedAt", sandbox_started(p));
        add_time(m, "endAt", sandbox_end(p));
        add_string(m, "state", sandbox_state(p));
        add(m, "cpuCount", json_object_new_uint64(info_u64(p, "CPUs")));
        add(m, "memoryMB", json_object_new_uint64(info_u64(p, "Memory") / MEBIBYTE));
        add(m, "diskSizeMB", json_object_new_uint64(info_u64(p, "Disk") / MEBIBYTE));
        add(m, "metadata", metadata ? json_object_get(metadata) : json_object_new_object());
        json_object_put(hold);
}

json_object *sandbox_to_json_listed(json_object *p) {
        Maker m = maker_new();

        add_listed(&m, p);
        return maker_done(&m);
}

static json_object *lifecycle(json_object *p) {
        Maker m = maker_new();

        add_string(&m, "onTimeout", streq(info_string(p, "OnTimeout"), "kill") ? "kill" : "pause");
        add(&m, "autoResume", json_object_new_boolean(json_object_get_boolean(info_get(p, "AutoResume"))));
        return maker_done(&m);
}

json_object *sandbox_to_json_detail(json_object *p, const HostKey *key) {
        json_object *policy = info_get(p, "NetworkPolicy"), *network = network_to_json(policy);
        Maker m = maker_new();

        add_listed(&m, p);
        add_token(&m, p, key);
        add(&m, "allowInternetAccess", json_object_new_boolean(network_is_open(policy)));
        if (network)
                add(&m, "network", network);
        add(&m, "lifecycle", lifecycle(p));
        return maker_done(&m);
}
