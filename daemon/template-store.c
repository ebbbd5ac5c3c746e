/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "base/utf8.h"
#include "daemon/template-private.h"
#include "daemon/tool.h"

#ifndef CUBE_LIBEXEC_DIR
#define CUBE_LIBEXEC_DIR "/usr/lib/cubed"
#endif

#define TOOLS_USER "cubed-image"
#define UID_NOBODY 65534U
#define GID_NOGROUP 65534U

#define WARNINGS_MAX 64U
#define LEFTOVERS_MAX 60U

/* Owned by the store until the child has ended. */
typedef struct StoreJob StoreJob;
struct StoreJob {
        StoreJobKind kind;
        TemplateStore *store;
        StoreJob *next;
        Tool *tool;
        char *id; /* may be NULL */
        template_removed_t done;
        void *userdata;
};

void template_store_warn(TemplateStore *s, const char *format, ...) {
        char *text = NULL;
        va_list ap;

        if (s->n_warnings == WARNINGS_MAX)
                return;
        va_start(ap, format);
        if (vasprintf(&text, format, ap) >= 0)
                s->warnings[s->n_warnings++] = text;
        va_end(ap);
}

Template *template_store_find_id(const TemplateStore *s, const char *id) {
        for (size_t i = 0; i < s->n_templates; i++)
                if (streq(s->templates[i]->id, id))
                        return s->templates[i];
        return NULL;
}

Template *template_store_find(TemplateStore *s, uid_t owner, const char *tenant, const char *ref) {
        _cleanup_free_ char *name = NULL, *tag = NULL;
        Template *t = template_store_find_id(s, ref);

        if (t)
                return t;
        if (template_ref_parse(ref, &name, &tag) < 0)
                return NULL;
        t = template_store_find_name(s, owner, tenant, name, tag);
        return t ?: template_store_find_name(s, 0, NULL, name, tag);
}

/* An earlier cubed took them of images and packs. The template stays. */
static void drop_unfit(TemplateStore *s, const Template *t, const char *what, char **value) {
        if (!*value || text_fits_bus(*value))
                return;
        template_store_warn(s, "template %s: its %s has a character that stands for none, it is as if none was given", t->id, what);
        free(*value);
        *value = NULL;
}

static int attach(TemplateStore *s, Template *t) {
        Template **list = reallocarray(s->templates, s->n_templates + 1, sizeof(*list));

        if (!list)
                return -ENOMEM;
        s->templates = list;
        s->templates[s->n_templates++] = t;
        drop_unfit(s, t, "user", &t->defaults.user);
        drop_unfit(s, t, "working directory", &t->defaults.cwd);
        t->store = s;
        return 0;
}

static void detach(Template *t) {
        TemplateStore *s = t->store;

        for (size_t i = 0; s && i < s->n_templates; i++)
                if (s->templates[i] == t) {
                        s->templates[i] = s->templates[--s->n_templates];
                        t->store = NULL;
                        return;
                }
}

int template_store_open_list(int parent_fd, const char *path, DIR **ret) {
        int fd = openat(parent_fd, path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC), r;

        if (fd < 0)
                return -errno;
        *ret = fdopendir(fd);
        if (*ret)
                return 0;
        r = -errno;
        safe_close(fd);
        return r;
}

int template_store_add(TemplateStore *s, const char *id, Template **ret) {
        _cleanup_(template_freep) Template *t = NULL;
        const char *reason;
        int r;

        if (template_store_find_id(s, id))
                return -EEXIST;
        r = template_load(s->root_fd, id, &t, &reason);
        if (r >= 0)
                r = attach(s, t);
        if (r < 0)
                return r;

        /* Who is told that it failed removes its files. */
        r = template_names_settle(s);
        if (r < 0) {
                detach(t);
                return r;
        }
        *ret = TAKE_PTR(t);
        return 0;
}

static int load_all(TemplateStore *s) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;
        int r;

        r = template_store_open_list(s->root_fd, ".", &d);
        if (r < 0)
                return r;
        while ((errno = 0, de = readdir(d))) {
                _cleanup_(template_freep) Template *t = NULL;
                const char *reason;

                if (de->d_name[0] == '.' || streq(de->d_name, STORE_NAMES))
                        continue;
                if (!sandbox_id_valid(de->d_name)) {
                        template_store_warn(s, "%s: not a template", de->d_name);
                        continue;
                }
                r = template_load(s->root_fd, de->d_name, &t, &reason);
                if (r == -ENOMEM)
                        return r;
                if (r < 0) {
                        template_store_warn(s, "template %s: %s (%s)", de->d_name, reason, strerror(-r));
                        continue;
                }
                r = attach(s, t);
                if (r < 0)
                        return r;
                (void) TAKE_PTR(t);
        }
        return errno > 0 ? -errno : template_names_settle(s);
}

/* Root's tools give up being root. The user comes from units/cubed.sysusers; in its absence nobody has
 * as few rights, only shared with others. */
static void choose_tools_user(TemplateTools *tools) {
        const struct passwd *pw;

        tools->uid = (uid_t) -1;
        tools->gid = (gid_t) -1;
        if (geteuid() != 0)
                return;
        pw = getpwnam(TOOLS_USER);
        tools->uid = pw ? pw->pw_uid : UID_NOBODY;
        tools->gid = pw ? pw->pw_gid : GID_NOGROUP;
}

