/* SPDX-License-Identifier: Apache-2.0 */

/* Building templates: a build is asked for (POST /v3/templates), its files are sent (op-upload.c), it is started, and its state
 * and log are asked for until it is over.
 *
 * cubed builds on another template (DeriveTemplate), or of an image that is fetched first (build-image.c). What it makes is named
 * by the build, and by each tag. A gateway that was started anew meanwhile finds what is built by that name, and what is being
 * built by the subject of its job. */

#include <stdio.h>

#include "base/parse.h"
#include "gateway/build-call.h"
#include "gateway/build-image.h"
#include "gateway/builds.h"
#include "gateway/json-maker.h"
#include "gateway/log-entries.h"
#include "gateway/op-common.h"
#include "gateway/uploads.h"

/* Images on their way for all tenants, with those whose templates are being built: each keeps a process, and its files. */
#define FETCHES_MAX 8U

/* Asking for one. */

static json_object *tags_to_json(const BuildRequest *b) {
        json_object *list = json_object_new_array();
        bool ok = list;

        for (size_t i = 0; ok && i < b->n_tags; i++)
                ok = json_append(list, json_object_new_string(b->tags[i]));
        if (ok)
                return list;
        json_object_put(list);
        return NULL;
}

static json_object *one_string(const char *s) {
        json_object *list = json_object_new_array();

        if (json_append(list, json_object_new_string(s)))
                return list;
        json_object_put(list);
        return NULL;
}

void op_build_request(Request *r) {
        char name[TENANT_MAX + TEMPLATE_REF_MAX];
        BuildRequest request;
        ErrorText error = {};
        Build *b = NULL;

        int k = build_request_parse(r->json, r->tenant, &request, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = build_new(r->gateway->builds, r->tenant, &request, &b);
        if (k == -EBUSY) {
                request_reply_error(r, MHD_HTTP_TOO_MANY_REQUESTS, "you have reached the maximum number of concurrent template builds");
                return;
        }
        if (k < 0) {
                reply_errno(r, k);
                return;
        }
        JsonMaker m = json_maker_new();
        (void) snprintf(name, sizeof(name), "%s/%s", r->tenant, request.name);
        json_put_string(&m, "templateID", b->template_id);
        json_put_string(&m, "buildID", b->id);
        json_put(&m, "public", json_object_new_boolean(false));
        json_put(&m, "names", one_string(name));
        json_put(&m, "tags", tags_to_json(&request));
        json_put(&m, "aliases", one_string(request.name));
        request_reply_json(r, MHD_HTTP_ACCEPTED, json_maker_done(&m));
}

static void reply_no_build(Request *r) {
        request_reply_error(r, MHD_HTTP_NOT_FOUND, "Build '%.64s' not found", r->item);
}

static void reply_not_waiting(Request *r) {
        if (r->build)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "build is not in waiting state");
        else
                reply_no_build(r);
}

/* Starting it. */

/* Not begun: it can be started again. */
static void not_started(Build *b) {
        build_directory_remove(b->gateway->builds_fd, b->id);
        b->state = BUILD_WAITING;
}

static void on_started(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        const char *job = NULL;

        int k = error ? 0 : sd_bus_message_read(reply, "o", &job);
        if (error || k < 0) {
                not_started(r->build);
                if (error && sd_bus_error_has_name(error, BUS_ERROR_BUSY))
                        request_reply_error(r, MHD_HTTP_TOO_MANY_REQUESTS, "This host is building as many templates as it can, try again");
                else if (error)
                        reply_cubed_error(r, error);
                else
                        reply_errno(r, k);
                return;
        }
        build_follow(r->build, job);
        request_reply(r, MHD_HTTP_ACCEPTED);
}

static void start_derived(Request *r, const BuildSpec *s, int archives_fd) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char name[CUBED_NAME_MAX];
        Build *b = r->build;

        template_cubed_name(b->tenant, b->request.name, b->id, name);
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "DeriveTemplate", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "ss", name, r->template.cubed_id);
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "{sv}");
        if (k >= 0)
                k = build_call_append(m, b, s, archives_fd);
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        if (!cubed_call_asking(r, m, k, on_started))
                not_started(b);
}

