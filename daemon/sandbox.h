/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A sandbox: id, owner, limits, and the state machine that leads it through its life.
 *
 * Owned by the Manager; made by sandbox_new(), gone by sandbox_free() once its VMM has ended. All
 * operations are asynchronous: they start something and call back on the manager's loop exactly
 * once, also when the sandbox ends before (then with BUS_ERROR_GUEST_FAILED or NOT_RUNNING).
 * Nothing in here knows D-Bus objects; errors are sd_bus_error values with names from
 * dbus/bus-errors.h. */

#include <sys/types.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "base/agent-proto.h"
#include "base/macros.h"
#include "base/tenant.h"
#include "base/tlv.h"
#include "base/vmm-proto.h"
#include "daemon/snapshot.h"
#include "net/net-client.h"

typedef struct Manager Manager;
typedef struct Sandbox Sandbox;
typedef struct Template Template;
typedef struct Scope Scope;
typedef struct VmmClient VmmClient;
typedef struct LoadedPolicy LoadedPolicy;

typedef enum SandboxState {
        SANDBOX_CREATING,
        SANDBOX_RUNNING,
        SANDBOX_PAUSING,
        SANDBOX_PAUSED,
        SANDBOX_RESUMING,
        SANDBOX_STOPPING,
        SANDBOX_FAILED,
        _SANDBOX_STATE_MAX,
        _SANDBOX_STATE_INVALID = -EINVAL,
} SandboxState;

const char *sandbox_state_to_string(SandboxState s);
SandboxState sandbox_state_from_string(const char *s);

/* What happens when a lifetime or idle time-out is over. */
typedef enum SandboxEnd {
        SANDBOX_END_KILL,
        SANDBOX_END_PAUSE,
        SANDBOX_END_PAUSE_DISK,            /* without its memory */
        _SANDBOX_END_MAX,
        _SANDBOX_END_INVALID = -EINVAL,
} SandboxEnd;

/* "kill", "pause", "pause-disk". */
const char *sandbox_end_to_string(SandboxEnd e);
SandboxEnd sandbox_end_from_string(const char *s);

/* What a create asks for; 0 and NULL take the template's or the configuration's default, but for on_timeout.
 * Strings are borrowed by sandbox_new(), which copies what it keeps. */
typedef struct SandboxSpec {
        Template *template;
        Snapshot *snapshot;                /* to restore; NULL: the template's own, else it boots */
        uid_t owner_uid;
        const char *tenant;                /* of his; NULL: he himself */
        uint64_t mem_bytes;
        uint32_t cpus;
        uint64_t disk_bytes;
        uint64_t timeout_usec;             /* lifetime; UINT64_MAX = none */
        uint64_t idle_timeout_usec;        /* UINT64_MAX = none */
        SandboxEnd on_timeout;
        bool auto_resume;                  /* paused with its memory, connections of the host resume it */
        uint64_t checkpoint_usec;          /* interval; 0 = none, UINT64_MAX: before each exec */
        uint64_t cpu_quota_usec;           /* per second; 0 = cpus x 100 % */
        const char *hostname;
        const char *request_id;
        char **labels;                     /* NAME=VALUE, NULL-terminated; may be NULL */
        const char *bound_client;          /* unique bus name whose end is the sandbox's */
        bool untold;                       /* see struct Sandbox */
        LoadedPolicy *policy;              /* whom it may talk to; NULL: as the template has it, or DefaultPolicy= */
        NetLimits net_limits;              /* 0: as configured; UINT64_MAX, UINT32_MAX: none */
        bool builder;                      /* a template in the making is warmed in it: see struct Sandbox */
} SandboxSpec;

struct Sandbox {
        Manager *manager;
        char id[21];
        SandboxState state;
        uint64_t state_changed_usec;       /* realtime */

