/* SPDX-License-Identifier: Apache-2.0 */

/* Building templates: a build is asked for (POST /v3/templates), its files are sent (op-upload.c), it is started, and its state
 * and log are asked for until it is over.
 *
 * cubed builds on another template (DeriveTemplate). What it makes is named by the build, and by each tag. A gateway that was
 * started anew meanwhile finds what is built by that name, and what is being built by the subject of its job. */

#include <stdio.h>

#include "base/parse.h"
#include "gateway/builds.h"
#include "gateway/json-maker.h"
#include "gateway/op-common.h"
#include "gateway/uploads.h"

/* Of the archives, in the guest. */
#define ARCHIVES "/.cube-build"
/* That an image is given before the client's. */
#define IMAGE_STEPS 2U
#define READY_DEFAULT "sleep 20"
#define READY_TIMEOUT_USEC (UINT64_C(10) * 60 * USEC_PER_SEC)

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

static int open_archives(const Request *r, const BuildSpec *s, int *ret_fd, ErrorText *error) {
        const Gateway *g = r->gateway;
        bool any = false;

        for (size_t i = 0; i < s->n_steps; i++)
                any = any || s->steps[i].files_hash;
        if (!any)
                return 0;
        int k = build_directory_make(g->builds_fd, r->build->id, ret_fd);
        for (size_t i = 0; k >= 0 && i < s->n_steps; i++) {
                char name[24];

                if (!s->steps[i].files_hash)
                        continue;
                (void) snprintf(name, sizeof(name), "%zu", i + 1);
                k = build_directory_add(*ret_fd, name, g->files_fd, r->tenant, s->steps[i].files_hash);
                if (k == -ENOENT)
                        k = error_text(error, "step %zu: its files were not uploaded", i + 1);
        }
        return k;
}

static int append_strings(sd_bus_message *m, json_object *list) {
        int k = sd_bus_message_open_container(m, 'a', "s");

        for (size_t i = 0; k >= 0 && i < json_object_array_length(list); i++)
                k = sd_bus_message_append(m, "s", json_object_get_string(json_object_array_get_idx(list, i)));
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int append_copy_step(sd_bus_message *m, const BuildStep *s, size_t at) {
        char archive[64];

        (void) snprintf(archive, sizeof(archive), ARCHIVES "/%zu", at);
        int k = sd_bus_message_open_container(m, 'a', "s");
        if (k >= 0)
                k = sd_bus_message_append(m, "ss", archive, s->source);
        for (size_t i = 1; k >= 0 && i < json_object_array_length(s->args); i++)
                k = sd_bus_message_append(m, "s", json_object_get_string(json_object_array_get_idx(s->args, i)));
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int append_step(sd_bus_message *m, const BuildStep *s, size_t at) {
        int k = sd_bus_message_open_container(m, 'r', "sas");

        if (k >= 0)
                k = sd_bus_message_append(m, "s", s->type);
        if (k >= 0)
                k = s->files_hash && streq(s->type, "COPY") ? append_copy_step(m, s, at) : append_strings(m, s->args);
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int open_option(sd_bus_message *m, const char *name, const char *type) {
        int k = sd_bus_message_open_container(m, 'e', "sv");

        if (k >= 0)
                k = sd_bus_message_append(m, "s", name);
        return k < 0 ? k : sd_bus_message_open_container(m, 'v', type);
}

static int close_option(sd_bus_message *m) {
        int k = sd_bus_message_close_container(m);

        return k < 0 ? k : sd_bus_message_close_container(m);
}

/* Before the client's those that give an image the user whom E2B's have; behind them one that leaves nothing of the archives. */
static int append_steps(sd_bus_message *m, const BuildSpec *s, bool archives) {
        int k = open_option(m, "steps", "a(sas)");

        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "(sas)");
        if (k >= 0 && !isempty(s->from_image))
                k = sd_bus_message_append(m, "(sas)(sas)", "USER", 2, "user", "true", "WORKDIR", 1, "/home/user");
        for (size_t i = 0; k >= 0 && i < s->n_steps; i++)
                k = append_step(m, &s->steps[i], i + 1);
        if (k >= 0 && archives)
                k = sd_bus_message_append(m, "(sas)", "RUN", 2, "rm -rf " ARCHIVES, "root");
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        return k < 0 ? k : close_option(m);
}

static int append_aliases(sd_bus_message *m, const Build *b) {
        char name[CUBED_NAME_MAX];
        int k = open_option(m, "alias", "as");

        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; k >= 0 && i < b->request.n_tags; i++) {
                template_cubed_name(b->tenant, b->request.name, b->request.tags[i], name);
                k = sd_bus_message_append(m, "s", name);
        }
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        return k < 0 ? k : close_option(m);
}

/* It may reach what a sandbox may that says nothing. */
static int append_network(sd_bus_message *m, const GatewayConfig *config) {
        int k = open_option(m, "build-network-policy", "a{sv}");

        if (k >= 0)
                k = network_append(m, &(NetworkSpec) { .internet = config->default_internet });
        return k < 0 ? k : close_option(m);
}

static int append_programs(sd_bus_message *m, const BuildSpec *s) {
        const char *ready = s->ready ?: s->start ? READY_DEFAULT : NULL;
        int k = s->start ? sd_bus_message_append(m, "{sv}", "start", "s", s->start) : 0;

        if (k >= 0 && ready)
                k = sd_bus_message_append(m, "{sv}", "ready", "s", ready);
        if (k >= 0 && ready)
                k = sd_bus_message_append(m, "{sv}", "ready-timeout", "t", READY_TIMEOUT_USEC);
        return k;
}

static int append_options(Request *r, sd_bus_message *m, const BuildSpec *s, int archives_fd) {
        const BuildRequest *b = &r->build->request;
        int k = sd_bus_message_open_container(m, 'a', "{sv}");

        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}", "tenant", "s", r->tenant);
        if (k >= 0)
                k = append_aliases(m, r->build);
        if (k >= 0 && b->cpus > 0)
                k = sd_bus_message_append(m, "{sv}", "cpus", "u", b->cpus);
        if (k >= 0 && b->memory > 0)
                k = sd_bus_message_append(m, "{sv}", "memory", "t", b->memory);
        if (k >= 0 && archives_fd >= 0)
                k = sd_bus_message_append(m, "{sv}", "copy", "a(hs)", 1, archives_fd, ARCHIVES);
        if (k >= 0 && (s->n_steps > 0 || !isempty(s->from_image)))
                k = append_steps(m, s, archives_fd >= 0);
        if (k >= 0)
                k = append_programs(m, s);
        if (k >= 0)
                k = append_network(m, &r->gateway->config);
        return k < 0 ? k : sd_bus_message_close_container(m);
}

