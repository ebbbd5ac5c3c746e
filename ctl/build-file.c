/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "ctl/build-file.h"
#include "ctl/spec.h"
#include "ctl/text.h"
#include "ctl/values.h"

#define FILE_BYTES_MAX MIB(1)
#define DEPTH_MAX 4

static const struct option options[] = { BUILD_OPTIONS, {} };

/* Those that may be given several times, and so are lists here. */
static const char *const lists[] = {
        "alias", "allow", "build-allow", "build-deny", "copy", "deny", "env", "inbound", "setup", "step", NULL,
};

/* What they name lies where the file lies. */
static const char *const paths[] = { "authfile", "cert-dir", "from", "kernel", "modules", NULL };

/* Names, not paths. */
static bool is_name(const struct option *option, const char *value) {
        return (option->val == BUILD_KERNEL && build_kernel_is_name(value)) ||
               (option->val == BUILD_FROM && startswith(value, "template:"));
}

/* In front of a path, not of an address. */
static const char *const transports[] = { "oci:", "oci-archive:", "docker-archive:", NULL };

static bool is_in(const char *const *l, const char *s) {
        for (; *l; l++)
                if (streq(*l, s))
                        return true;
        return false;
}

static const struct option *find_option(const char *name) {
        for (const struct option *i = options; i->name; i++)
                if (streq(i->name, name))
                        return i;
        return NULL;
}

typedef struct Load {
        BuildFile *file;
        BuildOptions *options;
        const char *path;
        char *directory;      /* of the file, with a slash at its end; "" for here */
        const int *given;
        size_t n_given;
} Load;

static bool is_given(const Load *l, int option) {
        for (size_t i = 0; i < l->n_given; i++)
                if (l->given[i] == option)
                        return true;
        return false;
}

/* Takes over word; *ret lives as long as the file. */
static int keep_word(Load *l, char *word, const char **ret) {
        int r = word ? text_strv_add(&l->file->words, word) : -ENOMEM;

        free(word);
        if (r < 0)
                return r;
        size_t n = 0;
        while (l->file->words[n])
                n++;
        *ret = l->file->words[n - 1];
        return 0;
}

static size_t transport_length(const char *s) {
        for (const char *const *t = transports; *t; t++)
                if (startswith(s, *t))
                        return strlen(*t);
        return 0;
}

/* A path that begins where the file lies; an address and "-" stay. */
static int resolve(Load *l, const char *s, const char **ret) {
        size_t n = transport_length(s);
        char *word;

        *ret = s;
        if (s[n] == '/' || !s[n] || streq(s, "-") || (n == 0 && strstr(s, "://")) || isempty(l->directory))
                return 0;
        if (asprintf(&word, "%.*s%s%s", (int) n, s, l->directory, s + n) < 0)
                return -ENOMEM;
        return keep_word(l, word, ret);
}

static int get_string(const Load *l, const char *key, json_object *v, const char **ret) {
        if (!json_object_is_type(v, json_type_string))
                return ctl_usage("%s: \"%s\" holds something that is not text.", l->path, key);
        *ret = json_object_get_string(v);
        if (strlen(*ret) != (size_t) json_object_get_string_len(v))
                return ctl_usage("%s: \"%s\" holds a NUL character.", l->path, key);
        return 0;
}

/* A number may stand without quotes. */
static int get_value(Load *l, const char *key, json_object *v, const char **ret) {
        char *word;

        if (!json_object_is_type(v, json_type_int))
                return get_string(l, key, v, ret);
        if (asprintf(&word, "%" PRId64, json_object_get_int64(v)) < 0)
                return -ENOMEM;
        return keep_word(l, word, ret);
}

/* What the step that was just added copies lies where the file lies, too. */
static int resolve_step(Load *l, BuildStep *step) {
        char *path;

        if (!step->source || *step->source == '/' || isempty(l->directory))
                return 0;
        int r = path_join(l->directory, step->source, &path);
        if (r < 0)
                return r;
        free(step->source);
        step->source = path;
        return 0;
}

static int apply(Load *l, const struct option *option, const char *value) {
        const char *word = value;

        if ((is_in(paths, option->name) || streq(option->name, "copy")) &&
            !is_name(option, value)) {
                int r = resolve(l, value, &word);
                if (r < 0)
                        return r;
        }
        if (is_given(l, option->val))
                return 0;
        optarg = (char *) word;
        int r = build_option(l->options, option->val);
        if (r >= 0 && option->val == BUILD_STEP)
                r = resolve_step(l, &l->options->steps[l->options->n_steps - 1]);
        if (r < 0)
                ctl_note("That is \"%s\" in %s.", option->name, l->path);
        return r;
}

