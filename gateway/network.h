/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* E2B's network of a sandbox as a policy of cubed's, and back; docs/ARCHITECTURE.md has the table. */

#include <systemd/sd-bus.h>

#include "gateway/body.h"
#include "gateway/ingress-route.h"

typedef struct NetworkSpec {
        bool internet;            /* what no rule says */
        json_object *allow;       /* lists of strings, borrowed, or NULL */
        json_object *deny;
        /* Of requests that come in; said when it is created. */
        bool secured;             /* allowPublicTraffic is false: with a token only */
        const char *mask_host;    /* borrowed, or NULL */
        char https_ports[HTTPS_PORTS_TEXT]; /* with colons between; "": none */
} NetworkSpec;

/* of is what has allowOut and denyOut, NULL: nothing said; internet is what holds then. What this host does not do is
 * refused. */
int network_parse(json_object *of, bool internet, NetworkSpec *ret, ErrorText *error);
/* As an a{sv}. */
int network_append(sd_bus_message *m, const NetworkSpec *n);
/* {allowOut, denyOut} of cubed's NetworkPolicy; NULL: it has no rules, or no memory. */
json_object *network_to_json(json_object *policy);
bool network_is_open(json_object *policy);
