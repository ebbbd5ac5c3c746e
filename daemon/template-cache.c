/* SPDX-License-Identifier: Apache-2.0 */

/* What a build has in common with earlier ones: what it comes to is known before it is made, by keys (template-key.h). A template
 * with the same one is taken as it is; else the root image of the same input, and the disk as it was behind the last of the steps
 * that are the same. And what this build makes is kept for those to come. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/id.h"
#include "daemon/json-strict.h"
#include "daemon/template-build-private.h"
#include "daemon/template-private.h"

#define REPORTING_STORE_FD 4
#define DIGEST_FDS 4
#define ENV_VALUES_MAX (TEMPLATE_STEPS_MAX * TEMPLATE_STEP_ARGS_MAX)

/* Key: what everything is made of. */

/* Files that tools wrote lie in our directory by now, which only root can change. */
static int open_made(const TemplateBuild *b, TemplateFile file, int *ret_fd) {
        *ret_fd = openat(b->dir_fd, template_file_name(file), O_RDONLY|O_NOFOLLOW|O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

int build_key_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, "digest", NULL };
        _cleanup_close_ int kernel_fd = -EBADF, initramfs_fd = -EBADF;
        ToolSpec spec = build_tool_spec(b, argv);
        int fd = DIGEST_FDS;

        build_run_as_owner(b, &spec);
        spec.report = true;
        /* Of an image its name is a hash already. */
        if (!b->on_base && !b->image)
                spec.fds[0] = b->rootfs_fd;
        int r = open_made(b, TEMPLATE_FILE_KERNEL, &kernel_fd);
        if (r >= 0)
                r = open_made(b, TEMPLATE_FILE_INITRAMFS, &initramfs_fd);
        if (r < 0)
                return build_fail(b, r, "opening what was made: %s", strerror(-r));
        spec.fds[fd++] = kernel_fd;
        spec.fds[fd++] = initramfs_fd;
        for (size_t i = 0; b->warm && i < b->warm->n_copies; i++)
                spec.fds[fd++] = b->warm->copies[i].fd;
        return build_run(b, &spec);
}

/* "": there is none. */
static int take_sum(json_object *list, size_t i, char *ret) {
        json_object *o = json_object_array_get_idx(list, i);
        const char *s = o && json_object_is_type(o, json_type_string) ? json_object_get_string(o) : NULL;

        if (!s || (*s && !sha256_hex_valid(s)))
                return -EBADMSG;
        strcpy(ret, s);
        return 0;
}

static int take_sums(TemplateBuild *b, json_object *list, char *ret_root) {
        size_t n_copies = b->warm ? b->warm->n_copies : 0;

        if (json_object_array_length(list) != 3 + n_copies)
                return -EBADMSG;
        b->copy_sums = (char (*)[SHA256_HEX_SIZE]) new0(char, (n_copies + 1) * SHA256_HEX_SIZE);
        int r = b->copy_sums ? take_sum(list, 0, ret_root) : -ENOMEM;
        if (r >= 0)
                r = take_sum(list, 1, b->kernel_sum);
        if (r >= 0)
                r = take_sum(list, 2, b->initramfs_sum);
        b->cacheable &= r >= 0 && *b->kernel_sum && *b->initramfs_sum;
        for (size_t i = 0; i < n_copies && r >= 0; i++) {
                r = take_sum(list, 3 + i, b->copy_sums[i]);
                /* What can be read only once, or not at all, makes each build another one. */
                b->cacheable &= *b->copy_sums[i];
        }
        return r;
}

/* What a build of the same input made; a link in a directory that only root writes. */
static void find_root(TemplateBuild *b) {
        char path[sizeof(STORE_INPUTS) + SHA256_HEX_SIZE], sum[SHA256_HEX_SIZE];

        (void) snprintf(path, sizeof(path), STORE_INPUTS "/%s", b->input_key);
        ssize_t n = readlinkat(b->store->root_fd, path, sum, sizeof(sum));
        if (n != (ssize_t) sizeof(sum) - 1)
                return;
        sum[n] = 0;
        if (sha256_hex_valid(sum))
                strcpy(b->root_sum, sum);
}

