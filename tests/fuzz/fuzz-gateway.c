/* SPDX-License-Identifier: Apache-2.0 */

/* What clients send to cube-gateway: the target of a request, and its body as that of each operation, and as the log of a
 * build. What is taken for right keeps to its rules, and can be sent to cubed.
 *
 * Input: u8 flags, u8 length of the target, the target, the body; or, with flag 2, a console's ring. */

#include <sys/socket.h>

#include "base/parse.h"
#include "gateway/build-log.h"
#include "gateway/build-spec.h"
#include "gateway/config.h"
#include "gateway/create-spec.h"
#include "gateway/image-ref.h"
#include "gateway/ingress-route.h"
#include "gateway/labels.h"
#include "gateway/list-query.h"
#include "gateway/log-entries.h"
#include "gateway/not-here.h"
#include "gateway/sandbox-json.h"
#include "gateway/template-ref.h"
#include "gateway/url.h"
#include "fuzz.h"

static bool string_whole(json_object *v) {
        return json_object_is_type(v, json_type_string) &&
               strlen(json_object_get_string(v)) == (size_t) json_object_get_string_len(v);
}

static void check_list(json_object *list) {
        for (size_t i = 0; list && i < json_object_array_length(list); i++)
                FUZZ_CHECK(string_whole(json_object_array_get_idx(list, i)));
}

/* What it becomes for haproxy stays one line of six fields, and a header. */
static void check_mask(const char *host) {
        static const HostKey key = { { 1 } };
        json_object *p = json_object_new_object(), *labels = json_object_new_object();
        char route[ROUTE_MAX];
        unsigned n = 0;

        FUZZ_CHECK(json_object_object_add(labels, LABEL_MASK_HOST, json_object_new_string(host)) == 0);
        FUZZ_CHECK(json_object_object_add(p, "Owner", json_object_new_int(7)) == 0 &&
                   json_object_object_add(p, "State", json_object_new_string("running")) == 0 &&
                   json_object_object_add(p, "NetworkAddress", json_object_new_string("10.209.0.5")) == 0 &&
                   json_object_object_add(p, "Labels", labels) == 0);
        FUZZ_CHECK(route_format(p, 7, &key, route));
        for (const char *c = route; *c; c++) {
                FUZZ_CHECK(*c > ' ' && *c < 127 && !strchr(";\\\"'", *c));
                n += *c == '|';
        }
        FUZZ_CHECK(n == 5);
        json_object_put(p);
}

/* As a message, which takes valid text only. */
static void check_network(sd_bus *bus, const NetworkSpec *n) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        json_object *back;

        check_list(n->allow);
        check_list(n->deny);
        if (!isempty(n->mask_host))
                check_mask(n->mask_host);
        FUZZ_CHECK(sd_bus_message_new_method_call(bus, &m, NULL, "/", NULL, "Method") >= 0);
        FUZZ_CHECK(network_append(m, n) >= 0);
        FUZZ_CHECK(sd_bus_message_seal(m, 1, 0) >= 0 && sd_bus_message_rewind(m, true) >= 0);
        FUZZ_CHECK(bus_to_json(m, &back) == 0);
        FUZZ_CHECK(network_is_open(back) == n->internet);
        json_object_put(network_to_json(back));
        json_object_put(back);
}

static void check_create(sd_bus *bus, json_object *body, const GatewayConfig *config, bool v2) {
        ErrorText error = {};
        CreateSpec s;

        int r = create_spec_parse(body, config, v2, &s, &error);
        FUZZ_CHECK(r == 0 || (r == -EINVAL && *error.text));
        if (r < 0)
                return;
        FUZZ_CHECK(*s.template_ref && s.timeout_usec > 0 && s.timeout_usec <= config->timeout_max_usec);
        FUZZ_CHECK(streq(s.on_timeout, "kill") || streq(s.on_timeout, "pause") || streq(s.on_timeout, "pause-disk"));
        FUZZ_CHECK(!v2 || s.secure);
        check_network(bus, &s.network);
}

static void check_source(const char *s) {
        FUZZ_CHECK(*s && *s != '/' && strlen(s) < BUILD_PATH_MAX);
        for (const char *p = s; *p; p += strcspn(p, "/"), p += *p == '/')
                FUZZ_CHECK(!(p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2])));
}

