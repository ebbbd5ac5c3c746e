/* SPDX-License-Identifier: Apache-2.0 */

/* What requests say, taken apart: paths, queries, bodies, and what is wanted of a new sandbox. */

#include <sys/socket.h>

#include "gateway/config.h"
#include "gateway/create-spec.h"
#include "gateway/list-query.h"
#include "gateway/sandbox-json.h"
#include "gateway/template-ref.h"
#include "gateway/timestamp.h"
#include "gateway/url.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

TEST(segments_are_decoded_after_they_are_split) {
        _cleanup_(url_done) Url u;

        assert_ok(url_parse("/templates/team%2Fname%3Adefault//x/?a=1&b=x+y%2Bz&a=2&empty&=v", &u));
        assert_eq(u.n_segments, 3u);
        assert_streq(u.segments[1], "team/name:default");
        assert_streq(u.segments[2], "x");
        assert_streq(url_query(&u, "a"), "1");
        assert_streq(url_query(&u, "b"), "x y+z");
        assert_streq(url_query(&u, "empty"), "");
        assert_true(!url_query(&u, "nosuch"));
        assert_eq(u.n_pairs, 5u);
}

TEST(wrong_urls) {
        static const char *const wrong[] = { "", "x", "*", "http://x/", "/%", "/%1", "/%g0", "/%00", "/a?b=%00", "/a?%=1" };
        Url u;

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
                assert_eq(url_parse(wrong[i], &u), -EINVAL);
        assert_eq(url_parse("/1/2/3/4/5/6/7/8/9", &u), -E2BIG);
}

TEST(timestamps) {
        static const struct {
                const char *text;
                uint64_t usec;
        } good[] = {
                { "1970-01-01T00:00:00Z", 0 },
                { "2026-01-02T03:04:05.678901Z", 1767323045678901 },
                { "2026-01-02T03:04:05.678901234Z", 1767323045678901 },
                { "2026-01-02T03:04:05.6Z", 1767323045600000 },
                { "2026-01-02T04:04:05+01:00", 1767323045000000 },
                { "2026-01-02T01:34:05-01:30", 1767323045000000 },
                { "1960-01-01T00:00:00Z", 0 },
        };
        static const char *const bad[] = {
                "", "now", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05.Z", "2026-13-02T03:04:05Z", "2026-01-02T24:04:05Z",
                "2026-01-02T03:04:05Zx", "2026-01-02T03:04:05+1:00", "26-01-02T03:04:05Z", "2026-01-02T03:04:05+25:00",
        };
        char text[TIMESTAMP_MAX];
        uint64_t usec;

        for (size_t i = 0; i < ELEMENTSOF(good); i++) {
                assert_ok(timestamp_parse(good[i].text, &usec));
                assert_eq(usec, good[i].usec);
        }
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_eq(timestamp_parse(bad[i], &usec), -EINVAL);
        assert_streq(timestamp_format(text, 1767323045678901), "2026-01-02T03:04:05.678901Z");
        assert_true(startswith(timestamp_format(text, UINT64_MAX), "9999-12-31T23:59:59"));
}

TEST(template_references) {
        TemplateRef r;

        assert_ok(template_ref_parse("base", "team", &r));
        assert_true(streq(r.name, "base") && !*r.tag && !r.own);
        assert_ok(template_ref_parse("base:default", "team", &r));
        assert_true(!*r.tag);
        assert_ok(template_ref_parse("team/base:v1.2", "team", &r));
        assert_true(streq(r.name, "base") && streq(r.tag, "v1.2") && r.own);
        assert_eq(template_ref_parse("teams/base", "team", &r), -ENOENT);
        static const char *const wrong[] = { "", "/", ":", "a:", ":a", "a/", "/a", "a/b/c", "a:b:c", "a b", "..%", "-a", "a\n" };
        for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
                assert_eq(template_ref_parse(wrong[i], "team", &r), -EINVAL);
        char longest[TEMPLATE_REF_MAX + 1];
        memset(longest, 'a', sizeof(longest));
        longest[TEMPLATE_REF_MAX] = 0;
        assert_eq(template_ref_parse(longest, "team", &r), -EINVAL);
        longest[TEMPLATE_REF_MAX - 1] = 0;
        assert_ok(template_ref_parse(longest, "team", &r));
}

/* Bodies. */

typedef struct Body {
        json_object *json;
        GatewayConfig config;
        CreateSpec spec;
        ErrorText error;
} Body;

static void body_done(Body *b) {
        json_object_put(b->json);
}

static int create(Body *b, bool v2, const char *text) {
        json_object_put(b->json);
        *b = (Body) {};
        config_init(&b->config);
        int r = body_parse(text, strlen(text), &b->json, &b->error);
        return r < 0 ? r : create_spec_parse(b->json, &b->config, v2, &b->spec, &b->error);
}

