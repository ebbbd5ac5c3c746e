/* SPDX-License-Identifier: Apache-2.0 */

/* A stream of a client's: envelopes, each with a message, in pieces as they come. A method that can't take more holds the
 * stream, and with it the client: what it sends waits in its own socket then. */

#include <endian.h>

#include "guest/connect.h"
#include "guest/http-server.h"
#include "guest/json.h"

#define FIRST_SIZE 4096U

static size_t left(const ConnectInput *in) {
        return in->size - in->offset;
}

static int keep(ConnectInput *in, const uint8_t *data, size_t size) {
        if (in->offset > 0) {
                memmove(in->data, in->data + in->offset, left(in));
                in->size -= in->offset;
                in->offset = 0;
        }
        if (in->size + size > in->allocated) {
                size_t allocated = MAX(MAX(in->allocated * 2, in->size + size), (size_t) FIRST_SIZE);
                uint8_t *p = realloc(in->data, allocated);
                if (!p)
                        return -ENOMEM;
                in->data = p;
                in->allocated = allocated;
        }
        memcpy(in->data + in->size, data, size);
        in->size += size;
        return 0;
}

/* 1: one is whole, 0: not yet, -EBADMSG, -EMSGSIZE */
static int find_envelope(const ConnectCall *call, size_t *ret_size) {
        const ConnectInput *in = &call->input;
        const uint8_t *at = in->data + in->offset;
        uint32_t length;

        if (left(in) < ENVELOPE_SIZE)
                return 0;
        if (at[0] != 0)
                return -EBADMSG;
        memcpy(&length, at + 1, sizeof(length));
        *ret_size = be32toh(length);
        if (*ret_size > call->conn->server->limits.body_bytes)
                return -EMSGSIZE;
        return left(in) - ENVELOPE_SIZE >= *ret_size;
}

/* 1: one was taken, 0: there is none yet, or the call has failed */
static int take_one(ConnectCall *call) {
        _cleanup_json_ json_object *message = NULL;
        ConnectInput *in = &call->input;
        size_t size;

        int r = find_envelope(call, &size);
        if (r == 0)
                return 0;
        if (r > 0)
                r = json_parse(in->data + in->offset + ENVELOPE_SIZE, size, &message);
        if (r < 0 || !message) {
                connect_fail(call, r == -EMSGSIZE ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT, "%s",
                             r == -EMSGSIZE ? "the message is too large" : "the request is no stream of messages in JSON");
                return 0;
        }
        in->offset += ENVELOPE_SIZE + size;
        call->method->message(call, message);
        return 1;
}

static void take(ConnectCall *call) {
        ConnectInput *in = &call->input;

        in->taking = true;
        while (!in->held && !call->conn->reply_ended && take_one(call) > 0)
                ;
        in->taking = false;
        if (call->conn->reply_ended)
                return;
        http_conn_pause(call->conn, in->held);
        if (in->held || !in->ended)
                return;
        if (left(in) > 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "the request is no stream of messages in JSON");
                return;
        }
        connect_send(call, "{}", 2);
        connect_end(call);
}

void connect_hold(ConnectCall *call) {
        call->input.held = true;
}

void connect_resume(ConnectCall *call) {
        call->input.held = false;
        if (!call->input.taking)
                take(call);
}

static void stream_body(HttpConn *c, const uint8_t *data, size_t size) {
        ConnectCall *call = c->state;

        if (keep(&call->input, data, size) < 0)
                http_conn_break(c);
        else
                take(call);
}

static void stream_complete(HttpConn *c) {
        ConnectCall *call = c->state;

        call->input.ended = true;
        take(call);
}

const HttpHandler connect_stream_handler = {
        .body = stream_body,
        .complete = stream_complete,
        .writable = connect_writable,
        .gone = true,
        .patient = true,
        .done = connect_done,
};
