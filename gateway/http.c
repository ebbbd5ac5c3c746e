/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "gateway/http.h"
#include "gateway/uploads.h"

#define JSON_TYPE "application/json; charset=utf-8"
/* An answer for which no room is taken. */
#define REPLY_BYTES_FREE 65536U
#define CHECK_USEC (250 * USEC_PER_MSEC)
/* Of what waits when the server ends. */
#define LAST_RUNS 64U

typedef struct Connection {
        HttpServer *server;
        int fd;                   /* MHD's */
        uint64_t deadline_usec;   /* UINT64_MAX: none */
        struct Connection *next;
} Connection;

struct HttpServer {
        sd_event *event;
        struct MHD_Daemon *daemon;
        HttpLimits limits;
        HttpHandlers handlers;
        void *userdata;
        sd_event_source *io, *again, *timer;
        Connection *connections;
        unsigned n_connections;
        Request *requests;
        size_t bodies;            /* bytes of all that are kept, and of what became of them */
        bool ending;              /* nothing is handled any more */
};

/* Connections. */

static void set_deadline(Connection *c, uint64_t usec) {
        if (c)
                c->deadline_usec = usec == UINT64_MAX ? UINT64_MAX : now_usec() + usec;
}

static Connection *connection_of(struct MHD_Connection *mhd) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

        return info ? info->socket_context : NULL;
}

static void connection_start(HttpServer *s, struct MHD_Connection *mhd, void **context) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        Connection *c = new0(Connection, 1);

        if (!info || !c) {
                /* One that can't be watched is not served. */
                if (info)
                        (void) shutdown(info->connect_fd, SHUT_RDWR);
                free(c);
                return;
        }
        *c = (Connection) { .server = s, .fd = info->connect_fd, .next = s->connections };
        set_deadline(c, s->limits.first_usec);
        s->connections = c;
        s->n_connections++;
        *context = c;
        (void) sd_event_source_set_time_relative(s->timer, CHECK_USEC);
        (void) sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static void connection_end(HttpServer *s, void **context) {
        Connection **at = &s->connections, *c = *context;

        while (*at && *at != c)
                at = &(*at)->next;
        if (!*at)
                return;
        *at = c->next;
        s->n_connections--;
        free(c);
        *context = NULL;
        /* At its limit MHD stopped accepting, and takes that up again in its next run only. */
        (void) sd_event_source_set_enabled(s->again, SD_EVENT_ONESHOT);
}

static void on_connection(void *userdata, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
        if (code == MHD_CONNECTION_NOTIFY_STARTED)
                connection_start(userdata, mhd, context);
        else
                connection_end(userdata, context);
}

/* MHD finds the end of the stream, and cleans up as if the client had gone. */
static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        HttpServer *s = userdata;
        uint64_t now = now_usec();

        for (Connection *c = s->connections; c; c = c->next)
                if (c->deadline_usec <= now) {
                        (void) shutdown(c->fd, SHUT_RDWR);
                        c->deadline_usec = UINT64_MAX;
                }
        if (!s->connections)
                return 0;
        (void) sd_event_source_set_time_relative(source, CHECK_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

unsigned http_server_n_connections(const HttpServer *s) {
        return s->n_connections;
}

/* Requests. */

static void give_room_back(Request *r, size_t bytes) {
        r->server->bodies -= bytes;
        r->taken -= bytes;
        if (r->share)
                r->share->bodies -= bytes;
}

/* What an answer was made of. */
static void drop_collected(Request *r) {
        json_object **const all[] = { &r->listed, &r->wanted, &r->names };

        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                json_object_put(*all[i]);
                *all[i] = NULL;
        }
}

static Request *request_free(Request *r) {
        HttpServer *s = r->server;
        Request **at = &s->requests;

        while (*at && *at != r)
                at = &(*at)->next;
        if (*at)
                *at = r->next;
        give_room_back(r, r->taken);
        if (r->begun)
                s->handlers.done(r, s->userdata);
        json_object_put(r->json);
        json_object_put(r->sandbox);
        json_object_put(r->forked);
        drop_collected(r);
        upload_free(r->upload);
        url_done(&r->url);
        free(r->method);
        free(r->target);
        free(r->body);
        free(r->reply);
        free(r);
        return NULL;
}