TEST(a_new_sandbox_has_defaults) {
        _cleanup_(body_done) Body b = {};

        assert_ok(create(&b, true, "{\"templateID\":\"base\"}"));
        assert_streq(b.spec.template_ref, "base");
        assert_eq(b.spec.timeout_usec, 300 * USEC_PER_SEC);
        assert_streq(b.spec.on_timeout, "kill");
        assert_true(b.spec.secure && !b.spec.metadata && b.spec.network.internet && !b.spec.network.allow);
        assert_ok(create(&b, false, "{\"templateID\":\"base\",\"metadata\":null,\"timeout\":null,\"x\":{}}"));
        assert_eq(b.spec.timeout_usec, 15 * USEC_PER_SEC);
        assert_true(!b.spec.secure);
}

TEST(a_new_sandbox_has_what_was_asked_for) {
        _cleanup_(body_done) Body b = {};

        assert_ok(create(&b, false, "{\"templateID\":\"base\",\"timeout\":86400,\"secure\":true,\"autoPause\":true,"
                                    "\"autoPauseMemory\":false,\"metadata\":{\"a\":\"b\"},\"allow_internet_access\":false,"
                                    "\"network\":{\"allowOut\":[\"example.com\"]}}"));
        assert_eq(b.spec.timeout_usec, 86400 * USEC_PER_SEC);
        assert_streq(b.spec.on_timeout, "pause-disk");
        assert_true(b.spec.secure && b.spec.metadata && !b.spec.network.internet);
        assert_eq(json_object_array_length(b.spec.network.allow), 1u);
        assert_eq(create(&b, true, "{\"templateID\":\"base\",\"timeout\":86401}"), -EINVAL);
        assert_streq(b.error.text, "Timeout cannot be greater than 86400 seconds");
        assert_eq(create(&b, true, "{\"templateID\":\"base\",\"timeout\":-9223372036854775808}"), -EINVAL);
        assert_eq(create(&b, true, "{\"templateID\":\"base\",\"timeout\":9223372036854775808}"), -EINVAL);
}

TEST(bodies_that_are_none) {
        static const char *const wrong[] = { "[]", "1", "\"a\"", "{", "{}x", "{'a':1}", "{\"a\":1,}", "{\"a\":\"\xff\"}", "nul", "// x\n{}" };
        ErrorText error;
        json_object *o;

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                assert_eq(body_parse(wrong[i], strlen(wrong[i]), &o, &error), -EINVAL);
                assert_true(startswith(error.text, "Error when parsing request: "));
                assert_true(!o);
        }
        assert_ok(body_parse(NULL, 0, &o, &error));
        assert_true(!o);
}

TEST(a_body_that_is_no_object_does_not_end_too_early) {
        static const char *const whole[] = { "null", "1", "\"a\"", "[]", " \n" };
        ErrorText error;
        json_object *o;

        for (size_t i = 0; i < ELEMENTSOF(whole); i++) {
                assert_eq(body_parse(whole[i], strlen(whole[i]), &o, &error), -EINVAL);
                assert_streq(error.text, "Error when parsing request: the body is not an object");
        }
        assert_eq(body_parse(" {\"a\":", 6, &o, &error), -EINVAL);
        assert_streq(error.text, "Error when parsing request: the body ends too early");
}

/* Two bytes of text become some hundred of memory. */
TEST(a_body_of_many_values_is_none) {
        static const struct {
                const char *value;
                unsigned n;
        } some[] = { { "{}", 300000 }, { "[]", 300000 }, { "1", 300000 }, { "\"a\"", 8192 } };

        for (size_t i = 0; i < ELEMENTSOF(some); i++) {
                _cleanup_free_ char *text = malloc(16 + some[i].n * 5U);
                json_object *o = NULL;
                ErrorText error;
                size_t n;

                assert_true(text);
                n = (size_t) sprintf(text, "{\"a\":[%s", some[i].value);
                for (unsigned k = 1; k < some[i].n; k++)
                        n += (size_t) sprintf(text + n, ",%s", some[i].value);
                n += (size_t) sprintf(text + n, "]}");
                assert_true(body_cost(text, n) > 100U * some[i].n);
                int r = body_parse(text, n, &o, &error);
                /* Two lists for the network are as long. */
                assert_eq(r, some[i].n > 8192 ? -EINVAL : 0);
                if (r < 0)
                        assert_streq(error.text, "Error when parsing request: the body has too many values");
                json_object_put(o);
        }
        assert_eq(body_cost("{\"a\":\"[[{{,,,\\\",\"}", 19), body_cost("{}", 2));
        assert_eq(body_cost(NULL, 0), 0u);
}

/* Lists. */

