/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/utf8.h"
#include "gateway/build-spec.h"

#define CPUS_MAX 16
#define MEMORY_MIN 128
#define MEMORY_MAX (32 * 1024)
/* The image that clients mean when they say nothing. */
#define BASE_IMAGE "e2bdev/base"
#define BASE_TEMPLATE "base"
#define MEBIBYTE (UINT64_C(1024) * 1024)
/* What a path has before a part that stands for several names, which the client has found out. */
#define PATTERN "*?[{\\"

int image_template(const char *image, TemplateRef *ret) {
        static const char *const prefixes[] = { "docker.io/", "library/" };
        const char *rest = startswith(image, BASE_IMAGE);

        if (rest && (!*rest || streq(rest, ":latest")))
                image = BASE_TEMPLATE;
        for (size_t i = 0; i < ELEMENTSOF(prefixes); i++)
                image = startswith(image, prefixes[i]) ?: image;
        if (strchr(image, '/') || template_ref_parse(image, "", ret) < 0)
                return -ENOENT;
        ret->host = true;
        /* cubed has it without. */
        if (streq(ret->tag, "latest"))
                ret->tag[0] = 0;
        return 0;
}

bool files_hash_valid(const char *s) {
        return strspn(s, "0123456789abcdef") == FILES_HASH_SIZE - 1 && !s[FILES_HASH_SIZE - 1];
}

static void lower(char *s) {
        for (; *s; s++)
                if (*s >= 'A' && *s <= 'Z')
                        *s = (char) (*s - 'A' + 'a');
}

/* The same twice is once. */
static int add_tag(const char *text, char tags[static BUILD_TAGS_MAX][TEMPLATE_REF_MAX], size_t *n, ErrorText *error) {
        char tag[TEMPLATE_REF_MAX];

        if (strlen(text) >= sizeof(tag))
                return error_text(error, "Invalid tag: it is too long");
        strcpy(tag, text);
        lower(tag);
        if (!template_client_tag_valid(tag))
                return error_text(error, "Invalid tag: %.64s: letters, digits and ._- are allowed, and it is no UUID", text);
        for (size_t i = 0; i < *n; i++)
                if (streq(tags[i], tag))
                        return 0;
        if (*n == BUILD_TAGS_MAX)
                return error_text(error, "A template can be given %u tags at once", BUILD_TAGS_MAX);
        strcpy(tags[(*n)++], tag);
        return 0;
}

int tags_parse(json_object *body, char ret[static BUILD_TAGS_MAX][TEMPLATE_REF_MAX], size_t *n, ErrorText *error) {
        json_object *tags = NULL;

        int r = field_strings(body, "tags", &tags, error);
        for (size_t i = 0; r > 0 && i < json_object_array_length(tags); i++) {
                int k = add_tag(json_object_get_string(json_object_array_get_idx(tags, i)), ret, n, error);
                if (k < 0)
                        return k;
        }
        return r < 0 ? r : 0;
}

static int parse_size(json_object *body, const char *name, int64_t least, int64_t most, int64_t *ret, ErrorText *error) {
        int r = field_int(body, name, ret, error);

        if (r > 0 && (*ret < least || *ret > most))
                return error_text(error, "%s has to be from %lld to %lld", name, (long long) least, (long long) most);
        return r;
}

static int parse_name(json_object *body, const char *tenant, BuildRequest *ret, ErrorText *error) {
        const char *text = NULL;
        TemplateRef ref;

        int r = field_string(body, "name", &text, error);
        if (r == 0)
                r = field_string(body, "alias", &text, error);
        if (r < 0)
                return r;
        if (r == 0)
                return error_text(error, "Name is required");
        if (template_ref_parse(text, tenant, &ref) < 0)
                return error_text(error, "Invalid name: %.100s", text);
        lower(ref.name);
        if (!template_client_name_valid(ref.name, tenant))
                return error_text(error, "Invalid name: %.64s: letters, digits, - and _ are allowed, %zu at most", ref.name,
                                  TEMPLATE_REF_MAX - 3 - strlen(tenant));
        strcpy(ret->name, ref.name);
        return strchr(text, ':') ? add_tag(ref.tag[0] ? ref.tag : DEFAULT_TAG, ret->tags, &ret->n_tags, error) : 0;
}