static int make_keys(TemplateBuild *b) {
        const TemplateKeySource source = {
                .template = b->template,
                .warm = b->warm,
                .copy_sums = (const char (*)[SHA256_HEX_SIZE]) b->copy_sums,
                .base_id = b->on_base ? b->base_id : NULL,
                .root_sum = b->root_sum,
                .kernel_sum = b->kernel_sum,
                .initramfs_sum = b->initramfs_sum,
                .kernel_command_line = b->kernel_command_line,
                .build_policy = b->has_build_rules ? &b->build_rules : NULL,
        };

        if (!b->cacheable)
                return 0;
        free(b->points);
        b->points = NULL;
        b->n_points = 0;
        int r = template_points_make(&source, &b->points, &b->n_points);
        if (r >= 0)
                r = template_key_make(&source, b->points[b->n_points - 1].key, b->template->key);
        return r < 0 ? build_fail(b, r, "%s", strerror(-r)) : 0;
}

/* Of names given apart none goes with another: whoever removes a template takes all its names. */
static bool has_name(const TemplateBuild *b, const Template *t) {
        const Template *made = b->template;

        return (streq(t->name, made->name) && streq(t->tag, made->tag)) ||
                template_store_find_name(b->store, made->owner_uid, made->tenant, made->name, made->tag) == t;
}

/* Who is told that something of it can't be used is told to build it again. */
static bool is_whole(const Template *t) {
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                _cleanup_close_ int fd = -EBADF;

                if (template_open_file(t, (TemplateFile) i, &fd) < 0)
                        return false;
        }
        return true;
}

static bool is_same(TemplateBuild *b, const Template *t) {
        return streq(t->key, b->template->key) && has_name(b, t) &&
                tenant_same(t->owner_uid, t->tenant, b->template->owner_uid, b->template->tenant) && is_whole(t) &&
                (!b->callbacks.usable || b->callbacks.usable(b, t, b->userdata));
}

/* The owner's template by that name that was built from all the same. */
static void find_same(TemplateBuild *b) {
        const TemplateStore *s = b->store;
        char line[128];

        if (b->no_cache || b->force_step > 0 || !*b->template->key)
                return;
        for (size_t i = 0; i < s->n_templates && !b->same; i++)
                if (is_same(b, s->templates[i]))
                        b->same = s->templates[i];
        if (!b->same)
                return;
        template_use(b->same);
        int n = snprintf(line, sizeof(line), "[nothing has changed since template %s was built]\n", b->same->id);
        if (b->callbacks.log)
                b->callbacks.log(b, line, (size_t) n, b->userdata);
}

int build_key_finish(TemplateBuild *b) {
        _cleanup_json_ json_object *o = NULL;
        char sum[SHA256_HEX_SIZE];
        json_object *list;

        int r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        r = json_get(o, "sums", json_type_array, &list);
        if (r >= 0)
                r = take_sums(b, list, sum);
        if (r < 0)
                return build_fail(b, r, "cube-image reported nonsense");
        if (!b->on_base) {
                const char *input = b->image ? b->image : sum;
                if (!*input)
                        return 0;
                template_input_key(b->template, b->template->root_type, input, b->input_key);
                find_root(b);
        }
        if (!*b->root_sum)
                return 0;
        r = make_keys(b);
        if (r >= 0)
                find_same(b);
        return r;
}

/* Reuse: the names alone. */

int build_reuse_start(TemplateBuild *b) {
        return build_run_naming(b, "reuse", b->same->id);
}

int build_reuse_finish(TemplateBuild *b) {
        int r = template_names_settle(b->store);

        return r < 0 ? build_fail(b, r, "reading the names of templates: %s", strerror(-r)) : 0;
}

