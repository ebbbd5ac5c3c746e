/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of the Connect protocol (connectrpc.com), in JSON: one message, answered by one, or by a stream of them in envelopes;
 * or a stream of the client's, answered by an empty message at its end (connect-stream.c).
 *
 * A ConnectCall is the state of its HTTP connection, from the request's head until the answer has ended or the client is gone.
 * A method answers at once, or keeps the call and answers later; then it sets owner and gone, to hear when the call ends by
 * itself. Streams send a keepalive when nothing else was sent for a time, and end at the client's deadline. */

#include <json-c/json.h>

#include "guest/envelope.h"
#include "guest/http-conn.h"
#include "guest/user.h"

typedef struct Agent Agent;
typedef struct ConnectCall ConnectCall;

typedef enum ConnectCode {
        CONNECT_OK,
        CONNECT_INVALID_ARGUMENT,
        CONNECT_NOT_FOUND,
        CONNECT_ALREADY_EXISTS,
        CONNECT_PERMISSION_DENIED,
        CONNECT_FAILED_PRECONDITION,
        CONNECT_RESOURCE_EXHAUSTED,
        CONNECT_DEADLINE_EXCEEDED,
        CONNECT_UNAUTHENTICATED,
        CONNECT_UNIMPLEMENTED,
        CONNECT_INTERNAL,
        CONNECT_UNKNOWN,
        _CONNECT_MAX,
} ConnectCode;

typedef struct ConnectMethod {
        const char *path;
        bool stream;
        const char *keepalive;  /* the message of a stream that says nothing else */
        void (*call)(ConnectCall *call, json_object *request);
        /* In its place, of a stream of the client's: each message as it comes. */
        void (*message)(ConnectCall *call, json_object *message);
} ConnectMethod;

/* What came of a client's stream, and is no whole message yet, or has to wait. */
typedef struct ConnectInput {
        Envelopes envelopes;
        bool held, taking, ended;
} ConnectInput;

struct ConnectCall {
        LIST_FIELDS(ConnectCall);       /* its owner's */
        Agent *agent;
        HttpConn *conn;
        const ConnectMethod *method;
        User user;
        uint64_t timeout_usec;          /* the client's, 0 for none */
        uint64_t deadline_usec, keepalive_usec, sent_usec;
        bool own_deadline;              /* the owner sees to it */
        ConnectInput input;
        uint32_t pid;                   /* of the program that its input is for */
        LoopSource timer;
        void *owner;
        void (*gone)(ConnectCall *call);
        void (*drained)(ConnectCall *call);
};

/* Takes the connection's request for this method. */
void connect_begin(Agent *a, HttpConn *c, const ConnectMethod *method);

/* Of a stream of the client's: nothing more comes of it until connect_resume(). */
void connect_hold(ConnectCall *call);
void connect_resume(ConnectCall *call);
/* connect-stream.c: its connection's handler */
extern const HttpHandler connect_stream_handler;
/* What both handlers share. */
void connect_done(HttpConn *c);
void connect_writable(HttpConn *c);

/* Of one message. */
void connect_reply(ConnectCall *call, json_object *o);
/* Of either kind; ends it. */
void connect_fail(ConnectCall *call, ConnectCode code, const char *format, ...) _printf_(3, 4);

/* Of a stream; the message is JSON. */
void connect_send(ConnectCall *call, const char *message, size_t size);
void connect_send_json(ConnectCall *call, json_object *o);
void connect_end(ConnectCall *call);
/* Whether the client has yet to take what it was sent. */
bool connect_congested(const ConnectCall *call);
