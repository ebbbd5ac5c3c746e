/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "gateway/bus-json.h"
#include "gateway/labels.h"
#include "gateway/serve.h"

/* Of E2B's templates, where one says nothing of it. A guest whose image has none serves root. */
#define USER "user"

static int append_token(sd_bus_message *m, const Request *r, const ServeSpec *s) {
        char token[TOKEN_SIZE];

        if (!s->secure)
                return 0;
        token_derive(&r->gateway->host_key, "envd", s->id, token);
        int k = sd_bus_message_append(m, "{sv}", "token", "s", token);
        explicit_bzero(token, sizeof(token));
        return k;
}

static int append_variable(sd_bus_message *m, const char *name, const char *value) {
        _cleanup_free_ char *text = NULL;

        if (asprintf(&text, "%s=%s", name, value) < 0) {
                text = NULL;
                return -ENOMEM;
        }
        int k = sd_bus_message_append_basic(m, 's', text);
        explicit_bzero(text, strlen(text));
        return k;
}

static int append_variables(sd_bus_message *m, const ServeSpec *s) {
        int k = sd_bus_message_open_container(m, 'e', "sv");

        if (k >= 0)
                k = sd_bus_message_append_basic(m, 's', "env");
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'v', "as");
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "s");
        if (k >= 0)
                k = append_variable(m, "E2B_SANDBOX_ID", s->id);
        if (k >= 0)
                k = append_variable(m, "E2B_TEMPLATE_ID", s->template_id);
        if (s->variables) {
                json_object_object_foreach(s->variables, name, value) {
                        if (k >= 0)
                                k = append_variable(m, name, json_object_get_string(value));
                }
        }
        for (unsigned i = 0; k >= 0 && i < 3; i++)
                k = sd_bus_message_close_container(m);
        return k;
}

static int make_call(Request *r, const ServeSpec *s, sd_bus_message **ret) {
        char path[CUBE_BUS_PATH_MAX];

        int k = cubed_message(r, client_path(path, CUBE_BUS_PATH_SANDBOX, s->id), CUBE_BUS_SANDBOX, "ServeEnvd", ret);
        if (k >= 0)
                k = sd_bus_message_sensitive(*ret);
        if (k >= 0)
                k = sd_bus_message_open_container(*ret, 'a', "{sv}");
        if (k >= 0)
                k = append_token(*ret, r, s);
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "user", "s", USER);
        if (k >= 0)
                k = sd_bus_message_append(*ret, "{sv}", "user-optional", "b", 1);
        if (k >= 0 && s->keep)
                k = sd_bus_message_append(*ret, "{sv}", "keep-env", "b", 1);
        if (k >= 0 && s->unbind)
                k = sd_bus_message_append(*ret, "{sv}", "unbind", "b", 1);
        if (k >= 0)
                k = append_variables(*ret, s);
        return k < 0 ? k : sd_bus_message_close_container(*ret);
}

ServeSpec serve_spec(const Request *r, bool keep, json_object *variables) {
        return (ServeSpec) {
                .id = r->sandbox_id,
                .template_id = info_string(r->sandbox, "Template"),
                .secure = streq(info_string(info_get(r->sandbox, "Labels"), LABEL_SECURE), "yes"),
                .keep = keep,
                .variables = variables,
        };
}

void serve_envd(Request *r, const ServeSpec *s, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = make_call(r, s, &m);
        cubed_call(r, m, k, done);
}

void reply_not_served(Request *r, const sd_bus_error *error) {
        if (cubed_is_away(error))
                request_may_come_again(r);
        /* What was waited for so long does not come by another wait. */
        if (sd_bus_error_has_name(error, BUS_ERROR_GUEST_TIMEOUT))
                request_may_not_come_again(r);
        request_reply_error(r, serve_status(error), NOT_SERVED, r->sandbox_id, client_error_text(error, 0));
}

unsigned serve_status(const sd_bus_error *error) {
        if (sd_bus_error_has_name(error, BUS_ERROR_GUEST_TIMEOUT))
                return MHD_HTTP_GATEWAY_TIMEOUT;
        if (sd_bus_error_has_name(error, BUS_ERROR_NO_RESOURCES) || cubed_is_away(error))
                return MHD_HTTP_SERVICE_UNAVAILABLE;
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
}