/* The first line is there. What is returned is the request's context from now on. */
static void *on_target(void *userdata, const char *target, struct MHD_Connection *mhd) {
        HttpServer *s = userdata;
        Connection *c = connection_of(mhd);
        Request *r = c ? new0(Request, 1) : NULL;

        if (!r)
                return NULL;
        r->server = s;
        r->target = strdup(target);
        if (!r->target) {
                free(r);
                return NULL;
        }
        r->next = s->requests;
        s->requests = r;
        set_deadline(c, s->limits.request_usec);
        return r;
}

static void on_completed(void *userdata, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code) {
        HttpServer *s = userdata;
        Request *r = *context;

        if (!r)
                return;
        set_deadline(connection_of(mhd), *r->key ? s->limits.keepalive_usec : s->limits.first_usec);
        request_free(r);
        *context = NULL;
}

const char *request_header(const Request *r, const char *name) {
        return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

void request_add_header(Request *r, const char *name, const char *value) {
        if (r->n_headers == REQUEST_HEADERS_MAX)
                return;
        RequestHeader *h = &r->headers[r->n_headers++];
        (void) snprintf(h->name, sizeof(h->name), "%s", name);
        (void) snprintf(h->value, sizeof(h->value), "%s", value);
}

bool request_take_room(Request *r, size_t bytes) {
        HttpServer *s = r->server;

        if (!share_may_take(r->share ? r->share->bodies : 0, s->bodies, s->limits.bodies_max, bytes)) {
                request_reply_too_many(r);
                return false;
        }
        s->bodies += bytes;
        r->taken += bytes;
        if (r->share)
                r->share->bodies += bytes;
        return true;
}

void request_release(Request *r) {
        r->suspended = false;
        MHD_resume_connection(r->connection);
        (void) sd_event_source_set_enabled(r->server->again, SD_EVENT_ONESHOT);
}

static void answered(Request *r, unsigned status) {
        assert(r->status == 0);

        r->status = status;
        r->server->handlers.answered(r, r->server->userdata);
        drop_collected(r);
        if (r->suspended && (r->server->ending || !r->server->handlers.hold(r, r->server->userdata)))
                request_release(r);
}

void request_reply(Request *r, unsigned status) {
        answered(r, status);
}

void request_reply_json(Request *r, unsigned status, json_object *o) {
        const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN|JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
        size_t size = text ? strlen(text) : 0;

        /* A client that does not read it has it here until its time is over. */
        if (size > REPLY_BYTES_FREE && !request_take_room(r, size)) {
                json_object_put(o);
                return;
        }
        r->reply = text ? strdup(text) : NULL;
        json_object_put(o);
        answered(r, r->reply ? status : MHD_HTTP_INTERNAL_SERVER_ERROR);
}

/* It may tell of what a client sent, and be cut off anywhere. */
static void make_text(char *s) {
        uint8_t *p = (uint8_t *) s;

        for (size_t left = strlen(s), n; left > 0; p += n, left -= n) {
                n = utf8_sequence(p, left);
                if (n > 0)
                        continue;
                *p = '?';
                n = 1;
        }
}

void request_reply_error(Request *r, unsigned status, const char *format, ...) {
        _cleanup_free_ char *message = NULL;
        json_object *o = json_object_new_object();
        va_list ap;

        va_start(ap, format);
        int n = vasprintf(&message, format, ap);
        va_end(ap);
        if (n < 0)
                message = NULL;
        else
                make_text(message);
        if (!o || json_object_object_add(o, "code", json_object_new_int((int) status)) < 0 ||
            json_object_object_add(o, "message", json_object_new_string(strempty(message))) < 0) {
                json_object_put(o);
                o = NULL;
        }
        request_reply_json(r, status, o);
}

void request_may_come_again(Request *r) {
        request_add_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

void request_may_not_come_again(Request *r) {
        request_add_header(r, "Should-Retry", "false");
}

void request_reply_too_many(Request *r) {
        request_may_come_again(r);
        request_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "Too many requests at once, try again");
}

/* Between us and whoever passes requests on to us a second reading of where one ends lets another one in. */

typedef struct Framing {
        unsigned lengths, encodings;
} Framing;

static enum MHD_Result count_framing(void *userdata, enum MHD_ValueKind kind, const char *name, const char *value) {
        Framing *f = userdata;

        f->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
        f->encodings += strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
        return MHD_YES;
}

static bool framing_clear(const Request *r) {
        Framing f = {};

        (void) MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_framing, &f);
        if (f.lengths + f.encodings > 1)
                return false;
        return f.encodings == 0 || strcasecmp(request_header(r, MHD_HTTP_HEADER_TRANSFER_ENCODING), "chunked") == 0;
}

