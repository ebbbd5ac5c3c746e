/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/memops.h>
#include <stdio.h>

#include "guest/agent.h"
#include "guest/envd-files.h"
#include "guest/envd-filesystem.h"
#include "guest/envd-info.h"
#include "guest/envd-process.h"
#include "guest/http-reply.h"
#include "guest/json.h"
#include "guest/log.h"
#include "guest/machine.h"
#include "guest/program.h"
#include "guest/user.h"

#define VARIABLES_MAX 4096U
#define RESERVED "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL"
#define UNAUTHORIZED "unauthorized access, please provide a valid access token or method signing if supported"

typedef struct Route {
        llhttp_method_t method;
        const char *path;
        bool open;              /* asks for no token, or sees to that itself */
        void (*begin)(Agent *a, HttpConn *c);
} Route;

static void begin_health(Agent *a, HttpConn *c) {
        http_reply(c, 204, "Cache-Control: no-store\r\n", NULL, 0);
}

static const Route routes[] = {
        { HTTP_GET, "/health", true, begin_health },
        { HTTP_GET, "/metrics", false, info_reply_metrics },
        { HTTP_GET, "/envs", false, info_reply_variables },
        { HTTP_GET, "/files", true, files_begin_read },
        { HTTP_POST, "/files", true, files_begin_write },
};

bool envd_token_is(const Envd *e, const char *token) {
        size_t n = strlen(e->token);

        return strlen(token) == n && memeql_sec(token, e->token, n);
}

static bool authorized(const Envd *e, const HttpRequest *q) {
        const char *token = http_field(q, "X-Access-Token");

        return !e->token || (token && envd_token_is(e, token));
}

/* Asked by a browser before it sends what a page of another origin wants to. */
static void reply_preflight(HttpConn *c) {
        http_reply(c, 204,
                   "Access-Control-Allow-Methods: HEAD, GET, POST, PUT, PATCH, DELETE\r\n"
                   "Access-Control-Allow-Headers: *\r\n"
                   "Access-Control-Max-Age: 7200\r\n", NULL, 0);
}

/* What E2B's control plane asks of its own envd; ours is asked over vsock. */
static const char *reserved_path(const HttpRequest *q) {
        static const char *const paths[] = { "/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade" };

        for (size_t i = 0; i < ELEMENTSOF(paths); i++)
                if (http_path_is(q, paths[i]))
                        return paths[i];
        return NULL;
}

static void reply_reserved(HttpConn *c, const char *path) {
        _cleanup_json_ json_object *o = json_object_new_object();

        json_put_text(o, "message", RESERVED);
        json_put_text(o, "path", path);
        json_put_int(o, "code", 404);
        const char *text = json_text(o);
        http_reply(c, 404, "Content-Type: application/json\r\n", text, strlen(text));
}

static const Route *find_route(const HttpRequest *q, bool *ret_path) {
        llhttp_method_t method = q->method == HTTP_HEAD ? HTTP_GET : q->method;

        *ret_path = false;
        for (size_t i = 0; i < ELEMENTSOF(routes); i++)
                if (http_path_is(q, routes[i].path)) {
                        *ret_path = true;
                        if (routes[i].method == method)
                                return &routes[i];
                }
        return NULL;
}

static const ConnectMethod *find_method(const HttpRequest *q) {
        const ConnectMethod *const services[] = { process_methods, filesystem_methods, watch_methods };

        for (size_t i = 0; i < ELEMENTSOF(services); i++)
                for (const ConnectMethod *m = services[i]; m->path; m++)
                        if (http_path_is(q, m->path))
                                return m;
        return NULL;
}

static void envd_begin(HttpConn *c, void *userdata) {
        Agent *a = userdata;
        const HttpRequest *q = http_request(c);
        const ConnectMethod *method;
        const char *reserved;
        bool path;

        if (q->method == HTTP_OPTIONS && c->cors) {
                reply_preflight(c);
                return;
        }
        reserved = reserved_path(q);
        if (reserved) {
                reply_reserved(c, reserved);
                return;
        }

        const Route *route = find_route(q, &path);
        method = route ? NULL : find_method(q);
        path |= method != NULL;
        if (!(route && route->open) && !authorized(&a->envd, q))
                http_reply_error(c, 401, UNAUTHORIZED);
        else if (!route && !(method && q->method == HTTP_POST))
                http_reply_error(c, path ? 405 : 404, "%s", path ? "method not allowed" : "not found");
        else if (a->stopping)
                http_reply_error(c, 503, "the sandbox is going down");
        else if (route)
                route->begin(a, c);
        else
                connect_begin(a, c, method);
}

