/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The machine: VM, vCPUs, devices and serial port as one thing with a life.
 *
 * NEW -> BUILT (machine_build, machine_load) -> RUNNING (machine_claim) -> STOPPING (machine_stop),
 * RUNNING <-> PAUSED (machine_pause, machine_resume, machine_rollback), and from any of these to its end. However
 * many reasons to end come up, the first one wins: it is written to the exit record, told by on_exit, and the loop
 * is left. There is one per process and it is never freed: the process ends with it.
 *
 * All of it belongs to the loop's thread, but for machine_end(). In the wrong state a call returns
 * -EPROTO and changes nothing. */

#include "base/frame.h"
#include "vmm/build-config.h"
#include "vmm/loop.h"
#include "vmm/pagemap.h"

typedef struct Machine Machine;

/* All called on the loop's thread. frame: a whole frame, header included, from the guest: hostile. */
typedef struct MachineEvents {
        void (*on_agent)(void *userdata, const uint8_t *frame, size_t size);
        void (*on_agent_lost)(void *userdata);
        void (*on_device)(void *userdata, const char *device, const char *message);
        void (*on_exit)(void *userdata, VmmExitReason reason, uint32_t status, const char *message);
        void *userdata;
} MachineEvents;

int machine_new(Loop *loop, Machine **ret);
void machine_set_events(Machine *m, const MachineEvents *events);

/* Everything but running. Takes what config holds, in any case. After an error the machine is NEW. */
int machine_build(Machine *m, BuildConfig *config, ErrorText *e);
/* frame (AGENT_CLAIM) goes to the agent as soon as it is there. From here on guest code runs, and the
 * calling thread is held by its narrow system call filter. An error ends the machine. */
int machine_claim(Machine *m, const uint8_t *frame, size_t size, ErrorText *e);
/* Asks the guest to power off, and ends the machine when it has not done so in time. */
int machine_stop(Machine *m, uint64_t timeout_usec, ErrorText *e);
/* What a signal to end means: stop a running machine within BUILD's time, end one that never ran. */
void machine_terminate(Machine *m);
/* Any thread. Returns at once; the loop does the rest. */
void machine_end(Machine *m, VmmExitReason reason, uint32_t status, const char *message);
/* After machine_end(), when the loop itself has failed: the rest, now. */
void machine_finish(Machine *m);

/* Snapshots (machine-snapshot.c). Descriptors stay the caller's, but for those of the disk, which are taken in any
 * case. */

typedef struct SnapshotFds {
        int state_fd;           /* -EBADF: none */
        int layer_fds[SNAPSHOT_LAYERS_MAX]; /* memory files, the lowest first */
        unsigned n_layers;
        OverlayFds disk;        /* over the base of the disk that can be written */
} SnapshotFds;

#define SNAPSHOT_FDS_NONE ((SnapshotFds) { .state_fd = -EBADF, .disk = { .overlay_fd = -EBADF } })

/* Everything at rest: vCPUs parked with no I/O half done, rings and disks quiet. On error all runs on. */
int machine_pause(Machine *m, ErrorText *e);
/* frame: the AGENT_CLAIM for a guest that was rolled back, NULL for another. What files may be: see VMM_OP_RESUME. On
 * error neither memory nor disk has changed, or the machine is TORN. */
int machine_resume(Machine *m, const uint8_t *frame, size_t size, SnapshotFds *files, ErrorText *e);
/* Writes the state to state_fd, which is empty, and tells which pages are private. */
int machine_save(Machine *m, int state_fd, int pagemap_fd, uint8_t ret_id[static SNAPSHOT_ID_BYTES],
                 VmmRun ret_runs[static PAGEMAP_RUNS_MAX], size_t *ret_n_runs, ErrorText *e);
/* As machine_build(), out of a snapshot. */
int machine_load(Machine *m, BuildConfig *config, ErrorText *e);
/* Puts a paused guest back into a snapshot of its own. On error nothing has changed, or the machine is TORN. */
int machine_rollback(Machine *m, SnapshotFds *files, ErrorText *e);

int machine_agent_send(Machine *m, const uint8_t *frame, size_t size, ErrorText *e);
/* Backpressure: while held, no on_agent comes and the guest has to wait. */
void machine_agent_hold(Machine *m, bool hold);
/* Takes fd in any case. See devices_stream_open(). */
int machine_stream_open(Machine *m, int fd, const uint8_t *frame, size_t size,
                        StreamAnswer answer, void *userdata, ErrorText *e);

/* What the guest shall have plugged, and lend to the host: asked of it, not waited for. */
int machine_resize(Machine *m, uint64_t plugged_bytes, ErrorText *e);
int machine_balloon(Machine *m, uint64_t balloon_bytes, ErrorText *e);

VmmState machine_state(const Machine *m);
/* The AGENT_READY frame of the agent that is connected now; false without one. Borrowed. */
bool machine_agent_ready(const Machine *m, const uint8_t **ret_frame, size_t *ret_size);
/* -EBADF without one. Borrowed. */
int machine_console_fd(const Machine *m);
/* What the disk that can be written writes to. The same. */
int machine_overlay_fd(const Machine *m);
/* What the network card is plugged into. The same. */
int machine_tap_fd(const Machine *m);
/* Snapshot of the uppermost memory file; NULL: none. Borrowed. */
const uint8_t *machine_layer_id(const Machine *m);
int machine_counters(Machine *m, CounterFn fn, void *userdata, ErrorText *e);
