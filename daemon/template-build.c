/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/guest-kernel.h"
#include "daemon/json-strict.h"
#include "daemon/template-build-private.h"
#include "daemon/template-private.h"

#define ROOT_BYTES_DEFAULT GIB(32)
#define STEP_TIMEOUT_DEFAULT (30 * 60 * USEC_PER_SEC)

/* One for all disks: a guest knows its disk by its place, and the same input shall make the same bytes. */
#define DISK_UUID "c0bed15c-0000-4000-8000-000000000001"

typedef struct StepType {
        const char *name;    /* in errors */
        const char *words;   /* in progress */
        unsigned percent;    /* where it begins */
        int (*start)(TemplateBuild *b);
        int (*finish)(TemplateBuild *b);
} StepType;

static int build_advance(TemplateBuild *b);
static const StepType step_types[_STEP_MAX];

int build_fail(TemplateBuild *b, int r, const char *format, ...) {
        va_list ap;

        if (b->result < 0)
                return b->result;
        b->result = r;
        va_start(ap, format);
        if (vasprintf(&b->message, format, ap) < 0)
                b->message = NULL;
        va_end(ap);
        return r;
}

int build_output_create(TemplateBuild *b, TemplateFile file) {
        const char *name = template_file_name(file);

        b->output_fd = openat(b->dir_fd, name, O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600);
        if (b->output_fd < 0 || fchmod(b->output_fd, 0666) < 0)
                return build_fail(b, -errno, "creating %s: %s", name, strerror(errno));
        return 0;
}

int build_output_close(TemplateBuild *b, TemplateFile file) {
        struct stat st;

        if (fchmod(b->output_fd, 0400) < 0 || fstat(b->output_fd, &st) < 0)
                return build_fail(b, -errno, "%s: %s", template_file_name(file), strerror(errno));
        b->template->file_bytes[file] = (uint64_t) st.st_size;
        b->output_fd = safe_close(b->output_fd);
        return 0;
}

static void on_tool_log(Tool *tool, const char *text, size_t size, void *userdata) {
        TemplateBuild *b = userdata;
        if (b->callbacks.log)
                b->callbacks.log(b, text, size, b->userdata);
}

/* Of a pipeline whose first part failed, the second complains about a broken stream, and the other
 * way round the first dies of SIGPIPE: neither is the cause. */
static const char *failed_tool(const TemplateBuild *b, int *ret) {
        size_t i = b->results[0] < 0 && (b->n_tools < 2 || b->results[0] != -EPIPE || b->results[1] >= 0) ? 0 : 1;

        *ret = b->results[i];
        return strempty(b->messages[i]);
}

static void tools_done(TemplateBuild *b) {
        for (size_t i = 0; i < ELEMENTSOF(b->tools); i++) {
                b->tools[i] = tool_free(b->tools[i]);
                free(b->messages[i]);
                b->messages[i] = NULL;
                b->results[i] = 0;
        }
        b->n_tools = b->n_running = 0;
}

static void on_tool_done(Tool *tool, int r, const char *message, void *userdata) {
        TemplateBuild *b = userdata;

        for (size_t i = 0; i < b->n_tools; i++)
                if (b->tools[i] == tool) {
                        b->results[i] = r;
                        b->messages[i] = message ? strdup(message) : NULL;
                }
        if (--b->n_running > 0)
                return;

        b->progress = sd_event_source_disable_unref(b->progress);
        if (b->step != STEP_CLEAN) {
                const char *text = failed_tool(b, &r);
                if (r < 0)
                        (void) build_fail(b, r, "%s", text);
                else if (b->result >= 0)
                        (void) step_types[b->step].finish(b);
        }
        tools_done(b);
        (void) build_advance(b);
}

int build_run(TemplateBuild *b, ToolSpec *spec) {
        int r;

        if (spec->timeout_usec == 0)
                spec->timeout_usec = b->timeout_usec;
        r = tool_start(b->event, spec, on_tool_done, on_tool_log, b, &b->tools[b->n_tools]);
        if (r < 0)
                return build_fail(b, r, "starting %s: %s", spec->argv[0], strerror(-r));
        b->n_tools++;
        b->n_running++;
        return 0;
}

static void build_tell(TemplateBuild *b, unsigned percent) {
        if (b->callbacks.progress)
                b->callbacks.progress(b, step_types[b->step].words, percent, b->userdata);
}