/* A write would stop PID 1 until the file system thaws, and a guest that is not claimed yet has another's name. */
static bool envd_held(void *userdata) {
        const Agent *a = userdata;

        return !a->claimed || a->frozen;
}

static void set(char **field, char **value) {
        free(*field);
        *field = TAKE_PTR(*value);
}

static int listen_on(Agent *a, uint32_t port) {
        Envd *e = &a->envd;
        int fd;

        if (http_server_runs(&e->server))
                return port == e->port ? 0 : -EBUSY;
        int r = http_listen((uint16_t) port, &fd);
        if (r < 0)
                return r;
        r = http_server_start(&e->server, &a->loop, fd, &HTTP_LIMITS_DEFAULT, envd_begin, a);
        if (r < 0)
                return r;
        e->server.held = envd_held;
        e->port = (uint16_t) port;
        return 0;
}

int envd_set_variable(StringList *env, char *assignment) {
        size_t n = assignment ? strcspn(assignment, "=") + 1 : 0;
        int r = assignment ? 0 : -ENOMEM;

        for (size_t i = 0; assignment && i < env->n; i++)
                if (strncmp(env->items[i], assignment, n) == 0) {
                        free(env->items[i]);
                        env->items[i] = assignment;
                        return 0;
                }
        if (r >= 0)
                r = env->n < VARIABLES_MAX ? strings_add(env, assignment) : -E2BIG;
        if (r < 0)
                free(assignment);
        return r;
}

/* Those that are there first, so that the new ones win. */
static int make_variables(const Envd *e, const Request *q, StringList *ret) {
        int r = 0;

        for (size_t i = 0; r >= 0 && q->keep_env && i < e->env.n; i++)
                r = envd_set_variable(ret, strdup(e->env.items[i]));
        for (size_t i = 0; r >= 0 && i < q->env.n; i++)
                r = envd_set_variable(ret, strdup(q->env.items[i]));
        if (r < 0)
                strings_done(ret);
        return r;
}

static bool user_is_missing(const char *name) {
        _cleanup_user_ User u = {};

        return name && user_find(name, &u) == -ENOENT;
}

/* "": there is none. */
static const char *find_variable(const Envd *e, const char *name) {
        for (size_t i = 0; i < e->env.n; i++) {
                const char *value = startswith(e->env.items[i], name);
                if (value && *value == '=')
                        return value + 1;
        }
        return "";
}

void handle_envd(Agent *a, Request *q, Reply reply) {
        uint32_t port = request_has(q, AGENT_TAG_PORT) ? q->port : ENVD_PORT;
        StringList env = {};
        Envd *e = &a->envd;

        if (port == 0 || port > UINT16_MAX) {
                reply_error(&reply, -EINVAL, "no port %u", port);
                return;
        }
        int r = make_variables(e, q, &env);
        if (r < 0) {
                reply_error(&reply, r, "variables of envd: %s", r == -E2BIG ? "they are too many" : strerror(-r));
                return;
        }
        r = listen_on(a, port);
        if (r < 0) {
                strings_done(&env);
                reply_error(&reply, r, "envd on port %u: %s", port,
                            r == -EADDRINUSE ? "a program in the guest has it" :
                            r == -EBUSY      ? "it has another one already" : strerror(-r));
                return;
        }
        if (q->user_optional && user_is_missing(q->user))
                free(TAKE_PTR(q->user));

        set(&e->token, &q->token);
        set(&e->user, &q->user);
        set(&e->cwd, &q->cwd);
        strings_done(&e->env);
        e->env = env;
        r = machine_set_e2b(find_variable(e, "E2B_SANDBOX_ID"), find_variable(e, "E2B_TEMPLATE_ID"));
        if (r < 0)
                log_warning("files below /run/e2b can't be written: %s", strerror(-r));
        reply_ok(&reply, NULL);
}

void envd_resume(Agent *a) {
        http_server_wake(&a->envd.server);
}

void envd_abandon(Agent *a) {
        http_server_cut(&a->envd.server);
}

void envd_done(Agent *a) {
        Envd *e = &a->envd;

        http_server_stop(&e->server);
        while (a->programs)
                program_free(a->programs);
        watchers_done(a);
        strings_done(&e->env);
        free(TAKE_PTR(e->token));
        free(TAKE_PTR(e->user));
        free(TAKE_PTR(e->cwd));
}
