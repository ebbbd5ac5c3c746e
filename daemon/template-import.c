/* SPDX-License-Identifier: Apache-2.0 */

/* A template out of one file, which is hostile until all of it was looked at. In steps, each by a child but the
 * fourth:
 *
 *      unpack     its members into a directory that nobody finds, with their checksums   cube-image unpack
 *      check      can the saved guest go on here?                                        cube-state-check
 *      seal       hashes, fsync, template.json                                           cube-image seal
 *      save       the saved guest becomes a snapshot, on disk                            cube-stored
 *      commit     rename, names                                                          cube-image commit
 *
 * What fails or is cancelled leaves nothing. One Import is owned by the manager until its job has ended. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/id.h"
#include "daemon/job.h"
#include "daemon/json-strict.h"
#include "daemon/template-pack.h"
#include "dbus/bus-errors.h"

/* Of data in all members: root image, memory and disk. */
#define DATA_BYTES_MAX GIB(128)
#define KVM_FD 4

typedef enum ImportStep {
        IMPORT_UNPACK,
        IMPORT_CHECK,
        IMPORT_SEAL,
        IMPORT_SAVE,
        IMPORT_COMMIT,
        IMPORT_CLEAN, /* only after a failure */
        _IMPORT_STEP_MAX,
} ImportStep;

typedef struct Import {
        Manager *manager;          /* NULL: it ended without a word, and only what is under way is waited for */
        Job *job;
        char id[ID_SIZE];          /* of the template to be */
        char dir[sizeof(STORE_BUILD_PREFIX) + ID_SIZE];
        uid_t owner;
        char tenant[TENANT_NAME_MAX];
        char *name, *tag;          /* NULL: those that the file says */
        char **aliases;
        int in_fd, dir_fd;
        int members[_PACK_MEMBER_MAX]; /* while they are written */
        int manifest_fd;           /* of pack.json, a memory file */
        PackProgress progress;
        Template *template;        /* in the making */
        Template *loaded;          /* the store's, in the end */
        Snapshot *guest;           /* NULL: there is none */
        bool published;            /* and we have a use of it */
        ImportStep step;
        Tool *tool;
        bool saving;
        int result;
        char *message;
        struct Import *next;
} Import;

static const struct {
        const char *words;
        unsigned percent;
} steps[_IMPORT_STEP_MAX] = {
        [IMPORT_UNPACK] = { "unpacking the file", 0 },
        [IMPORT_CHECK] = { "checking the saved guest", 80 },
        [IMPORT_SEAL] = { "writing the template's files", 82 },
        [IMPORT_SAVE] = { "keeping the saved guest", 95 },
        [IMPORT_COMMIT] = { "naming the template", 98 },
        [IMPORT_CLEAN] = { "cleaning up", 99 },
};

static void advance(Import *i);

static void import_close(Import *i) {
        pack_progress_done(&i->progress);
        close_many(i->members, ELEMENTSOF(i->members));
        i->in_fd = safe_close(i->in_fd);
        i->manifest_fd = safe_close(i->manifest_fd);
}

static void drop_guest(Import *i) {
        Snapshot *s = TAKE_PTR(i->guest);

        if (!s)
                return;
        if (!i->published)
                snapshot_free(s);
        else {
                i->published = false;
                snapshot_release(s);
        }
}

static Import *import_free(Import *i) {
        if (!i)
                return NULL;
        for (Import **p = i->manager ? &i->manager->priv->imports : NULL; p && *p; p = &(*p)->next)
                if (*p == i) {
                        *p = i->next;
                        break;
                }
        import_close(i);
        tool_free(i->tool);
        drop_guest(i);
        safe_close(i->dir_fd);
        template_free(i->template);
        template_aliases_free(i->aliases);
        free(i->name);
        free(i->tag);
        free(i->message);
        free(i);
        return NULL;
}
DEFINE_CLEANUP(Import *, import_free);