static json_object *properties(const char *id, const char *state, uint64_t created, const char *metadata) {
        json_object *o = json_object_new_object(), *labels = json_object_new_object();

        json_object_object_add(labels, "e2b/metadata", json_object_new_string(metadata));
        json_object_object_add(o, "Id", json_object_new_string(id));
        json_object_object_add(o, "State", json_object_new_string(state));
        json_object_object_add(o, "CreatedTimestamp", json_object_new_uint64(created));
        json_object_object_add(o, "Template", json_object_new_string("tbasetbasetb"));
        json_object_object_add(o, "TemplateName", json_object_new_string("base"));
        json_object_object_add(o, "Labels", labels);
        return o;
}

/* As cubed finds them. */
static void find(json_object *found, json_object *of) {
        json_object *row = json_object_new_array();

        json_object_array_add(row, json_object_new_string("/path"));
        json_object_array_add(row, of);
        json_object_array_add(found, row);
}

/* The letter of each id, found twice at a time; more: there is another page. */
static char *letters(json_object *const *pages, size_t n, const char *target, bool v2, bool *ret_more) {
        _cleanup_(list_query_done) ListQuery q = {};
        json_object *listed = json_object_new_array();
        _cleanup_(url_done) Url u;
        ErrorText error;
        int r = 0;

        assert_ok(url_parse(target, &u));
        assert_ok(list_query_parse(&u, v2, &q, &error));
        for (size_t i = 0; i < n && r == 0; i++) {
                r = list_select(pages[i], &q, listed);
                assert_ok(r);
        }
        *ret_more = r > 0;
        json_object *page = list_to_json(listed);
        assert_true(page);
        char *text = calloc(1, json_object_array_length(page) + 1);
        for (size_t i = 0; i < json_object_array_length(page); i++)
                text[i] = *info_string(json_object_array_get_idx(page, i), "sandboxID");
        if (*ret_more) {
                char token[LIST_TOKEN_MAX], expected[LIST_TOKEN_MAX];
                snprintf(expected, sizeof(expected), "200_%caaaaaaaaaaa", text[strlen(text) - 1]);
                assert_streq(list_token(listed, token), expected);
        }
        json_object_put(page);
        json_object_put(listed);
        return text;
}

/* What else selects and sorts them is cubed's. */
TEST(lists_are_selected_by_metadata_and_cut) {
        static const struct {
                const char *target, *expected;
                bool more;
        } cases[] = {
                { "/v2/sandboxes", "dcba", false },
                { "/v2/sandboxes?limit=1", "d", true },
                { "/v2/sandboxes?limit=2", "dc", true },
                { "/v2/sandboxes?limit=3", "dcb", true },
                { "/v2/sandboxes?limit=4", "dcba", false },
                { "/v2/sandboxes?metadata=k%3Dv", "ca", false },
                { "/v2/sandboxes?metadata=k%3Dv&limit=1", "c", true },
                { "/v2/sandboxes?metadata=k%3Dv&limit=2", "ca", false },
                { "/v2/sandboxes?metadata=k%3Dv%26x%3Dy", "a", false },
                { "/v2/sandboxes?metadata=k%3Dv%26x%3Dz", "", false },
                { "/v2/sandboxes?metadata=", "dcba", false },
                { "/sandboxes?limit=1", "dcba", false },
        };
        json_object *pages[] = { json_object_new_array(), json_object_new_array() };
        bool more;

        find(pages[0], properties("daaaaaaaaaaa", "running", 200, "{\"k\":\"w\"}"));
        find(pages[0], properties("caaaaaaaaaaa", "running", 200, "{\"k\":\"v\"}"));
        find(pages[1], properties("baaaaaaaaaaa", "paused", 200, ""));
        find(pages[1], properties("aaaaaaaaaaaa", "running", 100, "{\"k\":\"v\",\"x\":\"y\"}"));
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *found = letters(pages, 2, cases[i].target, !startswith(cases[i].target, "/sandboxes"), &more);
                assert_streq(found, cases[i].expected);
                assert_eq(more, cases[i].more);
        }
        for (size_t i = 0; i < 2; i++)
                json_object_put(pages[i]);
}

TEST(a_list_without_pages_has_all_or_says_that_it_can_not) {
        _cleanup_(list_query_done) ListQuery q = {};
        json_object *found = json_object_new_array(), *listed = json_object_new_array();
        _cleanup_(url_done) Url u;
        static char metadata[16001];
        ErrorText error;
        int r = 0;

        assert_ok(url_parse("/sandboxes", &u));
        assert_ok(list_query_parse(&u, false, &q, &error));
        memset(metadata, 'x', sizeof(metadata) - 1);
        for (unsigned i = 0; i < 1000; i++)
                find(found, properties("aaaaaaaaaaaa", "running", 100, ""));
        for (unsigned i = 1; i <= 5; i++) {
                assert_eq(list_select(found, &q, listed), 0);
                assert_eq(json_object_array_length(listed), 1000U * i);
        }
        json_object_put(found);
        found = json_object_new_array();
        for (unsigned i = 0; i < 1000; i++)
                find(found, properties("aaaaaaaaaaaa", "running", 100, metadata));
        for (unsigned i = 0; i < 5 && r == 0; i++)
                r = list_select(found, &q, listed);
        assert_eq(r, -E2BIG);
        json_object_put(found);
        json_object_put(listed);
}