static void check_steps(sd_bus *bus, const BuildSpec *s) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        FUZZ_CHECK(sd_bus_message_new_method_call(bus, &m, NULL, "/", NULL, "Method") >= 0);
        FUZZ_CHECK(s->n_steps <= BUILD_STEPS_MAX && isempty(s->from_image) != isempty(s->from_template));
        FUZZ_CHECK(sd_bus_message_append(m, "ss", strempty(s->start), strempty(s->ready)) >= 0);
        for (size_t i = 0; i < s->n_steps; i++) {
                check_list(s->steps[i].args);
                for (size_t a = 0; a < json_object_array_length(s->steps[i].args); a++)
                        FUZZ_CHECK(sd_bus_message_append(m, "s", json_object_get_string(json_object_array_get_idx(s->steps[i].args, a))) >= 0);
                if (streq(s->steps[i].type, "COPY"))
                        check_source(s->steps[i].source);
        }
}

/* What it is read as is a name that is read as itself. */
static void check_image(const BuildSpec *s) {
        ImageRef ref, again;

        FUZZ_CHECK(!s->user == !s->password);
        if (isempty(s->from_image) || image_ref_parse(s->from_image, &ref) < 0)
                return;
        FUZZ_CHECK(image_ref_parse(ref.name, &again) == 0 && streq(again.name, ref.name) && streq(again.registry, ref.registry));
        FUZZ_CHECK(startswith(ref.name, ref.registry) && ref.name[strlen(ref.registry)] == '/' && !strchr("-./", *ref.name));
        FUZZ_CHECK(!ref.name[strcspn(ref.name, " \"\\\n'")]);
}

static void check_build(sd_bus *bus, json_object *body) {
        char name[CUBED_NAME_MAX];
        ErrorText error = {};
        BuildRequest b;
        BuildSpec s;

        int r = build_request_parse(body, "tenant", &b, &error);
        FUZZ_CHECK(r == 0 || (r == -EINVAL && *error.text));
        if (r == 0) {
                FUZZ_CHECK(template_client_name_valid(b.name, "tenant") && !strstr(b.name, "..") && b.n_tags > 0 && b.n_tags <= BUILD_TAGS_MAX);
                for (size_t i = 0; i < b.n_tags; i++) {
                        template_cubed_name("tenant", b.name, b.tags[i], name);
                        *strchr(name, ':') = 0;
                        FUZZ_CHECK(template_name_valid(name) && template_name_valid(b.tags[i]) && !build_id_valid(b.tags[i]));
                }
        }
        error = (ErrorText) {};
        r = build_spec_parse(body, &s, &error);
        FUZZ_CHECK(r == 0 || (r == -EINVAL && *error.text && !s.steps));
        if (r == 0) {
                check_steps(bus, &s);
                check_image(&s);
        }
        build_spec_done(&s);
}

/* What guests print while a template is built. */
static void check_log(const uint8_t *data, size_t size) {
        BuildLog l = { .n_before = 1, .n_steps = 2 };

        build_log_feed(&l, (const char *) data, size / 2, 1);
        build_log_feed(&l, (const char *) data + size / 2, size - size / 2, 2);
        build_log_end(&l, 3);
        json_object *page = build_log_to_json(&l, 0, BUILD_LOG_PAGE, LOG_LEVEL_DEBUG);
        FUZZ_CHECK(page && json_object_array_length(page) == MIN(l.n, BUILD_LOG_PAGE));
        for (size_t i = 0; i < l.n; i++)
                FUZZ_CHECK(!strchr(l.entries[i].message, '\n') && l.entries[i].step <= l.n_steps + 1);
        json_object_put(page);
        build_log_done(&l);
}