/* Root: of the same input. */

int build_take_root_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, "take-root", b->name, b->root_sum, NULL };
        ToolSpec spec = TOOL_SPEC_INIT;

        if (b->no_cache || !*b->root_sum) {
                b->root_sum[0] = 0;
                return 1;
        }
        spec.argv = argv;
        spec.report = true;
        spec.fds[REPORTING_STORE_FD] = b->store->root_fd;
        return build_run(b, &spec);
}

static int file_size(const TemplateBuild *b, TemplateFile file, uint64_t *ret) {
        struct stat st;

        if (fstatat(b->dir_fd, template_file_name(file), &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        *ret = (uint64_t) st.st_size;
        return 0;
}

int build_take_root_finish(TemplateBuild *b) {
        _cleanup_json_ json_object *o = NULL;
        json_object *taken;

        int r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        r = json_get(o, "taken", json_type_boolean, &taken);
        if (r < 0)
                return build_fail(b, r, "cube-image reported nonsense");
        if (!json_object_get_boolean(taken)) {
                b->root_sum[0] = 0;
                return 0;
        }
        r = file_size(b, TEMPLATE_FILE_ROOT, &b->template->file_bytes[TEMPLATE_FILE_ROOT]);
        if (r < 0)
                return build_fail(b, r, "the root image: %s", strerror(-r));
        /* It is what the input was made into before. */
        b->input_key[0] = 0;
        return build_root_typed(b);
}

int build_sum_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, "sum", NULL };
        ToolSpec spec = build_tool_spec(b, argv);
        _cleanup_close_ int fd = -EBADF;

        if (*b->root_sum)
                return 1;
        int r = open_made(b, TEMPLATE_FILE_ROOT, &fd);
        if (r < 0)
                return build_fail(b, r, "the root image: %s", strerror(-r));
        spec.fds[0] = fd;
        spec.report = true;
        return build_run(b, &spec);
}

int build_sum_finish(TemplateBuild *b) {
        _cleanup_json_ json_object *o = NULL;
        const char *sum;

        int r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        if (json_get_string(o, "sha256", SHA256_HEX_SIZE - 1, &sum) < 0 || !sha256_hex_valid(sum))
                return build_fail(b, -EBADMSG, "cube-image reported nonsense");
        strcpy(b->root_sum, sum);
        return make_keys(b);
}

/* Disk: behind the last step that is the same. */

static bool may_begin_at(const TemplateBuild *b, const TemplatePoint *p) {
        return p->kind != TEMPLATE_POINT_STEP || b->force_step == 0 || p->n + 1 < b->force_step;
}

int build_layer_start(TemplateBuild *b) {
        char bytes[32];
        const char *argv[4 + TEMPLATE_POINTS_MAX + 1] = { b->store->tools.cube_image, "take-layer", b->name, bytes };
        ToolSpec spec = TOOL_SPEC_INIT;
        size_t n = 4;

        if (b->no_cache)
                return 1;
        for (size_t i = b->n_points; i > 0; i--)
                if (may_begin_at(b, &b->points[i - 1]))
                        argv[n++] = b->points[i - 1].key;
        if (n == 4)
                return 1;
        (void) snprintf(bytes, sizeof(bytes), "%" PRIu64, b->template->disk_bytes);
        b->n_layer_keys = n - 4;
        spec.argv = argv;
        spec.report = true;
        spec.fds[REPORTING_STORE_FD] = b->store->root_fd;
        return build_run(b, &spec);
}

static int parse_env(json_object *o, char ***ret) {
        json_object *list;

        if (!json_object_object_get_ex(o, "env", &list))
                return 0;
        size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : SIZE_MAX;
        if (n > ENV_VALUES_MAX)
                return -EBADMSG;
        *ret = new0(char *, n + 1);
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                json_object *s = json_object_array_get_idx(list, i);
                const char *text = json_object_is_type(s, json_type_string) ? json_object_get_string(s) : NULL;

                if (!text || strlen(text) != (size_t) json_object_get_string_len(s) || !env_assignment_valid(text))
                        return -EBADMSG;
                (*ret)[i] = strdup(text);
                if (!(*ret)[i])
                        return -ENOMEM;
        }
        return 0;
}