static int take_list(Load *l, const struct option *option, json_object *v) {
        int r = 0;

        if (!json_object_is_type(v, json_type_array))
                return ctl_usage("%s: \"%s\" is not a list.", l->path, option->name);
        for (size_t i = 0; i < json_object_array_length(v) && r >= 0; i++) {
                const char *word;

                r = get_string(l, option->name, json_object_array_get_idx(v, i), &word);
                if (r >= 0)
                        r = apply(l, option, word);
        }
        return r;
}

static int take_switch(Load *l, const struct option *option, json_object *v) {
        if (!json_object_is_type(v, json_type_boolean))
                return ctl_usage("%s: \"%s\" is neither true nor false.", l->path, option->name);
        return json_object_get_boolean(v) ? apply(l, option, NULL) : 0;
}

static int take_value(Load *l, const struct option *option, json_object *v) {
        const char *word = NULL;

        int r = get_value(l, option->name, v, &word);
        return r < 0 ? r : apply(l, option, word);
}

static int take_name(Load *l, json_object *v) {
        int r = get_string(l, "name", v, &l->file->name);

        if (r >= 0)
                r = value_template_name(l->file->name);
        if (r < 0)
                ctl_note("That is \"name\" in %s.", l->path);
        return r;
}

static int take_key(Load *l, const char *key, json_object *v) {
        const struct option *option = find_option(key);

        if (streq(key, "name"))
                return take_name(l, v);
        if (!option)
                return ctl_usage("%s: there is no key \"%s\"; cube.json(5) has them all.", l->path, key);
        if (option->has_arg == no_argument)
                return take_switch(l, option, v);
        return is_in(lists, key) ? take_list(l, option, v) : take_value(l, option, v);
}

static unsigned line_of(const char *text, size_t offset) {
        unsigned n = 1;

        for (size_t i = 0; i < offset; i++)
                n += text[i] == '\n';
        return n;
}

static int parse(const Load *l, const char *text, size_t size) {
        struct json_tokener *t = json_tokener_new_ex(DEPTH_MAX);

        if (!t)
                return -ENOMEM;
        json_tokener_set_flags(t, JSON_TOKENER_VALIDATE_UTF8);
        l->file->root = json_tokener_parse_ex(t, text, (int) size);
        enum json_tokener_error e = json_tokener_get_error(t);
        size_t end = MIN(json_tokener_get_parse_end(t), size);
        json_tokener_free(t);

        if (e == json_tokener_continue)
                return ctl_usage("%s: it ends amid something.", l->path);
        if (e != json_tokener_success)
                return ctl_usage("%s:%u: %s.", l->path, line_of(text, end), json_tokener_error_desc(e));
        if (strspn(text + end, " \t\r\n") != size - end)
                return ctl_usage("%s:%u: something stands behind the end.", l->path, line_of(text, end));
        if (!json_object_is_type(l->file->root, json_type_object))
                return ctl_usage("%s is not an object: {...}.", l->path);
        return 0;
}

static int read_text(const char *path, char **ret, size_t *ret_size) {
        int r = read_file(AT_FDCWD, path, FILE_BYTES_MAX, ret, ret_size);
        return r < 0 ? ctl_fail(r, NULL, "read %s", path) : 0;
}

int build_file_load(BuildFile *f, const char *path, const int *given, size_t n_given, BuildOptions *o) {
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *text = NULL, *directory = strndup(path, slash ? (size_t) (slash - path) + 1 : 0);
        Load l = { f, o, path, directory, given, n_given };
        size_t size = 0;

        if (!directory)
                return -ENOMEM;
        int r = read_text(path, &text, &size);
        if (r >= 0)
                r = parse(&l, text, size);
        if (r < 0)
                return r;
        json_object_object_foreach(f->root, key, value) {
                r = take_key(&l, key, value);
                if (r < 0)
                        return r;
        }
        return 0;
}

void build_file_done(BuildFile *f) {
        f->words = text_strv_free(f->words);
        json_object_put(f->root);
        f->root = NULL;
}
