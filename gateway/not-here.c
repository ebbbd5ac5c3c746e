/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "gateway/not-here.h"

#define VOLUMES "Volumes are not supported by this host: keep files in a snapshot or a template"
#define TEAMS "There are no teams on this host: each API key has a tenant; see cube-gateway(8)"
#define NODES "This host has no other nodes, and its administrator uses cubectl"
#define KEYS "Keys are not made here, but by this host's administrator with 'cubectl apikey create'"

static const struct {
        const char *segment, *text;
} services[] = {
        { "volumes", VOLUMES },
        { "volumecontent", VOLUMES },
        { "secrets", "Secrets are not supported by this host: give a command what it needs in its environment" },
        { "teams", TEAMS },
        { "api-keys", KEYS },
        { "access-tokens", KEYS },
        { "nodes", NODES },
        { "admin", NODES },
};

static bool is_version(const char *segment) {
        return streq(segment, "v2") || streq(segment, "v3");
}

const char *not_here(const Url *u) {
        size_t first = u->n_segments > 0 && is_version(u->segments[0]) ? 1 : 0;

        for (size_t i = 0; first < u->n_segments && i < ELEMENTSOF(services); i++)
                if (streq(u->segments[first], services[i].segment))
                        return services[i].text;
        return NULL;
}
