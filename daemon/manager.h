/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's one object: configuration, the loop, the bus, and all sandboxes, templates and jobs.
 *
 * Made by main, lives as long as the process. One thread, nothing on its loop waits. The bus
 * front (dbus/) hangs itself in by ManagerHooks and calls manager_* and sandbox_*; it is never
 * called by name from here. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "daemon/config.h"
#include "daemon/sandbox.h"
#include "daemon/template-build.h"
#include "daemon/template.h"

typedef struct TemplateStore TemplateStore;
typedef struct Job Job;
typedef struct NetClient NetClient;
typedef struct HostNetwork HostNetwork;
typedef struct StoreClient StoreClient;
typedef struct Audit Audit;

typedef struct ManagerHooks {
        void (*sandbox_added)(Manager *m, Sandbox *s);
        /* state, deadline or limits changed; properties: NULL-terminated D-Bus property names */
        void (*sandbox_changed)(Manager *m, Sandbox *s, char **properties);
        void (*sandbox_removed)(Manager *m, Sandbox *s);
        void (*template_added)(Manager *m, Template *t);
        void (*template_changed)(Manager *m, Template *t);
        void (*template_removed)(Manager *m, Template *t);
        void (*snapshot_added)(Manager *m, Snapshot *s);
        void (*snapshot_changed)(Manager *m, Snapshot *s);
        void (*snapshot_removed)(Manager *m, Snapshot *s);
        void (*job_added)(Manager *m, Job *j);
        void (*job_changed)(Manager *m, Job *j);
        void (*job_removed)(Manager *m, Job *j);
} ManagerHooks;

struct Manager {
        sd_event *event;
        sd_bus *bus;               /* system bus: PID 1, polkit, and where the API lives */
        Config config;
        const ManagerHooks *hooks; /* may be NULL (tests) */

        Sandbox **sandboxes;       /* in order of creation */
        size_t n_sandboxes, n_sandboxes_allocated;
        Sandbox **builders;        /* those that templates are warmed in; nobody else sees them */
        size_t n_builders;
        TemplateStore *templates;
        SnapshotStore *snapshots;
        Job **jobs;
        size_t n_jobs, n_jobs_allocated;
        uint64_t tenant_waits_usec; /* when a tenant without a job was last told to wait for one to end; 0: never */

        StoreClient *store;
        NetClient *net;
        HostNetwork *network;
        Audit *audit;

        struct ManagerPrivate *priv; /* daemon/ only */
};

int manager_new(sd_event *event, const Config *config, Manager **ret);
Manager *manager_free(Manager *m);
/* Starts helpers, loads templates, adopts running sandboxes. The bus must be connected.
 * -EEXIST when another cubed has the runtime directory. */
int manager_startup(Manager *m);

Sandbox *manager_find_sandbox(Manager *m, const char *id);
Sandbox *manager_find_sandbox_by_pid(Manager *m, pid_t pid);
/* The sandbox that was made for this tenant with that request-id, or NULL. */
Sandbox *manager_find_sandbox_by_request(Manager *m, uid_t owner, const char *tenant, const char *request_id);

/* Re-reads configuration and templates. */
int manager_reload(Manager *m, sd_bus_error *error);
/* A client left the bus: ends what was bound to it. */
void manager_client_gone(Manager *m, const char *unique_name);

/* Starts a build, which params->owner owns; the job tells how it goes. Descriptors stay the caller's. */
int manager_build_template(Manager *m, const TemplateBuildParams *params, Job **ret, sd_bus_error *error);
/* done may be NULL; it is called once the files are gone, or could not be removed. */
typedef void (*TemplateRemoveDone)(Manager *m, const sd_bus_error *error, void *userdata);
int manager_remove_template(Manager *m, Template *t, uid_t actor, TemplateRemoveDone done, void *userdata,
                            sd_bus_error *error);

/* name ("NAME:TAG"), which is among those of that template's owner and tenant, stands for it from then on; take_away: for
 * nothing, and t is the one that it stood for. */
int manager_name_template(Manager *m, const char *name, Template *t, bool take_away, uid_t actor, TemplateRemoveDone done,
                          void *userdata, sd_bus_error *error);

/* Writes it to out_fd, with the guest that is saved for it. The job is actor's. Descriptors stay the caller's. */
int manager_export_template(Manager *m, const Template *t, uid_t actor, int out_fd, Job **ret, sd_bus_error *error);
typedef struct TemplateImportParams {
        const char *name, *tag;   /* NULL: as the file says */
        char **aliases;           /* "NAME:TAG", TEMPLATE_ALIASES_MAX at most */
        uid_t owner_uid;
        const char *tenant;       /* of his; NULL: he himself */
        int in_fd;
} TemplateImportParams;
int manager_import_template(Manager *m, const TemplateImportParams *p, Job **ret, sd_bus_error *error);

/* Finds what nothing refers to, and frees it unless dry_run: for root all, for others templates of theirs. kind is
 * "template" (named by its id), "kernel", "leftover" or "name". note: for people, "" when there is nothing to say. */
typedef struct GarbageItem {
        const char *kind;
        char *name;
        uint64_t bytes;
} GarbageItem;
typedef void (*GarbageDone)(Manager *m, const sd_bus_error *error, const GarbageItem *items, size_t n, const char *note,
                            void *userdata);
int manager_collect_garbage(Manager *m, uid_t actor, bool dry_run, GarbageDone done, void *userdata, sd_bus_error *error);

/* The longest single dispatch of the loop so far, without the time that others had the CPU; reset
 * starts anew. For property LoopMaxUSec. */
uint64_t manager_loop_max_usec(Manager *m, bool reset);
/* Around each dispatch, by main. */
void manager_dispatch_begin(Manager *m);
void manager_dispatch_end(Manager *m);

/* One thing that this host can or can't do. */
typedef enum CheckLevel {
        CHECK_OK,
        CHECK_WARNING,
        CHECK_FAILED,
} CheckLevel;
typedef void (*CheckFn)(void *userdata, const char *name, CheckLevel level, const char *finding, const char *advice);
typedef void (*CheckDone)(void *userdata);
/* fn for each, then done; after this has returned, it may be. */
int manager_check_host(Manager *m, CheckFn fn, CheckDone done, void *userdata);
