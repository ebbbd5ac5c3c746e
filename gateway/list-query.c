/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "gateway/labels.h"
#include "gateway/list-query.h"
#include "gateway/sandbox-json.h"

int list_limit_parse(const Url *u, unsigned *ret, ErrorText *error) {
        const char *text = url_query(u, "limit");
        uint32_t v = LIST_LIMIT;

        if (text && (parse_u32(text, &v) < 0 || v < 1 || v > LIST_LIMIT))
                return error_text(error, "validation error: limit is 1 to %u", LIST_LIMIT);
        *ret = v;
        return 0;
}

int list_token_parse(const char *text, ListQuery *q, ErrorText *error) {
        const char *id = text ? strchr(text, '_') : NULL;
        char number[24];

        if (!text)
                return 0;
        if (!id || (size_t) (id - text) >= sizeof(number) || !sandbox_id_valid(id + 1))
                return error_text(error, "Invalid next token");
        (void) snprintf(number, sizeof(number), "%.*s", (int) (id - text), text);
        if (parse_u64(number, &q->last_started) < 0)
                return error_text(error, "Invalid next token");
        q->goes_on = true;
        (void) snprintf(q->last_id, sizeof(q->last_id), "%s", id + 1);
        return 0;
}

/* Clients encode each key and value, join them as a form, and encode that form; the URL's own encoding is off already. */
static int parse_metadata(const char *text, ListQuery *q, ErrorText *error) {
        _cleanup_free_ char *form = strdup(text);
        char *at = form, *pair;
        int r;

        if (!form)
                return -ENOMEM;
        q->metadata = json_object_new_object();
        if (!q->metadata)
                return -ENOMEM;
        r = url_decode(form, true);
        while (r >= 0 && (pair = strsep(&at, "&"))) {
                char *value = pair, *key = strsep(&value, "=");
                if (!*key)
                        continue;
                r = value ? url_decode(key, true) : -EINVAL;
                if (r >= 0)
                        r = url_decode(value, true);
                if (r >= 0 && json_object_object_add(q->metadata, key, json_object_new_string(value)) < 0)
                        return -ENOMEM;
        }
        return r < 0 ? error_text(error, "Error when parsing metadata: it is not KEY=VALUE&...") : 0;
}

static int parse_states(const char *text, ListQuery *q, ErrorText *error) {
        _cleanup_free_ char *copy = strdup(text);
        char *at = copy, *state;

        if (!copy)
                return -ENOMEM;
        q->running = q->paused = false;
        while ((state = strsep(&at, ","))) {
                if (streq(state, "running"))
                        q->running = true;
                else if (streq(state, "paused"))
                        q->paused = true;
                else
                        return error_text(error, "validation error: state is running, paused, or both with a comma");
        }
        return 0;
}

static int parse_pages(const Url *u, ListQuery *q, ErrorText *error) {
        const char *order = url_query(u, "order"), *after = url_query(u, "startedAfter"), *states = url_query(u, "state");

        int r = states ? parse_states(states, q, error) : 0;
        if (r < 0)
                return r;
        if (order && !streq(order, "asc") && !streq(order, "desc"))
                return error_text(error, "validation error: order is asc or desc");
        q->ascending = order && streq(order, "asc");
        if (after && timestamp_parse(after, &q->started_after) < 0)
                return error_text(error, "validation error: startedAfter is no time as of RFC 3339");
        q->template_ref = url_query(u, "template");
        q->nothing = q->template_ref && !template_name_valid(q->template_ref);
        if (q->template_ref && strchr(q->template_ref, ':'))
                return error_text(error, "Invalid template: %.100s", q->template_ref);
        r = list_limit_parse(u, &q->limit, error);
        return r < 0 ? r : list_token_parse(url_query(u, "nextToken"), q, error);
}

int list_query_parse(const Url *u, bool v2, ListQuery *ret, ErrorText *error) {
        const char *metadata = url_query(u, "metadata");

        *ret = (ListQuery) { .running = true, .paused = v2, .whole = !v2, .limit = LIST_LIMIT };
        int r = metadata ? parse_metadata(metadata, ret, error) : 0;
        if (r >= 0 && v2)
                r = parse_pages(u, ret, error);
        if (r < 0)
                list_query_done(ret);
        return r;
}