void build_tell_part(TemplateBuild *b, uint64_t done, uint64_t all) {
        unsigned from = step_types[b->step].percent, to = step_types[b->step + 1].percent;

        build_tell(b, from + (unsigned) ((to - from) * (double) done / (double) all));
}

ToolSpec build_tool_spec(const TemplateBuild *b, const char *const *argv) {
        ToolSpec spec = TOOL_SPEC_INIT;

        spec.argv = argv;
        spec.uid = b->store->tools.uid;
        spec.gid = b->store->tools.gid;
        return spec;
}

void build_run_as_owner(const TemplateBuild *b, ToolSpec *spec) {
        if (b->store->tools.uid == (uid_t) -1)
                return;
        spec->uid = b->template->owner_uid;
        if (b->owner_gid != (gid_t) -1)
                spec->gid = b->owner_gid;
}

int build_parse_report(TemplateBuild *b, json_object **ret) {
        const char *text;
        size_t size;
        int r;

        text = tool_report(b->tools[0], &size);
        r = json_parse_strict(text, size, ret);
        return r < 0 ? build_fail(b, r, "cube-image reported nonsense") : 0;
}

/* Kernel */

static int kernel_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, "kernel", NULL };
        ToolSpec spec = build_tool_spec(b, argv);
        int r;

        r = build_output_create(b, TEMPLATE_FILE_KERNEL);
        if (r < 0)
                return r;
        spec.fds[0] = b->kernel_fd;
        spec.fds[1] = b->output_fd;
        spec.report = true;
        spec.file_bytes_max = GIB(1);
        return build_run(b, &spec);
}

static int kernel_finish(TemplateBuild *b) {
        _cleanup_json_ json_object *o = NULL;
        int r;

        r = build_output_close(b, TEMPLATE_FILE_KERNEL);
        if (r >= 0)
                r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        r = kernel_info_from_json(o, &b->template->kernel);
        if (r < 0 || b->template->kernel.file_bytes != b->template->file_bytes[TEMPLATE_FILE_KERNEL])
                return build_fail(b, -EBADMSG, "cube-image reported nonsense");
        return 0;
}

/* Initramfs */

/* The kernel's release is a checked file name. */
static int find_modules(TemplateBuild *b, int *ret_fd) {
        const char *release = b->template->kernel.release;
        char path[PATH_MAX];

        if (b->no_modules || (b->modules_fd < 0 && !*release)) {
                *ret_fd = -EBADF;
                return 0;
        }
        if (b->modules_fd >= 0) {
                *ret_fd = TAKE_FD(b->modules_fd);
                return 0;
        }
        if (snprintf(path, sizeof(path), "%s/%s", b->store->tools.modules_dir, release) >= (int) sizeof(path))
                return build_fail(b, -ENAMETOOLONG, "%s: %s", b->store->tools.modules_dir, strerror(ENAMETOOLONG));
        *ret_fd = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (*ret_fd < 0)
                return build_fail(b, -errno,
                            "the modules of kernel %s are not there (%s: %s); name their directory, or say that it needs none",
                            release, path, strerror(errno));
        return 0;
}

static int initramfs_start(TemplateBuild *b) {
        const char *argv[] = { b->store->tools.cube_image, "initramfs", NULL, NULL };
        _cleanup_close_ int agent_fd = -EBADF, modules_fd = -EBADF;
        ToolSpec spec = build_tool_spec(b, argv);
        int r;

        agent_fd = open(b->store->tools.agent, O_RDONLY|O_CLOEXEC);
        if (agent_fd < 0)
                return build_fail(b, -errno, "%s: %s", b->store->tools.agent, strerror(errno));
        if (b->modules_fd >= 0)
                build_run_as_owner(b, &spec);
        r = find_modules(b, &modules_fd);
        if (r >= 0)
                r = build_output_create(b, TEMPLATE_FILE_INITRAMFS);
        if (r < 0)
                return r;
        if (modules_fd < 0)
                argv[2] = "--no-modules";
        spec.fds[0] = agent_fd;
        spec.fds[1] = b->output_fd;
        spec.fds[4] = modules_fd;
        spec.file_bytes_max = GIB(1);
        return build_run(b, &spec);
}

static int initramfs_finish(TemplateBuild *b) {
        char have[FORMAT_SIZE_MAX], floor[FORMAT_SIZE_MAX];
        int r;

        r = build_output_close(b, TEMPLATE_FILE_INITRAMFS);
        if (r < 0)
                return r;
        if (b->template->mem_bytes < template_floor(b->template))
                return build_fail(b, -ERANGE, "%s of memory are not enough: kernel %s needs at least %s",
                            format_size(have, b->template->mem_bytes), b->template->kernel.release,
                            format_size(floor, template_floor(b->template)));
        return 0;
}

