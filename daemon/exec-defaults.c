/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "base/utf8.h"
#include "daemon/exec-defaults.h"
#include "daemon/json-strict.h"

#define ENV_MAX 1024U
#define ENV_BYTES_MAX 65536U

void exec_defaults_done(ExecDefaults *d) {
        for (char **e = d->env; e && *e; e++)
                free(*e);
        free(d->env);
        free(d->user);
        free(d->cwd);
        *d = (ExecDefaults) {};
}

int exec_defaults_copy(const ExecDefaults *d, ExecDefaults *ret) {
        size_t n = 0;

        while (d->env && d->env[n])
                n++;
        *ret = (ExecDefaults) { .env = new0(char *, n + 1) };
        int r = ret->env ? 0 : -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++) {
                ret->env[i] = strdup(d->env[i]);
                r = ret->env[i] ? 0 : -ENOMEM;
        }
        if (r >= 0 && ((d->user && !(ret->user = strdup(d->user))) || (d->cwd && !(ret->cwd = strdup(d->cwd)))))
                r = -ENOMEM;
        if (r < 0)
                exec_defaults_done(ret);
        return r;
}

bool exec_defaults_empty(const ExecDefaults *d) {
        return (!d->env || !d->env[0]) && !d->user && !d->cwd;
}

bool exec_defaults_fit_bus(const ExecDefaults *d) {
        return (!d->user || text_fits_bus(d->user)) && (!d->cwd || text_fits_bus(d->cwd));
}

static int env_to_json(const ExecDefaults *d, json_object *o) {
        json_object *array = json_object_new_array();

        if (!array)
                return -ENOMEM;
        int r = json_add(o, "env", array);
        for (char **e = d->env; r >= 0 && e && *e; e++)
                r = json_object_array_add(array, json_object_new_string(*e)) < 0 ? -ENOMEM : 0;
        return r;
}

int exec_defaults_to_json(const ExecDefaults *d, json_object **ret) {
        _cleanup_json_ json_object *o = json_object_new_object();
        if (!o)
                return -ENOMEM;

        int r = env_to_json(d, o);
        if (r >= 0 && d->user)
                r = json_add_string(o, "user", d->user);
        if (r >= 0 && d->cwd)
                r = json_add_string(o, "cwd", d->cwd);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static int env_from_json(json_object *o, ExecDefaults *d) {
        json_object *array;
        size_t bytes = 0;

        int r = json_get(o, "env", json_type_array, &array);
        if (r < 0)
                return r;
        size_t n = json_object_array_length(array);
        if (n > ENV_MAX)
                return -EBADMSG;
        d->env = new0(char *, n + 1);
        if (!d->env)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                json_object *e = json_object_array_get_idx(array, i);
                const char *s = json_object_is_type(e, json_type_string) ? json_object_get_string(e) : "";

                bytes += strlen(s) + 1;
                if (!env_assignment_valid(s) || strlen(s) != (size_t) json_object_get_string_len(e) || bytes > ENV_BYTES_MAX)
                        return -EBADMSG;
                d->env[i] = strdup(s);
                if (!d->env[i])
                        return -ENOMEM;
        }
        return 0;
}

int exec_defaults_from_json(json_object *o, ExecDefaults *ret) {
        static const char *const keys[] = { "env", "user", "cwd", NULL };
        _cleanup_(exec_defaults_done) ExecDefaults d = {};

        int r = json_object_is_type(o, json_type_object) ? json_check_keys(o, keys) : -EBADMSG;
        if (r >= 0)
                r = env_from_json(o, &d);
        if (r >= 0)
                r = json_dup_optional(o, "user", EXEC_USER_MAX, &d.user);
        if (r >= 0)
                r = json_dup_optional(o, "cwd", EXEC_CWD_MAX, &d.cwd);
        if (r >= 0 && ((d.user && !*d.user) || (d.cwd && *d.cwd != '/')))
                r = -EBADMSG;
        if (r < 0)
                return r;
        *ret = d;
        d = (ExecDefaults) {};
        return 0;
}
