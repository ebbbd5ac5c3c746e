/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/host-network.h"
#include "daemon/job.h"
#include "dbus/bus-errors.h"
#include "tests/dbus/fake-core.h"
#include "tests/dbus/fake-templates.h"

/* Of the job that was begun last. */
static int log_fds[2];

typedef struct FakeJob {
        Job job;
        Template *made;            /* of a build on another template: found once that is done */
        uint32_t n_steps, bad_step; /* 0: none is */
} FakeJob;

static const char *failure(const FakeJob *f) {
        return streq(f->job.subject, "broken:latest") ? "root: not a tar" :
                f->bad_step > 0 ? "warm: step 2 of 2 (RUN) ended with exit status 1; the log has what it printed" : NULL;
}

static void forget_name(Template *t, const char *name) {
        _cleanup_free_ char *own = NULL;
        size_t n = 0;

        if (asprintf(&own, "%s:%s", t->name, t->tag) >= 0 && streq(own, name))
                t->named = false;
        for (size_t i = 0; t->aliases && t->aliases[i]; i++)
                if (streq(t->aliases[i], name))
                        free(t->aliases[i]);
                else
                        t->aliases[n++] = t->aliases[i];
        if (t->aliases)
                t->aliases[n] = NULL;
}

/* Of the tenant's of that one it stands for t alone from now on; t NULL: for nothing. */
static void move_name(Manager *m, const Template *of, const char *name, Template *t) {
        for (size_t i = 0; i < m->templates->n_templates; i++) {
                Template *other = m->templates->templates[i];
                if (other != t && tenant_same(other->owner_uid, other->tenant, of->owner_uid, of->tenant))
                        forget_name(other, name);
        }
}

static void add_made(Manager *m, Template *t) {
        TemplateStore *s = m->templates;
        char own[160];

        (void) snprintf(own, sizeof(own), "%s:%s", t->name, t->tag);
        move_name(m, t, own, t);
        for (char **a = t->aliases; a && *a; a++)
                move_name(m, t, *a, t);
        s->templates = realloc(s->templates, (s->n_templates + 1) * sizeof(Template *));
        s->templates[s->n_templates++] = t;
        m->hooks->template_added(m, t);
}

static void end_job(FakeJob *f) {
        Job *j = &f->job;
        Manager *m = j->manager;
        const char *why = failure(f);

        if (j->state == JOB_RUNNING)
                j->state = why ? JOB_FAILED : JOB_DONE;
        j->build_step = j->state == JOB_DONE ? f->n_steps + 1 : f->bad_step;
        j->result = j->state != JOB_DONE ? NULL : strdup(f->made ? f->made->id : "tfakefakefake");
        j->error_message = j->state == JOB_DONE ? NULL : strdup(j->state == JOB_CANCELED ? "canceled" : why);
        if (j->state == JOB_DONE && f->made)
                add_made(m, TAKE_PTR(f->made));
        safe_close((int) (intptr_t) j->priv);
        j->priv = (struct JobPrivate *) (intptr_t) -1;
        m->hooks->job_changed(m, j);
}

/* One that is called slow goes on until it is canceled. */
static bool is_slow(const Job *j) {
        return streq(j->subject, "slow:latest");
}

