/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-util.h"

/* A label's key: it comes back as the key of a dictionary and stands in KEY=VALUE in between. */
static bool dict_key_valid(const char *s) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-");
        return n > 0 && n <= 128 && s[n] == 0;
}

/* More than any option may have; what an option's own limit is, its user knows. */
#define DICT_ENTRIES_MAX 1024U

static int dict_append(char ***l, size_t *n, const char *key, const char *value) {
        char **grown = realloc(*l, (*n + 2) * sizeof(char *));
        if (!grown)
                return -ENOMEM;
        *l = grown;

        if (asprintf(&grown[*n], "%s=%s", key, value) < 0) {
                grown[*n] = NULL;
                return -ENOMEM;
        }
        grown[++*n] = NULL;
        return 0;
}

static int read_dict(sd_bus_message *m, const BusOption *o, sd_bus_error *error) {
        _cleanup_strv_ char **l = NULL;
        const char *key, *value;
        size_t n = 0;

        int r = sd_bus_message_enter_container(m, 'a', "{ss}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "{ss}", &key, &value)) > 0) {
                if (!dict_key_valid(key))
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                                 "Option '%s': '%s' is not a valid key (letters, digits, . _ / -)",
                                                 o->name, key);
                if (n == DICT_ENTRIES_MAX)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option '%s' has more than %u entries",
                                                 o->name, DICT_ENTRIES_MAX);
                r = dict_append(&l, &n, key, value);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;

        *(char ***) o->value = TAKE_PTR(l);
        return sd_bus_message_exit_container(m);
}

/* Not sd_bus_message_read_strv(): that counts all strings again for each one, which takes minutes for what fits into a
 * message. */
int bus_read_strings(sd_bus_message *m, char ***ret, sd_bus_error *error) {
        _cleanup_strv_ char **l = NULL;
        size_t n = 0, allocated = 0;
        const char *s;

        int r = sd_bus_message_enter_container(m, 'a', "s");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read_basic(m, 's', &s)) > 0) {
                if (n == BUS_STRINGS_MAX)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "A list has more than %u entries",
                                                 BUS_STRINGS_MAX);
                if (n + 1 >= allocated) {
                        allocated = allocated * 2 + 16;
                        char **grown = realloc(l, allocated * sizeof(char *));
                        if (!grown)
                                return -ENOMEM;
                        l = grown;
                }
                l[n] = strdup(s);
                l[++n] = NULL;
                if (!l[n - 1])
                        return -ENOMEM;
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(l);
        return sd_bus_message_exit_container(m);
}

static int read_files(sd_bus_message *m, const BusOption *o, sd_bus_error *error) {
        BusFiles *files = o->value;
        const char *name;
        int fd;

        int r = sd_bus_message_enter_container(m, 'a', "(hs)");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "(hs)", &fd, &name)) > 0) {
                if (files->n == BUS_FILES_MAX)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option '%s' has more than %u entries",
                                                 o->name, BUS_FILES_MAX);
                files->files[files->n].fd = fd;
                files->files[files->n++].name = name;
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

void bus_steps_done(BusSteps *s) {
        for (size_t i = 0; i < s->n; i++) {
                free(s->steps[i].type);
                strv_free(s->steps[i].args);
        }
        free(s->steps);
        *s = (BusSteps) {};
}

static int read_step(sd_bus_message *m, BusSteps *s, sd_bus_error *error) {
        TemplateStep *step = &s->steps[s->n];
        const char *type;

        int r = sd_bus_message_read_basic(m, 's', &type);
        if (r < 0)
                return r;
        *step = (TemplateStep) { .type = strdup(type) };
        s->n++;
        return step->type ? bus_read_strings(m, &step->args, error) : -ENOMEM;
}

