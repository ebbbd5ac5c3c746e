/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a build's steps. A client is told where to send them, which is here, by a URL that is its permission: signed,
 * for one hash, for some hours, as long as the key is good by which it was asked for. */

#include <nettle/memops.h>
#include <stdio.h>
#include <time.h>

#include "base/parse.h"
#include "gateway/builds.h"
#include "gateway/json-maker.h"
#include "gateway/op-common.h"
#include "gateway/uploads.h"

#define URL_SECONDS (2 * 60 * 60)
#define HOST_MAX 255U
/* Of a tenant: more than the builds that he may have under way can need. */
#define UPLOADS_TENANT_MAX 4096U

/* Of what the client has called us by, which only he hears again. */
static bool host_valid(const char *s) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]");

        return n > 0 && n <= HOST_MAX && !s[n];
}

static void sign(const Request *r, const char *key, uint64_t expires, char ret[static TOKEN_SIZE]) {
        char what[320];

        (void) snprintf(what, sizeof(what), "%s:%.64s:%s:%llu", key, r->template_ref, r->item, (unsigned long long) expires);
        token_derive(&r->gateway->host_key, "upload", what, ret);
}

static bool put_url(const Request *r, JsonMaker *m) {
        const char *host = request_header(r, MHD_HTTP_HEADER_HOST), *proto = request_header(r, "X-Forwarded-Proto");
        uint64_t expires = (uint64_t) time(NULL) + URL_SECONDS;
        char signature[TOKEN_SIZE];
        char url[1024];

        if (!host || !host_valid(host))
                return false;
        sign(r, r->key, expires, signature);
        (void) snprintf(url, sizeof(url), "%s://%s/templates/%s/files/%s?key=%s&expires=%llu&signature=%s",
                        proto && streq(proto, "https") ? "https" : "http", host, r->template_ref, r->item, r->key,
                        (unsigned long long) expires, signature);
        json_put_string(m, "url", url);
        return true;
}

void op_files(Request *r) {
        if (!files_hash_valid(r->item)) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid files hash");
                return;
        }
        if (!build_is_of_template(r->gateway->builds, r->tenant, r->template_ref)) {
                request_reply_error(r, MHD_HTTP_NOT_FOUND, "No build of template '%.64s' was asked for", r->template_ref);
                return;
        }
        JsonMaker m = json_maker_new();
        json_put(&m, "present", json_object_new_boolean(uploads_have(r->gateway->files_fd, r->tenant, r->item)));
        if (!put_url(r, &m)) {
                json_object_put(json_maker_done(&m));
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "The header Host is missing, or no name of a host");
                return;
        }
        request_reply_json(r, MHD_HTTP_CREATED, json_maker_done(&m));
}

/* Its headers are there; what comes is sent by whoever has the URL. */

/* Whose URL it is; NULL: nobody's. */
static Key *find_permitted(Request *r) {
        const char *id = url_query(&r->url, "key"), *expires = url_query(&r->url, "expires"),
                   *signature = url_query(&r->url, "signature");
        char wanted[TOKEN_SIZE];
        uint64_t at;

        Key *key = id && r->gateway->keys ? keys_find_id(r->gateway->keys, id) : NULL;
        if (!key || !expires || !signature || parse_u64(expires, &at) < 0 || !files_hash_valid(r->item))
                return NULL;
        sign(r, key->id, at, wanted);
        if (strlen(signature) != TOKEN_SIZE - 1 || !memeql_sec(signature, wanted, TOKEN_SIZE - 1) || at < (uint64_t) time(NULL))
                return NULL;
        strcpy(r->key, key->id);
        strcpy(r->tenant, key->tenant);
        return key;
}

void op_upload_begin(Request *r) {
        const GatewayConfig *c = &r->gateway->config;
        const UploadLimits limits = { .one_max = c->upload_max, .all_max = c->uploads_max, .n_max = UPLOADS_TENANT_MAX };
        const char *length = request_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
        uint64_t bytes;

        Key *key = find_permitted(r);
        if (!key) {
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "This URL is not valid, or not any more: ask for another one");
                return;
        }
        /* It has no key that would have been looked at. */
        if (!gateway_take_rate(r, key) || !gateway_take_share(r))
                return;
        if (!length || parse_u64(length, &bytes) < 0) {
                request_reply_error(r, MHD_HTTP_LENGTH_REQUIRED, "An upload has to say its Content-Length");
                return;
        }
        int k = upload_new(r->gateway->files_fd, r->tenant, r->item, bytes, &limits, &r->upload);
        if (k == -EFBIG)
                request_reply_error(r, MHD_HTTP_CONTENT_TOO_LARGE, "The files of a step can have %llu bytes at most, packed",
                                    (unsigned long long) MIN(limits.one_max, limits.all_max));
        else if (k == -EDQUOT)
                request_reply_error(r, MHD_HTTP_INSUFFICIENT_STORAGE, "There is no room for these files: the builds of this tenant that "
                                    "are under way, and his other uploads, leave less of UploadsMax=; try again when one has ended");
        else if (k == -ENOSPC)
                request_reply_error(r, MHD_HTTP_INSUFFICIENT_STORAGE, "There is no room for these files");
        else if (k < 0)
                reply_errno(r, k);
}

void op_upload(Request *r) {
        int k = r->upload ? upload_finish(r->upload) : -ENODATA;

        if (k == -ENODATA || k == -EBADMSG)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, k == -ENODATA ? "The upload ended early"
                                                                           : "This is neither a tar archive nor one by gzip");
        else if (k < 0)
                reply_errno(r, k);
        else
                request_reply(r, MHD_HTTP_OK);
}