/* Disk */

static int disk_start(TemplateBuild *b) {
        const char *argv[] = {
                b->store->tools.mkfs, "-q", "-F", "-b", "4096", "-m", "0", "-U", DISK_UUID,
                "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0,hash_seed=" DISK_UUID,
                /* A large journal would fill the overlay of every sandbox in time. */
                "-J", "size=16", TOOL_EXTRA_PATH, NULL,
        };
        ToolSpec spec = build_tool_spec(b, argv);
        int r;

        if (b->layer_key)
                return 1;
        if (b->on_base)
                return build_base_disk_start(b);
        r = build_output_create(b, TEMPLATE_FILE_DISK);
        if (r < 0)
                return r;
        if (ftruncate(b->output_fd, (off_t) b->template->disk_bytes) < 0)
                return build_fail(b, -errno, "making a disk of %" PRIu64 " bytes: %s", b->template->disk_bytes,
                            strerror(errno));
        spec.fds[TOOL_EXTRA_FD] = b->output_fd;
        spec.file_bytes_max = b->template->disk_bytes;
        return build_run(b, &spec);
}

static int disk_finish(TemplateBuild *b) {
        int r = build_output_close(b, TEMPLATE_FILE_DISK);

        if (r >= 0 && b->template->file_bytes[TEMPLATE_FILE_DISK] != b->template->disk_bytes)
                return build_fail(b, -EIO, "its size is not the one that it was to have");
        return r;
}

/* Seal, warm, commit: a whole template; then one with a guest that is saved; then one that is found. */

static int description_fd(const TemplateBuild *b, int *ret_fd) {
        _cleanup_close_ int fd = memfd_create("template", MFD_CLOEXEC);
        _cleanup_json_ json_object *o = template_to_json(b->template);
        const char *text = o ? json_object_to_json_string(o) : NULL;
        int r;

        if (fd < 0)
                return -errno;
        if (!text)
                return -ENOMEM;
        r = write_full(fd, text, strlen(text));
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

/* Where the steps begin, user and directory are those of the image, or of the template below; where they end, those of the
 * sandboxes. ENV is for the build alone. */
static int apply_steps(TemplateBuild *b) {
        ExecDefaults *d = &b->template->defaults;
        TemplateWarmSpec *w = b->warm;
        StepState state = {};

        if (!w || w->n_steps == 0)
                return 0;
        if (!w->user && d->user && !(w->user = strdup(d->user)))
                return -ENOMEM;
        if (!w->cwd && d->cwd && !(w->cwd = strdup(d->cwd)))
                return -ENOMEM;
        int r = step_state_set(&state, w->user, w->cwd, NULL);
        for (size_t i = 0; i < w->n_steps && r >= 0; i++)
                if (step_kind_from_string(w->steps[i].type) != STEP_KIND_ENV)
                        r = step_state_apply(&state, &w->steps[i], NULL, 0);
        if (r >= 0) {
                free(d->user);
                free(d->cwd);
                d->user = TAKE_PTR(state.user);
                d->cwd = TAKE_PTR(state.cwd);
        }
        step_state_done(&state);
        return r;
}

static int seal_start(TemplateBuild *b) {
        const char *argv[] = { b->store->tools.cube_image, "seal", b->name, "-", "-", "-", NULL };
        _cleanup_close_ int fd = -EBADF;
        ToolSpec spec = TOOL_SPEC_INIT;

        int r = apply_steps(b);
        if (r == -ENAMETOOLONG)
                return build_fail(b, r, TEMPLATE_CWD_TOO_LONG);
        if (r >= 0)
                r = description_fd(b, &fd);
        if (r < 0)
                return build_fail(b, r, "describing the template: %s", strerror(-r));
        if (*b->input_key)
                argv[3] = b->input_key;
        /* What was taken from another build is there already. */
        if (!b->layer_key && b->n_points > 0) {
                id_random(b->layer_id);
                b->layer_key = argv[4] = b->points[0].key;
                argv[5] = b->layer_id;
        }
        spec.argv = argv;
        spec.fds[0] = fd;
        spec.fds[3] = b->store->root_fd;
        return build_run(b, &spec);
}

static int seal_finish(TemplateBuild *b) {
        b->template->store = b->store;
        b->template->building = true;
        return 0;
}

static int warm_start(TemplateBuild *b) {
        _cleanup_free_ char *message = NULL;
        int r = b->callbacks.warm(b, b->template, b->warm, b->userdata, &message);

        return r < 0 ? build_fail(b, r, "%s", isempty(message) ? strerror(-r) : message) : 0;
}

void template_build_warmed(TemplateBuild *b, int r, const char *message) {
        assert(b->step == STEP_WARM);

        b->layer_tool = tool_free(b->layer_tool);
        if (r < 0)
                (void) build_fail(b, r, "%s", isempty(message) ? strerror(-r) : message);
        (void) build_advance(b);
}

void template_build_tell(TemplateBuild *b, const char *step, unsigned percent) {
        unsigned from = step_types[STEP_WARM].percent, to = step_types[STEP_COMMIT].percent;

        if (b->callbacks.progress)
                b->callbacks.progress(b, step, from + (to - from) * MIN(percent, 100U) / 100, b->userdata);
}

/* Four arguments, whose, the name, the aliases, and the end. */
#define NAMING_ARGS_MAX (7U + TEMPLATE_ALIASES_MAX)

int build_run_naming(TemplateBuild *b, const char *verb, const char *id) {
        char dir[TENANT_DIR_MAX], name[160];
        const char *argv[NAMING_ARGS_MAX] = { b->store->tools.cube_image, verb, b->name, id };
        ToolSpec spec = TOOL_SPEC_INIT;

        b->naming = true;
        (void) snprintf(name, sizeof(name), "%s:%s", b->template->name, b->template->tag);
        argv[4] = tenant_dir_format(dir, b->template->owner_uid, b->template->tenant);
        argv[5] = name;
        for (size_t i = 0; b->template->aliases && b->template->aliases[i]; i++)
                argv[6 + i] = b->template->aliases[i];
        spec.argv = argv;
        spec.fds[3] = b->store->root_fd;
        return build_run(b, &spec);
}

static int commit_start(TemplateBuild *b) {
        return build_run_naming(b, "commit", b->template->id);
}

/* What can't be used is not left lying under its names. */
static int commit_finish(TemplateBuild *b) {
        int r = template_store_add(b->store, b->template->id, &b->added);

        return r < 0 ? build_fail(b, r, "loading the new template: %s", strerror(-r)) : 0;
}

/* What a failed build left. It may have been committed when it was cancelled. */
static int clean_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, "remove", b->name, b->template->id, NULL };
        ToolSpec spec = TOOL_SPEC_INIT;

        spec.argv = argv;
        spec.fds[3] = b->store->root_fd;
        return build_run(b, &spec);
}

