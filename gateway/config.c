/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>

#include "base/macros.h"
#include "base/parse.h"
#include "fetch/fetch-proto.h"
#include "gateway/config.h"
#include "gateway/save-file.h"

#define FILE_MAX (64U * 1024U)
#define DOMAIN_NAME_MAX 253U

void config_init(GatewayConfig *c) {
        *c = (GatewayConfig) {
                .default_internet = true,
                .timeout_max_usec = 24 * 3600 * USEC_PER_SEC,
                .rate = { .per_second = 20, .burst = 100 },
                .upload_max = UINT64_C(2) * 1024 * 1024 * 1024,
                .uploads_max = UINT64_C(8) * 1024 * 1024 * 1024,
                .templates_max = 64,
                /* Where everybody may put images, and nobody's own network is. */
                .image_registries = "docker.io ghcr.io quay.io public.ecr.aws gcr.io mcr.microsoft.com",
                .image_max = UINT64_C(8) * 1024 * 1024 * 1024,
                .image_usec = 30 * 60 * USEC_PER_SEC,
                .body_max = 1024 * 1024,
                .connections_max = 1024,
                .request_usec = 30 * USEC_PER_SEC,
                .keepalive_usec = 650 * USEC_PER_SEC,
        };
}

static int parse_count(const char *s, uint32_t min, uint32_t max, uint32_t *ret) {
        uint32_t v;

        int r = parse_u32(s, &v);
        if (r < 0)
                return r;
        if (v < min || v > max)
                return -ERANGE;
        *ret = v;
        return 0;
}

static int parse_time(const char *s, uint64_t *ret) {
        uint64_t v;

        int r = parse_usec(s, &v);
        if (r < 0)
                return r;
        if (v < USEC_PER_SEC || v == UINT64_MAX)
                return -ERANGE;
        *ret = v;
        return 0;
}

static int parse_body_max(const char *s, size_t *ret) {
        uint64_t v;

        int r = parse_size(s, &v);
        if (r < 0)
                return r;
        if (v < 4096 || v > 16 * 1024 * 1024)
                return -ERANGE;
        *ret = (size_t) v;
        return 0;
}

static int parse_upload_max(const char *s, uint64_t *ret) {
        uint64_t v;

        int r = parse_size(s, &v);
        if (r < 0)
                return r;
        if (v < 4096 || v > INT64_MAX)
                return -ERANGE;
        *ret = v;
        return 0;
}

/* example.com, example.com:8443 */
static int parse_domain(const char *s, char ret[static DOMAIN_MAX]) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
        size_t n = strspn(s, set);
        uint32_t port;

        if (strlen(s) >= DOMAIN_MAX || strchr("-.", *s) || n > DOMAIN_NAME_MAX)
                return -EINVAL;
        if (s[n] && (s[n] != ':' || parse_count(s + n + 1, 1, UINT16_MAX, &port) < 0))
                return -EINVAL;
        strcpy(ret, s);
        return 0;
}

/* Blank-separated words of which each is valid, and no more than that. */
static int parse_list(const char *s, bool (*valid)(const char *word), unsigned most, char ret[static IMAGE_LIST_MAX]) {
        char copy[IMAGE_LIST_MAX], *at = copy, *word;
        unsigned n = 0;

        if (strlen(s) >= sizeof(copy))
                return -ERANGE;
        strcpy(copy, s);
        while ((word = strsep(&at, " "))) {
                if (*word && !valid(word))
                        return -EINVAL;
                n += *word != 0;
        }
        if (n > most)
                return -ERANGE;
        strcpy(ret, s);
        return 0;
}

/* *, *.example.com, example.com:5000 */
static bool registry_valid(const char *word) {
        char host[DOMAIN_MAX];

        return streq(word, "*") || parse_domain(startswith(word, "*.") ?: word, host) >= 0;
}

/* 10.0.0.0/8, 10.1.2.3, fd00::/8 */
static bool network_valid(const char *word) {
        char address[INET6_ADDRSTRLEN];
        const char *slash = strchrnul(word, '/');
        size_t n = (size_t) (slash - word);
        struct in6_addr bytes;
        uint32_t bits;

        if (n >= sizeof(address))
                return false;
        memcpy(address, word, n);
        address[n] = 0;
        bool is_v4 = inet_pton(AF_INET, address, &bytes) == 1;
        if (!is_v4 && inet_pton(AF_INET6, address, &bytes) != 1)
                return false;
        return !*slash || parse_count(slash + 1, 0, is_v4 ? 32 : 128, &bits) >= 0;
}

