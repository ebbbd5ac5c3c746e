/* SPDX-License-Identifier: Apache-2.0 */

/* Creating a sandbox, from a template or from a snapshot of the tenant's. A name is a template's first: only when there
 * is none of that name are the snapshots looked through. It is answered when its guest serves clients. */

#include <stdio.h>

#include "gateway/labels.h"
#include "gateway/op-common.h"
#include "gateway/repeat.h"
#include "gateway/serve.h"

static void on_created(Request *r, sd_bus_message *reply, const sd_bus_error *error);

static int append_label(sd_bus_message *m, const char *name, const char *value) {
        return sd_bus_message_append(m, "{ss}", name, value);
}

static int append_request(sd_bus_message *m, const Request *r) {
        char fingerprint[TOKEN_SIZE];

        repeat_fingerprint(r, fingerprint);
        return append_label(m, LABEL_REQUEST, fingerprint);
}

static int append_labels(sd_bus_message *m, const Request *r, const CreateSpec *s) {
        int k = labels_begin(m);

        if (k >= 0 && s->secure)
                k = append_label(m, LABEL_SECURE, "yes");
        if (k >= 0 && s->network.secured)
                k = append_label(m, LABEL_TRAFFIC, "token");
        if (k >= 0 && !isempty(s->network.mask_host))
                k = append_label(m, LABEL_MASK_HOST, s->network.mask_host);
        if (k >= 0 && *r->repeat_id)
                k = append_request(m, r);
        if (k >= 0 && *s->network.https_ports)
                k = append_label(m, LABEL_HTTPS_PORTS, s->network.https_ports);
        if (k >= 0 && s->metadata)
                k = append_label(m, LABEL_METADATA, json_object_to_json_string_ext(s->metadata, JSON_C_TO_STRING_PLAIN));
        return k < 0 ? k : labels_end(m);
}

static int append_policy(sd_bus_message *m, const NetworkSpec *n) {
        int k = sd_bus_message_open_container(m, 'e', "sv");

        if (k >= 0)
                k = sd_bus_message_append_basic(m, 's', "network-policy");
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'v', "a{sv}");
        if (k >= 0)
                k = network_append(m, n);
        for (unsigned i = 0; k >= 0 && i < 2; i++)
                k = sd_bus_message_close_container(m);
        return k;
}

static int make_call(Request *r, const CreateSpec *s, sd_bus_message **ret) {
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "CreateSandbox", ret);

        if (k >= 0)
                k = sd_bus_message_append_basic(*ret, 's', r->source);
        if (k >= 0)
                k = sd_bus_message_open_container(*ret, 'a', "{sv}");
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "tenant", "s", r->tenant);
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "timeout", "t", s->timeout_usec);
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "on-timeout", "s", s->on_timeout);
        if (k >= 0 && s->auto_resume)
                k = sd_bus_message_append(*ret, "{sv}", "auto-resume", "b", 1);
        /* Until its client is told: else one whose gateway is killed before that would be left. */
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "bind-client", "b", 1);
        if (k >= 0)
                k = append_labels(*ret, r, s);
        if (k >= 0 && *r->repeat_id)
                k = sd_bus_message_append(*ret, "{sv}", "request-id", "s", r->repeat_id);
        if (k >= 0)
                k = append_policy(*ret, &s->network);
        return k < 0 ? k : sd_bus_message_close_container(*ret);
}

static void create(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        CreateSpec s;

        int k = create_spec_parse(r->json, &r->gateway->config, request_is_v2(r), &s, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = make_call(r, &s, &m);
        cubed_call_asking(r, m, k, on_created);
}

static void on_found(Request *r, const char *snapshot) {
        if (!snapshot) {
                reply_no_template(r);
                return;
        }
        (void) snprintf(r->source, sizeof(r->source), "snapshot:%s", snapshot);
        create(r);
}

static void on_template(Request *r) {
        if (!r->template.cubed_id[0]) {
                snapshot_find(r, on_found);
                return;
        }
        (void) snprintf(r->source, sizeof(r->source), "template:%s", r->template.cubed_id);
        create(r);
}

static void on_served(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_not_served(r, error);
        else
                reply_sandbox(r, MHD_HTTP_CREATED);
}

static void serve(Request *r) {
        json_object *variables;
        ErrorText error = {};

        if (!repeat_is_same(r))
                return;
        r->made = !repeat_was_before(r);
        /* It was served then. */
        if (!r->made && !streq(info_string(r->sandbox, "State"), "running")) {
                reply_sandbox(r, MHD_HTTP_CREATED);
                return;
        }
        int k = variables_parse(r->json, &variables, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        ServeSpec s = serve_spec(r, !variables && startswith(r->source, "snapshot:"), variables);
        s.unbind = true;
        serve_envd(r, &s, on_served);
}

static void on_created(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        const char *id;

        /* Removed meanwhile. */
        if (error && sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_TEMPLATE)) {
                reply_no_template(r);
                return;
        }
        if (error) {
                reply_policy_error(r, error);
                return;
        }
        int k = sd_bus_message_read(reply, "so", &id, NULL);
        if (k < 0) {
                reply_errno(r, k);
                return;
        }
        (void) snprintf(r->sandbox_id, sizeof(r->sandbox_id), "%s", id);
        /* Whether another request made it, of which its client may have been told, its properties say. */
        r->made = !*r->repeat_id;
        cubed_get_sandbox(r, serve);
}

void op_create(Request *r) {
        ErrorText error = {};
        CreateSpec s;

        if (!repeat_begin(r))
                return;
        int k = create_spec_parse(r->json, &r->gateway->config, request_is_v2(r), &s, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = template_ref_parse(s.template_ref, r->tenant, &r->ref);
        if (k == -EINVAL)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid template reference: %.100s", s.template_ref);
        else if (k < 0)
                reply_no_template(r);
        else
                template_find(r, on_template);
}