static const StepType step_types[_STEP_MAX] = {
        [STEP_PROBE] = { "rootfs", "looking at the root file system", 0, build_probe_start, build_probe_finish },
        [STEP_KERNEL] = { "kernel", "unpacking the kernel", 2, kernel_start, kernel_finish },
        [STEP_INITRAMFS] = { "initramfs", "making the initramfs", 8, initramfs_start, initramfs_finish },
        [STEP_KEY] = { "key", "looking for what is there already", 9, build_key_start, build_key_finish },
        [STEP_TAKE_ROOT] = { "root", "looking at the root image", 10, build_take_root_start, build_take_root_finish },
        [STEP_ROOT] = { "root", "making the root image", 10, build_root_start, build_root_finish },
        [STEP_SUM] = { "root", "looking at the root image", 53, build_sum_start, build_sum_finish },
        [STEP_LAYER] = { "layers", "looking for steps that were done already", 54, build_layer_start, build_layer_finish },
        [STEP_DISK] = { "disk", "formatting the disk", 55, disk_start, disk_finish },
        [STEP_SEAL] = { "seal", "writing the template's files", 60, seal_start, seal_finish },
        [STEP_WARM] = { "warm", "starting a guest", 65, warm_start, NULL },
        [STEP_COMMIT] = { "commit", "naming the template", 97, commit_start, commit_finish },
        [STEP_REUSE] = { "reuse", "naming the template", 97, build_reuse_start, build_reuse_finish },
        [STEP_CLEAN] = { "clean", "cleaning up", 100, clean_start, NULL },
};