        uid_t owner_uid;
        char tenant[TENANT_NAME_MAX];      /* of the owner's; "": he himself */
        char *template_id;
        char *template_name;               /* as it was asked for, NAME:TAG; may be NULL */
        char *hostname;
        char *request_id;
        char **labels;
        char *bound_client;
        bool untold;                       /* runs, but whoever asked for it has no answer yet: ended by the next cubed */
        uint64_t mem_bytes;                /* as it is now */
        uint64_t boot_mem_bytes;           /* as it was created with */
        uint64_t plug_bytes;               /* how much more there can be */
        uint32_t cpus;
        uint64_t disk_bytes;
        uint64_t cpu_quota_usec;
        uint64_t timeout_usec;
        uint64_t created_usec;             /* realtime */
        uint64_t deadline_usec;            /* realtime; UINT64_MAX = none, and while it is paused */
        uint64_t idle_timeout_usec;        /* UINT64_MAX = none */
        SandboxEnd on_timeout;
        bool auto_resume;
        uint64_t checkpoint_usec;
        bool builder;                      /* of a template: in no list, quota and audit trail, known to its build
                                              alone, and ended with that, or by the next cubed */
        bool restored;                     /* its memory was not made by a boot */
        uint32_t slot;                     /* its place in the network, and its addresses: the same through pause and resume */
        char address4[16], address6[46];   /* "": none */
        LoadedPolicy *policy;              /* never NULL */
        NetLimits net_limits;              /* as in SandboxSpec */
        Snapshot *disk_top, *memory_top;   /* the uppermost layers it runs on, or is paused in; may be NULL */

        char *scope_name;                  /* cube-<id>.scope */
        pid_t vmm_pid;
        uint32_t vmm_uid;
        char *kernel_release;              /* told by the guest: sanitized, for show only */

        /* Why it ended, once it has. */
        VmmExitReason exit_reason;
        uint32_t exit_status;

        struct SandboxPrivate *priv;       /* scope, VMM, pending requests: daemon/ only */
};

/* Completed: error is NULL or set, valid during the call only. */
typedef void (*SandboxDone)(Sandbox *s, const sd_bus_error *error, void *userdata);

/* Checks spec against host and configuration, makes the object in state creating and starts
 * prepare and claim. done is called when it runs (its agent answered) or failed; when it failed
 * the object is freed after the callback. */
int sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata,
                   Sandbox **ret, sd_bus_error *error);

typedef struct ExecSpec {
        char **argv;
        char **env;                        /* NAME=VALUE; may be NULL */
        const char *cwd;
        const char *user;
        bool pty;
        uint32_t rows, cols;
        uint64_t timeout_usec;             /* 0 = none */
} ExecSpec;

/* n_fds = 3 (stdin, stdout, stderr) or 1 (pty); the callback takes the fds it wants by TAKE_FD,
 * the rest is closed. */
typedef void (*ExecDone)(Sandbox *s, const sd_bus_error *error, uint32_t pid, int *fds, size_t n_fds, void *userdata);
int sandbox_exec(Sandbox *s, const ExecSpec *spec, ExecDone done, void *userdata, sd_bus_error *error);

/* A request on the control stream. body is a finished TLV body. The callback gets the TLV body of
 * each AGENT_OK frame; more says that others follow. An AGENT_ERROR becomes an errno error. */
typedef void (*AgentAnswer)(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more,
                            void *userdata);
int sandbox_agent_request(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer,
                          void *userdata, sd_bus_error *error);
/* The same for who has a limit of his own: it may take as long as it takes. */
int sandbox_agent_wait(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                       sd_bus_error *error);
/* The same for looking only: the sandbox stays as idle as it was, and a guest that does not answer soon is given up. */
int sandbox_agent_ask(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                      sd_bus_error *error);

/* Opens a stream to the agent; the callback's fd is the client's end (take it by TAKE_FD), body
 * that of the agent's AGENT_OK. */
typedef void (*StreamDone)(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                           void *userdata);
int sandbox_open_stream(Sandbox *s, AgentFrameType type, const TlvWriter *body, StreamDone done, void *userdata,
                        sd_bus_error *error);

/* A read-only fd of the ConsoleRing memfd. */
int sandbox_open_console(Sandbox *s, int *ret_fd, sd_bus_error *error);

/* Asks the guest to power off and ends it after the configured time-out. Idempotent. done may be
 * NULL; it is called when the VMM is gone. */