static void check_body(sd_bus *bus, const char *text, size_t size, bool v2) {
        json_object *body = NULL;
        ErrorText error = {};
        GatewayConfig config;
        NetworkSpec n;
        uint64_t usec;

        config_init(&config);
        int r = body_parse(text, size, &body, &error);
        FUZZ_CHECK(r == 0 || (r == -EINVAL && *error.text && !body));
        if (!body)
                return;
        check_create(bus, body, &config, v2);
        check_build(bus, body);
        if (network_parse(body, true, &n, &error) >= 0)
                check_network(bus, &n);
        if (timeout_parse(body, "timeout", &config, 0, -1, true, &usec, &error) >= 0)
                FUZZ_CHECK(usec <= config.timeout_max_usec);
        json_object_put(body);
}

static void check_target(sd_bus *bus, const char *target, bool v2) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        TemplateRef ref;
        ListQuery q;
        Url u;

        if (url_parse(target, &u) < 0)
                return;
        FUZZ_CHECK(u.n_segments <= URL_SEGMENTS_MAX && u.n_pairs <= URL_PAIRS_MAX);
        FUZZ_CHECK(!not_here(&u) || u.n_segments > 0);
        for (size_t i = 0; i < u.n_segments; i++)
                if (template_ref_parse(u.segments[i], "tenant", &ref) >= 0)
                        FUZZ_CHECK(*ref.name && !strpbrk(ref.name, "/: \n") && !strpbrk(ref.tag, "/: \n"));
        if (list_query_parse(&u, v2, &q, &error) >= 0) {
                FUZZ_CHECK(q.limit >= 1 && q.limit <= LIST_LIMIT);
                FUZZ_CHECK(sd_bus_message_new_method_call(bus, &m, "a.b", "/", "a.b", "C") >= 0);
                /* What no template can be called is asked of nobody. */
                FUZZ_CHECK(q.nothing || list_query_append(m, &q, 1000, "tenant", NULL) >= 0);
                list_query_done(&q);
        } else
                FUZZ_CHECK(*error.text && !q.metadata);
        url_done(&u);
}

static uint64_t fuzz_u64(FuzzInput *in) {
        uint64_t low = fuzz_u32(in);

        return low | (uint64_t) fuzz_u32(in) << 32;
}

/* head, number of marks, four marks, the last bytes of the ring. */
static void check_console(FuzzInput *in) {
        static uint8_t file[CONSOLE_BYTES] __attribute__((aligned(16)));
        ConsoleRing *ring = (ConsoleRing *) file;
        ConsoleMarks *marks = (ConsoleMarks *) (file + sizeof(ConsoleRing));
        LogQuery q = { .limit = LOG_LIMIT };
        LogEntries l = {};

        memset(file, 0, sizeof(file));
        ring->head = fuzz_u64(in);
        marks->n = fuzz_u64(in);
        for (size_t i = 0; i < 4; i++)
                marks->marks[i] = (ConsoleMark) { fuzz_u64(in), fuzz_u64(in) };
        for (uint64_t at = ring->head - in->left; in->left > 0; at++)
                ring->data[at % CONSOLE_RING_BYTES] = fuzz_u8(in);
        FUZZ_CHECK(log_entries_add_console(&l, file, sizeof(file), 1000) >= 0);
        for (size_t i = 0; i < l.n; i++)
                FUZZ_CHECK(l.items[i].usec <= 1000 && *l.items[i].message && strlen(l.items[i].message) <= LOG_LINE_MAX);
        json_object *o = log_entries_to_json(&l, &q, true);
        FUZZ_CHECK(o && json_object_array_length(info_get(o, "logs")) <= LOG_LIMIT);
        json_object_put(o);
        log_entries_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static sd_bus *bus;
        FuzzInput in = { data, size };
        char target[UINT8_MAX + 1];
        int ends[2];

        if (!bus) {
                FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
                FUZZ_CHECK(sd_bus_new(&bus) >= 0 && sd_bus_set_fd(bus, ends[0], ends[0]) >= 0 && sd_bus_start(bus) >= 0);
        }
        uint8_t flags = fuzz_u8(&in);
        bool v2 = flags & 1;
        if (flags & 2) {
                check_console(&in);
                return 0;
        }
        size_t n = fuzz_u8(&in);
        target[fuzz_bytes(&in, target, n)] = 0;
        check_target(bus, target, v2);
        check_log(in.data, in.left);
        check_body(bus, (const char *) in.data, in.left, v2);
        return 0;
}