static void build_end(TemplateBuild *b) {
        _cleanup_free_ char *message = NULL;
        Template *t = NULL;
        int r = b->result;

        if (r >= 0 && b->same)
                t = b->same;
        else if (r >= 0)
                t = b->added;
        else {
                message = TAKE_PTR(b->message);
                /* It may have been cancelled, or have failed, with its names given already. */
                if (b->naming)
                        (void) template_names_settle(b->store);
        }
        b->callbacks.done(b, r < 0 ? r : 0, message, r < 0 ? NULL : t, b->userdata);
}

/* "root: mksquashfs: ..." */
static void prefix_message(TemplateBuild *b) {
        char *text = NULL;

        if (asprintf(&text, "%s: %s", step_types[b->step].name, strempty(b->message)) < 0)
                return;
        free(b->message);
        b->message = text;
}

/* Starts the step that b->step says. When that fails half-way, what was started is killed, and its
 * end leads on. */
static int build_start_step(TemplateBuild *b) {
        int r;

        build_tell(b, step_types[b->step].percent);
        /* Cancelled by the callback? */
        if (b->result < 0 && b->step != STEP_CLEAN)
                return b->result;
        r = step_types[b->step].start(b);
        if (r < 0)
                for (size_t i = 0; i < b->n_tools; i++)
                        tool_kill(b->tools[i]);
        return r;
}

/* To the next step, to the clean-up after a failure, or to the end. */
static int build_advance(TemplateBuild *b) {
        for (;;) {
                if (b->step == STEP_CLEAN || ((b->step == STEP_COMMIT || b->step == STEP_REUSE) && b->result >= 0)) {
                        build_end(b);
                        return 0;
                }
                if (b->result < 0) {
                        b->output_fd = safe_close(b->output_fd);
                        prefix_message(b);
                        b->step = STEP_CLEAN;
                } else if (b->same)
                        b->step = STEP_REUSE;
                else {
                        b->step++;
                        if (b->on_base && b->step == STEP_TAKE_ROOT)
                                b->step = STEP_LAYER;
                        if (b->step == STEP_WARM && !b->warm)
                                b->step++;
                }
                int r = build_start_step(b);
                if (r == 0 || b->n_running > 0)
                        return 0;
        }
}

static void build_abort(TemplateBuild *b, int r, const char *message) {
        if (b->step == STEP_CLEAN || b->result < 0)
                return;
        (void) build_fail(b, r, "%s", message);
        for (size_t i = 0; i < b->n_tools; i++)
                tool_kill(b->tools[i]);
        if (b->step == STEP_WARM)
                b->callbacks.warm_cancel(b, b->userdata);
}

void template_build_cancel(TemplateBuild *b) {
        build_abort(b, -ECANCELED, "cancelled");
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        build_abort(userdata, -ETIMEDOUT, "the build took longer than it may (see --timeout and BuildTimeout=)");
        return 0;
}

static int watch_deadline(TemplateBuild *b, uint64_t timeout_usec) {
        if (timeout_usec == 0 || timeout_usec == UINT64_MAX)
                return 0;
        int r = sd_event_add_time_relative(b->event, &b->deadline, CLOCK_MONOTONIC, timeout_usec, 0, on_deadline, b);
        return r < 0 ? build_fail(b, r, "setting the build's time limit: %s", strerror(-r)) : 0;
}

const char *template_build_id(const TemplateBuild *b) {
        return b->template->id;
}

TemplateBuild *template_build_free(TemplateBuild *b) {
        if (!b)
                return NULL;
        tools_done(b);
        sd_event_source_disable_unref(b->progress);
        sd_event_source_disable_unref(b->deadline);
        template_warm_spec_free(b->warm);
        build_base_done(b);
        build_cache_done(b);
        safe_close(b->output_fd);
        safe_close(b->dir_fd);
        safe_close(b->rootfs_fd);
        safe_close(b->position_fd);
        safe_close(b->kernel_fd);
        safe_close(b->modules_fd);
        template_free(b->template);
        sd_event_unref(b->event);
        free(b->image);
        free(b->message);
        free(b);
        return NULL;
}

static int duplicate(int fd, int *ret) {
        if (fd < 0)
                return 0;
        *ret = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return *ret < 0 ? -errno : 0;
}

