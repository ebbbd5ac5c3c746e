/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "gateway/bus-json.h"
#include "gateway/gateway.h"
#include "gateway/labels.h"
#include "gateway/repeat.h"

#define HEADER "Idempotency-Key"
#define KEY_BYTES_MAX 255U

static bool is_under_way(const Request *r, const char *id) {
        for (const Request *other = r->gateway->repeats; other; other = other->next_repeat)
                if (streq(other->repeat_id, id) && streq(other->tenant, r->tenant))
                        return true;
        return false;
}

bool repeat_begin(Request *r) {
        Gateway *g = r->gateway;
        char id[TOKEN_SIZE];

        const char *key = request_header(r, HEADER);
        size_t n = key ? strlen(key) : 0;

        if (!key)
                return true;
        if (n == 0 || n > KEY_BYTES_MAX || strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != n) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, HEADER " has 1 to %u letters, digits and - _ . :", KEY_BYTES_MAX);
                return false;
        }
        token_derive(&g->host_key, "request-id", key, id);
        if (is_under_way(r, id)) {
                request_may_come_again(r);
                request_add_header(r, "Should-Retry", "true");
                request_reply_error(r, MHD_HTTP_CONFLICT, "A request with this " HEADER " is under way");
                return false;
        }
        strcpy(r->repeat_id, id);
        r->repeat_usec = wall_usec();
        r->next_repeat = g->repeats;
        g->repeats = r;
        return true;
}

void repeat_end(Request *r) {
        if (!*r->repeat_id)
                return;
        Request **at = &r->gateway->repeats;
        while (*at != r)
                at = &(*at)->next_repeat;
        *at = r->next_repeat;
}

void repeat_fingerprint(const Request *r, char ret[static TOKEN_SIZE]) {
        token_derive(&r->gateway->host_key, "request", json_object_to_json_string_ext(r->json, JSON_C_TO_STRING_PLAIN), ret);
}

bool repeat_was_before(const Request *r) {
        return *r->repeat_id && info_u64(r->sandbox, "CreatedTimestamp") < r->repeat_usec;
}

bool repeat_is_same(Request *r) {
        char wanted[TOKEN_SIZE];

        if (!*r->repeat_id)
                return true;
        repeat_fingerprint(r, wanted);
        if (streq(info_string(info_get(r->sandbox, "Labels"), LABEL_REQUEST), wanted))
                return true;
        request_reply_error(r, MHD_HTTP_UNPROCESSABLE_CONTENT, HEADER " was sent with another request before, which made sandbox %s",
                            r->sandbox_id);
        return false;
}