/* Not begun: it can be started again. */
static void not_started(Request *r) {
        build_directory_remove(r->gateway->builds_fd, r->build->id);
        r->build->state = BUILD_WAITING;
}

static void on_started(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        const char *job = NULL;

        int k = error ? 0 : sd_bus_message_read(reply, "o", &job);
        if (error || k < 0) {
                not_started(r);
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

static void start_build(Request *r, const BuildSpec *s) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_close_ int archives_fd = -EBADF;
        char name[CUBED_NAME_MAX];
        ErrorText error = {};

        int k = open_archives(r, s, &archives_fd, &error);
        if (k < 0) {
                not_started(r);
                reply_bad(r, k, &error);
                return;
        }
        r->build->log.n_before = isempty(s->from_image) ? 0 : IMAGE_STEPS;
        r->build->log.n_steps = (unsigned) s->n_steps;
        template_cubed_name(r->tenant, r->build->request.name, r->build->id, name);
        k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "DeriveTemplate", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "ss", name, r->template.cubed_id);
        if (k >= 0)
                k = append_options(r, m, s, archives_fd);
        if (k < 0)
                not_started(r);
        cubed_call_asking(r, m, k, on_started);
}

static uint32_t count_builds(const Request *r) {
        TemplateName n;
        uint32_t k = 0;

        for (size_t i = 0; i < json_object_array_length(r->names); i++)
                k += template_name_parse(json_object_array_get_idx(r->names, i), r->tenant, r->gateway->uid, &n) && n.is_build;
        return k;
}

static void reply_no_source(Request *r) {
        const char *tag = r->ref.tag[0] ? r->ref.tag : "latest";

        if (r->ref.host)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "fromImage: this host fetches no images, and has no template '%s:%s' that stands "
                                    "for this one; its administrator can build it with cubectl", r->ref.name, tag);
        else
                reply_no_template(r);
}

static void on_source(Request *r) {
        ErrorText error = {};
        BuildSpec s;

        if (!r->template.cubed_id[0]) {
                reply_no_source(r);
                return;
        }
        if (count_builds(r) >= r->gateway->config.templates_max) {
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "This tenant has %u builds of templates, as many as TemplatesMax= allows; "
                                    "delete some first", r->gateway->config.templates_max);
                return;
        }
        /* It may have gone meanwhile, or been started by another request. */
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
        /* From here on it stays. */
        r->build->state = BUILD_BUILDING;
        start_build(r, &s);
        build_spec_done(&s);
}

/* What it is built on into r->ref. */
static int read_source(Request *r, const BuildSpec *s, ErrorText *error) {
        if (isempty(s->from_image))
                return template_ref_parse(s->from_template, r->tenant, &r->ref) < 0
                               ? error_text(error, "Invalid template reference: %.100s", s->from_template) : 0;
        return image_template(s->from_image, &r->ref) < 0
                       ? error_text(error, "fromImage: this host fetches no images, and has no template that stands for '%.100s'",
                                    s->from_image) : 0;
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
        k = read_source(r, &s, &error);
        build_spec_done(&s);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        template_find(r, on_source);
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

/* One of an earlier gateway. */
static void on_names(Request *r) {
        TemplateName n;
        char id[TEMPLATE_ID_SIZE];

        for (size_t i = 0; i < json_object_array_length(r->names); i++) {
                if (!template_name_parse(json_object_array_get_idx(r->names, i), r->tenant, r->gateway->uid, &n) || !n.is_build ||
                    !streq(n.tag, r->item))
                        continue;
                template_public_id(r->tenant, n.name, id);
                request_reply_json(r, MHD_HTTP_OK, status_to_json(r, NULL, id, 0, 0, LOG_LEVEL_INFO));
                return;
        }
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
