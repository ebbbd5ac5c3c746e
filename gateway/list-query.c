/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
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

/* The page. */

typedef struct Item {
        json_object *properties;
        uint64_t started;
        const char *id;
} Item;

static int compare(const Item *a, const Item *b) {
        if (a->started != b->started)
                return a->started < b->started ? -1 : 1;
        return strcmp(a->id, b->id);
}

static int compare_ascending(const void *a, const void *b) {
        return compare(a, b);
}

static int compare_descending(const void *a, const void *b) {
        return compare(b, a);
}

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

static bool matches(const Item *i, const ListQuery *q) {
        bool running = streq(sandbox_state(i->properties), "running");

        if (!(running ? q->running : q->paused) || i->started < q->started_after)
                return false;
        if (q->template_ref && !streq(q->template_ref, info_string(i->properties, "Template")) &&
            !streq(q->template_ref, info_string(i->properties, "TemplateName")))
                return false;
        if (q->goes_on) {
                const Item last = { .started = q->last_started, .id = q->last_id };
                int order = compare(i, &last);
                if (q->ascending ? order <= 0 : order >= 0)
                        return false;
        }
        return metadata_matches(i->properties, q->metadata);
}

static json_object *make_page(const Item *items, size_t n) {
        json_object *page = json_object_new_array();

        for (size_t i = 0; page && i < n; i++) {
                json_object *o = sandbox_to_json_listed(items[i].properties);
                if (o && json_object_array_add(page, o) == 0)
                        continue;
                json_object_put(o);
                json_object_put(page);
                return NULL;
        }
        return page;
}

json_object *list_page(json_object *all, const ListQuery *q, char token[static LIST_TOKEN_MAX]) {
        size_t n = json_object_array_length(all), wanted = 0;
        _cleanup_free_ Item *items = new0(Item, n + 1);

        token[0] = 0;
        if (!items)
                return NULL;
        for (size_t i = 0; i < n; i++) {
                json_object *p = json_object_array_get_idx(all, i);
                items[wanted] = (Item) { p, sandbox_started(p), info_string(p, "Id") };
                if (matches(&items[wanted], q))
                        wanted++;
        }
        qsort(items, wanted, sizeof(Item), q->ascending ? compare_ascending : compare_descending);
        if (!q->whole && wanted > q->limit) {
                wanted = q->limit;
                (void) snprintf(token, LIST_TOKEN_MAX, "%llu_%s", (unsigned long long) items[wanted - 1].started,
                                items[wanted - 1].id);
        }
        return make_page(items, wanted);
}