int build_request_parse(json_object *body, const char *tenant, BuildRequest *ret, ErrorText *error) {
        int64_t cpus = 0, memory = 0;

        *ret = (BuildRequest) {};
        int r = parse_name(body, tenant, ret, error);
        if (r >= 0)
                r = tags_parse(body, ret->tags, &ret->n_tags, error);
        if (r >= 0 && ret->n_tags == 0)
                r = add_tag(DEFAULT_TAG, ret->tags, &ret->n_tags, error);
        if (r >= 0)
                r = parse_size(body, "cpuCount", 1, CPUS_MAX, &cpus, error);
        if (r >= 0)
                r = parse_size(body, "memoryMB", MEMORY_MIN, MEMORY_MAX, &memory, error);
        if (r < 0)
                return r;
        ret->cpus = (uint32_t) cpus;
        ret->memory = (uint64_t) memory * MEBIBYTE;
        return 0;
}

/* Steps. */

static const char *step_argument(const BuildStep *s, size_t i) {
        return strempty(json_object_get_string(json_object_array_get_idx(s->args, i)));
}

/* Up to the first part that is a pattern, without "." and ".."; what would lead out is refused. */
static int parse_source(BuildStep *s, size_t at, ErrorText *error) {
        const char *p = step_argument(s, 0);
        size_t n = 0;

        if (*p == '/')
                return error_text(error, "step %zu: the source of a COPY is an absolute path", at);
        while (*p) {
                size_t k = strcspn(p, "/");
                if (memchr(p, 0, k) || strcspn(p, PATTERN) < k)
                        break;
                if (k == 2 && memcmp(p, "..", 2) == 0) {
                        if (n == 0)
                                return error_text(error, "step %zu: the source of a COPY leads out of its files", at);
                        while (n > 0 && s->source[--n] != '/')
                                ;
                } else if (k > 0 && !(k == 1 && *p == '.')) {
                        if (n + k + 2 > sizeof(s->source))
                                return error_text(error, "step %zu: the source of a COPY is too long", at);
                        if (n > 0)
                                s->source[n++] = '/';
                        memcpy(s->source + n, p, k);
                        n += k;
                }
                p += k + (p[k] == '/');
        }
        strcpy(s->source + n, n == 0 ? "." : "");
        return 0;
}

static int parse_step(json_object *o, size_t at, BuildStep *ret, ErrorText *error) {
        static const struct {
                const char *type;
                size_t least, most;
        } types[] = { { "RUN", 1, 2 }, { "COPY", 2, 4 }, { "ENV", 2, 256 }, { "WORKDIR", 1, 1 }, { "USER", 1, 2 } };
        size_t i = 0, n;

        if (!json_object_is_type(o, json_type_object))
                return error_text(error, "step %zu is not an object", at);
        int r = field_string(o, "type", &ret->type, error);
        if (r > 0)
                r = field_strings(o, "args", &ret->args, error);
        if (r >= 0 && (!ret->type || !ret->args))
                return error_text(error, "step %zu has no type or no args", at);
        if (r >= 0)
                r = field_string(o, "filesHash", &ret->files_hash, error);
        if (r < 0)
                return r;
        for (size_t a = 0; a < json_object_array_length(ret->args); a++)
                if (!text_fits_bus(step_argument(ret, a)))
                        return error_text(error, "step %zu: an argument has a character that stands for none", at);
        while (i < ELEMENTSOF(types) && !streq(types[i].type, ret->type))
                i++;
        if (i == ELEMENTSOF(types))
                return error_text(error, "step %zu: there are no steps of type %.32s", at, ret->type);
        n = json_object_array_length(ret->args);
        if (n < types[i].least || n > types[i].most || (streq(ret->type, "ENV") && n % 2 != 0))
                return error_text(error, "step %zu: %s takes other arguments than these %zu", at, ret->type, n);
        if (!streq(ret->type, "COPY")) {
                /* Files come with a COPY alone; what else is said to have some was not looked at. */
                ret->files_hash = NULL;
                return 0;
        }
        if (!ret->files_hash || !files_hash_valid(ret->files_hash))
                return error_text(error, "step %zu: COPY requires files hash to be set", at);
        return parse_source(ret, at, error);
}

