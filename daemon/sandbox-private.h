/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A sandbox from inside: what its files share.
 *
 * The way of a sandbox: sandbox_create() checks (sandbox-check.c), gathers what needs no waiting
 * (sandbox-prepare.c), then goes from step to step by callbacks (sandbox-create.c). From anywhere
 * there is one way out: sandbox_fail() or an end of the VMM lead to sandbox-exit.c, which finishes
 * it in a round of the loop of its own. Nobody else frees a sandbox that has started. */

#include "daemon/host-network.h"
#include "daemon/manager-private.h"
#include "daemon/sandbox-turn.h"
#include "daemon/sandbox.h"
#include "daemon/vmm-client.h"
#include "daemon/vmm-spawn.h"

/* Where a create is; named in errors. In order. */
typedef enum SandboxStep {
        STEP_SLOT,
        STEP_SCOPE,
        STEP_CONNECT,
        STEP_BUILD,
        STEP_CLAIM,
        STEP_TIME,
        STEP_NETWORK,
        STEP_MEMORY,
        STEP_RUNNING,
        _STEP_MAX_SANDBOX,
} SandboxStep;

/* The place in the network of a paused sandbox that connections resume: sandbox-park.c. */
typedef enum ParkState {
        PARK_NONE,
        PARK_WAITING,              /* in line for links */
        PARK_ASKED,                /* cube-netd makes them */
        PARK_PARKED,               /* netns_fd and tap_fd are there, and the tap is watched */
} ParkState;

typedef struct Pausing Pausing;
typedef struct KeepWrite KeepWrite;

typedef struct SandboxWaiter {
        SandboxDone done;
        void *userdata;
        struct SandboxWaiter *next;
} SandboxWaiter;

/* How much of a guest's memory is beyond what it booted with, and how much it has lent to the host. */
typedef struct MemoryPlan {
        uint64_t plugged;
        uint64_t balloon;
} MemoryPlan;

struct SandboxPrivate {
        Template *template;        /* in use by us; NULL when it is gone (adopted) */
        char *dir;                 /* RuntimeDirectory/sandbox/<id> */
        SandboxStep step;
        bool agent_ready, agent_lost;
        uint64_t claim_sent_usec;  /* CLOCK_MONOTONIC */
        uint64_t time_sent_usec;
        unsigned n_times_told;
        void (*time_told)(Sandbox *s);
        bool end_expected;         /* stop_timer waits for the process to go */
        unsigned n_device_errors;
        bool was_running;

        /* Until they are handed over; two of them also while it is parked. */
        int listen_fd, netns_fd, tap_fd, kvm_fd;
        /* Kept. */
        int console_fd;            /* logs, and why a boot went wrong */
        int overlay_fd;            /* what its disk writes to: a snapshot gives it a name */
        /* How many layers its VMM has, also those that were merged into one since. */
        unsigned n_disk_layers, n_memory_layers;
        bool layers_unknown;       /* adopted, and a snapshot that it runs on was not found */
        Pausing *pausing;          /* in line or under way */
        SandboxWaiter *change_waiters; /* for the pause or the resume that is under way */
        bool thaw_owed;            /* adopted, and its file system may be frozen */
        /* What it becomes when its VMM is gone: SANDBOX_PAUSED or SANDBOX_FAILED; SANDBOX_CREATING: it goes, too. */
        SandboxState kept_as;
        bool keep_stale;           /* something has changed behind the sandbox.json that is being written */
        bool kept;                 /* sandbox.json is there, or on its way */
        KeepWrite *keep_write;
        char capture_id[21];       /* the snapshot that is being taken, once it is in the store; "" else */
        char rollback_id[21];      /* the snapshot that it is being rolled back to, while capture_id is its safety copy */
        Snapshot *pending[2];         /* adopted, while the VMM is asked what became of capture and rollback; in use by us */
        struct Checkpoint *checkpoint; /* under way */
        uint64_t checkpoint_number; /* of the last one; none is given twice */
        bool pruning;              /* a checkpoint is being removed */
        sd_event_source *checkpoint_timer;
        uint64_t checkpoint_told_usec; /* CLOCK_MONOTONIC: when one was last said to have failed */
        unsigned checkpoints_untold;   /* that failed since */
        unsigned life;             /* which guest, of those between which it was rolled back */
        uint64_t restored_mem_bytes; /* as the snapshot has it that it starts from */

        Turn *turns;               /* the first one runs */
        sd_event_source *turn_source;
        bool turns_held;           /* adopted, and its VMM has not said yet how it is */