/* -ENOENT: no such key. */
static int set_key(GatewayConfig *c, const char *key, const char *value) {
        if (streq(key, "DefaultInternetAccess")) {
                int r = parse_bool(value);
                if (r >= 0)
                        c->default_internet = r;
                return r;
        }
        if (streq(key, "TimeoutMaxSec"))
                return parse_time(value, &c->timeout_max_usec);
        if (streq(key, "RequestsPerSecond"))
                return parse_count(value, 1, 100000, &c->rate.per_second);
        if (streq(key, "RequestsBurst"))
                return parse_count(value, 1, 1000000, &c->rate.burst);
        if (streq(key, "BodyMax"))
                return parse_body_max(value, &c->body_max);
        if (streq(key, "UploadMax"))
                return parse_upload_max(value, &c->upload_max);
        if (streq(key, "UploadsMax"))
                return parse_upload_max(value, &c->uploads_max);
        if (streq(key, "TemplatesMax"))
                return parse_count(value, 1, 100000, &c->templates_max);
        if (streq(key, "ImageRegistries"))
                return parse_list(value, registry_valid, IMAGE_LIST_MAX, c->image_registries);
        if (streq(key, "ImageNetworks"))
                return parse_list(value, network_valid, FETCH_NETWORKS_MAX, c->image_networks);
        if (streq(key, "ImageMax"))
                return parse_upload_max(value, &c->image_max);
        if (streq(key, "ImageTimeoutSec"))
                return parse_time(value, &c->image_usec);
        if (streq(key, "ConnectionsMax"))
                return parse_count(value, 1, 16384, &c->connections_max);
        if (streq(key, "RequestTimeoutSec"))
                return parse_time(value, &c->request_usec);
        if (streq(key, "KeepAliveSec"))
                return parse_time(value, &c->keepalive_usec);
        if (streq(key, "Domain"))
                return parse_domain(value, c->domain);
        return -ENOENT;
}

static char *strip(char *s) {
        s += strspn(s, " \t\r");
        for (size_t n = strlen(s); n > 0 && strchr(" \t\r", s[n - 1]); n--)
                s[n - 1] = 0;
        return s;
}

/* NULL: fine. */
static const char *take_line(GatewayConfig *c, char *line, bool *known_section) {
        line = strip(line);
        if (!*line || strchr("#;", *line))
                return NULL;
        if (*line == '[') {
                *known_section = streq(line, "[Gateway]");
                return *known_section ? NULL : "no such section, [Gateway] is the only one";
        }
        if (!*known_section)
                return "not below [Gateway]";

        char *value = line, *key = strsep(&value, "=");
        if (!value)
                return "neither KEY=VALUE nor a comment";
        int r = set_key(c, strip(key), strip(value));
        if (r == -ENOENT)
                return "no such key, see cube-gateway(8)";
        return r < 0 ? "not a value for this key, see cube-gateway(8)" : NULL;
}

static int unreadable(ConfigWarn warn, void *userdata, const char *path, int r) {
        char why[256];

        (void) snprintf(why, sizeof(why), "could not be read: %s%s", strerror(-r),
                        r == -EACCES ? " (user cube-gateway has to be able to read it: see its mode, and of the directories above)" : "");
        warn(userdata, path, 0, why);
        return r;
}

static int load_one(GatewayConfig *c, const char *path, ConfigWarn warn, void *userdata) {
        _cleanup_free_ char *text = NULL;
        bool known_section = false;
        size_t size;
        char *at, *line;

        int r = load_file(path, FILE_MAX, &text, &size);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return unreadable(warn, userdata, path, r);

        at = text;
        for (unsigned n = 1; (line = strsep(&at, "\n")); n++) {
                const char *wrong = take_line(c, line, &known_section);
                if (wrong)
                        warn(userdata, path, n, wrong);
        }
        return 0;
}

static int is_drop_in(const struct dirent *e) {
        size_t n = strlen(e->d_name);

        return *e->d_name != '.' && n > strlen(".conf") && streq(e->d_name + n - strlen(".conf"), ".conf");
}

static int load_drop_ins(GatewayConfig *c, const char *directory, ConfigWarn warn, void *userdata) {
        struct dirent **entries = NULL;
        int r = 0;

        int n = scandir(directory, &entries, is_drop_in, alphasort);
        if (n < 0)
                return errno == ENOENT ? 0 : unreadable(warn, userdata, directory, -errno);
        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *path = NULL;
                if (r >= 0 && asprintf(&path, "%s/%s", directory, entries[i]->d_name) < 0) {
                        path = NULL;
                        r = -ENOMEM;
                }
                if (r >= 0)
                        r = load_one(c, path, warn, userdata);
                free(entries[i]);
        }
        free(entries);
        return r;
}

int config_load(GatewayConfig *c, const char *path, ConfigWarn warn, void *userdata) {
        _cleanup_free_ char *directory = NULL;

        int r = load_one(c, path, warn, userdata);
        if (r < 0)
                return r;
        if (asprintf(&directory, "%s.d", path) < 0) {
                directory = NULL;
                return -ENOMEM;
        }
        return load_drop_ins(c, directory, warn, userdata);
}
