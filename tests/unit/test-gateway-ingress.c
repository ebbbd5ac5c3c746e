/* SPDX-License-Identifier: Apache-2.0 */

/* What haproxy is told of a sandbox, and the gateway's part of a configuration that comes in pieces. */

#include <json-c/json.h>
#include <sys/stat.h>

#include "gateway/config.h"
#include "gateway/ingress-route.h"
#include "gateway/save-file.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

#define OWNER 990U

static const HostKey key = { { 1, 2, 3 } };

static json_object *sandbox(const char *state, const char *address, bool auto_resume, const char *labels) {
        char text[1024];

        snprintf(text, sizeof(text),
                 "{\"Id\": \"iabcdefghijk\", \"Owner\": %u, \"State\": \"%s\", \"NetworkAddress\": \"%s\", \"AutoResume\": %s, "
                 "\"Parked\": %s, \"Labels\": {%s}}", OWNER, state, address, auto_resume ? "true" : "false",
                 auto_resume && streq(state, "paused") ? "true" : "false", labels);
        return json_tokener_parse(text);
}

/* NULL: it has none. */
static const char *route_of(json_object *p, uid_t owner) {
        static char route[ROUTE_MAX];

        bool found = route_format(p, owner, &key, route);
        json_object_put(p);
        return found ? route : NULL;
}

TEST(a_running_one_is_its_address) {
        assert_streq(route_of(sandbox("running", "10.209.0.5", false, ""), OWNER), "10.209.0.5|||||");
        assert_streq(route_of(sandbox("running", "10.209.0.5", true, "\"e2b/secure\": \"yes\""), OWNER), "10.209.0.5|||||");
}

TEST(only_the_gateways_own_have_a_route) {
        assert_true(!route_of(sandbox("running", "10.209.0.5", false, ""), OWNER + 1));
        assert_true(!route_of(json_tokener_parse("{\"State\": \"running\", \"NetworkAddress\": \"10.209.0.5\"}"), 0));
}

TEST(one_that_does_not_run_has_none_unless_its_first_packet_resumes_it) {
        static const char *const states[] = { "creating", "pausing", "paused", "resuming", "stopping", "failed" };
        char token[TOKEN_SIZE], expected[ROUTE_MAX];

        for (size_t i = 0; i < ELEMENTSOF(states); i++)
                assert_true(!route_of(sandbox(states[i], "10.209.0.5", false, ""), OWNER));
        token_derive(&key, TOKEN_ENVD, "iabcdefghijk", token);
        snprintf(expected, sizeof(expected), "10.209.0.5||%s|||", token);
        assert_streq(route_of(sandbox("paused", "10.209.0.5", true, "\"e2b/secure\": \"yes\""), OWNER), expected);
        assert_streq(route_of(sandbox("pausing", "10.209.0.5", true, "\"e2b/secure\": \"yes\""), OWNER), expected);
        assert_streq(route_of(sandbox("paused", "10.209.0.5", true, ""), OWNER), "10.209.0.5|||||");
        assert_streq(route_of(sandbox("resuming", "10.209.0.5", true, ""), OWNER), "10.209.0.5|||||");
        assert_true(!route_of(sandbox("failed", "10.209.0.5", true, ""), OWNER));
        /* Nor one that was paused without its memory. */
        json_object *p = sandbox("paused", "10.209.0.5", true, "");
        json_object_object_add(p, "Parked", json_object_new_boolean(false));
        assert_true(!route_of(p, OWNER));
}

TEST(the_traffic_token_is_not_that_of_envd) {
        char token[TOKEN_SIZE], envd[TOKEN_SIZE], expected[ROUTE_MAX];

        token_derive(&key, TOKEN_TRAFFIC, "iabcdefghijk", token);
        token_derive(&key, TOKEN_ENVD, "iabcdefghijk", envd);
        assert_true(strcmp(token, envd) != 0);
        snprintf(expected, sizeof(expected), "10.209.0.5|%s||||", token);
        assert_streq(route_of(sandbox("running", "10.209.0.5", false, "\"e2b/traffic\": \"token\""), OWNER), expected);
}