static void start_fetched(Request *r, const BuildSpec *s, int *archives_fd) {
        Build *b = r->build;

        int k = build_fetch(b, r->json, s, archives_fd);
        if (k >= 0) {
                request_reply(r, MHD_HTTP_ACCEPTED);
                return;
        }
        not_started(b);
        if (k == -ENOENT || k == -ECONNREFUSED || k == -EAGAIN)
                request_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "fromImage: %s", k == -EAGAIN ? "this host fetches as many images as "
                                    "it can, try again" : "the service of this host that fetches images is not there: its administrator "
                                    "starts cube-fetch.socket and cube-fetch-relay.socket");
        else
                reply_errno(r, k);
}

static void start_build(Request *r, const BuildSpec *s) {
        _cleanup_close_ int archives_fd = -EBADF;
        ErrorText error = {};
        Build *b = r->build;

        /* From here on it stays. */
        b->state = BUILD_BUILDING;
        int k = build_call_archives(b, s, &archives_fd, &error);
        if (k < 0) {
                not_started(b);
                reply_bad(r, k, &error);
                return;
        }
        b->log.n_before = isempty(s->from_image) ? 0 : IMAGE_STEPS;
        b->log.n_steps = (unsigned) s->n_steps;
        if (r->template.cubed_id[0])
                start_derived(r, s, archives_fd);
        else
                start_fetched(r, s, &archives_fd);
}

/* With those that are being built: any number may be started before the first of them is there. */
static bool is_room(Request *r) {
        size_t max = r->gateway->config.templates_max, named, nameless;

        template_names_count(r->names, r->tenant, r->gateway->uid, &named, &nameless);
        if (named + builds_count_building(r->gateway->builds, r->tenant) >= max)
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "This tenant has %zu builds of templates with those under way, as many as "
                                    "TemplatesMax= allows; delete some first", max);
        else if (nameless >= max) {
                /* What was in use may be so no more; then there is room the next time. */
                builds_discard_nameless(r->gateway->builds, r->tenant, r->names);
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "This tenant has %zu builds of templates that others took the place of, as many "
                                    "as TemplatesMax= allows; remove the sandboxes and snapshots that stand on them, then try again", nameless);
        } else
                return true;
        return false;
}

/* What stands for no image here is fetched, if it may be; else the request is answered. */
static bool may_fetch(Request *r, const BuildSpec *s) {
        const GatewayConfig *c = &r->gateway->config;
        size_t own, all;
        ImageRef ref;

        if (isempty(s->from_image)) {
                reply_no_template(r);
                return false;
        }
        if (image_ref_parse(s->from_image, &ref) < 0) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "fromImage: '%.100s' is not the name of an image", s->from_image);
                return false;
        }
        if (!image_registry_listed(c->image_registries, ref.registry)) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "fromImage: this host fetches no images from %s; its administrator can allow that "
                                    "(ImageRegistries=), or build a template that stands for this one with cubectl", ref.registry);
                return false;
        }
        builds_count_fetches(r->gateway->builds, r->tenant, &own, &all);
        if (!share_may_take(own, all, FETCHES_MAX, 1)) {
                request_reply_error(r, MHD_HTTP_TOO_MANY_REQUESTS, "This host is fetching as many images as it can, try again");
                return false;
        }
        return true;
}