static int read_steps(sd_bus_message *m, const BusOption *o, sd_bus_error *error) {
        BusSteps *s = o->value;

        s->steps = new0(TemplateStep, TEMPLATE_STEPS_MAX);
        if (!s->steps)
                return -ENOMEM;
        int r = sd_bus_message_enter_container(m, 'a', "(sas)");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'r', "sas")) > 0) {
                if (s->n == TEMPLATE_STEPS_MAX)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option '%s' has more than %u entries",
                                                 o->name, TEMPLATE_STEPS_MAX);
                r = read_step(m, s, error);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int read_value(sd_bus_message *m, const BusOption *o, sd_bus_error *error) {
        int r, flag;

        switch (o->type) {
        case BUS_OPTION_U32:
                r = sd_bus_message_read_basic(m, 'u', o->value);
                if (r >= 0 && (o->flags & BUS_OPTION_NONZERO) && *(uint32_t *) o->value == 0)
                        break;
                return r;
        case BUS_OPTION_U64:
                r = sd_bus_message_read_basic(m, 't', o->value);
                if (r >= 0 && (o->flags & BUS_OPTION_NONZERO) && *(uint64_t *) o->value == 0)
                        break;
                return r;
        case BUS_OPTION_BOOL:
                r = sd_bus_message_read_basic(m, 'b', &flag);
                *(bool *) o->value = r >= 0 && flag;
                return r;
        case BUS_OPTION_STRING:
                return sd_bus_message_read_basic(m, 's', o->value);
        case BUS_OPTION_STRV:
                return bus_read_strings(m, o->value, error);
        case BUS_OPTION_DICT:
                return read_dict(m, o, error);
        case BUS_OPTION_FD:
                return sd_bus_message_read_basic(m, 'h', o->value);
        case BUS_OPTION_FILES:
                return read_files(m, o, error);
        case BUS_OPTION_STEPS:
                return read_steps(m, o, error);
        case BUS_OPTION_POLICY:
                return bus_policy_read(m, o->value, error);
        }

        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                 "Option '%s' is 0; leave it out for the default", o->name);
}

static const char *type_signature(BusOptionType t) {
        static const char *const signatures[] = {
                [BUS_OPTION_U32] = "u",    [BUS_OPTION_U64] = "t",      [BUS_OPTION_BOOL] = "b",
                [BUS_OPTION_STRING] = "s", [BUS_OPTION_STRV] = "as",    [BUS_OPTION_DICT] = "a{ss}",
                [BUS_OPTION_FD] = "h",      [BUS_OPTION_FILES] = "a(hs)", [BUS_OPTION_POLICY] = "a{sv}",
                [BUS_OPTION_STEPS] = "a(sas)",
        };
        return signatures[t];
}

static int find_option(const BusOption *table, size_t n, const char *key, const char *type, uint64_t *seen,
                       const BusOption **ret, sd_bus_error *error) {
        const BusOption *known = NULL, *found = NULL;

        for (size_t i = 0; i < n; i++) {
                if (!streq(table[i].name, key))
                        continue;
                if (*seen & UINT64_C(1) << i)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option '%s' is given twice", key);
                *seen |= UINT64_C(1) << i;
                known = &table[i];
                if (streq(type_signature(known->type), type))
                        found = known;
        }
        if (!known)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "This call has no option '%s'", key);
        if (!found)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option '%s' has type %s, but takes %s", key,
                                         type, type_signature(known->type));
        *ret = found;
        return 0;
}

static int read_option(sd_bus_message *m, const BusOption *table, size_t n, uint64_t *seen, sd_bus_error *error) {
        const BusOption *option = NULL;
        const char *key, *contents;

        int r = sd_bus_message_read_basic(m, 's', &key);
        if (r >= 0)
                r = sd_bus_message_peek_type(m, NULL, &contents);
        if (r >= 0)
                r = find_option(table, n, key, contents, seen, &option, error);
        if (r < 0)
                return r;

        r = sd_bus_message_enter_container(m, 'v', contents);
        if (r < 0)
                return r;
        r = read_value(m, option, error);
        if (r < 0)
                return r;
        return sd_bus_message_exit_container(m);
}

int bus_options_read(sd_bus_message *m, const BusOption *table, size_t n, sd_bus_error *error) {
        uint64_t seen = 0;

        assert(m);
        assert(n <= 64);

        int r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;

        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = read_option(m, table, n, &seen, error);
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;

        return sd_bus_message_exit_container(m);
}
