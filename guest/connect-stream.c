/* SPDX-License-Identifier: Apache-2.0 */

/* A stream of a client's: envelopes, each with a message, in pieces as they come. A method that can't take more holds the
 * stream, and with it the client: what it sends waits in its own socket then. */

#include "guest/connect.h"
#include "guest/http-server.h"
#include "guest/json.h"

/* 1: one was taken, 0: there is none yet, or the call has failed */
static int take_one(ConnectCall *call) {
        _cleanup_json_ json_object *message = NULL;
        const uint8_t *data;
        size_t size;

        int r = envelopes_next(&call->input.envelopes, &data, &size);
        if (r == 0)
                return 0;
        if (r > 0)
                r = json_parse(data, size, &message);
        if (r < 0 || !message) {
                connect_fail(call, r == -EMSGSIZE ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT, "%s",
                             r == -EMSGSIZE ? "the message is too large" : "the request is no stream of messages in JSON");
                return 0;
        }
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
        if (envelopes_left(&in->envelopes) > 0) {
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

        call->input.envelopes.message_max = c->server->limits.body_bytes;
        if (envelopes_put(&call->input.envelopes, data, size) < 0)
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
