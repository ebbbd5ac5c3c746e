/* SPDX-License-Identifier: Apache-2.0 */

/* E2B's envd in a guest, which listens once it is told to (guest/envd.h). The token passes through here to the agent, and is
 * kept nowhere. */

#include <limits.h>

#include "base/parse.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"

typedef struct EnvdOptions {
        const char *token, *user, *cwd;
        char **env;
        uint32_t port;
        bool user_optional, keep_env, unbind;
} EnvdOptions;

typedef struct Serving {
        sd_bus_message *call;
        bool unbind;
} Serving;

static int check(const EnvdOptions *o, sd_bus_error *error) {
        if (o->token && !*o->token)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "An empty token is none");
        if (o->cwd && (*o->cwd != '/' || strlen(o->cwd) >= PATH_MAX))
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "The directory is not an absolute path");
        if (o->port > UINT16_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "There is no port %u", o->port);
        /* Values are secrets, and the names may be parts of them. */
        for (char **e = o->env; e && *e; e++)
                if (!env_assignment_valid(*e))
                        return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "A variable is not of the form NAME=VALUE");
        return 0;
}

static const Template *find_template(const Sandbox *s) {
        const TemplateStore *store = s->manager->templates;

        for (size_t i = 0; i < store->n_templates; i++)
                if (streq(store->templates[i]->id, s->template_id))
                        return store->templates[i];
        return NULL;
}

/* As of programs that cubed starts. A template that is gone says nothing any more. */
static void set_defaults(EnvdOptions *o, const Template *t) {
        if (t && t->defaults.user && (!o->user || o->user_optional))
                o->user = t->defaults.user;
        if (t && t->defaults.cwd && !o->cwd)
                o->cwd = t->defaults.cwd;
}

static void put(TlvWriter *w, const EnvdOptions *o) {
        if (o->token)
                tlv_put_str(w, AGENT_TAG_TOKEN, o->token);
        if (o->user)
                tlv_put_str(w, AGENT_TAG_USER, o->user);
        if (o->cwd)
                tlv_put_str(w, AGENT_TAG_CWD, o->cwd);
        for (char **e = o->env; e && *e; e++)
                tlv_put_str(w, AGENT_TAG_ENV, *e);
        if (o->user_optional)
                tlv_put_u32(w, AGENT_TAG_USER_OPTIONAL, 1);
        if (o->keep_env)
                tlv_put_u32(w, AGENT_TAG_KEEP_ENV, 1);
        if (o->port > 0)
                tlv_put_u32(w, AGENT_TAG_PORT, o->port);
}

static void on_served(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        Serving *v = userdata;

        if (more && !sd_bus_error_is_set(error))
                return;
        if (sd_bus_error_is_set(error))
                bus_reply_error(v->call, error, 0);
        else {
                if (v->unbind)
                        bus_unbind(s, v->call);
                (void) sd_bus_reply_method_return(v->call, NULL);
        }
        sd_bus_message_unref(v->call);
        free(v);
}

static int serve(sd_bus_message *m, Sandbox *s, const TlvWriter *body, bool unbind, sd_bus_error *error) {
        int r = tlv_writer_finish(body);
        if (r < 0)
                return r;

        Serving *v = new0(Serving, 1);
        if (!v)
                return -ENOMEM;
        *v = (Serving) { .call = sd_bus_message_ref(m), .unbind = unbind };
        r = sandbox_agent_request(s, AGENT_ENVD, body, on_served, v, error);
        if (r < 0) {
                sd_bus_message_unref(v->call);
                free(v);
                return r;
        }
        return 1;
}

int bus_method_serve_envd(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_strv_ char **env = NULL;
        EnvdOptions o = {};
        uid_t actor;
        const BusOption options[] = {
                { "token", BUS_OPTION_STRING, &o.token, 0 },
                { "user", BUS_OPTION_STRING, &o.user, 0 },
                { "user-optional", BUS_OPTION_BOOL, &o.user_optional, 0 },
                { "cwd", BUS_OPTION_STRING, &o.cwd, 0 },
                { "env", BUS_OPTION_STRV, &env, 0 },
                { "keep-env", BUS_OPTION_BOOL, &o.keep_env, 0 },
                { "port", BUS_OPTION_U32, &o.port, BUS_OPTION_NONZERO },
                { "unbind", BUS_OPTION_BOOL, &o.unbind, 0 },
        };

        int r = bus_authorize_sandbox(m, userdata, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        o.env = env;
        r = check(&o, error);
        if (r < 0)
                return r;

        set_defaults(&o, find_template(userdata));
        put(&body, &o);
        return serve(m, userdata, &body, o.unbind, error);
}
