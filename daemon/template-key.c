/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>

#include "base/parse.h"
#include "daemon/json-strict.h"
#include "daemon/template-key.h"

/* To be changed when steps come to something else than before. */
#define KEY_VERSION "1"

#ifndef CUBED_VERSION
#define CUBED_VERSION "test"
#endif

/* What is added has its size in front, so that no two rows of texts look alike. */
static void add_bytes(struct sha256_ctx *k, const void *data, size_t size) {
        uint64_t n = size;

        sha256_update(k, sizeof(n), (const uint8_t *) &n);
        sha256_update(k, size, data);
}

static void add(struct sha256_ctx *k, const char *s) {
        add_bytes(k, s, strlen(s));
}

static void add_optional(struct sha256_ctx *k, const char *s) {
        add(k, s ? "+" : "-");
        add(k, strempty(s));
}

static void add_number(struct sha256_ctx *k, uint64_t n) {
        add_bytes(k, &n, sizeof(n));
}

static void add_strings(struct sha256_ctx *k, char **l) {
        for (; l && *l; l++)
                add(k, *l);
        add_number(k, UINT64_MAX);
}

static int add_json(struct sha256_ctx *k, int r, json_object *object) {
        _cleanup_json_ json_object *o = object;
        const char *text = r < 0 ? NULL : json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);

        if (r < 0 || !text)
                return r < 0 ? r : -ENOMEM;
        add(k, text);
        return 0;
}

static int add_policy(struct sha256_ctx *k, const SandboxPolicy *p) {
        json_object *o = NULL;

        if (!p) {
                add(k, "");
                return 0;
        }
        int r = sandbox_policy_to_json(p, &o);
        return add_json(k, r, o);
}

static int add_defaults(struct sha256_ctx *k, const ExecDefaults *d) {
        json_object *o = NULL;
        int r = exec_defaults_to_json(d, &o);

        return add_json(k, r, o);
}

static struct sha256_ctx begin(const char *what, const char *before) {
        struct sha256_ctx k;

        sha256_init(&k);
        add(&k, KEY_VERSION);
        add(&k, what);
        add(&k, before);
        return k;
}

static void end(struct sha256_ctx *k, char ret[static SHA256_HEX_SIZE]) {
        uint8_t sum[SHA256_DIGEST_SIZE];

        sha256_digest(k, sizeof(sum), sum);
        for (size_t i = 0; i < sizeof(sum); i++)
                (void) snprintf(ret + 2 * i, 3, "%02x", sum[i]);
}

static void add_owner(struct sha256_ctx *k, const Template *t) {
        add_number(k, t->owner_uid);
        add(k, t->tenant);
}

void template_input_key(const Template *t, const char *type, const char *sum, char ret[static SHA256_HEX_SIZE]) {
        struct sha256_ctx k = begin("input", "");

        add_owner(&k, t);
        add(&k, type);
        add(&k, sum);
        end(&k, ret);
}

size_t template_copy_step(const TemplateWarmSpec *w, size_t copy) {
        const char *path = w->copies[copy].path;

        for (size_t i = 0; i < w->n_steps; i++) {
                const char *rest = step_kind_from_string(w->steps[i].type) == STEP_KIND_COPY && w->steps[i].args[0] ?
                                   startswith(w->steps[i].args[0], path) : NULL;
                if (rest && (!*rest || *rest == '/'))
                        return i;
        }
        return SIZE_MAX;
}

static void disk_key(const TemplateKeySource *s, char *ret) {
        struct sha256_ctx k = begin("disk", "");

        add_owner(&k, s->template);
        add_optional(&k, s->base_id);
        add(&k, s->root_sum);
        add_number(&k, s->template->disk_bytes);
        end(&k, ret);
}

/* Those that belong to that step, or to none. */
static size_t add_copies(struct sha256_ctx *k, const TemplateKeySource *s, size_t step) {
        size_t n = 0;

        for (size_t i = 0; i < s->warm->n_copies; i++)
                if (template_copy_step(s->warm, i) == step) {
                        add(k, s->warm->copies[i].path);
                        add(k, s->copy_sums[i]);
                        n++;
                }
        return n;
}

static bool copies_key(const TemplateKeySource *s, const char *before, char *ret) {
        struct sha256_ctx k = begin("copies", before);

        if (add_copies(&k, s, SIZE_MAX) == 0)
                return false;
        end(&k, ret);
        return true;
}