static enum MHD_Result send_reply(Request *r, bool close) {
        bool has_body = r->reply;
        struct MHD_Response *response =
                MHD_create_response_from_buffer(has_body ? strlen(r->reply) : 0, has_body ? r->reply : (void *) "",
                                                has_body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (!response)
                return MHD_NO;

        /* It is the response's now. */
        r->reply = NULL;
        if (has_body)
                (void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, JSON_TYPE);
        for (size_t i = 0; i < r->n_headers; i++)
                (void) MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
        if (close)
                (void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
        set_deadline(connection_of(r->connection), r->server->limits.request_usec);
        enum MHD_Result k = MHD_queue_response(r->connection, r->status, response);
        MHD_destroy_response(response);
        return k;
}

static enum MHD_Result begin(Request *r, struct MHD_Connection *mhd, const char *method) {
        HttpServer *s = r->server;

        r->connection = mhd;
        r->method = strdup(method);
        if (!r->method)
                return MHD_NO;
        r->begun = true;
        r->begun_usec = now_usec();
        if (!framing_clear(r)) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "The length of this request is not clear");
                return send_reply(r, true);
        }
        s->handlers.begin(r, s->userdata);
        return MHD_YES;
}

/* To the end, so that a client that does not look meanwhile gets its answer, but not for ever. */
static enum MHD_Result discard(Request *r, size_t size) {
        r->discarded += size;
        return r->discarded <= r->server->limits.discard_max ? MHD_YES : MHD_NO;
}

static void drop_body(Request *r) {
        give_room_back(r, r->body_size);
        r->discarded += r->body_size;
        r->body_size = 0;
        free(r->body);
        r->body = NULL;
}

static enum MHD_Result take_upload(Request *r, const char *data, size_t size) {
        Connection *c = connection_of(r->connection);

        int k = upload_write(r->upload, data, size);
        if (k < 0) {
                request_reply_error(r, k == -EFBIG ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_INSUFFICIENT_STORAGE,
                                    k == -EFBIG ? "The body is longer than its Content-Length says" : "There is no room for these files");
                return discard(r, size);
        }
        if (now_usec() - r->begun_usec < r->server->limits.upload_usec)
                set_deadline(c, r->server->limits.request_usec);
        return MHD_YES;
}

static enum MHD_Result take_body(Request *r, const char *data, size_t size) {
        HttpServer *s = r->server;

        if (r->status != 0)
                return discard(r, size);
        if (r->upload)
                return take_upload(r, data, size);
        if (size > s->limits.body_max - r->body_size) {
                drop_body(r);
                request_reply_error(r, MHD_HTTP_CONTENT_TOO_LARGE, "The body of a request can have %zu bytes at most",
                                    s->limits.body_max);
                return discard(r, size);
        }
        if (!request_take_room(r, size)) {
                drop_body(r);
                return discard(r, size);
        }
        char *grown = realloc(r->body, r->body_size + size + 1);
        if (!grown)
                return MHD_NO;
        memcpy(grown + r->body_size, data, size);
        r->body = grown;
        r->body_size += size;
        r->body[r->body_size] = 0;
        return MHD_YES;
}

