/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <time.h>

#include "base/parse.h"
#include "guest/envd-files.h"
#include "guest/http-reply.h"

#define SIGNATURE_PREFIX "v1_"
#define SIGNATURE_SIZE (BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) - 1)       /* without its padding */

typedef struct SignedQuery {
        char *path, *user, *signature, *expiration;
} SignedQuery;

static void signed_query_done(SignedQuery *s) {
        free(s->path);
        free(s->user);
        free(s->signature);
        free(s->expiration);
}

static void hash_field(struct sha256_ctx *ctx, const char *text, bool first) {
        if (!first)
                sha256_update(ctx, 1, (const uint8_t *) ":");
        sha256_update(ctx, strlen(text), (const uint8_t *) text);
}

/* v1_ and the hash of path:operation:user:token[:expiration] */
static bool signature_valid(const SignedQuery *s, const char *operation, const char *token) {
        uint8_t digest[SHA256_DIGEST_SIZE];
        char text[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE)];
        const char *given = startswith(s->signature, SIGNATURE_PREFIX);
        struct sha256_ctx ctx;

        sha256_init(&ctx);
        hash_field(&ctx, strempty(s->path), true);
        hash_field(&ctx, operation, false);
        hash_field(&ctx, strempty(s->user), false);
        hash_field(&ctx, token, false);
        if (s->expiration)
                hash_field(&ctx, s->expiration, false);
        sha256_digest(&ctx, sizeof(digest), digest);
        base64_encode_raw(text, sizeof(digest), digest);
        return given && strlen(given) == SIGNATURE_SIZE && memeql_sec(given, text, SIGNATURE_SIZE);
}

/* NULL, or why not. */
static const char *refused(const Envd *e, const HttpRequest *q, const SignedQuery *s, const char *operation) {
        const char *token = http_field(q, "X-Access-Token");
        uint64_t expiration;

        if (!e->token)
                return NULL;
        if (token)
                return envd_token_is(e, token) ? NULL : "access token present in header but does not match";
        if (!s->signature)
                return "missing signature query parameter";
        if (!signature_valid(s, operation, e->token))
                return "invalid signature";
        if (s->expiration && (parse_u64(s->expiration, &expiration) < 0 || expiration < (uint64_t) time(NULL)))
                return "signature is already expired";
        return NULL;
}

int file_target_get(const Envd *e, HttpConn *c, const char *operation, FileTarget *ret) {
        _cleanup_(signed_query_done) SignedQuery s = {};
        const HttpRequest *q = http_request(c);

        int r = http_query(q, "path", &s.path);
        if (r >= 0)
                r = http_query(q, "username", &s.user);
        if (r >= 0)
                r = http_query(q, "signature", &s.signature);
        if (r >= 0)
                r = http_query(q, "signature_expiration", &s.expiration);
        if (r < 0) {
                http_reply_error(c, r == -EBADMSG ? 400 : 500, "%s",
                                 r == -EBADMSG ? "the query is not encoded as one" : strerror(-r));
                return r;
        }

        const char *why = refused(e, q, &s, operation), *user = isempty(s.user) ? e->user : s.user;
        if (why) {
                http_reply_error(c, 401, "%s", why);
                return -EACCES;
        }
        r = user_find(user, &ret->user);
        if (r < 0) {
                http_reply_error(c, 401, "error looking up user '%s': user: unknown user %s", strempty(user), strempty(user));
                return r;
        }
        ret->path = TAKE_PTR(s.path);
        return 0;
}

void file_target_done(FileTarget *t) {
        free(TAKE_PTR(t->path));
        user_done(&t->user);
}