int sandbox_stop(Sandbox *s, SandboxDone done, void *userdata, sd_bus_error *error);
/* done is called when the VMM is gone, however that came; s is valid during the call. */
int sandbox_wait_end(Sandbox *s, SandboxDone done, void *userdata, sd_bus_error *error);
/* Ends the VMM at once. reason: VMM_EXIT_KILLED or VMM_EXIT_TIMEOUT. */
int sandbox_kill(Sandbox *s, VmmExitReason reason, SandboxDone done, void *userdata, sd_bus_error *error);

/* One instant of a running sandbox, saved; it goes on. done gets the snapshot (valid during the call; NULL on
 * error), which is published, and durable but for SNAPSHOT_FORK and SNAPSHOT_CHECKPOINT. On error the sandbox runs on as if nothing had been. */
typedef void (*SnapshotTaken)(Sandbox *s, const sd_bus_error *error, Snapshot *snapshot, void *userdata);
int sandbox_snapshot(Sandbox *s, SnapshotKind kind, const char *name, SnapshotTaken done, void *userdata, sd_bus_error *error);

/* To disk, with its memory or without; its VMM ends. State pausing, then paused. */
int sandbox_pause(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error);
/* A paused or failed one, in a new VMM; without its memory it boots from the disk of that instant. State resuming, then
 * running, or failed. */
int sandbox_resume(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error);

/* For what only a running one can do: BUS_ERROR_NOT_RUNNING, with its state in words. */
int sandbox_check_running(const Sandbox *s, sd_bus_error *error);

/* Back to a snapshot of its own, in its VMM. On any error it is as it was before. */
int sandbox_rollback(Sandbox *s, Snapshot *snapshot, SandboxDone done, void *userdata, sd_bus_error *error);

/* n new sandboxes from the present state. done is called once: with an error when the state could not be
 * saved, else with what became of each, and s is NULL if it has ended meanwhile. */
typedef struct ForkResult {
        Sandbox *sandbox;                  /* NULL: error says why there is none */
        sd_bus_error error;
} ForkResult;
typedef void (*ForkDone)(Sandbox *s, const sd_bus_error *error, const ForkResult *results, size_t n, void *userdata);
int sandbox_fork(Sandbox *s, size_t n, const SandboxSpec *spec, ForkDone done, void *userdata, sd_bus_error *error);

/* From now; UINT64_MAX = none. */
int sandbox_set_timeout(Sandbox *s, uint64_t timeout_usec, sd_bus_error *error);
/* UINT64_MAX = none. */
int sandbox_set_idle_timeout(Sandbox *s, uint64_t idle_timeout_usec, sd_bus_error *error);
/* It outlives the client that it was bound to. */
void sandbox_unbind(Sandbox *s);
/* Whether connections of the host resume it when it is paused; of one that is, from now on. */
int sandbox_set_auto_resume(Sandbox *s, bool auto_resume, sd_bus_error *error);
/* Connections do resume it: it is paused with its memory, or will be in a moment. */
bool sandbox_parks(const Sandbox *s);
/* 0 leaves a limit as it is. */
typedef struct SandboxLimits {
        uint64_t mem_bytes;
        uint64_t cpu_quota_usec;
        NetLimits net;                     /* UINT64_MAX, UINT32_MAX: none */
} SandboxLimits;

/* done is called when PID 1 has set them and the guest has done its part, or did not in time. */
int sandbox_set_limits(Sandbox *s, const SandboxLimits *limits, SandboxDone done, void *userdata, sd_bus_error *error);

/* Whom it may talk to from now on, and is no longer connected with; of a paused one too. done is called when it is in force. */
int sandbox_set_policy(Sandbox *s, LoadedPolicy *policy, SandboxDone done, void *userdata, sd_bus_error *error);

typedef struct SandboxStatistics {
        uint64_t memory_current, memory_peak, cpu_usage_usec, pids_current, oom_kills; /* UINT64_MAX = not known */
        VmmCounter *counters;
        size_t n_counters;
        const NetStats *net;               /* NULL: not known */
} SandboxStatistics;
typedef void (*StatisticsDone)(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata);
int sandbox_get_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error);
