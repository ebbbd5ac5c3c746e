/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <nettle/base64.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/parse.h"
#include "guest/agent.h"
#include "guest/connect.h"
#include "guest/http-reply.h"
#include "guest/json.h"

#define ENVELOPE_END 2U
#define KEEPALIVE_SEC 90U
#define CONGESTED_BYTES (256U * 1024U)
#define MESSAGE_MAX 8192

static const struct {
        const char *name;
        unsigned status;
} codes[_CONNECT_MAX] = {
        [CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
        [CONNECT_NOT_FOUND] = { "not_found", 404 },
        [CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
        [CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
        [CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 400 },
        [CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
        [CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
        [CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
        [CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
        [CONNECT_INTERNAL] = { "internal", 500 },
        [CONNECT_UNKNOWN] = { "unknown", 500 },
};

void connect_done(HttpConn *c) {
        ConnectCall *call = c->state;

        if (call->gone)
                call->gone(call);
        loop_remove(&call->timer);
        user_done(&call->user);
        envelopes_done(&call->input.envelopes);
        free(call);
}

/* What is heard from here on is of no use to the owner. */
static void leave_owner(ConnectCall *call) {
        void (*gone)(ConnectCall *call) = TAKE_PTR(call->gone);

        call->drained = NULL;
        if (gone)
                gone(call);
}

static void put_envelope(ConnectCall *call, uint8_t flags, const char *message, size_t size) {
        uint8_t *envelope;

        if (!call->conn->reply_begun)
                http_reply_begin(call->conn, 200, "Content-Type: application/connect+json\r\n", HTTP_CHUNKED);
        envelope = malloc(ENVELOPE_SIZE + size);
        if (!envelope) {
                http_conn_break(call->conn);
                return;
        }
        envelope[0] = flags;
        uint32_t length = htobe32((uint32_t) size);
        memcpy(envelope + 1, &length, sizeof(length));
        memcpy(envelope + ENVELOPE_SIZE, message, size);
        http_reply_part(call->conn, envelope, ENVELOPE_SIZE + size);
        free(envelope);
        call->sent_usec = now_usec();
        http_conn_wake(call->conn);
}

void connect_send(ConnectCall *call, const char *message, size_t size) {
        put_envelope(call, 0, message, size);
}

void connect_send_json(ConnectCall *call, json_object *o) {
        const char *text = json_text(o);

        connect_send(call, text, strlen(text));
}

static void end_stream(ConnectCall *call, json_object *o) {
        const char *text = json_text(o);

        put_envelope(call, ENVELOPE_END, text, strlen(text));
        loop_remove(&call->timer);
        http_reply_end(call->conn);
        leave_owner(call);
}

void connect_end(ConnectCall *call) {
        _cleanup_json_ json_object *o = json_object_new_object();

        end_stream(call, o);
}

bool connect_congested(const ConnectCall *call) {
        return outbox_size(&call->conn->out) > CONGESTED_BYTES;
}

void connect_reply(ConnectCall *call, json_object *o) {
        const char *text = json_text(o);

        http_reply(call->conn, 200, "Content-Type: application/json\r\n", text, strlen(text));
        leave_owner(call);
}

void connect_fail(ConnectCall *call, ConnectCode code, const char *format, ...) {
        _cleanup_json_ json_object *o = json_object_new_object();
        char message[MESSAGE_MAX];
        va_list ap;

        va_start(ap, format);
        vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);
        json_put_text(o, "code", codes[code].name);
        json_put_text(o, "message", message);

        if (call->method->stream) {
                _cleanup_json_ json_object *end = json_object_new_object();

                json_put(end, "error", json_object_get(o));
                end_stream(call, end);
                return;
        }
        const char *text = json_text(o);
        http_reply(call->conn, codes[code].status, "Content-Type: application/json\r\n", text, strlen(text));
        leave_owner(call);
}

static void set_timer(ConnectCall *call) {
        uint64_t now = now_usec(), next = call->sent_usec + call->keepalive_usec;

        if (call->deadline_usec > 0)
                next = MIN(next, call->deadline_usec);
        (void) loop_set_timer(&call->timer, next > now ? next - now : 1);
}

static void on_timer(LoopSource *s, uint32_t events) {
        ConnectCall *call = s->userdata;
        uint64_t now = now_usec();

        if (call->deadline_usec > 0 && now >= call->deadline_usec) {
                connect_fail(call, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
                return;
        }
        if (now >= call->sent_usec + call->keepalive_usec) {
                /* A client that has not read what it was sent needs no sign of life, and would be sent them for ever. */
                if (outbox_size(&call->conn->out) == 0)
                        connect_send(call, call->method->keepalive, strlen(call->method->keepalive));
                else
                        call->sent_usec = now;
        }
        set_timer(call);
}

/* Of the head: how long, and how often a sign of life. */
static int parse_times(ConnectCall *call) {
        const HttpRequest *q = http_request(call->conn);
        const char *timeout = http_field(q, "Connect-Timeout-Ms"), *keepalive = http_field(q, "Keepalive-Ping-Interval");
        uint64_t msec = 0;
        uint32_t sec = 0;

        if (timeout && (parse_u64(timeout, &msec) < 0 || msec > UINT64_MAX / 2 / USEC_PER_MSEC))
                return -EINVAL;
        call->timeout_usec = msec * USEC_PER_MSEC;
        if (!keepalive || parse_u32(keepalive, &sec) < 0 || sec == 0)
                sec = KEEPALIVE_SEC;
        call->keepalive_usec = call->method->keepalive ? sec * USEC_PER_SEC : UINT64_MAX / 4;
        return 0;
}

static int start_timer(ConnectCall *call) {
        uint64_t now = now_usec();

        call->sent_usec = now;
        if (!call->own_deadline && call->timeout_usec > 0)
                call->deadline_usec = now + call->timeout_usec;
        int r = loop_add_timer(&call->agent->loop, &call->timer, call->keepalive_usec, on_timer, call);
        if (r >= 0)
                set_timer(call);
        return r;
}

/* "Basic", then the name and a colon: the password is nobody's business here. */
static int user_of(const HttpRequest *q, char **ret) {
        const char *field = http_field(q, "Authorization"), *text = field ? startswith(field, "Basic ") : NULL;
        struct base64_decode_ctx ctx;

        *ret = NULL;
        if (!text)
                return 0;
        size_t size = BASE64_DECODE_LENGTH(strlen(text));
        _cleanup_free_ char *name = malloc(size + 1);
        if (!name)
                return -ENOMEM;
        base64_decode_init(&ctx);
        if (!base64_decode_update(&ctx, &size, (uint8_t *) name, strlen(text), text) || !base64_decode_final(&ctx))
                return -EBADMSG;
        name[size] = 0;
        char *colon = strchr(name, ':');
        if (!colon || strlen(name) != size)
                return -EBADMSG;
        *colon = 0;
        if (*name)
                *ret = TAKE_PTR(name);
        return 0;
}

static bool find_user(ConnectCall *call) {
        const char *standard = call->agent->envd.user;
        _cleanup_free_ char *name = NULL;

        int r = user_of(http_request(call->conn), &name);
        if (r >= 0)
                r = user_find(name ? name : standard, &call->user);
        if (r < 0)
                connect_fail(call, CONNECT_UNAUTHENTICATED, "invalid %s: '%s'", name ? "username" : "default user",
                             name ? name : strempty(standard));
        return r >= 0;
}

/* Exactly one envelope around the message of a stream. */
static int unwrap(const HttpConn *c, const uint8_t **ret, size_t *ret_size) {
        uint32_t length;

        if (c->n_body < ENVELOPE_SIZE || c->body[0] != 0)
                return -EBADMSG;
        memcpy(&length, c->body + 1, sizeof(length));
        if (be32toh(length) != c->n_body - ENVELOPE_SIZE)
                return -EBADMSG;
        *ret = c->body + ENVELOPE_SIZE;
        *ret_size = c->n_body - ENVELOPE_SIZE;
        return 0;
}

/* false: it has failed */
static bool check_head(ConnectCall *call) {
        if (!find_user(call))
                return false;
        if (parse_times(call) >= 0)
                return true;
        connect_fail(call, CONNECT_INVALID_ARGUMENT, "invalid Connect-Timeout-Ms");
        return false;
}

static void call_complete(HttpConn *c) {
        _cleanup_json_ json_object *request = NULL;
        ConnectCall *call = c->state;
        const uint8_t *data = c->body;
        size_t size = c->n_body;

        int r = call->method->stream ? unwrap(c, &data, &size) : 0;
        /* An empty message of protocol buffers. */
        if (r >= 0 && size == 0)
                request = json_object_new_object();
        else if (r >= 0)
                r = json_parse(data, size, &request);
        if (r < 0 || !request) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "the request is no message in JSON");
                return;
        }
        if (!check_head(call))
                return;
        call->method->call(call, request);
        if (call->method->stream && !c->reply_ended && start_timer(call) < 0)
                http_conn_break(c);
}

void connect_writable(HttpConn *c) {
        ConnectCall *call = c->state;

        if (call->drained)
                call->drained(call);
}

static bool media_type_is(const HttpRequest *q, const char *type) {
        const char *field = strempty(http_field(q, "Content-Type"));
        size_t n = strcspn(field, "; \t");

        return n == strlen(type) && strncasecmp(field, type, n) == 0;
}

void connect_begin(Agent *a, HttpConn *c, const ConnectMethod *method) {
        static const HttpHandler handler = {
                .complete = call_complete, .writable = connect_writable, .gone = true, .done = connect_done,
        };
        const char *type = method->stream ? "application/connect+json" : "application/json";
        const char *encoding = http_field(http_request(c), method->stream ? "Connect-Content-Encoding" : "Content-Encoding");

        if (!media_type_is(http_request(c), type)) {
                char fields[64];

                snprintf(fields, sizeof(fields), "Accept-Post: %s\r\n", type);
                http_reply(c, 415, fields, NULL, 0);
                return;
        }
        if (encoding && strcasecmp(encoding, "identity") != 0) {
                http_reply_error(c, 415, "content encoding %s is not known", encoding);
                return;
        }
        ConnectCall *call = new0(ConnectCall, 1);
        if (!call) {
                http_conn_break(c);
                return;
        }
        *call = (ConnectCall) { .agent = a, .conn = c, .method = method };
        if (!method->message) {
                http_conn_set_handler(c, &handler, call);
                return;
        }
        http_conn_set_handler(c, &connect_stream_handler, call);
        if (check_head(call) && start_timer(call) < 0)
                http_conn_break(c);
}