/* Where the commands go on. */
static int take_state(TemplateWarmDone *done, const TemplatePoint *p, json_object *state) {
        done->copies = p->kind != TEMPLATE_POINT_DISK;
        done->setup = p->kind == TEMPLATE_POINT_SETUP ? p->n + 1 : 0;
        done->steps = p->kind == TEMPLATE_POINT_STEP ? p->n + 1 : 0;
        int r = json_dup_optional(state, "user", 4096, &done->state.user);
        if (r >= 0)
                r = json_dup_optional(state, "cwd", 4096, &done->state.cwd);
        return r < 0 ? r : parse_env(state, &done->state.env);
}

/* The disk is made anew, and what is kept of it takes the place of that. */
static int begin_without(TemplateBuild *b) {
        if (unlinkat(b->dir_fd, template_file_name(TEMPLATE_FILE_DISK), 0) < 0)
                return build_fail(b, -errno, "the disk: %s", strerror(errno));
        step_state_done(&b->warm->done.state);
        b->warm->done = (TemplateWarmDone) {};
        b->begun_at = 0;
        b->layer_key = NULL;
        return 0;
}

static void tell_taken(TemplateBuild *b, const TemplatePoint *p) {
        char line[128];
        int n;

        if (p->kind == TEMPLATE_POINT_SETUP)
                n = snprintf(line, sizeof(line), "[up to setup command %zu all is as in an earlier build]\n", p->n + 1);
        else if (p->kind == TEMPLATE_POINT_STEP)
                n = snprintf(line, sizeof(line), "[up to step %zu all is as in an earlier build]\n", p->n + 1);
        else
                return;
        if (b->callbacks.log)
                b->callbacks.log(b, line, (size_t) n, b->userdata);
}

int build_layer_finish(TemplateBuild *b) {
        static const char *const known[] = { "id", "parent", "parent-id", "delta", "whole", "state", "taken", NULL };
        _cleanup_json_ json_object *o = NULL;
        json_object *state;
        const char *id;
        uint64_t taken;

        int r = build_parse_report(b, &o);
        if (r < 0 || json_object_object_length(o) == 0)
                return r;
        r = json_check_keys(o, known);
        if (r >= 0)
                r = json_get_u64(o, "taken", 0, b->n_layer_keys - 1, &taken);
        if (r >= 0)
                r = json_get_string(o, "id", ID_SIZE - 1, &id);
        if (r >= 0)
                r = json_get(o, "state", json_type_object, &state);
        if (r < 0 || !sandbox_id_valid(id))
                return build_fail(b, -EBADMSG, "cube-image reported nonsense");
        /* They were given from the uppermost allowed one down. */
        b->begun_at = b->n_layer_keys - 1 - taken;
        const TemplatePoint *p = &b->points[b->begun_at];
        strcpy(b->layer_id, id);
        b->layer_key = p->key;
        r = b->warm ? take_state(&b->warm->done, p, state) : 0;
        if (r == -ENOMEM)
                return build_fail(b, r, "%s", strerror(-r));
        if (r < 0)
                return begin_without(b);
        tell_taken(b, p);
        return file_size(b, TEMPLATE_FILE_DISK, &b->template->file_bytes[TEMPLATE_FILE_DISK]);
}

size_t template_build_cached_steps(const TemplateBuild *b) {
        if (!b->warm)
                return 0;
        return b->same ? b->warm->n_steps : b->warm->done.steps;
}

bool template_build_reused(const TemplateBuild *b) {
        return b->same;
}

/* Keeping, while the guest waits. */