/* How commands are run. No state of the disk. */
static int commands_key(const TemplateKeySource *s, const char *before, char *ret) {
        struct sha256_ctx k = begin("commands", before);

        add_optional(&k, s->warm->user);
        add_optional(&k, s->warm->cwd);
        add_strings(&k, s->warm->env);
        add(&k, s->kernel_sum);
        add_optional(&k, s->kernel_command_line);
        add(&k, s->template->cmdline);
        int r = add_defaults(&k, &s->template->defaults);
        if (r >= 0)
                r = add_policy(&k, s->build_policy);
        end(&k, ret);
        return r;
}

static void setup_key(const char *command, const char *before, char *ret) {
        struct sha256_ctx k = begin("setup", before);

        add(&k, command);
        end(&k, ret);
}

static void step_key(const TemplateKeySource *s, size_t n, const char *before, char *ret) {
        struct sha256_ctx k = begin("step", before);

        add(&k, s->warm->steps[n].type);
        add_strings(&k, s->warm->steps[n].args);
        (void) add_copies(&k, s, n);
        end(&k, ret);
}

int template_points_make(const TemplateKeySource *s, TemplatePoint **ret, size_t *ret_n) {
        const TemplateWarmSpec *w = s->warm;
        _cleanup_free_ TemplatePoint *l = new0(TemplatePoint, TEMPLATE_POINTS_MAX);
        char before[SHA256_HEX_SIZE];
        size_t n = 0;

        if (!l)
                return -ENOMEM;
        l[n] = (TemplatePoint) { .kind = TEMPLATE_POINT_DISK };
        disk_key(s, l[n++].key);
        if (w) {
                l[n] = (TemplatePoint) { .kind = TEMPLATE_POINT_COPIES };
                n += copies_key(s, l[0].key, l[n].key);
                int r = commands_key(s, l[n - 1].key, before);
                if (r < 0)
                        return r;
                for (size_t i = 0; w->setup && w->setup[i]; i++, n++) {
                        l[n] = (TemplatePoint) { .kind = TEMPLATE_POINT_SETUP, .n = i };
                        setup_key(w->setup[i], before, l[n].key);
                        strcpy(before, l[n].key);
                }
                for (size_t i = 0; i < w->n_steps; i++, n++) {
                        l[n] = (TemplatePoint) { .kind = TEMPLATE_POINT_STEP, .n = i };
                        step_key(s, i, before, l[n].key);
                        strcpy(before, l[n].key);
                }
        }
        *ret = TAKE_PTR(l);
        *ret_n = n;
        return 0;
}

static int add_template(struct sha256_ctx *k, const Template *t) {
        /* While it is built it may still be what the root image is made of. */
        add(k, streq(t->root_type, "erofs") ? "erofs" : "squashfs");
        add(k, t->cmdline);
        add_number(k, t->mem_bytes);
        add_number(k, t->cpus);
        add_number(k, t->public);
        int r = add_policy(k, t->has_policy ? &t->policy : NULL);
        return r < 0 ? r : add_defaults(k, &t->defaults);
}

/* Not how long it waits, unless templates on it will. */
static int add_warm(struct sha256_ctx *k, const TemplateKeySource *s) {
        char commands[SHA256_HEX_SIZE];
        const TemplateWarmSpec *w = s->warm;

        if (!w) {
                add(k, "booted");
                return 0;
        }
        int r = commands_key(s, "", commands);
        add(k, commands);
        add_optional(k, w->start);
        add_number(k, w->no_start);
        add_strings(k, w->image_command);
        add_optional(k, w->ready);
        add_number(k, w->start && w->ready ? w->ready_timeout_usec : 0);
        return r;
}

int template_key_make(const TemplateKeySource *s, const char *last, char ret[static SHA256_HEX_SIZE]) {
        struct sha256_ctx k = begin("template", last);

        add(&k, CUBED_VERSION);
        add(&k, s->kernel_sum);
        add(&k, s->initramfs_sum);
        add_optional(&k, s->kernel_command_line);
        int r = add_template(&k, s->template);
        if (r >= 0)
                r = add_warm(&k, s);
        end(&k, ret);
        return r;
}