int template_store_load(TemplateStore **ret, const char *root) {
        _cleanup_(template_store_freep) TemplateStore *s = new0(TemplateStore, 1);
        int r;

        if (!s)
                return -ENOMEM;
        s->root_fd = -EBADF;
        s->tools = (TemplateTools) {
                .cube_image = CUBE_LIBEXEC_DIR "/cube-image",
                .agent = CUBE_LIBEXEC_DIR "/cube-agent",
                .state_check = CUBE_LIBEXEC_DIR "/cube-state-check",
                .mksquashfs = "/usr/bin/mksquashfs",
                .mkfs = "/usr/sbin/mkfs.ext4",
                .boot_dir = "/boot",
                .small_kernel = CUBE_LIBEXEC_DIR "/vmlinux-small",
                .modules_dir = "/lib/modules",
        };
        choose_tools_user(&s->tools);
        s->root = strdup(root);
        s->warnings = new0(char *, WARNINGS_MAX);
        if (!s->root || !s->warnings)
                return -ENOMEM;

        if (mkdir(root, 0755) < 0 && errno != EEXIST)
                return -errno;
        s->root_fd = open(root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (s->root_fd < 0)
                return -errno;
        r = load_all(s);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(s);
        return 0;
}

static void store_job_free(StoreJob *j) {
        if (!j)
                return;
        for (StoreJob **p = &j->store->jobs; *p; p = &(*p)->next)
                if (*p == j) {
                        *p = j->next;
                        break;
                }
        tool_free(j->tool);
        free(j->id);
        free(j);
}
DEFINE_CLEANUP(StoreJob *, store_job_free);

TemplateStore *template_store_free(TemplateStore *s) {
        if (!s)
                return NULL;
        while (s->jobs)
                store_job_free(s->jobs);
        for (size_t i = 0; i < s->n_templates; i++)
                template_free(s->templates[i]);
        free(s->templates);
        for (size_t i = 0; i < s->n_warnings; i++)
                free(s->warnings[i]);
        free(s->warnings);
        safe_close(s->root_fd);
        free(s->root);
        free(s);
        return NULL;
}

static void on_job_done(Tool *tool, int r, const char *message, void *userdata) {
        _cleanup_(store_job_freep) StoreJob *j = userdata;

        if (j->kind == STORE_JOB_NAME) {
                int q = template_names_settle(j->store);
                r = r < 0 ? r : q;
        }
        if (j->done)
                j->done(j->store, j->id, r, message, j->userdata);
}

bool template_store_is_busy(const TemplateStore *s, StoreJobKind kind, const char *id) {
        for (const StoreJob *j = s->jobs; j; j = j->next)
                if (j->kind == kind && j->id && streq(j->id, id))
                        return true;
        return false;
}

size_t template_store_count_jobs(const TemplateStore *s, StoreJobKind kind) {
        size_t n = 0;

        for (const StoreJob *j = s->jobs; j; j = j->next)
                n += j->kind == kind;
        return n;
}

int template_store_run(sd_event *e, TemplateStore *s, StoreJobKind kind, const char *id, const char *const *argv,
                       template_removed_t done, void *userdata) {
        _cleanup_(store_job_freep) StoreJob *j = new0(StoreJob, 1);
        ToolSpec spec = TOOL_SPEC_INIT;
        int r;

        if (!j)
                return -ENOMEM;
        j->kind = kind;
        j->store = s;
        j->done = done;
        j->userdata = userdata;
        if (id) {
                j->id = strdup(id);
                if (!j->id)
                        return -ENOMEM;
        }
        spec.argv = argv;
        spec.fds[3] = s->root_fd;
        r = tool_start(e, &spec, on_job_done, NULL, j, &j->tool);
        if (r < 0)
                return r;
        j->next = s->jobs;
        s->jobs = TAKE_PTR(j);
        return 0;
}

int template_store_remove(sd_event *e, Template *t, template_removed_t done, void *userdata) {
        const char *const argv[] = { t->store->tools.cube_image, "remove", t->id, NULL };
        int r;

        if (t->n_users > 0 || template_store_is_busy(t->store, STORE_JOB_NAME, t->id))
                return -EBUSY;
        r = template_store_run(e, t->store, STORE_JOB_REMOVE, t->id, argv, done, userdata);
        if (r < 0)
                return r;
        detach(t);
        template_free(t);
        return 0;
}

static bool has_hidden_name(int names_fd, const char *dir) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;

        if (template_store_open_list(names_fd, dir, &d) < 0)
                return false;
        while ((de = readdir(d)))
                if (de->d_name[0] == '.' && !streq(de->d_name, ".") && !streq(de->d_name, ".."))
                        return true;
        return false;
}

/* A name that was being given when cubed or its host ended. */
static bool has_hidden_names(TemplateStore *s) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;

        if (template_store_open_list(s->root_fd, STORE_NAMES, &d) < 0)
                return false;
        while ((de = readdir(d)))
                if (de->d_name[0] != '.' && has_hidden_name(dirfd(d), de->d_name))
                        return true;
        return false;
}

int template_store_clean(sd_event *e, TemplateStore *s, template_removed_t done, void *userdata) {
        const char *argv[LEFTOVERS_MAX + 3] = { s->tools.cube_image, "clean" };
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;
        size_t n = 2;
        int r;

        r = template_store_open_list(s->root_fd, ".", &d);
        if (r < 0)
                return r;
        /* The rest, if there are more, goes the next time. */
        while (n < LEFTOVERS_MAX + 2 && (de = readdir(d)))
                if (startswith(de->d_name, STORE_BUILD_PREFIX) || startswith(de->d_name, STORE_REMOVE_PREFIX)) {
                        argv[n] = strdup(de->d_name);
                        if (!argv[n++])
                                break;
                }
        r = n > 2 || has_hidden_names(s) ? template_store_run(e, s, STORE_JOB_CLEAN, NULL, argv, done, userdata) : 0;
        for (size_t i = 2; i < n; i++)
                free((char *) argv[i]);
        return r < 0 ? r : template_store_count_jobs(s, STORE_JOB_CLEAN) > 0;
}
