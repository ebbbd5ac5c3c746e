/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cube-gateway: what its parts share. One Gateway in the process, owned by main; one thread, sd-event.
 *
 * A request is let in by its key (gateway.c), finds its operation (routes.c), and is carried out by calls to cubed
 * (cubed.c), one after the other, each continued by a callback. All truth about sandboxes is cubed's: nothing is kept
 * here but the keys, figures that were asked for lately, and what clients have sent for builds of templates. */

#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "dbus/client.h"
#include "gateway/config.h"
#include "gateway/http.h"
#include "gateway/metrics.h"
#include "gateway/share.h"
#include "gateway/token.h"

typedef struct BusKeys BusKeys;
typedef struct Cubed Cubed;
typedef struct Builds Builds;
typedef struct Endings Endings;
typedef struct Ingress Ingress;
typedef struct Refusals Refusals;

struct Gateway {
        sd_event *event;
        sd_bus *bus;
        HttpServer *http;
        Cubed *cubed;
        Shares shares;
        Keys *keys;                /* NULL: they could not be read */
        char *keys_error;          /* why, and what to do */
        BusKeys *bus_keys;
        Metrics *metrics;
        Endings *endings;
        Request *repeats;          /* creates under way that may come twice */
        Refusals *refusals;
        Ingress *ingress;
        GatewayConfig config;
        HostKey host_key;
        Builds *builds;
        int files_fd, builds_fd;   /* see uploads.h */
        sd_event_source *sweep;    /* of both */
        const char *fetch_socket, *fetch_relay_socket; /* see image-fetch.h */
        uid_t uid;                 /* ours: the owner of all that is made here */
};

int gateway_listen(Gateway *g, int listen_fd);
/* Of the key; false: answered. */
bool gateway_take_rate(Request *r, Key *key);
/* Once its tenant is known: of requests under way as of all else; false: answered. */
bool gateway_take_share(Request *r);