        VmmProcess process;
        uint64_t vmm_start_time;   /* of /proc/PID/stat, in ticks: tells the pid from its successor's */
        bool adopted;              /* not our child */
        sd_event_source *exit_source;
        bool exited;               /* the process is gone */

        Scope *scope;
        VmmClient *vmm;
        bool vmm_lost;

        /* The network: sandbox-network.c. */
        uint32_t mtu;              /* of its slot */
        bool slot_other;           /* its old one was refused */
        void (*slot_taken)(Sandbox *s);
        sd_event_source *slot_source;
        bool net_open;             /* what its policy allows passes */
        bool net_opening, net_closing; /* a callback goes on */
        bool net_close_again;      /* asked for a second time */
        bool net_parked;           /* connections of the host wait in its tap, for somebody who resumes it */
        bool net_limits_set;       /* its own, in this slot */
        bool net_lost;             /* it runs, and somebody took its links away */
        void (*net_opened)(Sandbox *s, const sd_bus_error *error);
        void (*net_closed)(Sandbox *s);
        bool finish_waits;         /* for net_closing */
        struct StatisticsRequest *statistics; /* that wait for cube-netd */

        ParkState park;
        sd_event_source *park_source, *park_timer;
        uint64_t park_delay_usec;  /* until it is tried again; 0: nothing has gone wrong */
        bool auto_resuming;        /* a connection began the resume that is under way */

        uint64_t deadline_boot_usec; /* CLOCK_BOOTTIME; UINT64_MAX = none */
        uint64_t active_boot_usec;   /* CLOCK_BOOTTIME: when it was last seen not idle */
        bool idle_asking, idle_was_busy;
        uint32_t n_snapshots_asked; /* that are to be kept, and are not yet */
        sd_event_source *deadline_timer, *idle_timer, *step_timer, *stop_timer, *finish_source, *save_timer;

        VmmExitReason kill_reason; /* why we killed it, if so */
        sd_bus_error error;        /* why it failed while it was being created */
        SandboxDone create_done;
        void *create_userdata;
        SandboxWaiter *waiters;

        /* Limits that are being changed, when limits_done is set. */
        Turn limits_turn;
        SandboxDone limits_done;
        void *limits_userdata;
        SandboxLimits limits;
        uint64_t limits_reached;     /* memory that it came to */
        uint64_t limits_held;        /* by the guest, as it last said */
        uint64_t limits_moved_usec;  /* CLOCK_MONOTONIC: when that last changed */
        uint64_t limits_deadline_usec;
        uint64_t limits_poll_usec;   /* until the guest is looked at again */
        MemoryPlan limits_plan;
        bool limits_helped;          /* by the balloon, where unplugging got no further */
        sd_event_source *limits_timer;
};

