/* SPDX-License-Identifier: Apache-2.0 */

/* Template builds as jobs: the manager's wrapping around daemon/template-build.h. */

#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "daemon/host-network.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/manager-private.h"
#include "daemon/template-build.h"
#include "daemon/template-warm.h"
#include "dbus/bus-errors.h"

/* One build under way; its own and its job's owner until done. */
typedef struct BuildJob {
        Manager *manager;
        Job *job;
        TemplateBuild *build;
        TemplateWarm *warm;        /* while a guest of it is warmed */
        bool is_warm;              /* a guest of it is saved */
        LoadedPolicy *policy;      /* whom that guest may talk to; NULL: nobody */
        struct BuildJob *next;
} BuildJob;

static BuildJob *build_jobs;

static void build_job_free(BuildJob *b) {
        for (BuildJob **i = &build_jobs; *i; i = &(*i)->next)
                if (*i == b) {
                        *i = b->next;
                        break;
                }
        /* The guest runs from what the build holds. */
        template_warm_free(b->warm);
        template_build_free(b->build);
        loaded_policy_unref(b->policy);
        free(b);
}

static void on_progress(TemplateBuild *build, const char *step, unsigned percent, void *userdata) {
        BuildJob *b = userdata;

        /* The first step is told before there is a job to tell it. */
        if (b->job)
                job_set_step(b->job, step, percent);
}

static void on_log(TemplateBuild *build, const char *text, size_t size, void *userdata) {
        BuildJob *b = userdata;

        if (b->job)
                job_log(b->job, text, size);
}

static void on_warm_progress(const char *step, unsigned percent, void *userdata) {
        BuildJob *b = userdata;

        template_build_tell(b->build, step, percent);
}

static void on_warm_step(size_t n, void *userdata) {
        BuildJob *b = userdata;

        job_set_build_step(b->job, (uint32_t) n);
}

static void on_warm_log(const char *text, size_t size, void *userdata) {
        BuildJob *b = userdata;

        job_log(b->job, text, size);
}

static bool on_warm_keeps(TemplatePointKind kind, size_t n, void *userdata) {
        BuildJob *b = userdata;

        return template_build_keeps(b->build, kind, n);
}

static void on_layer_put(void *userdata) {
        BuildJob *b = userdata;

        template_warm_kept(b->warm);
}

static int on_warm_keep(TemplatePointKind kind, size_t n, const StepState *state, int overlay_fd, void *userdata) {
        BuildJob *b = userdata;

        return template_build_put_layer(b->build, kind, n, state, overlay_fd, on_layer_put, b);
}

static void on_warm_done(int r, const char *message, void *userdata) {
        BuildJob *b = userdata;
        TemplateWarm *w = TAKE_PTR(b->warm);

        /* b may be gone behind this. */
        template_build_warmed(b->build, r, message);
        template_warm_free(w);
}

static const TemplateWarmCallbacks warm_callbacks = {
        .progress = on_warm_progress,
        .step = on_warm_step,
        .log = on_warm_log,
        .keeps = on_warm_keeps,
        .keep = on_warm_keep,
        .done = on_warm_done,
};

static int on_warm(TemplateBuild *build, Template *t, const TemplateWarmSpec *spec, void *userdata, char **ret_message) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        BuildJob *b = userdata;

        if (template_build_cached_steps(build) > 0)
                job_set_cached_steps(b->job, (uint32_t) template_build_cached_steps(build));
        int r = template_warm_start(b->manager, t, spec, b->policy, &warm_callbacks, b, &b->warm, &e);
        if (r < 0 && asprintf(ret_message, "%s%s", strempty(e.message),
                              sd_bus_error_has_name(&e, BUS_ERROR_HOST_UNSUPPORTED) ? "; --no-warm builds without" : "") < 0)
                *ret_message = NULL;
        return r;
}

static bool on_usable(TemplateBuild *build, const Template *t, void *userdata) {
        BuildJob *b = userdata;
        const Snapshot *n = b->is_warm ? snapshot_store_find_template(b->manager->snapshots, t->id) : NULL;

        return !b->is_warm || (n && snapshot_is_whole(n));
}

/* There it was already, but for its names. */
static void on_reused(BuildJob *b, Template *t) {
        uint32_t n = (uint32_t) template_build_cached_steps(b->build);

        if (n > 0) {
                job_set_cached_steps(b->job, n);
                job_set_build_step(b->job, n + 1);
        }
        audit_template_named(b->manager->audit, b->job->owner_uid, b->job->tenant, b->job->subject, t->id);
        manager_tell_renamed(b->manager);
        job_done(b->job, t->id);
}

static void on_warm_cancel(TemplateBuild *build, void *userdata) {
        BuildJob *b = userdata;

        if (b->warm)
                template_warm_cancel(b->warm);
}

static void fail_job(Job *j, int r, const char *message) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        const char *name = r == -ENOSPC || r == -EDQUOT || r == -ENOMEM ? BUS_ERROR_NO_RESOURCES : BUS_ERROR_TEMPLATE_INVALID;

        (void) sd_bus_error_setf(&e, name, "Template %s could not be built: %s", j->subject,
                                 isempty(message) ? strerror(-r) : message);
        job_fail(j, &e);
}

