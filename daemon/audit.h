/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The audit trail: one structured journal entry per event, found by journalctl CUBE_SANDBOX=ID.
 *
 * Owned by the Manager. Entries go as datagrams to the journal's socket without ever waiting:
 * what does not fit waits in a bounded queue, what does not fit there is counted and reported once
 * there is room. Values from guests and clients are escaped. Environment, file contents and, but
 * for AuditArguments=yes, arguments never get in here.
 *
 * Who writes what: daemon/ writes created, started, exited, device error, adopted, snapshots, rollbacks, paused, resumed,
 * denied destinations, the policy that came with a sandbox, and the templates' events; the bus front, which alone
 * knows the actor, writes exec, stop, policies that are changed, and denied.
 * Of a builder only device errors are written: what became of it is told by the template's events. */

#include <systemd/sd-event.h>

#include "daemon/sandbox.h"
#include "net/net-client.h"

/* As 128-bit ids in units/cubed.catalog. */
#define AUDIT_ID_CREATED "43405ff49dfc44bf8419e5f061a0159e"
#define AUDIT_ID_STARTED "940a0418f62e4bdb96742f6327ddd1ec"
#define AUDIT_ID_EXEC "2b6031bae9394559bc0ac24487557fcc"
#define AUDIT_ID_STOP "22e929a171d64412ac2a42f9eb51a45e"
#define AUDIT_ID_ASKED "30a0900257c74bcb84eddca1b9c7d033"
#define AUDIT_ID_SNAPSHOT_REMOVE "1307f1de083944f39f835b639a07b9bc"
#define AUDIT_ID_EXITED "0046e80bdbc1421e8d70b5581d04c3c5"
#define AUDIT_ID_DEVICE "98825363a44641c983f079ea4a2ed4eb"
#define AUDIT_ID_DENIED "21063cc8e33e4d6182a432b1d609c8ba"
#define AUDIT_ID_ADOPTED "d2b94d144ccf40d68332a6024d48a242"
#define AUDIT_ID_TEMPLATE_BUILT "77ce214782aa402d91cb1ec53b2c6a9a"
#define AUDIT_ID_TEMPLATE_NAMED "80b933ca45584ee0826f1f575447a7d9"
#define AUDIT_ID_TEMPLATE_REMOVED "7079e97f6cd2487db8a7d8ebceb8c3e4"
#define AUDIT_ID_LOST "9287f95a5ef340e7be78b1066bb5f1a5"
#define AUDIT_ID_FAILED "f53131af51794eb99bc6d039a557a5ea"

#define AUDIT_ID_SNAPSHOT "565f8015bac64af0b8552ffd34f46e83"
#define AUDIT_ID_SNAPSHOT_FAILED "2f5837f9e01445158163134bb1b000c1"
#define AUDIT_ID_ROLLED_BACK "730349385b2b4d1e88ed189e841843e2"
#define AUDIT_ID_ROLLBACK_FAILED "bbcf0ef75893417caf9235908f25ecfc"

#define AUDIT_ID_PAUSED "b3c7b3d9c8d3470c9ad0c2b7d4de2e61"
#define AUDIT_ID_PAUSE_FAILED "5e0d8df0a1b64a0f8f1a4ea1c45d0d3b"
#define AUDIT_ID_RESUMED "e8c5a7c1f0ba4d6bb6b0a2a9e7a6d914"
#define AUDIT_ID_RESUME_FAILED "0c9f3c2e7d2b4d7ba53e7c0f6b1d8a25"

#define AUDIT_ID_POLICY "4b0e6c1df2b74f2c9d3a86f1e0c75a92"
#define AUDIT_ID_NETWORK_DENIED "a1d39f5e7c0848b6b2f4908d6e3c17f4"

#define AUDIT_UID_NONE ((uid_t) -1)

typedef struct Audit Audit;

/* event may be NULL: then nothing is queued and what does not fit at once is lost (tests). */
int audit_new(sd_event *event, const char *socket_path, bool arguments, Audit **ret);
Audit *audit_free(Audit *a);
void audit_set_arguments(Audit *a, bool on);
/* Entries that never got out. */
uint64_t audit_lost(const Audit *a);

void audit_created(Audit *a, const Sandbox *s);
void audit_started(Audit *a, const Sandbox *s);
/* A create that came to nothing: why, in words. */
void audit_failed(Audit *a, const Sandbox *s, const char *why);
void audit_exited(Audit *a, const Sandbox *s);
void audit_device(Audit *a, const Sandbox *s, const char *device, const char *message);
void audit_adopted(Audit *a, const Sandbox *s);
/* pause_usec: for how long the guest stood still. n_pages: of its memory that had to be saved, without zeros. */
void audit_snapshot(Audit *a, const Sandbox *s, const Snapshot *n, uint64_t pause_usec, uint64_t n_pages);
void audit_snapshot_failed(Audit *a, const Sandbox *s, const char *why);
void audit_rolled_back(Audit *a, const Sandbox *s, const Snapshot *n);
/* kept: the snapshot that is left of the sandbox; NULL: it goes on. */
void audit_rollback_failed(Audit *a, const Sandbox *s, const Snapshot *kept, const char *why);
void audit_paused(Audit *a, const Sandbox *s);
/* It runs on. */
void audit_pause_failed(Audit *a, const Sandbox *s, const char *why);
void audit_resumed(Audit *a, const Sandbox *s, bool by_connection);
/* It is on disk as before. */
void audit_resume_failed(Audit *a, const Sandbox *s, const char *why);
void audit_exec(Audit *a, const Sandbox *s, uid_t actor, char **argv, uint32_t pid);
/* how: "stop" or "kill" */
void audit_stop(Audit *a, const Sandbox *s, uid_t actor, const char *how);
/* what: "pause", "resume", "snapshot", "fork", "rollback" */
void audit_asked(Audit *a, const Sandbox *s, uid_t actor, const char *what);
void audit_snapshot_remove(Audit *a, const Snapshot *s, uid_t actor);
/* action: a polkit action or a method's name; object: id or name of what was reached for, or NULL */
void audit_denied(Audit *a, uid_t actor, const char *action, const char *object);
/* To be called when its policy is in force. actor: AUDIT_UID_NONE when it came with the sandbox. */
void audit_policy(Audit *a, const Sandbox *s, uid_t actor);
/* What a guest was denied, or what was denied a way to it: told once for each destination and interval. */
void audit_network_denied(Audit *a, const Sandbox *s, const NetEventInfo *event);
/* A name that a guest asked for in vain, or whose answer led to where it may not. */
void audit_name_denied(Audit *a, const Sandbox *s, const NetEventInfo *event);
/* tenant: whose of its owner's it is; "" or NULL: he himself. */
void audit_template_built(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id);
/* id: NULL when the name stands for nothing any more. */
void audit_template_named(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id);
void audit_template_removed(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id);
