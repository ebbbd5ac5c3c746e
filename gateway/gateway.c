/* SPDX-License-Identifier: Apache-2.0 */

/* Who may send a request, and where it goes. */

#include <stdio.h>

#include "base/clock.h"
#include "gateway/bus-json.h"
#include "gateway/gateway.h"
#include "gateway/cubed.h"
#include "gateway/endings.h"
#include "gateway/ingress.h"
#include "gateway/log.h"
#include "gateway/refusals.h"
#include "gateway/repeat.h"
#include "gateway/routes.h"

/* As proxies name it in their logs, for want of an answer. */
#define STATUS_LEFT 499U
/* What is read of a refused one. */
#define DISCARD_MAX (128U * 1024U * 1024U)
#define BODIES (64U)
/* As long as E2B's clients wait. */
#define UPLOAD_USEC (UINT64_C(60) * 60 * USEC_PER_SEC)
/* Of all that are kept, whatever BodyMax= says: the unit has a MemoryMax=. */
#define BODIES_BYTES_MAX (128U * 1024U * 1024U)

static void add_number(Request *r, const char *name, uint64_t value) {
        char text[24];

        (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) value);
        request_add_header(r, name, text);
}

bool gateway_take_rate(Request *r, Key *key) {
        Gateway *g = r->gateway;
        uint64_t wait;
        uint32_t left;

        bool ok = rate_take(&key->rate, &g->config.rate, now_usec(), &left, &wait);

        uint64_t seconds = (wait + USEC_PER_SEC - 1) / USEC_PER_SEC;
        add_number(r, "RateLimit-Limit", g->config.rate.burst);
        add_number(r, "RateLimit-Remaining", left);
        add_number(r, "RateLimit-Reset", seconds);
        if (ok)
                return true;
        add_number(r, "Retry-After", seconds);
        request_reply_error(r, MHD_HTTP_TOO_MANY_REQUESTS, "Rate limit exceeded");
        return false;
}

bool gateway_take_share(Request *r) {
        Gateway *g = r->gateway;

        int k = share_get(&g->shares, r->tenant, &r->share);

        if (k >= 0 && share_may_take(r->share->n_requests - 1, g->shares.n_requests - 1, g->config.connections_max, 1))
                return true;
        request_reply_too_many(r);
        return false;
}

static bool check_key(Gateway *g, Request *r) {
        const char *secret = request_header(r, "X-API-Key");

        if (!g->keys) {
                request_may_not_come_again(r);
                request_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "The keys of this host could not be read; its administrator "
                                    "finds out why with 'cubectl apikey list'");
                return false;
        }
        if (!secret) {
                request_reply_error(r, MHD_HTTP_UNAUTHORIZED, "authorization header is missing");
                return false;
        }
        Key *key = keys_find(g->keys, secret);
        if (!key) {
                request_reply_error(r, MHD_HTTP_UNAUTHORIZED, "Invalid API key: %s; 'cubectl apikey create' makes one",
                                    key_secret_valid(secret) ? "it is not known here" : "it has not the form of one");
                return false;
        }
        strcpy(r->key, key->id);
        strcpy(r->tenant, key->tenant);
        return gateway_take_rate(r, key) && gateway_take_share(r);
}

static void on_begin(Request *r, void *userdata) {
        Gateway *g = userdata;

        r->gateway = g;
        int k = url_parse(r->target, &r->url);
        if (k >= 0 && route_begin(r))
                return;
        /* At once: a body is kept only of who has a key. */
        if (k >= 0 && route_is_open(r))
                request_reply(r, MHD_HTTP_NO_CONTENT);
        else if (check_key(g, r) && k < 0)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Error when parsing request: its path or query is not valid");
}

static void on_handle(Request *r, void *userdata) {
        Gateway *g = userdata;

        /* Its body may have been long under way. */
        if (!keys_find_id(g->keys, r->key))
                request_reply_error(r, MHD_HTTP_UNAUTHORIZED, "Invalid API key: it was revoked");
        else
                route(r);
}

/* What was made for a client that hears of an error is nobody's. */
static void on_answered(Request *r, void *userdata) {
        Gateway *g = userdata;

        if (r->status < MHD_HTTP_BAD_REQUEST)
                return;
        if (r->made)
                endings_add(g->endings, r->sandbox_id);
        for (size_t i = 0; r->forked && i < json_object_array_length(r->forked); i++) {
                const char *id = info_string(info_get(json_object_array_get_idx(r->forked, i), "sandbox"), "sandboxID");
                if (*id)
                        endings_add(g->endings, id);
        }
}

/* A client that hears of a sandbox can reach it, and one that hears of its end can't. */
static bool on_hold(Request *r, void *userdata) {
        Gateway *g = userdata;

        return ingress_holds(g->ingress, r);
}

static void on_done(Request *r, void *userdata) {
        Gateway *g = userdata;

        cubed_drop(r);
        repeat_end(r);
        r->share = share_put(r->share);
        if (r->url.text && route_is_open(r))
                return;
        if (r->signed_url)
                r->target[strcspn(r->target, "?")] = 0;
        const AuditRequest a = {
                .key = r->key, .tenant = r->tenant, .method = r->method, .path = r->target, .sandbox = r->sandbox_id,
                .status = r->status ?: STATUS_LEFT,
        };
        bool refused = isempty(r->key) || r->status == MHD_HTTP_TOO_MANY_REQUESTS;
        if (!refused || refusals_admit(g->refusals, r->key))
                audit_request(&a);
}

int gateway_listen(Gateway *g, int listen_fd) {
        static const HttpHandlers handlers = {
                .begin = on_begin, .handle = on_handle, .answered = on_answered, .hold = on_hold, .done = on_done,
        };
        const HttpLimits limits = {
                .body_max = g->config.body_max,
                .bodies_max = MIN(g->config.body_max * BODIES, (size_t) BODIES_BYTES_MAX),
                .discard_max = MAX(g->config.body_max, (size_t) DISCARD_MAX),
                .connections_max = g->config.connections_max,
                .first_usec = g->config.request_usec,
                .keepalive_usec = g->config.keepalive_usec,
                .request_usec = g->config.request_usec,
                .upload_usec = UPLOAD_USEC,
        };

        return http_server_new(g->event, listen_fd, &limits, &handlers, g, &g->http);
}