void manager_announce_template(Manager *m, Template *t) {
        host_network_add_template(m->network, t);
        if (m->hooks && m->hooks->template_added)
                m->hooks->template_added(m, t);
        t->renamed = false;
        manager_tell_renamed(m);
}

void manager_drop_warm_snapshot(Manager *m, const char *template_id) {
        Snapshot *s = snapshot_store_find_template(m->snapshots, template_id);
        int r = s ? snapshot_remove(s, NULL, NULL) : 0;

        if (r < 0)
                log_warning_errno(r, "The snapshot of template %s can't be removed: %m", template_id);
}

static void on_done(TemplateBuild *build, int r, const char *message, Template *t, void *userdata) {
        BuildJob *b = userdata;
        Manager *m = b->manager;
        Job *j = b->job;

        if (r < 0) {
                manager_drop_warm_snapshot(m, template_build_id(build));
                manager_tell_renamed(m);
        }
        /* There could not be one. */
        if (!j)
                ;
        else if (r == -ECANCELED)
                job_canceled(j);
        else if (r < 0)
                fail_job(j, r, message);
        else if (template_build_reused(build))
                on_reused(b, t);
        else {
                audit_template_built(m->audit, j->owner_uid, j->tenant, j->subject, t->id);
                manager_announce_template(m, t);
                job_done(j, t->id);
        }
        build_job_free(b);
}

static void on_cancel(Job *j, void *userdata) {
        BuildJob *b = userdata;

        template_build_cancel(b->build);
}

static const TemplateBuildCallbacks callbacks = {
        .progress = on_progress,
        .log = on_log,
        .warm = on_warm,
        .warm_cancel = on_warm_cancel,
        .usable = on_usable,
        .done = on_done,
};

static void close_base_layers(TemplateBuildParams *p) {
        for (size_t i = 0; i < p->n_base_layers; i++)
                safe_close(p->base_layer_fds[i]);
        p->n_base_layers = 0;
}

static int open_base_layers(Manager *m, TemplateBuildParams *p) {
        Snapshot *chain[TEMPLATE_BASE_LAYERS_MAX], *top = snapshot_store_find_template(m->snapshots, p->base->id);

        int n = top ? snapshot_disk_chain(top, chain, ELEMENTSOF(chain)) : 0, r = n;
        for (int i = 0; i < n && r >= 0; i++) {
                r = snapshot_open_file(chain[i], SNAPSHOT_FILE_DISK, &p->base_layer_fds[i]);
                p->n_base_layers += r >= 0;
        }
        return r;
}

static int start_build(BuildJob *b, const TemplateBuildParams *params, sd_bus_error *error) {
        _cleanup_free_ char *message = NULL;
        TemplateBuildParams p = *params;

        if (p.base) {
                int k = open_base_layers(b->manager, &p);
                if (k < 0) {
                        close_base_layers(&p);
                        return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_INVALID, "What the guest of template %s left: %s",
                                                 p.base->id, strerror(-k));
                }
        }
        if (p.kernel_fd < 0 && !p.kernel_path)
                p.kernel_path = b->manager->config.kernel_path;
        p.kernel_command_line = b->manager->config.kernel_command_line;
        if (p.timeout_usec == 0)
                p.timeout_usec = b->manager->config.build_timeout_usec;
        int r = template_build_start(b->manager->event, b->manager->templates, &p, &callbacks, b, &b->build, &message);
        close_base_layers(&p);
        if (r < 0 && message)
                return sd_bus_error_set(error, r == -EINVAL ? BUS_ERROR_INVALID_ARGUMENT : BUS_ERROR_TEMPLATE_INVALID, message);
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}

int manager_build_template(Manager *m, const TemplateBuildParams *params, Job **ret, sd_bus_error *error) {
        char subject[160];

        int r = job_may_begin(m, params->owner_uid, params->tenant, error);
        if (r < 0)
                return r;
        BuildJob *b = new0(BuildJob, 1);
        if (!b)
                return sd_bus_error_set_errno(error, ENOMEM);
        b->manager = m;
        b->is_warm = params->warm;
        b->policy = params->build_policy ? loaded_policy_ref(params->build_policy) : NULL;

        (void) snprintf(subject, sizeof(subject), "%s:%s", params->name, params->tag ? params->tag : TEMPLATE_TAG_DEFAULT);
        r = start_build(b, params, error);
        if (r >= 0) {
                r = job_new(m, "build-template", subject, params->owner_uid, on_cancel, b, &b->job);
                if (r < 0)
                        (void) sd_bus_error_set_errno(error, r);
        }
        if (!b->build) {
                build_job_free(b);
                return r;
        }
        b->next = build_jobs;
        build_jobs = b;
        if (r < 0) {
                /* It takes away what it has made, and ends. */
                template_build_cancel(b->build);
                return r;
        }
        job_set_tenant(b->job, params->tenant);
        *ret = b->job;
        return 0;
}

bool manager_is_building(const Manager *m, const char *template_id) {
        for (const BuildJob *b = build_jobs; b; b = b->next)
                if (streq(template_build_id(b->build), template_id))
                        return true;
        return manager_is_importing(m, template_id);
}

void manager_end_builds(Manager *m) {
        while (build_jobs)
                build_job_free(build_jobs);
}