static int parse_force(json_object *step, size_t at, BuildSpec *ret, ErrorText *error) {
        bool force = false;

        int r = field_bool(step, "force", &force, error);
        if (r >= 0 && force && ret->force_step == 0)
                ret->force_step = at;
        return r;
}

static int parse_steps(json_object *body, BuildSpec *ret, ErrorText *error) {
        json_object *steps;

        if (!json_object_object_get_ex(body, "steps", &steps) || json_object_is_type(steps, json_type_null))
                return 0;
        if (!json_object_is_type(steps, json_type_array))
                return error_text(error, "validation error: field 'steps' is not a list");
        size_t n = json_object_array_length(steps);
        if (n > BUILD_STEPS_MAX)
                return error_text(error, "A template can have %u steps at most", BUILD_STEPS_MAX);
        ret->steps = new0(BuildStep, n + 1);
        if (!ret->steps)
                return -ENOMEM;
        for (; ret->n_steps < n; ret->n_steps++) {
                json_object *step = json_object_array_get_idx(steps, ret->n_steps);
                int r = parse_step(step, ret->n_steps + 1, &ret->steps[ret->n_steps], error);
                if (r >= 0)
                        r = parse_force(step, ret->n_steps + 1, ret, error);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* The user of whom Google's registries take the key of a service account as the password. */
#define GCP_USER "_json_key"

static int parse_registry(json_object *body, BuildSpec *ret, ErrorText *error) {
        json_object *registry = NULL;
        const char *type = NULL;

        int r = field_object(body, "fromImageRegistry", &registry, error);
        if (r <= 0)
                return r;
        r = field_string(registry, "type", &type, error);
        if (r < 0)
                return r;
        if (streq(strempty(type), "aws"))
                return error_text(error, "fromImageRegistry: this host makes no passwords of AWS keys; give what 'aws ecr get-login-password' "
                                  "prints as the password of user AWS");
        bool gcp = streq(strempty(type), "gcp");
        if (!gcp && !streq(strempty(type), "registry"))
                return error_text(error, "fromImageRegistry: type has to be registry or gcp");
        r = gcp ? 1 : field_string(registry, "username", &ret->user, error);
        if (gcp)
                ret->user = GCP_USER;
        if (r >= 0)
                r = field_string(registry, gcp ? "serviceAccountJson" : "password", &ret->password, error);
        if (r < 0)
                return r;
        if (isempty(ret->user) || isempty(ret->password) || strchr(ret->user, ':'))
                return error_text(error, "fromImageRegistry: it takes a user, whose name has no colon, and a password");
        return 0;
}

int build_spec_parse(json_object *body, BuildSpec *ret, ErrorText *error) {
        *ret = (BuildSpec) {};

        int r = field_string(body, "fromImage", &ret->from_image, error);
        if (r >= 0)
                r = field_string(body, "fromTemplate", &ret->from_template, error);
        if (r >= 0)
                r = parse_registry(body, ret, error);
        if (r >= 0)
                r = field_string(body, "startCmd", &ret->start, error);
        if (r >= 0)
                r = field_string(body, "readyCmd", &ret->ready, error);
        if (r >= 0 && !(text_fits_bus(strempty(ret->start)) && text_fits_bus(strempty(ret->ready))))
                r = error_text(error, "startCmd or readyCmd has a character that stands for none");
        if (r >= 0 && isempty(ret->from_image) == isempty(ret->from_template))
                r = error_text(error, "A template is built from an image or from another template: fromImage or fromTemplate");
        if (r >= 0)
                r = field_bool(body, "force", &ret->force, error);
        if (r >= 0)
                r = parse_steps(body, ret, error);
        if (r < 0) {
                build_spec_done(ret);
                return r;
        }
        if (isempty(ret->start))
                ret->start = NULL;
        if (isempty(ret->ready))
                ret->ready = NULL;
        return 0;
}

void build_spec_done(BuildSpec *s) {
        free(s->steps);
        *s = (BuildSpec) {};
}