static void on_source(Request *r) {
        ErrorText error = {};
        BuildSpec s;

        /* It may have gone meanwhile, or been started by another request. */
        r->build = build_find(r->gateway->builds, r->tenant, r->template_ref, r->item);
        if (!r->build || r->build->state != BUILD_WAITING) {
                reply_not_waiting(r);
                return;
        }
        if (!is_room(r))
                return;
        int k = build_spec_parse(r->json, &s, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        if (r->template.cubed_id[0] || may_fetch(r, &s))
                start_build(r, &s);
        build_spec_done(&s);
}

/* One of the host's that stands for an image, unless it is somebody's who gave a password for it. */
static void find_source(Request *r, const BuildSpec *s) {
        if (isempty(s->from_image)) {
                if (template_ref_parse(s->from_template, r->tenant, &r->ref) < 0)
                        request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid template reference: %.100s", s->from_template);
                else
                        template_find(r, on_source);
        } else if (s->user || image_template(s->from_image, &r->ref) < 0)
                template_names(r, on_source);
        else
                template_find(r, on_source);
}

void op_build_start(Request *r) {
        ErrorText error = {};
        BuildSpec s;

        r->build = build_find(r->gateway->builds, r->tenant, r->template_ref, r->item);
        if (!r->build || r->build->state != BUILD_WAITING) {
                reply_not_waiting(r);
                return;
        }
        int k = build_spec_parse(r->json, &s, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        find_source(r, &s);
        build_spec_done(&s);
}

/* State and log. */

static json_object *reason_to_json(const Build *b) {
        JsonMaker m = json_maker_new();

        json_put_string(&m, "message", strempty(b->reason));
        json_put_string(&m, "step", b->reason_step);
        json_put(&m, "logEntries", json_object_new_array());
        return json_maker_done(&m);
}

static json_object *status_to_json(const Request *r, const Build *b, const char *template_id, size_t offset, size_t limit, LogLevel level) {
        JsonMaker m = json_maker_new();

        json_put_string(&m, "templateID", template_id);
        json_put_string(&m, "buildID", r->item);
        json_put_string(&m, "status", b ? build_state_to_string(b->state) : "ready");
        json_put(&m, "logs", json_object_new_array());
        json_put(&m, "logEntries", b ? build_log_to_json(&b->log, offset, limit, level) : json_object_new_array());
        if (b && b->state == BUILD_ERROR)
                json_put(&m, "reason", reason_to_json(b));
        return json_maker_done(&m);
}

static int query_number(const Request *r, const char *name, uint64_t most, uint64_t *ret) {
        const char *text = url_query(&r->url, name);

        if (!text)
                return 0;
        if (parse_u64(text, ret) < 0)
                return -EINVAL;
        *ret = MIN(*ret, most);
        return 0;
}

/* One of an earlier gateway: ready, and without a log. true: r->item is that, of the template with that id. */
static bool was_built(const Request *r, char id[static TEMPLATE_ID_SIZE]) {
        TemplateName n;

        for (size_t i = 0; i < json_object_array_length(r->names); i++) {
                if (!template_name_parse(json_object_array_get_idx(r->names, i), r->tenant, r->gateway->uid, &n) || !n.is_build ||
                    !streq(n.tag, r->item))
                        continue;
                template_public_id(r->tenant, n.name, id);
                return true;
        }
        return false;
}

static void on_names(Request *r) {
        char id[TEMPLATE_ID_SIZE];

        if (was_built(r, id))
                request_reply_json(r, MHD_HTTP_OK, status_to_json(r, NULL, id, 0, 0, LOG_LEVEL_INFO));
        else
                reply_no_build(r);
}

void op_build_status(Request *r) {
        uint64_t offset = 0, limit = BUILD_LOG_PAGE;
        const char *level_text = url_query(&r->url, "level");
        LogLevel level = level_text ? log_level_from_string(level_text) : LOG_LEVEL_DEBUG;

        if (level < 0 || query_number(r, "logsOffset", UINT32_MAX, &offset) < 0 || query_number(r, "limit", BUILD_LOG_PAGE, &limit) < 0) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "logsOffset, limit or level is not valid");
                return;
        }
        Build *b = build_find(r->gateway->builds, r->tenant, r->template_ref, r->item);
        if (b)
                request_reply_json(r, MHD_HTTP_OK, status_to_json(r, b, b->template_id, offset, limit, level));
        else
                template_names(r, on_names);
}

static void reply_log(Request *r, json_object *entries) {
        JsonMaker m = json_maker_new();

        json_put(&m, "logs", entries);
        request_reply_json(r, MHD_HTTP_OK, json_maker_done(&m));
}

static void on_names_for_log(Request *r) {
        char id[TEMPLATE_ID_SIZE];

        if (was_built(r, id))
                reply_log(r, json_object_new_array());
        else
                reply_no_build(r);
}

void op_build_logs(Request *r) {
        ErrorText error = {};
        LogQuery q;

        int k = log_query_parse(&r->url, true, &q, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        Build *b = build_find(r->gateway->builds, r->tenant, r->template_ref, r->item);
        if (!b) {
                template_names(r, on_names_for_log);
                return;
        }
        uint64_t cursor = q.given ? q.cursor_msec : q.backward ? UINT64_MAX : 0;
        reply_log(r, build_log_page_to_json(&b->log, cursor, q.backward, MIN(q.limit, BUILD_LOG_PAGE), (LogLevel) q.level));
}
