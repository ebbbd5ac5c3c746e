/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>

#include "base/macros.h"
#include "gateway/bus-json.h"
#include "gateway/ingress-route.h"
#include "gateway/labels.h"

#define PORT "${PORT}"

/* Nothing of it means anything to haproxy: neither in a map, nor in the header that it becomes. */
bool mask_host_valid(const char *host) {
        const char *port = strstr(host, PORT);
        size_t n = strlen(host);

        if (n == 0 || n >= MASK_HOST_MAX || (port && strstr(port + 1, PORT)))
                return false;
        for (const char *p = host; *p; p++) {
                if (p == port)
                        p += strlen(PORT) - 1;
                else if (!isalnum((unsigned char) *p) && !strchr("-._:[]", *p))
                        return false;
        }
        return true;
}

static bool is_address(const char *s) {
        struct in_addr a;

        return inet_pton(AF_INET, s, &a) == 1;
}

/* By its first packet it is resumed from some states, and waits in the others. */
static bool is_there(json_object *properties, bool *ret_resumes) {
        const char *state = info_string(properties, "State");

        *ret_resumes = false;
        if (streq(state, "running"))
                return true;
        if (!json_object_get_boolean(info_get(properties, "AutoResume")))
                return false;
        /* One that was paused without its memory has it set and is not. */
        *ret_resumes = streq(state, "pausing") || json_object_get_boolean(info_get(properties, "Parked"));
        return *ret_resumes || streq(state, "resuming");
}

bool route_format(json_object *properties, uid_t owner, const HostKey *key, char ret[static ROUTE_MAX]) {
        json_object *labels = info_get(properties, "Labels");
        const char *address = info_string(properties, "NetworkAddress"), *host = info_string(labels, LABEL_MASK_HOST);
        const char *https = info_string(labels, LABEL_HTTPS_PORTS);
        char traffic[TOKEN_SIZE] = "", envd[TOKEN_SIZE] = "";
        bool resumes;

        if (!info_get(properties, "Owner") || info_u64(properties, "Owner") != owner)
                return false;
        if (!is_there(properties, &resumes) || !is_address(address))
                return false;
        /* A label is what the client said, but for what was refused. */
        if ((*host && !mask_host_valid(host)) || https[strspn(https, "0123456789:")])
                return false;

        if (*info_string(labels, LABEL_TRAFFIC))
                token_derive(key, TOKEN_TRAFFIC, info_string(properties, "Id"), traffic);
        if (resumes && streq(info_string(labels, LABEL_SECURE), "yes"))
                token_derive(key, TOKEN_ENVD, info_string(properties, "Id"), envd);
        const char *port = strstr(host, PORT);
        int n = snprintf(ret, ROUTE_MAX, "%s|%s|%s|%.*s|%s|%s%s%s", address, traffic, envd,
                         port ? (int) (port - host) : (int) strlen(host), host, port ? "port" : "",
                         port ? port + strlen(PORT) : "", *https ? "|" : "", https);
        explicit_bzero(traffic, sizeof(traffic));
        explicit_bzero(envd, sizeof(envd));
        return n > 0 && (size_t) n < ROUTE_MAX;
}
