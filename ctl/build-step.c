/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/build-step.h"
#include "ctl/ctl.h"

#define SPACE " \t\n"

static const char *skip_space(const char *s) {
        return s + strspn(s, SPACE);
}

static int add(BuildStep *step, const char *s, size_t size) {
        char *copy = strndup(s, size);

        if (!copy)
                return -ENOMEM;
        step->args[step->n_args++] = copy;
        return 0;
}

/* Where *s begins with "NAME=WORD" it is cut off, and *ret is the word; else "". */
static size_t cut_option(const char **s, const char *name, const char **ret) {
        const char *value = startswith(*s, name);
        size_t n = value ? strcspn(value, SPACE) : 0;

        *ret = "";
        if (!value)
                return 0;
        *ret = value;
        *s = skip_space(value + n);
        return n;
}

static int no_words(const char *type, const char *takes) {
        return ctl_usage("--step: %s takes %s.", type, takes);
}

static int parse_run(const char *s, BuildStep *step) {
        const char *user;
        size_t n = cut_option(&s, "--user=", &user);

        if (!*s)
                return no_words("RUN", "[--user=USER] COMMAND");
        int r = add(step, s, strlen(s));
        return r < 0 || n == 0 ? r : add(step, user, n);
}

/* SRC may have spaces in it. */
static int parse_copy(const char *s, BuildStep *step) {
        const char *owner, *mode;
        size_t n_owner = cut_option(&s, "--chown=", &owner), n_mode = cut_option(&s, "--chmod=", &mode);
        size_t end = strlen(s), n;

        while (end > 0 && strchr(SPACE, s[end - 1]))
                end--;
        for (n = end; n > 0 && !strchr(SPACE, s[n - 1]); n--)
                ;
        const char *target = s + n;
        size_t n_target = end - n;
        while (n > 0 && strchr(SPACE, s[n - 1]))
                n--;
        if (n == 0)
                return no_words("COPY", "[--chown=USER[:GROUP]] [--chmod=MODE] SRC DEST");
        step->source = strndup(s, n);
        if (!step->source)
                return -ENOMEM;
        /* The archive and the path in it. */
        step->n_args = 2;
        int r = add(step, target, n_target);
        if (r >= 0)
                r = add(step, owner, n_owner);
        return r < 0 ? r : add(step, mode, n_mode);
}

/* A value is all that follows, with its spaces. */
static int parse_env(const char *s, BuildStep *step) {
        const char *equals = strchr(s, '=');

        if (!equals || equals == s || strcspn(s, SPACE) < (size_t) (equals - s))
                return no_words("ENV", "NAME=VALUE");
        int r = add(step, s, (size_t) (equals - s));
        return r < 0 ? r : add(step, equals + 1, strlen(equals + 1));
}

static int parse_workdir(const char *s, BuildStep *step) {
        return *s ? add(step, s, strlen(s)) : no_words("WORKDIR", "DIR");
}

static int parse_user(const char *s, BuildStep *step) {
        const char *rest = startswith(s, "--sudo");
        bool sudo = rest && strchr(SPACE, *rest);

        if (sudo)
                s = skip_space(rest);
        if (!*s || *s == '-' || s[strcspn(s, SPACE)])
                return no_words("USER", "[--sudo] NAME");
        int r = add(step, s, strlen(s));
        return r < 0 || !sudo ? r : add(step, "true", strlen("true"));
}

static const struct {
        const char *type;
        int (*parse)(const char *s, BuildStep *step);
} types[] = {
        { "RUN", parse_run },
        { "COPY", parse_copy },
        { "ENV", parse_env },
        { "WORKDIR", parse_workdir },
        { "USER", parse_user },
};

int build_step_parse(const char *s, BuildStep *ret) {
        size_t n;

        *ret = (BuildStep) {};
        s = skip_space(s);
        n = strcspn(s, SPACE);
        for (size_t i = 0; i < ELEMENTSOF(types); i++) {
                if (n != strlen(types[i].type) || strncmp(s, types[i].type, n) != 0)
                        continue;
                ret->type = types[i].type;
                int r = types[i].parse(skip_space(s + n), ret);
                if (r < 0)
                        build_step_done(ret);
                return r;
        }
        return ctl_usage("--step: a step begins with RUN, COPY, ENV, WORKDIR or USER, not with '%.*s'.", (int) MIN(n, (size_t) 32), s);
}

void build_step_done(BuildStep *s) {
        for (size_t i = 0; i < s->n_args; i++)
                free(s->args[i]);
        free(s->source);
        *s = (BuildStep) {};
}