/* An a{sv} as text, in the order of its entries. */
static char *question(sd_bus *bus, const char *target, bool v2, const char *after) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_(list_query_done) ListQuery q = {};
        _cleanup_(url_done) Url u;
        ErrorText error;
        json_object *o;

        assert_ok(url_parse(target, &u));
        assert_ok(list_query_parse(&u, v2, &q, &error));
        assert_ok(sd_bus_message_new_method_call(bus, &m, "a.b", "/", "a.b", "C"));
        assert_ok(list_query_append(m, &q, 1000, "acme", after));
        assert_ok(sd_bus_message_seal(m, 1, 0));
        assert_ok(bus_to_json(m, &o));
        char *text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
        json_object_put(o);
        return text;
}

TEST(cubed_is_asked_for_no_more_than_a_page_takes) {
#define FOUR "\"pausing\",\"paused\",\"resuming\",\"failed\"]"
        static const struct {
                const char *target, *after, *expected;
        } cases[] = {
                { "/sandboxes", NULL, "\"since\":0,\"newest-first\":true,\"limit\":1000,\"states\":[\"running\"]}" },
                { "/v2/sandboxes", NULL, "\"since\":0,\"newest-first\":true,\"limit\":101,\"states\":[\"running\"," FOUR "}" },
                { "/v2/sandboxes?limit=3&state=paused&order=asc", NULL,
                  "\"since\":0,\"newest-first\":false,\"limit\":4,\"states\":[" FOUR "}" },
                { "/v2/sandboxes?limit=3&metadata=a%3Db&state=running", NULL,
                  "\"since\":0,\"newest-first\":true,\"limit\":100,\"states\":[\"running\"]}" },
                { "/v2/sandboxes?state=running&template=base&startedAfter=1970-01-01T00:00:00.0002Z&nextToken=7_aaaaaaaaaaaa", NULL,
                  "\"since\":200,\"newest-first\":true,\"limit\":101,\"states\":[\"running\"],\"template\":\"base\","
                  "\"after\":\"7_aaaaaaaaaaaa\"}" },
                { "/v2/sandboxes?state=running&nextToken=7_aaaaaaaaaaaa", "9_baaaaaaaaaaa",
                  "\"since\":0,\"newest-first\":true,\"limit\":101,\"states\":[\"running\"],\"after\":\"9_baaaaaaaaaaa\"}" },
        };
        sd_bus *bus;
        int ends[2];

        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends));
        assert_ok(sd_bus_new(&bus));
        assert_ok(sd_bus_set_fd(bus, ends[0], ends[0]));
        assert_ok(sd_bus_start(bus));
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *text = question(bus, cases[i].target, !startswith(cases[i].target, "/sandboxes"), cases[i].after);
                const char *rest = startswith(text, "{\"owner\":1000,\"tenant\":\"acme\",");
                assert_streq(strempty(rest), cases[i].expected);
        }
        sd_bus_unref(bus);
        close(ends[1]);
}

/* The configuration. */

static void count(void *userdata, const char *path, unsigned line, const char *message) {
        *(unsigned *) userdata = *(unsigned *) userdata * 10 + line;
}

TEST(the_configuration) {
        static const char text[] = "# one\n[Gateway]\n DefaultInternetAccess = no\nTimeoutMaxSec=2h\nRequestsPerSecond=0\nNosuch=1\n"
                                   "BodyMax=64K\n\n;x\nKeepAliveSec=infinity\nx\n";
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        GatewayConfig c;
        char path[96];
        unsigned wrong = 0;

        snprintf(path, sizeof(path), "%s/gateway.conf", d.path);
        config_init(&c);
        assert_ok(config_load(&c, path, count, &wrong));
        assert_true(c.default_internet);
        temp_dir_write(&d, "gateway.conf", text, strlen(text));
        assert_ok(config_load(&c, path, count, &wrong));
        /* Lines 5, 6, 10 and 11. */
        assert_eq(wrong, 5711u);
        assert_true(!c.default_internet && c.rate.per_second == 20 && c.body_max == 65536);
        assert_eq(c.timeout_max_usec, 7200 * USEC_PER_SEC);
        assert_eq(c.keepalive_usec, 650 * USEC_PER_SEC);
}