static int open_kernel(TemplateBuild *b, const TemplateBuildParams *p) {
        _cleanup_(guest_kernel_done) GuestKernel k = {};
        _cleanup_free_ char *message = NULL;

        if (p->kernel_fd >= 0)
                return duplicate(p->kernel_fd, &b->kernel_fd);
        int r = guest_kernel_choose(&b->store->tools, p->kernel_name, p->kernel_path, &k, &message);
        if (r < 0)
                return build_fail(b, r, "%s", message ?: strerror(-r));
        if (k.no_modules && p->modules_fd < 0)
                b->no_modules = true;
        b->kernel_fd = open(k.path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
        return b->kernel_fd < 0 ? build_fail(b, -errno, "%s: %s", k.path, strerror(errno)) : 0;
}

static int make_directory(TemplateBuild *b) {
        (void) snprintf(b->name, sizeof(b->name), "%s%s", STORE_BUILD_PREFIX, b->template->id);
        if (mkdirat(b->store->root_fd, b->name, 0700) < 0)
                return build_fail(b, -errno, "making %s in %s: %s", b->name, b->store->root, strerror(errno));
        b->dir_fd = openat(b->store->root_fd, b->name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return b->dir_fd < 0 ? build_fail(b, -errno, "%s: %s", b->name, strerror(errno)) : 0;
}

/* What the keys are made of beside what is made. */
static int copy_cache_params(TemplateBuild *b, const TemplateBuildParams *p) {
        b->no_cache = p->no_cache;
        b->force_step = p->force_step;
        b->cacheable = true;
        b->has_build_rules = p->build_rules;
        if (p->kernel_command_line && !(b->kernel_command_line = strdup(p->kernel_command_line)))
                return -ENOMEM;
        if (p->base && !(b->base_id = strdup(p->base->id)))
                return -ENOMEM;
        if (p->base)
                strcpy(b->root_sum, p->base->file_sha256[TEMPLATE_FILE_ROOT]);
        return p->build_rules ? sandbox_policy_copy(p->build_rules, &b->build_rules) : 0;
}

static int build_prepare(TemplateBuild *b, const TemplateBuildParams *p) {
        const char *fault = template_build_params_fault(p);
        int r;

        if (fault)
                return build_fail(b, -EINVAL, "%s", fault);
        r = template_from_params(p, &b->template);
        if (r >= 0 && p->warm)
                r = template_warm_spec_copy(p->warm, &b->warm);
        if (r >= 0 && p->image && !(b->image = strdup(p->image)))
                r = -ENOMEM;
        if (r >= 0)
                r = duplicate(p->rootfs_fd, &b->rootfs_fd);
        if (r >= 0)
                r = duplicate(p->modules_fd, &b->modules_fd);
        if (r >= 0)
                r = p->base ? build_base_prepare(b, p) : open_kernel(b, p);
        if (r >= 0)
                r = copy_cache_params(b, p);
        if (r >= 0)
                r = watch_deadline(b, p->timeout_usec);
        if (r >= 0)
                r = make_directory(b);
        if (r >= 0 && p->base)
                r = build_base_link(b, p->base);
        return r < 0 ? build_fail(b, r, "%s", strerror(-r)) : 0;
}

int template_build_start(
                sd_event *e,
                TemplateStore *s,
                const TemplateBuildParams *params,
                const TemplateBuildCallbacks *callbacks,
                void *userdata,
                TemplateBuild **ret,
                char **ret_message) {
        _cleanup_(template_build_freep) TemplateBuild *b = new0(TemplateBuild, 1);
        int r;

        if (!b)
                return -ENOMEM;
        b->event = sd_event_ref(e);
        b->store = s;
        b->callbacks = *callbacks;
        b->userdata = userdata;
        b->dir_fd = b->rootfs_fd = b->kernel_fd = b->modules_fd = -EBADF;
        b->output_fd = b->position_fd = -EBADF;
        b->no_modules = params->no_modules;
        b->owner_gid = params->owner_gid;
        b->root_max_bytes = params->root_max_bytes > 0 ? params->root_max_bytes : ROOT_BYTES_DEFAULT;
        b->timeout_usec = params->step_timeout_usec > 0 ? params->step_timeout_usec : STEP_TIMEOUT_DEFAULT;

        b->on_base = params->base;
        b->step = params->base ? STEP_KEY : STEP_PROBE;
        r = build_prepare(b, params);
        if (r >= 0)
                r = build_start_step(b);
        if (r < 0) {
                if (b->dir_fd >= 0 && b->on_base)
                        build_base_unlink(b);
                /* Nothing else was put into it yet. */
                if (b->dir_fd >= 0)
                        (void) unlinkat(s->root_fd, b->name, AT_REMOVEDIR);
                if (ret_message)
                        *ret_message = TAKE_PTR(b->message);
                return r;
        }
        *ret = TAKE_PTR(b);
        return 0;
}