void manager_end_imports(Manager *m) {
        while (m->priv->imports) {
                Import *i = m->priv->imports;

                m->priv->imports = i->next;
                if (!i->saving) {
                        i->manager = NULL;
                        import_free(i);
                } else
                        /* on_saved() frees it, when the client of cube-stored ends. */
                        i->manager = NULL;
        }
}

bool manager_is_importing(const Manager *m, const char *template_id) {
        for (const Import *i = m->priv->imports; i; i = i->next)
                if (streq(i->id, template_id))
                        return true;
        return false;
}

/* The first failure stays. Returns r. */
_printf_(3, 4) static int fail(Import *i, int r, const char *format, ...) {
        va_list ap;

        if (i->result < 0)
                return i->result;
        i->result = r;
        va_start(ap, format);
        if (vasprintf(&i->message, format, ap) < 0)
                i->message = NULL;
        va_end(ap);
        return r;
}

static void on_tool_done(Tool *tool, int r, const char *message, void *userdata);

static void on_log(Tool *tool, const char *text, size_t size, void *userdata) {
        Import *i = userdata;

        if (i->job)
                job_log(i->job, text, size);
}

static int run(Import *i, const ToolSpec *spec) {
        int r = tool_start(i->manager->event, spec, on_tool_done, on_log, i, &i->tool);

        return r < 0 ? fail(i, r, "starting %s: %s", spec->argv[0], strerror(-r)) : 0;
}

static int run_in_store(Import *i, const char *const *argv, int in_fd) {
        ToolSpec spec = TOOL_SPEC_INIT;

        spec.argv = argv;
        spec.fds[0] = in_fd;
        spec.fds[3] = i->manager->templates->root_fd;
        return run(i, &spec);
}

/* Unpack */

static int create_members(Import *i) {
        int r = snapshot_new(i->manager->snapshots, SNAPSHOT_TEMPLATE, &i->guest);

        for (int k = 0; k < _SNAPSHOT_FILE_MAX && r >= 0; k++)
                r = snapshot_create_file(i->guest, (SnapshotFileKind) k, &i->members[PACK_GUEST_STATE + k]);
        for (int k = 0; k < _TEMPLATE_FILE_MAX && r >= 0; k++) {
                int fd = openat(i->dir_fd, template_file_name((TemplateFile) k), O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0400);
                i->members[PACK_KERNEL + k] = fd;
                r = fd < 0 ? -errno : 0;
        }
        return r;
}

static int unpack_start(Import *i) {
        char max[32];
        const char *const argv[] = { i->manager->templates->tools.cube_image, "unpack", max, NULL };
        ToolSpec spec = pack_tool_spec(i->manager, argv);

        (void) snprintf(max, sizeof(max), "%llu", (unsigned long long) DATA_BYTES_MAX);
        i->manifest_fd = memfd_create("pack", MFD_CLOEXEC);
        int r = i->manifest_fd < 0 ? -errno : create_members(i);
        if (r >= 0)
                r = pack_progress_start(&i->progress, i->manager->event, steps[IMPORT_UNPACK].words, 0, steps[IMPORT_CHECK].percent);
        if (r < 0)
                return fail(i, r, "making its files: %s", strerror(-r));
        i->progress.job = i->job;
        spec.fds[0] = i->in_fd;
        spec.fds[1] = i->manifest_fd;
        spec.fds[PACK_PROGRESS_FD] = i->progress.fd;
        memcpy(spec.fds + PACK_MEMBERS_FD, i->members, sizeof(i->members));
        return run(i, &spec);
}

static int read_manifest(Import *i, json_object **ret) {
        _cleanup_free_ char *text = NULL;
        struct stat st;

        if (fstat(i->manifest_fd, &st) < 0)
                return -errno;
        if (st.st_size <= 0 || st.st_size > (off_t) PACK_JSON_MAX)
                return -EBADMSG;
        size_t size = (size_t) st.st_size;
        text = malloc(size);
        if (!text)
                return -ENOMEM;
        if (pread(i->manifest_fd, text, size, 0) != (ssize_t) size)
                return -EIO;
        return json_parse_strict(text, size, ret);
}