/* UINT64_MAX is never, and stays that. */
static inline uint64_t usec_add(uint64_t a, uint64_t b) {
        return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* It gets a VMM: nothing that is running yet can be asked of it. */
static inline bool sandbox_in_making(const Sandbox *s) {
        return s->state == SANDBOX_CREATING || s->state == SANDBOX_RESUMING;
}

/* It has no VMM, and stays for all that. */
static inline bool sandbox_on_disk(const Sandbox *s) {
        return s->state == SANDBOX_PAUSED || s->state == SANDBOX_FAILED;
}

/* sandbox.c */
int sandbox_add_waiter(SandboxWaiter **list, SandboxDone done, void *userdata);
void sandbox_tell_waiters(Sandbox *s, SandboxWaiter **list, const sd_bus_error *error);
int sandbox_new(Manager *m, const char *id, Sandbox **ret);
/* Releases everything; processes must be gone. */
Sandbox *sandbox_free(Sandbox *s);
DEFINE_CLEANUP(Sandbox *, sandbox_free);
void sandbox_set_state(Sandbox *s, SandboxState state);
void sandbox_changed(Sandbox *s, const char *property);
uint64_t clock_usec(clockid_t clock);

/* sandbox-timeout.c */
int sandbox_arm_deadline(Sandbox *s);
int sandbox_arm_idle(Sandbox *s);
/* Something was asked of its guest. */
void sandbox_touch(Sandbox *s);

/* sandbox-check.c: fills s from spec, or says what is wrong with it */
int sandbox_apply_spec(Sandbox *s, const SandboxSpec *spec, sd_bus_error *error);
/* Rounds it up. t: NULL when it is gone. */
int sandbox_check_memory(const Manager *m, const Template *t, uint64_t *mem_bytes, sd_bus_error *error);
/* snapshot-quota.c: may its owner keep one more? */
int sandbox_check_snapshot_quota(const Sandbox *s, sd_bus_error *error);

/* sandbox-prepare.c: directory, control socket, exit file, console, overlay, KVM */
int sandbox_prepare(Sandbox *s, sd_bus_error *error);
void sandbox_remove_files(const char *dir);
char *sandbox_path(const Sandbox *s, const char *name);

/* sandbox-build.c and sandbox-load.c: the BUILD or LOAD request with its descriptors */
int sandbox_send_build(Sandbox *s, VmmReply reply, sd_bus_error *error);
int sandbox_send_load(Sandbox *s, VmmReply reply, sd_bus_error *error);

/* sandbox-limits.c: brings a guest that was restored with so much to what it was created with */
int sandbox_adapt_memory(Sandbox *s, uint64_t from_bytes, SandboxDone done, void *userdata, sd_bus_error *error);
/* The limit of its scope becomes that for what the guest holds: it may be that of a rollback that cubed did not end. */
int sandbox_settle_limit(Sandbox *s);

/* sandbox-checkpoint.c */
/* done is called once it is taken, has failed, or the sandbox ended; not when this fails, which has been told. */
int sandbox_checkpoint(Sandbox *s, void (*done)(Sandbox *s, void *userdata), void *userdata);
/* Once it runs, for those at an interval. */
int sandbox_arm_checkpoints(Sandbox *s);
void sandbox_remove_checkpoints(Sandbox *s);
/* To the journal, but not each time. */
void sandbox_checkpoint_failed(Sandbox *s, const char *why);

/* sandbox-clock.c */
/* Is what was sent at this time of CLOCK_MONOTONIC and is answered now too old to set a clock by? */
bool sandbox_time_is_late(uint64_t sent_usec);
/* To a guest that took its claim. told, which may be NULL, is called once it has the time as well as it can be told, unless its
 * VMM ends. */
void sandbox_tell_time(Sandbox *s, void (*told)(Sandbox *s));

/* sandbox-rollback.c: finds the VMM of one that was adopted in a rollback paused or torn, and puts it back */
int sandbox_put_back(Sandbox *s, Snapshot *target, Snapshot *safety);

/* sandbox-create.c */
/* The body of an AGENT_CLAIM, with entropy: to be wiped. */
int sandbox_put_claim(const Sandbox *s, TlvWriter *w);
/* May hardware threads of one core run both? */
bool sandbox_shares_core(const Sandbox *s, const Sandbox *other);
/* Begins to make its VMM. On an error nothing is left of that. */
int sandbox_start(Sandbox *s, sd_bus_error *error);
/* To the journal: what went wrong in the guest (its hooks) although it took the claim. body: of the answer. */
void sandbox_tell_claimed(const Sandbox *s, const uint8_t *body, size_t size);
/* What the frame with which the agent introduced itself says. */
void sandbox_agent_ready(Sandbox *s, const uint8_t *body, size_t size);
int sandbox_watch_process(Sandbox *s);
int sandbox_connect(Sandbox *s);
/* When it was started, in ticks since boot: /proc/PID/stat. */
int process_start_time(pid_t pid, uint64_t *ret);

/* sandbox-network.c */
/* taken is called in a round of the loop of its own, unless it fails. */
int sandbox_take_slot(Sandbox *s, void (*taken)(Sandbox *s), sd_bus_error *error);
/* A VMM of it was found: its place is left's, which need not be the one that it was paused in, and may be open. */
void sandbox_adopt_network(Sandbox *s, const Sandbox *left);
/* The records of a claim. */
void sandbox_put_network(const Sandbox *s, TlvWriter *w);
/* 1: what its policy allows passes. 0: opened, which may be NULL, is called then. */
int sandbox_network_open(Sandbox *s, void (*opened)(Sandbox *s, const sd_bus_error *error));
/* Of one that runs, unless somebody opens it in a moment: it could not be before. */
void sandbox_network_reopen(Sandbox *s);
/* It has this place from now on, and its descriptors. */
void sandbox_take_over_slot(Sandbox *s, NetworkSlot *slot);
/* Of one in the making: what was asked for is here. */
void sandbox_give_slot(Sandbox *s, int error, const char *message, NetworkSlot *slot);
/* What the host's processes begin waits in its tap. */
int sandbox_network_park(Sandbox *s);
/* Nothing passes. True while the host's connections to it are being ended: then the end of its VMM waits for that, and
 * closed, which may be NULL, is called. */
bool sandbox_network_close(Sandbox *s, void (*closed)(Sandbox *s));
/* There is another cube-netd. */
void sandbox_network_renew(Sandbox *s);
/* Somebody may have taken its links away. */
void sandbox_check_links(Sandbox *s);
/* With its VMM. */
void sandbox_drop_network(Sandbox *s);

/* sandbox-park.c */
/* Of one that has just been paused: netns_fd and tap_fd are those of its VMM, or there are none, and others are made. Does
 * nothing for one that does not park. */
void sandbox_park(Sandbox *s, int netns_fd, int tap_fd);
typedef enum SandboxPlace {
        SANDBOX_PLACE_NONE,
        SANDBOX_PLACE_THERE,       /* in netns_fd and tap_fd */
        SANDBOX_PLACE_COMES,       /* sandbox_give_slot() is called */
} SandboxPlace;
/* It is resumed. */
SandboxPlace sandbox_leave_park(Sandbox *s);
/* Its links can't be had, or used, now: connections are refused, and it is tried again after a while. Of one that does not
 * park any more they are given up. */
void sandbox_park_later(Sandbox *s);
/* It goes; what it has in netns_fd and tap_fd stays. */
void sandbox_drop_park(Sandbox *s);
/* Those that are found paused when cubed starts. */
void manager_park_sandboxes(Manager *m);
/* Of one that is parked: its links are gone. */
void sandbox_park_anew(Sandbox *s);

/* sandbox-exit.c */
void sandbox_schedule_finish(Sandbox *s);
/* Ends a create that went wrong; the first error counts. s stays valid until the next round. */
void sandbox_fail(Sandbox *s, const sd_bus_error *error);
void sandbox_failf(Sandbox *s, const char *name, const char *format, ...) _printf_(3, 4);
/* SIGKILL; reason: what will be told unless the VMM tells something better. */
void sandbox_end(Sandbox *s, VmmExitReason reason);
void sandbox_process_gone(Sandbox *s, const siginfo_t *si);
/* The end of the guest's console, escaped, as lines; "" when there is none. To be freed. */
char *sandbox_console_tail(const Sandbox *s);
/* An exit record, as read from dir; false when there is none. */
bool sandbox_read_exit_record(const char *dir, VmmExitRecord *ret);

/* sandbox-request.c: an errno and a text of VMM or agent as a bus error */
int sandbox_set_error(const Sandbox *s, sd_bus_error *error, int r, const char *message);
/* -1 with error set unless it runs. */

/* sandbox-statistics.c: of one in the making as well, and without the network's */
int sandbox_ask_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error);
/* Tells all that wait for them. */
void sandbox_drop_statistics(Sandbox *s, const sd_bus_error *error);