static int on_build_step(sd_event_source *source, uint64_t usec, void *userdata) {
        FakeJob *f = userdata;
        Job *j = &f->job;
        Manager *m = j->manager;

        if (j->state == JOB_CANCELED || j->progress >= 100 || failure(f)) {
                end_job(f);
                sd_event_source_unref(source);
                return 0;
        }
        if (!is_slow(j) || j->progress == 0)
                j->progress += 25;
        (void) dprintf((int) (intptr_t) j->priv, "line at %u\n", j->progress);
        /* Its log ends before it does. */
        if (strstr(j->subject, "endless") && j->progress == 25) {
                safe_close((int) (intptr_t) j->priv);
                j->priv = (struct JobPrivate *) (intptr_t) -1;
        }
        m->hooks->job_changed(m, j);
        (void) sd_event_source_set_time_relative(source, 50 * USEC_PER_MSEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Of an image layout. */
static void read_index(int dir_fd, char *buf, size_t size) {
        int fd = openat(dir_fd, "index.json", O_RDONLY|O_CLOEXEC);

        if (fd >= 0 && read(fd, buf, size - 1) < 0)
                perror("index.json");
        safe_close(fd);
}

/* What it was asked for is in the log. The subject is the job's. */
static int new_job(Manager *m, uid_t owner, const char *kind, const char *step, char *subject, Job **ret) {
        static unsigned long long n_made;
        sd_event_source *source;
        FakeJob *f = new0(FakeJob, 1);
        Job *j = &f->job;

        if (!subject || pipe2(log_fds, O_CLOEXEC) < 0)
                return -errno;
        *j = (Job) { .manager = m, .owner_uid = owner, .kind = strdup(kind), .subject = subject, .step = strdup(step),
                     .created_usec = fake_now_usec(), .priv = (struct JobPrivate *) (intptr_t) log_fds[1] };
        snprintf(j->id, sizeof(j->id), "j%011llu", ++n_made);
        m->jobs = realloc(m->jobs, (m->n_jobs + 1) * sizeof(Job *));
        m->jobs[m->n_jobs++] = j;
        m->hooks->job_added(m, j);
        *ret = j;
        return sd_event_add_time_relative(m->event, &source, CLOCK_MONOTONIC, 50 * USEC_PER_MSEC, 0, on_build_step, f);
}

static void log_steps(FakeJob *f, const TemplateWarmSpec *w) {
        while (f->job.cached_steps < w->n_steps && streq(w->steps[f->job.cached_steps].args[0], "done before"))
                f->job.cached_steps++;
        for (size_t i = f->job.cached_steps; i < w->n_steps; i++) {
                const TemplateStep *s = &w->steps[i];

                (void) dprintf(log_fds[1], "[step %zu of %zu (%s)]\n", i + 1, w->n_steps, s->type);
                for (char **a = s->args; *a; a++)
                        (void) dprintf(log_fds[1], "%s%s", a == s->args ? "" : " ", *a);
                (void) dprintf(log_fds[1], "\n");
                if (streq(s->type, "RUN") && streq(s->args[0], "exit 1") && f->bad_step == 0)
                        f->bad_step = (uint32_t) i + 1;
        }
        f->n_steps = (uint32_t) w->n_steps;
        if (w->n_steps > 0 && f->bad_step == 0)
                (void) dprintf(log_fds[1], "[all steps are done]\n");
        if (w->start)
                (void) dprintf(log_fds[1], "start %s\n", w->start);
        if (w->ready)
                (void) dprintf(log_fds[1], "ready %s\n", w->ready);
}

static void log_directory(int fd) {
        _cleanup_close_ int own = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        DIR *d = own >= 0 ? fdopendir(own) : NULL;
        struct dirent *e;
        struct stat st;

        if (!d)
                return;
        (void) TAKE_FD(own);
        while ((e = readdir(d)))
                if (*e->d_name != '.' && fstatat(fd, e->d_name, &st, 0) >= 0)
                        (void) dprintf(log_fds[1], "with %s of %lld bytes\n", e->d_name, (long long) st.st_size);
        (void) closedir(d);
}

static Template *make_template(const TemplateBuildParams *p) {
        static unsigned long long n_made;
        Template *t = new0(Template, 1);
        size_t n = 0;

        while (p->aliases && p->aliases[n])
                n++;
        *t = (Template) {
                .name = strdup(p->name), .tag = strdup(p->tag), .named = true, .aliases = new0(char *, n + 1),
                .owner_uid = p->owner_uid, .created_usec = fake_now_usec(), .root_type = strdup("squashfs"),
                .cmdline = strdup(""), .mem_bytes = p->mem_bytes, .cpus = p->cpus, .disk_bytes = p->disk_bytes,
        };
        tenant_name_copy(t->tenant, p->tenant);
        if (p->warm && p->warm->start)
                t->start = (TemplateStart) { .command = strdup(p->warm->start), .ready = p->warm->ready ? strdup(p->warm->ready) : NULL };
        if (asprintf(&t->id, "tmade%08llu", ++n_made) < 0)
                abort();
        for (size_t i = 0; i < n; i++)
                t->aliases[i] = strdup(p->aliases[i]);
        return t;
}

int manager_build_template(Manager *m, const TemplateBuildParams *params, Job **ret, sd_bus_error *error) {
        static bool was_busy;
        char *subject = NULL;

        if (strstr(params->name, "crowded") && !was_busy) {
                was_busy = true;
                return sd_bus_error_set(error, BUS_ERROR_BUSY, "Too many templates are being built");
        }
        if (asprintf(&subject, "%s:%s", params->name, params->tag) < 0)
                return -ENOMEM;
        fprintf(stderr, "build %s: network %s, while it is built %s\n", params->name,
                params->policy ? params->policy->internet ? "internet" : "deny" : "not given",
                params->build_policy ? loaded_policy_rules(params->build_policy)->internet ? "internet" : "deny" : "not given");
        fprintf(stderr, "build %s: kernel %s\n", params->name,
                params->kernel_fd >= 0 ? "of a file" : params->kernel_name ?: "not given");
        int r = new_job(m, params->owner_uid, "build-template", "making the root image", subject, ret);
        if (r < 0)
                return r;
        tenant_name_copy((*ret)->tenant, params->tenant);
        for (char **a = params->aliases; a && *a; a++)
                (void) dprintf(log_fds[1], "also named %s\n", *a);
        for (size_t i = 0; params->warm && i < params->warm->n_copies; i++) {
                const TemplateCopy *c = &params->warm->copies[i];
                struct stat st;

                if (fstat(c->fd, &st) >= 0)
                        (void) dprintf(log_fds[1], "copy of %s to %s\n", S_ISDIR(st.st_mode) ? "a directory" : "a file", c->path);
                if (params->base)
                        log_directory(c->fd);
        }
        if (params->no_cache || params->force_step > 0)
                (void) dprintf(log_fds[1], "cache: %s, step %u is forced\n", params->no_cache ? "no" : "yes", params->force_step);
        if (params->warm)
                log_steps((FakeJob *) *ret, params->warm);
        if (params->base)
                (void) dprintf(log_fds[1], "on %s, %u CPUs, %u MiB\n", params->base->id, params->cpus,
                               (unsigned) (params->mem_bytes / MIB(1)));
        if (params->base || !isempty(params->tenant))
                ((FakeJob *) *ret)->made = make_template(params);
        if (params->image) {
                char text[4096] = "";

                read_index(params->rootfs_fd, text, sizeof(text));
                (void) dprintf(log_fds[1], "image \"%s\" of %s\n", params->image, text);
        }
        return 0;
}

int manager_export_template(Manager *m, const Template *t, uid_t actor, int out_fd, Job **ret, sd_bus_error *error) {
        char *subject = NULL;

        if (asprintf(&subject, "%s:%s", streq(t->name, "online") ? "broken" : t->name, t->tag) < 0 ||
            dprintf(out_fd, "the pack of %s\n", t->id) < 0)
                return -errno;
        return new_job(m, actor, "export-template", "export-template", subject, ret);
}

int manager_import_template(Manager *m, const TemplateImportParams *p, Job **ret, sd_bus_error *error) {
        char *subject = NULL, text[64] = "";

        if (read(p->in_fd, text, sizeof(text) - 1) < 0 ||
            asprintf(&subject, "%s:%s", p->name ? p->name : "as-it-says", p->name ? p->tag : "latest") < 0)
                return -errno;
        int r = new_job(m, p->owner_uid, "import-template", "import-template", subject, ret);
        tenant_name_copy((*ret)->tenant, p->tenant);
        (void) dprintf(log_fds[1], "import of %s as %s", text, subject);
        for (char **a = p->aliases; a && *a; a++)
                (void) dprintf(log_fds[1], " and %s", *a);
        (void) dprintf(log_fds[1], "\n");
        return r;
}

Snapshot *snapshot_store_find_template(SnapshotStore *s, const char *template_id) {
        return NULL;
}

Job *manager_find_job(Manager *m, const char *id) {
        for (size_t i = 0; i < m->n_jobs; i++)
                if (streq(m->jobs[i]->id, id))
                        return m->jobs[i];
        return NULL;
}

int job_open_log(Job *j, int *ret_fd, sd_bus_error *error) {
        if (strstr(j->subject, "logless"))
                return -EIO;
        *ret_fd = fcntl(log_fds[0], F_DUPFD_CLOEXEC, 3);
        safe_close(log_fds[0]);
        return *ret_fd < 0 ? -errno : 0;
}

int job_cancel(Job *j, sd_bus_error *error) {
        if (j->state != JOB_RUNNING)
                return sd_bus_error_set(error, BUS_ERROR_BUSY, "This job has ended");
        j->state = JOB_CANCELED;
        return 0;
}

int template_ref_parse(const char *ref, char **ret_name, char **ret_tag) {
        const char *colon = strchr(ref, ':');
        *ret_name = colon ? strndup(ref, (size_t) (colon - ref)) : strdup(ref);
        *ret_tag = strdup(colon ? colon + 1 : TEMPLATE_TAG_DEFAULT);
        return template_name_valid(*ret_name) && template_name_valid(*ret_tag) ? 0 : -EINVAL;
}

Template *template_store_find(TemplateStore *s, uid_t owner, const char *tenant, const char *ref) {
        _cleanup_free_ char *name = NULL, *tag = NULL;

        if (template_ref_parse(ref, &name, &tag) < 0)
                return NULL;
        for (size_t i = 0; i < s->n_templates; i++) {
                Template *t = s->templates[i];
                if (streq(t->id, ref))
                        return t;
        }
        return template_store_find_name(s, owner, tenant, name, tag) ?: template_store_find_name(s, 0, NULL, name, tag);
}

Template *template_store_find_name(const TemplateStore *s, uid_t owner, const char *tenant, const char *name, const char *tag) {
        char full[160];

        snprintf(full, sizeof(full), "%s:%s", name, tag);
        for (size_t i = 0; i < s->n_templates; i++) {
                Template *t = s->templates[i];
                if (!tenant_same(t->owner_uid, t->tenant, owner, tenant))
                        continue;
                if (t->named && streq(t->name, name) && streq(t->tag, tag))
                        return t;
                for (char **a = t->aliases; a && *a; a++)
                        if (streq(*a, full))
                                return t;
        }
        return NULL;
}

static void free_template(Template *t) {
        free(t->id);
        free(t->name);
        free(t->tag);
        for (char **a = t->aliases; a && *a; a++)
                free(*a);
        free(t->aliases);
        free(t->root_type);
        free(t->cmdline);
        free(t->defaults.user);
        free(t->defaults.cwd);
        free(t->start.command);
        free(t->start.ready);
        sandbox_policy_done(&t->policy);
        free(t);
}

int manager_name_template(Manager *m, const char *name, Template *t, bool take_away, uid_t actor, TemplateRemoveDone done,
                          void *userdata, sd_bus_error *error) {
        _cleanup_free_ char *base = NULL, *tag = NULL;
        size_t n = 0;

        (void) template_ref_parse(name, &base, &tag);
        Template *before = template_store_find_name(m->templates, t->owner_uid, t->tenant, base, tag);
        move_name(m, t, name, NULL);
        if (before)
                m->hooks->template_changed(m, before);
        if (!take_away) {
                while (t->aliases && t->aliases[n])
                        n++;
                t->aliases = realloc(t->aliases, (n + 2) * sizeof(char *));
                t->aliases[n] = strdup(name);
                t->aliases[n + 1] = NULL;
                m->hooks->template_changed(m, t);
        }
        fprintf(stderr, "name %s of %u: %s by %u\n", name, (unsigned) t->owner_uid, take_away ? "-" : t->id, (unsigned) actor);
        done(m, NULL, userdata);
        return 0;
}

int manager_collect_garbage(Manager *m, uid_t actor, bool dry_run, GarbageDone done, void *userdata, sd_bus_error *error) {
        const GarbageItem items[] = {
                { "template", (char *) "tunusedunused", 3 << 20 }, { "kernel", (char *) "0123456789abcdef", 1 << 20 },
        };

        fprintf(stderr, "gc by %u%s\n", (unsigned) actor, dry_run ? ", dry" : "");
        if (getenv("FAKE_GC_FAILS"))
                return sd_bus_error_set(error, BUS_ERROR_BUSY, "Garbage is being collected already");
        done(m, NULL, items, actor == 0 ? 2 : 0, actor == 0 ? "There is more; run it again. " : "", userdata);
        return 0;
}

uint64_t template_floor(const Template *t) {
        return MIB(96);
}

static bool has_sandboxes(const Manager *m, const Template *t) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (streq(m->sandboxes[i]->template_id, t->id))
                        return true;
        return false;
}

/* Those that were built here can go. */
int manager_remove_template(Manager *m, Template *t, uid_t actor, TemplateRemoveDone done, void *userdata,
                            sd_bus_error *error) {
        TemplateStore *s = m->templates;

        if (!startswith(t->id, "tmade") || has_sandboxes(m, t))
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_IN_USE, "Template %s is in use", t->id);
        for (size_t i = 0; i < s->n_templates; i++)
                if (s->templates[i] == t)
                        s->templates[i] = s->templates[--s->n_templates];
        m->hooks->template_removed(m, t);
        free_template(t);
        done(m, NULL, userdata);
        return 0;
}