static bool is_printable(const char *s) {
        for (; *s; s++)
                if (*s < ' ' || *s > '~')
                        return false;
        return true;
}

/* As if it had been built here, by who imports it. */
static int take_template(Import *i, json_object *manifest) {
        _cleanup_(template_freep) Template *t = NULL;
        const char *reason = "out of memory", *text = NULL;
        json_object *o;

        int r = json_get(manifest, "template", json_type_object, &o);
        if (r >= 0)
                text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        if (r >= 0)
                r = text ? template_parse(text, strlen(text), &t, &reason) : -ENOMEM;
        if (r < 0)
                return fail(i, r, "the template in it is not right: %s", reason);
        if (!is_printable(t->cmdline))
                return fail(i, -EBADMSG, "its kernel command line holds characters other than printable ASCII");
        if (!exec_defaults_fit_bus(&t->defaults))
                return fail(i, -EBADMSG, "its user or working directory has a character that stands for none");
        for (int k = 0; k < _TEMPLATE_FILE_MAX; k++) {
                struct stat st;

                if (fstat(i->members[PACK_KERNEL + k], &st) < 0)
                        return fail(i, -errno, "%s: %s", template_file_name((TemplateFile) k), strerror(errno));
                if ((uint64_t) st.st_size != t->file_bytes[k])
                        return fail(i, -EBADMSG, "%s is not as large as the template in it says", template_file_name((TemplateFile) k));
        }
        r = template_readdress(t, i->id, i->owner, i->tenant, i->name, i->tag);
        if (r < 0)
                return fail(i, r, "%s", strerror(-r));
        t->aliases = TAKE_PTR(i->aliases);
        i->template = TAKE_PTR(t);
        return 0;
}

static int take_guest(Import *i, json_object *manifest) {
        const char *reason = "out of memory", *text = NULL;
        json_object *o;

        if (!json_object_object_get_ex(manifest, "guest", &o)) {
                drop_guest(i);
                return 0;
        }
        text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        int r = text ? snapshot_adopt(i->guest, text, strlen(text), i->template, &reason) : -ENOMEM;
        return r < 0 ? fail(i, r, "the saved guest in it is not right: %s", reason) : 0;
}

static int unpack_finish(Import *i) {
        _cleanup_json_ json_object *manifest = NULL;

        int r = read_manifest(i, &manifest);
        if (r < 0)
                return fail(i, r, "cube-image reported nonsense");
        r = take_template(i, manifest);
        if (r >= 0)
                r = take_guest(i, manifest);
        /* The child is gone, and nobody writes to them from here on. */
        import_close(i);
        return r;
}

/* Check */

static int check_start(Import *i) {
        const char *const argv[] = { i->manager->templates->tools.state_check, NULL };
        _cleanup_close_ int state = -EBADF, kvm = open("/dev/kvm", O_RDWR|O_CLOEXEC|O_NOCTTY);
        ToolSpec spec = pack_tool_spec(i->manager, argv);

        if (kvm < 0)
                return fail(i, -errno, "a guest is saved in it, and whether it can go on here KVM alone knows; /dev/kvm: %s", strerror(errno));
        int r = snapshot_open_file(i->guest, SNAPSHOT_FILE_STATE, &state);
        if (r < 0)
                return fail(i, r, "the saved guest's state: %s", strerror(-r));
        spec.fds[0] = state;
        spec.fds[KVM_FD] = kvm;
        return run(i, &spec);
}

/* Seal */

static int seal_start(Import *i) {
        const char *const argv[] = { i->manager->templates->tools.cube_image, "seal", i->dir, NULL };
        _cleanup_close_ int fd = memfd_create("template", MFD_CLOEXEC);
        _cleanup_json_ json_object *o = template_to_json(i->template);
        const char *text = o ? json_object_to_json_string(o) : NULL;

        int r = fd < 0 ? -errno : text ? write_full(fd, text, strlen(text)) : -ENOMEM;
        if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
                r = -errno;
        return r < 0 ? fail(i, r, "describing the template: %s", strerror(-r)) : run_in_store(i, argv, fd);
}

