/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What of the manager only daemon/ sees. */

#include "daemon/helper.h"
#include "daemon/manager.h"
#include "daemon/scope.h"
#include "daemon/uid-range.h"

/* At one moment; see manager_dispatch_end(). */
typedef struct LoopClock {
        uint64_t wall_usec, cpu_usec, delay_usec, sleeps;
} LoopClock;

struct Forgetting;
typedef struct Garbage Garbage;

struct ManagerPrivate {
        Units *units;
        UidRange *uids;
        Helper *netd, *stored;
        int state_fd;              /* StateDirectory */
        uint64_t host_mem_bytes;   /* MemTotal */
        bool hide_xsave;           /* CpuidHideXsave=, decided */
        uint64_t loop_max_usec;
        LoopClock dispatch_start;
        int schedstat_fd;          /* -EBADF where the kernel does not count */

        pid_t probe_pid;           /* cube-kvm-probe while it runs */
        sd_event_source *probe_child, *probe_io;
        int probe_fd;
        char probe_text[512];      /* its one line; complete once probe_pid is 0 again */
        size_t probe_size;

        int lock_fd;               /* RuntimeDirectory/lock: one cubed at a time */
        char *uid_conflict;        /* what UIDRange= collides with; NULL = nothing */
        sd_event_source *status;   /* STATUS= once a round at most */
        struct Import *imports;
        struct Export *exports;
        Garbage *garbage;          /* while it is being collected */
        struct Forgetting *forgetting; /* waits for another cube-stored: sandbox-keep.c */
        bool park_asking;          /* somebody goes through the line of those who want links: sandbox-park.c */
};

int manager_add_sandbox(Manager *m, Sandbox *s);
void manager_remove_sandbox(Manager *m, Sandbox *s);
/* Tells the service manager anew how many there are. */
void manager_update_status(Manager *m);
/* Names of templates changed: tells whose. */
void manager_tell_renamed(Manager *m);
/* A new one is in the store. */
void manager_announce_template(Manager *m, Template *t);
/* Those that somebody put into the store since. */
void manager_load_new_templates(Manager *m);
/* What a template's sandboxes start from goes with it, or with the build that came to nothing. */
void manager_drop_warm_snapshot(Manager *m, const char *template_id);
/* Of one that is being built or imported: its id. */
bool manager_is_importing(const Manager *m, const char *template_id);
bool manager_is_building(const Manager *m, const char *template_id);
/* The next snapshot of a sandbox of that template; starts with NULL. */
const Snapshot *manager_next_snapshot_on(const Manager *m, const Template *t, const Snapshot *after);
/* Ends it without a word. */
Garbage *garbage_free(Garbage *g);
/* Ends builds without a word; their jobs are found as failed by the next cubed. */
void manager_end_builds(Manager *m);
/* KVM of this host, found out once by cube-kvm-probe. */
int manager_start_probe(Manager *m);