/* rule: what its sandboxes may reach; NULL: nothing */
static Template *add_template(TemplateStore *s, const char *id, const char *name, uid_t owner, const char *rule) {
        Template *t = new0(Template, 1);
        *t = (Template) {
                .id = strdup(id), .name = strdup(name), .tag = strdup(TEMPLATE_TAG_DEFAULT), .named = true,
                .owner_uid = owner, .created_usec = fake_now_usec(), .root_type = strdup("squashfs"), .cmdline = strdup(""),
                .mem_bytes = MIB(512), .cpus = 1, .disk_bytes = GIB(4), .file_bytes = { 1000, 2000, 3000, 4000 },
        };
        s->templates = realloc(s->templates, (s->n_templates + 1) * sizeof(Template *));
        s->templates[s->n_templates++] = t;
        t->has_policy = rule;
        if (rule)
                (void) sandbox_policy_copy(&(SandboxPolicy) { .allow = (char *[]) { (char *) rule, NULL } }, &t->policy);
        return t;
}

TemplateStore *fake_templates_new(void) {
        TemplateStore *s = new0(TemplateStore, 1);

        add_template(s, "tpythonpython", "python", 0, NULL);
        add_template(s, "tinterpreterin", "code-interpreter", 0, NULL);
        add_template(s, "tprivateprivat", "private", 1, NULL);
        add_template(s, "tpublicpublicp", "offered", 1, NULL)->public = true;
        Template *daemon = add_template(s, "tdaemondaemond", "daemon", 0, NULL);
        daemon->defaults = (ExecDefaults) { .user = strdup("daemon"), .cwd = strdup("/usr") };
        add_template(s, "tonlineonlineo", "online", 0, "example.com tcp:443");
        add_template(s, "tspecialspecia", "special", 0, "10.1.0.0/16");
        add_template(s, "townspecialown", "own-special", 65534, "10.2.0.0/16");
        tenant_name_copy(add_template(s, "tacmeacmeacmea", "tools", 3, NULL)->tenant, "acme");
        tenant_name_copy(add_template(s, "tevilevilevile", "tools", 3, NULL)->tenant, "evil");
        return s;
}

void fake_templates_free(TemplateStore *s) {
        for (size_t i = 0; i < s->n_templates; i++)
                free_template(s->templates[i]);
        free(s->templates);
        free(s);
}

void fake_jobs_free(Manager *m) {
        for (size_t i = 0; i < m->n_jobs; i++) {
                Job *j = m->jobs[i];
                free(j->kind);
                free(j->subject);
                free(j->step);
                free(j->result);
                free(j->error_message);
                if (((FakeJob *) j)->made)
                        free_template(((FakeJob *) j)->made);
                free(j);
        }
        free(m->jobs);
}
