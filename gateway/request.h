/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request of a client, from its first line to the last byte of the answer.
 *
 * Owned by the HTTP server (http.c): made when its first line is there, freed when libmicrohttpd is done with it. A
 * handler that has not answered when it returns keeps it: it lives on, untouched by the client's leaving, until it is
 * answered, which happens exactly once. What a handler hangs on it is freed with it. */

#include <json-c/json.h>
#include <microhttpd.h>

#include "base/macros.h"
#include "gateway/key-file.h"
#include "gateway/share.h"
#include "gateway/template-names.h"
#include "gateway/template-ref.h"
#include "gateway/token.h"
#include "gateway/url.h"

typedef struct HttpServer HttpServer;
typedef struct CubedCall CubedCall;
typedef struct Gateway Gateway;
typedef struct Upload Upload;
typedef struct Build Build;

#define REQUEST_HEADERS_MAX 6U
#define SANDBOX_ID_MAX 64U

typedef struct RequestHeader {
        char name[24], value[96];
} RequestHeader;

typedef struct Request {
        HttpServer *server;
        struct MHD_Connection *connection;  /* borrowed; NULL until the headers are there */
        struct Request *next;
        char *method, *target;
        char *body;                         /* NUL-terminated */
        size_t body_size, discarded;
        Upload *upload;                     /* takes the body as it comes, in place of body; owned */
        uint64_t begun_usec;
        size_t taken;                       /* of the room for bodies: the body, and what became of it */
        bool begun, handled, suspended;

        unsigned status;                    /* 0: not answered yet */
        char *reply;                        /* JSON, NULL: none */
        RequestHeader headers[REQUEST_HEADERS_MAX];
        size_t n_headers;

        /* The gateway's. */
        Gateway *gateway;
        Share *share;                       /* its tenant's; NULL: not known */
        Url url;
        char key[KEY_ID_MAX], tenant[TENANT_MAX];  /* empty: not known */
        json_object *json;                  /* the body, an object, or NULL */
        char sandbox_id[SANDBOX_ID_MAX];
        bool made;                          /* that sandbox, for this request */
        char repeat_id[TOKEN_SIZE];         /* of a create that may come twice; "": it may not */
        uint64_t repeat_usec;               /* since when it is the one under way */
        struct Request *next_repeat;        /* of those under way */
        json_object *sandbox;               /* its properties as cubed told them */
        json_object *listed;                /* properties of those that a list has so far */
        const char *template_ref;           /* of the path, borrowed from url */
        char source[160];                   /* what cubed is to create from */
        TemplateRef ref;                    /* the same as the client names it */
        bool signed_url;                    /* its query is a permission, which no log has */
        const char *item;                   /* what else the path names: a build, the hash of files; borrowed from url */
        json_object *names;                 /* of templates, as cubed told them */
        TemplateFound template;             /* the one that ref means */
        Build *build;                       /* borrowed: one that was told to start stays */
        size_t n_done;                      /* of calls that follow each other */
        json_object *forked;                /* what the answer to a fork will be; served up to n_served */
        size_t n_served;
        void (*found)(struct Request *r, const char *snapshot); /* where it goes on once a snapshot was looked for */
        CubedCall *call;                    /* to cubed, under way or queued: one at a time */
        void (*then)(struct Request *r);    /* where it goes on once the sandbox, the names or the templates are known */
        bool (*each)(struct Request *r, json_object *properties); /* of a template: template_each() */
        bool names_only;                    /* are asked for, of each */
        void (*then_found)(struct Request *r); /* and once a template was looked for */
        json_object *wanted;                /* ids of sandboxes to be asked one after another */
        size_t n_asked;
        uint64_t give_up_usec;
        uint64_t ingress_point;             /* what haproxy has to know before the answer goes out */
        struct Request *next_waiting;       /* for haproxy */
} Request;

/* Each answers; the request may be freed when it returns. */
void request_reply(Request *r, unsigned status);                 /* without a body */
void request_reply_json(Request *r, unsigned status, json_object *o); /* takes o; NULL: out of memory */
void request_reply_error(Request *r, unsigned status, const char *format, ...) _printf_(3, 4);
/* Before it is answered with an error: in a second it can go well; or a client that tries again by itself, as SDKs do with 429,
 * 502, 503 and 504, comes to the same. */
void request_may_come_again(Request *r);
void request_may_not_come_again(Request *r);
/* There is no room for it, or not for one more of its tenant. */
void request_reply_too_many(Request *r);
/* The answer of one that was held goes out. */
void request_release(Request *r);
/* Before it is answered. Cut off when it is too long. */
void request_add_header(Request *r, const char *name, const char *value);
/* Of the room that there is for bodies, until it is freed; false: that much is not left for its tenant, and it is answered. */
bool request_take_room(Request *r, size_t bytes);
/* Of the client, or NULL. */
const char *request_header(const Request *r, const char *name);