/* sandbox-pause.c: its VMM is gone, as it was to be */
void sandbox_paused(Sandbox *s);
/* The guest may write again: it was adopted in the middle. */
void sandbox_thaw(Sandbox *s);

/* adopt.c */
void sandbox_use_template(Sandbox *s);

/* sandbox-keep.c */
typedef void (*KeepDone)(int error, void *userdata);
/* Writes sandbox.json, of one that is in that state and stands on the snapshot; done (may be NULL) once it is on disk for
 * good. */
int sandbox_keep(Sandbox *s, SandboxState state, Snapshot *on, KeepDone done, void *userdata);
/* Something has changed. */
void sandbox_keep_again(Sandbox *s);
/* The sandbox goes, and who writes for it need not know. */
void sandbox_drop_keep_write(Sandbox *s);
/* sandbox.json goes; the snapshot, which is it that was paused, is removed once that has reached the disk. May be NULL. */
void sandbox_forget_kept(Sandbox *s, Snapshot *paused);
/* There is another cube-stored; there will be none. */
void sandbox_forget_again(Manager *m);
void sandbox_forget_none(Manager *m);
/* The VMM and all that was its own goes; the sandbox stays. */
void sandbox_unmake(Sandbox *s);
/* sandbox-resume.c: with the memory that it was paused with, whatever a resume that came to nothing began with. */
void sandbox_stand_as_kept(Sandbox *s);
bool sandbox_is_kept(const Manager *m, const char *id);
int sandbox_find_kept(Manager *m, const char *id, Sandbox **ret);
void manager_load_kept(Manager *m);

/* sandbox-state-file.c */
#define SANDBOX_KEPT_FILE "sandbox.json"
int sandbox_save(const Sandbox *s);
/* Of what is so already. Where it can't be written it is tried again until it can, and the journal says so. */
void sandbox_save_soon(Sandbox *s);
int sandbox_load(Manager *m, const char *id, Sandbox **ret);
int sandbox_format_kept(const Sandbox *s, SandboxState state, const Snapshot *on, char **ret);
/* dir_fd: where its sandbox.json lies. */
int sandbox_load_kept(Manager *m, const char *id, int dir_fd, Sandbox **ret);
