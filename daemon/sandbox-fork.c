/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of a running sandbox: one capture, and then as many creates from it as were asked for, a few at a time.
 *
 * A Fork belongs to nobody: it goes with the last of its creates. The sandbox it is of may be gone by then, and so may
 * copies that were made first; both are looked for by their ids at the end. Until then nobody knows of the copies: a cubed
 * that takes them over ends them. */

#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

/* A host has only so many CPUs to start VMMs with. */
#define AT_ONCE_MAX 8U

typedef struct Fork Fork;

typedef struct Copy {
        Fork *fork;
        char id[21];               /* "" until it runs */
        sd_bus_error error;
} Copy;

struct Fork {
        Manager *manager;
        char parent[21];
        SandboxSpec spec;          /* strings are ours; template, snapshot and policy in use by us */
        char tenant[TENANT_NAME_MAX];
        char *bound_client;
        Copy *copies;
        size_t n, n_begun, n_under_way;
        ForkDone done;
        void *userdata;
};

static void fork_free(Fork *f) {
        if (f->spec.snapshot)
                snapshot_release(f->spec.snapshot);
        if (f->spec.template)
                template_release(f->spec.template);
        loaded_policy_unref(f->spec.policy);
        for (char **l = f->spec.labels; l && *l; l++)
                free(*l);
        free(f->spec.labels);
        for (size_t i = 0; f->copies && i < f->n; i++)
                sd_bus_error_free(&f->copies[i].error);
        free(f->copies);
        free(f->bound_client);
        free(f);
}

static Sandbox *find_copy(Fork *f, const Copy *c) {
        Sandbox *s = *c->id ? manager_find_sandbox(f->manager, c->id) : NULL;

        if (s) {
                s->untold = false;
                sandbox_save_soon(s);
        }
        return s;
}

static void finish(Fork *f) {
        ForkResult *results = new0(ForkResult, f->n);

        for (size_t i = 0; results && i < f->n; i++) {
                results[i].sandbox = find_copy(f, &f->copies[i]);
                if (!results[i].sandbox && !sd_bus_error_is_set(&f->copies[i].error))
                        (void) sd_bus_error_setf(&f->copies[i].error, BUS_ERROR_GUEST_FAILED, "Sandbox %s ended before the last copy was made",
                                                 f->copies[i].id);
                results[i].error = f->copies[i].error; /* borrowed */
        }
        sd_bus_error oom = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_NO_RESOURCES, "Out of memory");
        f->done(manager_find_sandbox(f->manager, f->parent), results ? NULL : &oom, results, results ? f->n : 0, f->userdata);
        free(results);
        fork_free(f);
}

static void begin_some(Fork *f);

static void on_created(Sandbox *s, const sd_bus_error *error, void *userdata) {
        Copy *c = userdata;

        if (error)
                (void) sd_bus_error_copy(&c->error, error);
        else
                memcpy(c->id, s->id, sizeof(c->id));
        c->fork->n_under_way--;
        begin_some(c->fork);
}

static void begin(Fork *f, Copy *c) {
        Sandbox *s;

        c->fork = f;
        if (f->manager->snapshots->stopping)
                (void) sd_bus_error_setf(&c->error, BUS_ERROR_INTERNAL, "cubed is going down; try again");
        else if (sandbox_create(f->manager, &f->spec, on_created, c, &s, &c->error) >= 0)
                f->n_under_way++;
        else if (!sd_bus_error_is_set(&c->error))
                (void) sd_bus_error_setf(&c->error, BUS_ERROR_INTERNAL, "No copy of sandbox %s could be made", f->parent);
}

static void begin_some(Fork *f) {
        while (f->n_under_way < AT_ONCE_MAX && f->n_begun < f->n)
                begin(f, &f->copies[f->n_begun++]);
        if (f->n_under_way == 0)
                finish(f);
}

static void on_snapshot(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        Fork *f = userdata;

        if (error) {
                f->done(s, error, NULL, 0, f->userdata);
                fork_free(f);
                return;
        }
        snapshot_use(n);
        f->spec.snapshot = n;
        /* As they were when that was taken: changes that were asked for before the copies were made first. */
        if (!f->spec.policy)
                f->spec.policy = loaded_policy_ref(s->policy);
        f->spec.net_limits = net_limits_over(&f->spec.net_limits, &s->net_limits);
        begin_some(f);
}

static int copy_labels(char **labels, char ***ret) {
        size_t n = 0;

        if (!labels)
                return 0;
        while (labels[n])
                n++;
        *ret = new0(char *, n + 1);
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                (*ret)[i] = strdup(labels[i]);
                if (!(*ret)[i])
                        return -ENOMEM;
        }
        return 0;
}

/* What names one sandbox alone is not for copies. */
static Fork *fork_new(Sandbox *s, size_t n, const SandboxSpec *spec) {
        Fork *f = new0(Fork, 1);

        if (!f)
                return NULL;
        f->manager = s->manager;
        memcpy(f->parent, s->id, sizeof(f->parent));
        f->n = n;
        f->spec = *spec;
        f->spec.hostname = f->spec.request_id = NULL;
        f->spec.bound_client = f->bound_client = spec->bound_client ? strdup(spec->bound_client) : NULL;
        f->spec.untold = true;
        f->spec.labels = NULL;
        f->spec.snapshot = NULL;
        tenant_name_copy(f->tenant, spec->tenant);
        f->spec.tenant = f->tenant;
        f->spec.template = s->priv->template;
        template_use(f->spec.template);
        if (spec->policy)
                loaded_policy_ref(f->spec.policy);
        f->copies = new0(Copy, n);
        if (!f->copies || (spec->bound_client && !f->bound_client) || copy_labels(spec->labels, &f->spec.labels) < 0) {
                fork_free(f);
                return NULL;
        }
        return f;
}

int sandbox_fork(Sandbox *s, size_t n, const SandboxSpec *spec, ForkDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        if (!s->priv->template)
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_INVALID, "Sandbox %s runs from template %s, which is gone: there can be no "
                                         "copies of it", s->id, s->template_id);

        Fork *f = fork_new(s, n, spec);
        if (!f)
                return sd_bus_error_set_errno(error, ENOMEM);
        f->done = done;
        f->userdata = userdata;
        r = sandbox_snapshot(s, SNAPSHOT_FORK, NULL, on_snapshot, f, error);
        if (r < 0)
                fork_free(f);
        return r;
}