static int state_fd(const StepState *state, int *ret_fd) {
        _cleanup_close_ int fd = memfd_create("state", MFD_CLOEXEC);
        _cleanup_json_ json_object *o = json_object_new_object();
        json_object *env = json_object_new_array();

        int r = fd < 0 ? -errno : o ? json_add(o, "env", env) : -ENOMEM;
        for (char **e = state ? state->env : NULL; e && *e && r >= 0; e++)
                r = json_object_array_add(env, json_object_new_string(*e)) < 0 ? -ENOMEM : 0;
        if (r >= 0 && state && state->user)
                r = json_add_string(o, "user", state->user);
        if (r >= 0 && state && state->cwd)
                r = json_add_string(o, "cwd", state->cwd);
        const char *text = r < 0 ? NULL : json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        if (!text)
                return r < 0 ? r : -ENOMEM;
        if (strlen(text) > TEMPLATE_LAYER_STATE_MAX)
                return -E2BIG;
        r = write_full(fd, text, strlen(text));
        if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
                r = -errno;
        if (r >= 0)
                *ret_fd = TAKE_FD(fd);
        return r;
}

static const TemplatePoint *find_point(const TemplateBuild *b, TemplatePointKind kind, size_t n) {
        for (size_t i = 0; i < b->n_points; i++)
                if (b->points[i].kind == kind && b->points[i].n == n)
                        return &b->points[i];
        return NULL;
}

/* A build is not worth less for what it can't leave to others; but what comes behind has nothing to stand on. */
static void layer_lost(TemplateBuild *b, const char *why) {
        char line[256];

        b->layer_key = NULL;
        int n = snprintf(line, sizeof(line), "[what this came to is not kept for later builds: %.160s]\n", why);
        if (b->callbacks.log)
                b->callbacks.log(b, line, (size_t) MIN(n, (int) sizeof(line) - 1), b->userdata);
}

static void on_layer_put(Tool *tool, int r, const char *message, void *userdata) {
        TemplateBuild *b = userdata;

        if (r < 0)
                layer_lost(b, strempty(message));
        else {
                b->layer_key = b->next_layer_key;
                strcpy(b->layer_id, b->next_layer_id);
        }
        b->layer_tool = tool_free(b->layer_tool);
        b->layer_done(b->layer_userdata);
}

int template_build_put_layer(TemplateBuild *b, TemplatePointKind kind, size_t n, const StepState *state, int overlay_fd,
                             void (*done)(void *userdata), void *userdata) {
        const TemplatePoint *p = find_point(b, kind, n);
        _cleanup_close_ int fd = -EBADF;
        ToolSpec spec = TOOL_SPEC_INIT;

        if (!p || !b->layer_key)
                return 0;
        id_random(b->next_layer_id);
        b->next_layer_key = p->key;
        b->layer_done = done;
        b->layer_userdata = userdata;
        const char *const argv[] = { b->store->tools.cube_image, "put-layer", b->name, p->key, b->next_layer_id, b->layer_key,
                                     b->layer_id, NULL };
        int r = state_fd(state, &fd);
        if (r >= 0) {
                spec.argv = argv;
                spec.fds[0] = fd;
                spec.fds[3] = b->store->root_fd;
                spec.fds[4] = overlay_fd;
                spec.timeout_usec = b->timeout_usec;
                r = tool_start(b->event, &spec, on_layer_put, NULL, b, &b->layer_tool);
        }
        if (r < 0) {
                layer_lost(b, strerror(-r));
                return 0;
        }
        return 1;
}

bool template_build_keeps(const TemplateBuild *b, TemplatePointKind kind, size_t n) {
        return b->layer_key && find_point(b, kind, n);
}

void build_cache_done(TemplateBuild *b) {
        b->layer_tool = tool_free(b->layer_tool);
        if (b->same)
                template_release(b->same);
        b->same = NULL;
        free(b->points);
        free(b->copy_sums);
        sandbox_policy_done(&b->build_rules);
        free(b->kernel_command_line);
        free(b->base_id);
}
