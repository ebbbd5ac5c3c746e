/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "gateway/body.h"
#include "gateway/cubed.h"
#include "gateway/not-here.h"
#include "gateway/operations.h"
#include "gateway/routes.h"

const Route routes[] = {
        { "GET", "/health", false, NULL },

        { "POST", "/sandboxes", true, op_create },
        { "POST", "/v2/sandboxes", true, op_create },
        { "GET", "/sandboxes", false, op_list },
        { "GET", "/v2/sandboxes", false, op_list },
        /* Before what has an id in its place. */
        { "GET", "/sandboxes/metrics", false, op_metrics_of_all },
        { "GET", "/sandboxes/{sandbox}", false, op_info },
        { "GET", "/sandboxes/{sandbox}/metrics", false, op_metrics },
        { "GET", "/sandboxes/{sandbox}/logs", false, op_logs },
        { "GET", "/v2/sandboxes/{sandbox}/logs", false, op_logs },
        { "DELETE", "/sandboxes/{sandbox}", false, op_kill },
        { "POST", "/sandboxes/{sandbox}/connect", true, op_connect },
        { "POST", "/v2/sandboxes/{sandbox}/connect", false, op_connect },
        { "POST", "/sandboxes/{sandbox}/resume", false, op_resume },
        { "POST", "/sandboxes/{sandbox}/timeout", true, op_timeout },
        { "POST", "/sandboxes/{sandbox}/refreshes", false, op_refresh },
        { "POST", "/sandboxes/{sandbox}/pause", false, op_pause },
        { "PUT", "/sandboxes/{sandbox}/network", true, op_network },

        { "POST", "/sandboxes/{sandbox}/snapshots", false, op_snapshot },
        { "GET", "/snapshots", false, op_snapshots },
        { "POST", "/sandboxes/{sandbox}/fork", false, op_fork },
        { "POST", "/v2/sandboxes/{sandbox}/fork", false, op_fork },

        { "GET", "/templates", false, op_templates },
        { "GET", "/v2/templates", false, op_templates },
        { "GET", "/templates/aliases/{template}", false, op_alias },
        /* A name cannot be this one, then. */
        { "DELETE", "/templates/tags", true, op_untag },
        { "GET", "/templates/{template}", false, op_template_info },
        { "PATCH", "/templates/{template}", true, op_template_update },
        { "PATCH", "/v2/templates/{template}", true, op_template_update },
        { "DELETE", "/templates/{template}", false, op_remove },

        { "POST", "/v3/templates", true, op_build_request },
        { "POST", "/v2/templates", true, op_build_request },
        { "GET", "/templates/{template}/files/{item}", false, op_files },
        { "PUT", "/templates/{template}/files/{item}", false, op_upload, op_upload_begin },
        { "POST", "/v2/templates/{template}/builds/{item}", true, op_build_start },
        { "GET", "/templates/{template}/builds/{item}/status", false, op_build_status },
        { "GET", "/templates/{template}/builds/{item}/logs", false, op_build_logs },
        { "GET", "/templates/{template}/tags", false, op_tags },
        { "POST", "/templates/tags", true, op_tag },
};
const size_t n_routes = ELEMENTSOF(routes);

static bool segment_is(const char *pattern, size_t n, const char *name) {
        return strlen(name) == n && memcmp(pattern, name, n) == 0;
}

static bool path_matches(const char *pattern, const Url *u, RouteNames *ret) {
        size_t i = 0;

        for (; *pattern == '/'; i++) {
                size_t n = strcspn(++pattern, "/");
                if (i == u->n_segments)
                        return false;
                if (segment_is(pattern, n, "{sandbox}"))
                        ret->sandbox = u->segments[i];
                else if (segment_is(pattern, n, "{template}"))
                        ret->template = u->segments[i];
                else if (segment_is(pattern, n, "{item}"))
                        ret->item = u->segments[i];
                else if (!segment_is(pattern, n, u->segments[i]))
                        return false;
                pattern += n;
        }
        return i == u->n_segments;
}

const Route *route_find(const char *method, const Url *u, RouteNames *ret, unsigned *ret_status) {
        bool literal = false;

        *ret_status = MHD_HTTP_NOT_FOUND;
        for (size_t i = 0; i < n_routes; i++) {
                *ret = (RouteNames) {};
                if (!path_matches(routes[i].path, u, ret))
                        continue;
                /* A word of the protocol is no id. */
                bool names = ret->sandbox || ret->template;
                if (literal && names)
                        continue;
                literal |= !names;
                *ret_status = MHD_HTTP_METHOD_NOT_ALLOWED;
                if (streq(routes[i].method, method))
                        return &routes[i];
        }
        return NULL;
}

int route_sandbox_id(const char *id, char ret[static SANDBOX_ID_MAX]) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        size_t n = strspn(id, set);

        if (n == 0 || n >= SANDBOX_ID_MAX)
                return -EINVAL;
        if (id[n] == '-') {
                size_t client = strspn(id + n + 1, set);
                if (client == 0 || id[n + 1 + client])
                        return -EINVAL;
        } else if (id[n])
                return -EINVAL;
        memcpy(ret, id, n);
        ret[n] = 0;
        return 0;
}

bool request_is_v2(const Request *r) {
        return r->url.n_segments > 0 && streq(r->url.segments[0], "v2");
}

bool route_is_open(const Request *r) {
        RouteNames names;
        unsigned status;

        const Route *found = route_find(r->method, &r->url, &names, &status);
        return found && !found->run;
}

bool route_begin(Request *r) {
        RouteNames names;
        unsigned status;

        const Route *found = route_find(r->method, &r->url, &names, &status);
        if (!found || !found->begin)
                return false;
        r->template_ref = names.template;
        r->item = names.item;
        r->signed_url = true;
        found->begin(r);
        return true;
}

static void run_in_sandbox(Request *r, const char *id, Operation run) {
        if (route_sandbox_id(id, r->sandbox_id) < 0) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid sandbox ID");
                return;
        }
        /* cubed has none like that. */
        if (!sandbox_id_valid(r->sandbox_id))
                reply_no_sandbox(r);
        else
                cubed_get_sandbox(r, run);
}

void route(Request *r) {
        RouteNames names;
        ErrorText error = {};
        unsigned status;

        const Route *found = route_find(r->method, &r->url, &names, &status);
        const char *missing = found ? NULL : not_here(&r->url);
        if (missing) {
                request_reply_error(r, MHD_HTTP_NOT_IMPLEMENTED, "%s", missing);
                return;
        }
        if (!found) {
                request_reply_error(r, status, status == MHD_HTTP_NOT_FOUND ? "There is nothing at this path"
                                                                            : "This path has no such method");
                return;
        }
        size_t cost = body_cost(r->body, r->body_size);
        if (cost > 0 && cost <= BODY_COST_MAX && !request_take_room(r, cost))
                return;
        int k = body_parse(r->body, r->body_size, &r->json, &error);
        if (k >= 0 && found->body && !r->json)
                k = error_text(&error, "Error when parsing request: there is no body");
        if (k < 0) {
                if (k == -EINVAL)
                        request_reply_error(r, MHD_HTTP_BAD_REQUEST, "%s", error.text);
                else
                        reply_errno(r, k);
                return;
        }
        r->template_ref = names.template;
        r->item = names.item;
        if (names.sandbox)
                run_in_sandbox(r, names.sandbox, found->run);
        else
                found->run(r);
}