void list_query_done(ListQuery *q) {
        json_object_put(q->metadata);
        q->metadata = NULL;
}

/* The question. */

static int append_strings(sd_bus_message *m, const char *name, const char *const *l, size_t n) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append_basic(m, 's', name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; r >= 0 && i < n; i++)
                r = sd_bus_message_append_basic(m, 's', l[i]);
        for (unsigned i = 0; r >= 0 && i < 3; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

/* What is being made, or ends, is not there to clients; all others have an end that is to come, or are kept. */
static int append_states(sd_bus_message *m, const ListQuery *q) {
        static const char *const all[] = { "running", "pausing", "paused", "resuming", "failed" };

        return append_strings(m, "states", q->running ? all : all + 1, q->paused ? ELEMENTSOF(all) - !q->running : q->running);
}

/* One more than the page has tells whether there is another one. What metadata selects cubed does not know. */
static uint32_t limit_of(const ListQuery *q) {
        return q->whole ? LIST_WHOLE : q->metadata ? LIST_LIMIT : q->limit + 1;
}

int list_query_append(sd_bus_message *m, const ListQuery *q, uid_t owner, const char *tenant, const char *after) {
        char token[LIST_TOKEN_MAX];

        if (!after && q->goes_on) {
                (void) snprintf(token, sizeof(token), "%llu_%s", (unsigned long long) q->last_started, q->last_id);
                after = token;
        }
        int r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}{sv}{sv}{sv}{sv}", "owner", "u", (uint32_t) owner, "tenant", "s", tenant, "since",
                                          "t", q->started_after, "newest-first", "b", !q->ascending, "limit", "u", limit_of(q));
        if (r >= 0)
                r = append_states(m, q);
        if (r >= 0 && q->template_ref)
                r = sd_bus_message_append(m, "{sv}", "template", "s", q->template_ref);
        if (r >= 0 && after)
                r = sd_bus_message_append(m, "{sv}", "after", "s", after);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* The page. */

static bool metadata_matches(json_object *p, json_object *wanted) {
        json_object *hold = NULL, *metadata = wanted ? sandbox_metadata(p, &hold) : NULL;
        bool all = true;

        if (!wanted)
                return true;
        json_object_object_foreach(wanted, key, value) {
                json_object *v = info_get(metadata, key);
                all = all && v && streq(json_object_get_string(v), json_object_get_string(value));
        }
        json_object_put(hold);
        return all;
}

/* About: what clients give is what makes the difference. */
static size_t bytes_of(json_object *listed) {
        size_t n = json_object_array_length(listed), bytes = n * 1024;

        for (size_t i = 0; i < n; i++)
                bytes += strlen(info_string(info_get(json_object_array_get_idx(listed, i), "Labels"), LABEL_METADATA));
        return bytes;
}

int list_select(json_object *found, const ListQuery *q, json_object *listed) {
        for (size_t i = 0; i < json_object_array_length(found); i++) {
                json_object *p = json_object_array_get_idx(json_object_array_get_idx(found, i), 1);
                if (!metadata_matches(p, q->metadata))
                        continue;
                if (!q->whole && json_object_array_length(listed) == q->limit)
                        return 1;
                if (json_object_array_add(listed, json_object_get(p)) < 0) {
                        json_object_put(p);
                        return -ENOMEM;
                }
        }
        return q->whole && bytes_of(listed) > LIST_WHOLE_BYTES_MAX ? -E2BIG : 0;
}

json_object *list_to_json(json_object *listed) {
        json_object *page = json_object_new_array();

        for (size_t i = 0; page && i < json_object_array_length(listed); i++) {
                json_object *o = sandbox_to_json_listed(json_object_array_get_idx(listed, i));
                if (o && json_object_array_add(page, o) == 0)
                        continue;
                json_object_put(o);
                json_object_put(page);
                return NULL;
        }
        return page;
}

const char *list_token(json_object *listed, char token[static LIST_TOKEN_MAX]) {
        json_object *last = json_object_array_get_idx(listed, json_object_array_length(listed) - 1);

        (void) snprintf(token, LIST_TOKEN_MAX, "%llu_%s", (unsigned long long) sandbox_started(last), info_string(last, "Id"));
        return token;
}