static void reply_ending(Request *r) {
        request_may_come_again(r);
        request_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "The gateway is being restarted, try again");
}

/* All of the request is there, or its answer. */
static enum MHD_Result finish(Request *r) {
        HttpServer *s = r->server;

        if (r->status == 0 && !r->handled) {
                r->handled = true;
                set_deadline(connection_of(r->connection), UINT64_MAX);
                /* libmicrohttpd aborts when it is stopped while one waits. */
                if (s->ending)
                        reply_ending(r);
                else
                        s->handlers.handle(r, s->userdata);
        }
        if (r->status != 0)
                return send_reply(r, false);
        MHD_suspend_connection(r->connection);
        r->suspended = true;
        return MHD_YES;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context) {
        Request *r = *context;

        if (!r)
                return MHD_NO;
        if (!r->begun)
                return begin(r, mhd, method);
        if (*size == 0)
                return finish(r);
        enum MHD_Result k = take_body(r, data, *size);
        *size = 0;
        return k;
}

/* The loop. */

static void run(HttpServer *s) {
        MHD_UNSIGNED_LONG_LONG ms;

        (void) MHD_run(s->daemon);
        /* Our deadlines are not MHD's: it only says so when something is left to be done at once. */
        if (MHD_get_timeout(s->daemon, &ms) == MHD_YES)
                (void) sd_event_source_set_enabled(s->again, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        run(userdata);
        return 0;
}

static int on_again(sd_event_source *source, void *userdata) {
        run(userdata);
        return 0;
}

static int start_daemon(HttpServer *s, int listen_fd) {
        s->daemon = MHD_start_daemon(MHD_USE_EPOLL|MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
                                     MHD_OPTION_LISTEN_SOCKET, listen_fd,
                                     MHD_OPTION_CONNECTION_LIMIT, s->limits.connections_max,
                                     MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                     MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                                     MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
                                     MHD_OPTION_STRICT_FOR_CLIENT, 1,
                                     MHD_OPTION_END);
        if (!s->daemon) {
                safe_close(listen_fd);
                return -EIO;
        }
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
        return info ? sd_event_add_io(s->event, &s->io, info->epoll_fd, EPOLLIN, on_io, s) : -EOPNOTSUPP;
}

int http_server_new(sd_event *event, int listen_fd, const HttpLimits *limits, const HttpHandlers *handlers,
                    void *userdata, HttpServer **ret) {
        _cleanup_(http_server_freep) HttpServer *s = new0(HttpServer, 1);
        if (!s) {
                safe_close(listen_fd);
                return -ENOMEM;
        }

        *s = (HttpServer) {
                .event = sd_event_ref(event), .limits = *limits, .handlers = *handlers, .userdata = userdata,
        };
        int r = start_daemon(s, listen_fd);
        if (r >= 0)
                r = sd_event_add_defer(event, &s->again, on_again, s);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &s->timer, CLOCK_MONOTONIC, CHECK_USEC, 0, on_timer, s);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

static void answer_all(HttpServer *s) {
        s->ending = true;
        for (Request *r = s->requests; r; r = r->next)
                if (r->suspended && r->status == 0)
                        reply_ending(r);
                else if (r->suspended)
                        request_release(r);
        /* What does not fit into the clients' sockets is lost to them. */
        for (unsigned i = 0; i < LAST_RUNS && s->requests; i++)
                (void) MHD_run(s->daemon);
}

HttpServer *http_server_free(HttpServer *s) {
        if (!s)
                return NULL;

        if (s->daemon) {
                answer_all(s);
                MHD_stop_daemon(s->daemon);
        }
        sd_event_source_disable_unref(s->io);
        sd_event_source_disable_unref(s->again);
        sd_event_source_disable_unref(s->timer);
        sd_event_unref(s->event);
        free(s);
        return NULL;
}