/* Save */

static void on_saved(Snapshot *s, int error, void *userdata) {
        Import *i = userdata;

        i->saving = false;
        if (!i->manager) {
                import_free(i);
                return;
        }
        if (error < 0)
                (void) fail(i, error, "writing the saved guest: %s", strerror(-error));
        advance(i);
}

static int save_start(Import *i) {
        int r = snapshot_publish(i->guest);

        if (r < 0)
                return fail(i, r, "the saved guest: %s", strerror(-r));
        i->published = true;
        r = snapshot_sync(i->guest, on_saved, i);
        if (r < 0)
                return fail(i, r, "writing the saved guest: %s", strerror(-r));
        i->saving = true;
        return 0;
}

/* Commit, clean */

static int commit_start(Import *i) {
        char dir[TENANT_DIR_MAX], name[160];
        const char *argv[7 + TEMPLATE_ALIASES_MAX] = {
                i->manager->templates->tools.cube_image, "commit", i->dir, i->id, dir, name,
        };

        for (size_t k = 0; i->template->aliases && i->template->aliases[k]; k++)
                argv[6 + k] = i->template->aliases[k];
        (void) tenant_dir_format(dir, i->owner, i->tenant);
        (void) snprintf(name, sizeof(name), "%s:%s", i->template->name, i->template->tag);
        return run_in_store(i, argv, -EBADF);
}

static int clean_start(Import *i) {
        const char *const argv[] = { i->manager->templates->tools.cube_image, "remove", i->dir, i->id, NULL };

        import_close(i);
        drop_guest(i);
        manager_drop_warm_snapshot(i->manager, i->id);
        return run_in_store(i, argv, -EBADF);
}

static int (*const starts[_IMPORT_STEP_MAX])(Import *i) = {
        [IMPORT_UNPACK] = unpack_start, [IMPORT_CHECK] = check_start, [IMPORT_SEAL] = seal_start,
        [IMPORT_SAVE] = save_start, [IMPORT_COMMIT] = commit_start, [IMPORT_CLEAN] = clean_start,
};

/* What a start of cubed would not load is not left there either. */
static void commit_finish(Import *i) {
        int r = template_store_add(i->manager->templates, i->id, &i->loaded);

        if (r < 0)
                (void) fail(i, r, "loading the new template: %s", strerror(-r));
}

static void fail_job(Import *i) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        bool space = i->result == -ENOSPC || i->result == -EDQUOT || i->result == -ENOMEM;

        (void) sd_bus_error_setf(&e, space ? BUS_ERROR_NO_RESOURCES : BUS_ERROR_TEMPLATE_INVALID,
                                 "The template could not be imported: %s", isempty(i->message) ? strerror(-i->result) : i->message);
        job_fail(i->job, &e);
}

static void finish(Import *i) {
        _cleanup_(import_freep) Import *owned = i;
        Manager *m = i->manager;
        Template *t = i->loaded;
        char name[160];

        if (i->result == -ECANCELED)
                job_canceled(i->job);
        else if (i->result < 0)
                fail_job(i);
        else {
                (void) snprintf(name, sizeof(name), "%s:%s", t->name, t->tag);
                audit_template_built(m->audit, i->owner, i->tenant, name, t->id);
                manager_announce_template(m, t);
                job_done(i->job, t->id);
        }
}

static bool step_is_due(const Import *i, ImportStep s) {
        return i->guest || (s != IMPORT_CHECK && s != IMPORT_SAVE);
}

/* To the next step, to the clean-up after a failure, or to the end. */
static void advance(Import *i) {
        for (;;) {
                if (i->step == IMPORT_CLEAN || (i->step == IMPORT_COMMIT && i->result >= 0)) {
                        finish(i);
                        return;
                }
                if (i->result < 0)
                        i->step = IMPORT_CLEAN;
                else
                        do
                                i->step++;
                        while (!step_is_due(i, i->step));
                job_set_step(i->job, steps[i->step].words, steps[i->step].percent);
                if (starts[i->step](i) >= 0)
                        return;
        }
}