TEST(a_mask_comes_in_two_halves) {
        assert_streq(route_of(sandbox("running", "10.209.0.5", false, "\"e2b/mask-host\": \"example.test\""), OWNER),
                     "10.209.0.5|||example.test||");
        assert_true(!route_of(sandbox("running", "10.209.0.5", false, "\"e2b/mask-host\": \"a-${PORT}.test:${x\""), OWNER));
        assert_streq(route_of(sandbox("running", "10.209.0.5", false, "\"e2b/mask-host\": \"a-${PORT}.test\""), OWNER),
                     "10.209.0.5|||a-|port|.test");
        assert_streq(route_of(sandbox("running", "10.209.0.5", false, "\"e2b/https-ports\": \"443:8443\""), OWNER), "10.209.0.5||||||443:8443");
        assert_true(!route_of(sandbox("running", "10.209.0.5", false, "\"e2b/https-ports\": \"443 8443\""), OWNER));
}

TEST(nothing_that_haproxy_would_read_otherwise_gets_into_a_route) {
        static const char *const addresses[] = { "", "10.209.0.5|x", "10.209.0.5\\n", "::1", "10.209.0", "host" };
        static const char *const masks[] = { "", "a b", "a\tb", "a\nb", "a|b", "a;b", "a\\b", "\xc3\xbc", "${PORT}${PORT}", "${port}", "$" };
        char longest[MASK_HOST_MAX + 1];

        for (size_t i = 0; i < ELEMENTSOF(addresses); i++)
                assert_true(!route_of(sandbox("running", addresses[i], false, ""), OWNER));
        for (size_t i = 0; i < ELEMENTSOF(masks); i++)
                assert_true(!mask_host_valid(masks[i]));
        memset(longest, 'a', sizeof(longest));
        longest[MASK_HOST_MAX] = 0;
        assert_true(!mask_host_valid(longest));
        longest[MASK_HOST_MAX - 1] = 0;
        assert_true(mask_host_valid(longest) && mask_host_valid("localhost:${PORT}") && mask_host_valid("[::1]:80"));
}

static unsigned n_warnings;

static void warn(void *userdata, const char *path, unsigned line, const char *message) {
        n_warnings++;
}

static void put(const TempDir *dir, const char *name, const char *text) {
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", dir->path, name);
        assert_ok(save_file(path, text, strlen(text)));
}

TEST(files_beside_the_configuration_come_after_it_by_name) {
        TempDir dir = temp_dir_make();
        char path[128];
        GatewayConfig c;

        snprintf(path, sizeof(path), "%s/gateway.conf.d", dir.path);
        assert_ok(mkdir(path, 0755));
        put(&dir, "gateway.conf", "[Gateway]\nDomain=first.test\nRequestsPerSecond=7\n");
        put(&dir, "gateway.conf.d/20-b.conf", "[Gateway]\nDomain=b.test:8443\n");
        put(&dir, "gateway.conf.d/10-a.conf", "[Gateway]\nDomain=a.test\nRequestsBurst=9\n");
        put(&dir, "gateway.conf.d/30-c.conf.old", "[Gateway]\nDomain=c.test\n");
        snprintf(path, sizeof(path), "%s/gateway.conf", dir.path);
        n_warnings = 0;
        config_init(&c);
        assert_true(!config_domain(&c));
        assert_ok(config_load(&c, path, warn, NULL));
        assert_streq(config_domain(&c), "b.test:8443");
        assert_true(c.rate.per_second == 7 && c.rate.burst == 9 && n_warnings == 0);
        temp_dir_done(&dir);
}

TEST(a_domain_that_is_none_is_left_out) {
        static const char *const domains[] = { "-a.test", ".test", "a.test:", "a.test:0", "a.test:65536", "a.test:x", "A.test", "a_b.test", "a b" };
        TempDir dir = temp_dir_make();
        char path[128], text[128];
        GatewayConfig c;

        snprintf(path, sizeof(path), "%s/gateway.conf", dir.path);
        for (size_t i = 0; i < ELEMENTSOF(domains); i++) {
                snprintf(text, sizeof(text), "[Gateway]\nDomain=%s\n", domains[i]);
                put(&dir, "gateway.conf", text);
                n_warnings = 0;
                config_init(&c);
                assert_ok(config_load(&c, path, warn, NULL));
                assert_true(!config_domain(&c) && n_warnings == 1);
        }
        temp_dir_done(&dir);
}