static void on_tool_done(Tool *tool, int r, const char *message, void *userdata) {
        Import *i = userdata;

        i->tool = tool_free(i->tool);
        if (i->step != IMPORT_CLEAN) {
                if (r < 0)
                        (void) fail(i, r, "%s", strempty(message));
                else if (i->step == IMPORT_UNPACK && i->result >= 0)
                        (void) unpack_finish(i);
                else if (i->step == IMPORT_COMMIT && i->result >= 0)
                        commit_finish(i);
        }
        advance(i);
}

static void on_cancel(Job *j, void *userdata) {
        Import *i = userdata;

        if (i->step == IMPORT_CLEAN)
                return;
        (void) fail(i, -ECANCELED, "cancelled");
        if (i->tool)
                tool_kill(i->tool);
}

static int make_directory(Import *i) {
        const TemplateStore *s = i->manager->templates;

        (void) snprintf(i->dir, sizeof(i->dir), "%s%s", STORE_BUILD_PREFIX, i->id);
        if (mkdirat(s->root_fd, i->dir, 0700) < 0)
                return fail(i, -errno, "making %s in %s: %s", i->dir, s->root, strerror(errno));
        i->dir_fd = openat(s->root_fd, i->dir, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return i->dir_fd < 0 ? fail(i, -errno, "%s: %s", i->dir, strerror(errno)) : 0;
}

static int import_new(Manager *m, const TemplateImportParams *p, Import **ret) {
        _cleanup_(import_freep) Import *i = new0(Import, 1);

        if (!i)
                return -ENOMEM;
        i->manager = m;
        i->owner = p->owner_uid;
        tenant_name_copy(i->tenant, p->tenant);
        i->dir_fd = i->manifest_fd = -EBADF;
        i->progress = PACK_PROGRESS_NONE;
        for (size_t k = 0; k < ELEMENTSOF(i->members); k++)
                i->members[k] = -EBADF;
        i->in_fd = fcntl(p->in_fd, F_DUPFD_CLOEXEC, 3);
        if (i->in_fd < 0)
                return -errno;
        id_random(i->id);
        i->name = p->name ? strdup(p->name) : NULL;
        i->tag = p->name ? strdup(p->tag) : NULL;
        if (p->name && (!i->name || !i->tag))
                return -ENOMEM;
        int r = template_aliases_copy(p->aliases, &i->aliases);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(i);
        return 0;
}

int manager_import_template(Manager *m, const TemplateImportParams *p, Job **ret, sd_bus_error *error) {
        _cleanup_(import_freep) Import *i = NULL;
        char subject[160] = "";

        int r = job_may_begin(m, p->owner_uid, p->tenant, error);
        if (r < 0)
                return r;
        r = import_new(m, p, &i);
        if (r >= 0)
                r = make_directory(i);
        if (p->name)
                (void) snprintf(subject, sizeof(subject), "%s:%s", p->name, p->tag);
        if (r >= 0)
                r = job_new(m, "import-template", subject, p->owner_uid, on_cancel, i, &i->job);
        if (r < 0) {
                if (i && i->dir_fd >= 0)
                        (void) unlinkat(m->templates->root_fd, i->dir, AT_REMOVEDIR);
                return sd_bus_error_set_errnof(error, -r, "The template can't be imported: %s", i && i->message ? i->message : strerror(-r));
        }
        job_set_tenant(i->job, p->tenant);
        job_set_step(i->job, steps[IMPORT_UNPACK].words, 0);
        *ret = i->job;
        i->next = m->priv->imports;
        m->priv->imports = i;
        /* From here on it ends by its job. */
        Import *started = TAKE_PTR(i);
        if (unpack_start(started) < 0)
                advance(started);
        return 0;
}
