/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the machine sees of the PCI devices: build them, hand them accesses, feed the vsock.
 *
 * Fixed topology on bus 0: 0 host bridge, 1 virtio-vsock, 2 virtio-blk vda, 3 virtio-blk vdb,
 * 4 virtio-rng, 5 pvpanic, 6 virtio-net, 7 virtio-balloon, 8 virtio-mem. Interrupt Pin is 0 everywhere, BARs are
 * assigned by us and never move. */

#include "base/frame.h"
#include "vmm/loop.h"
#include "vmm/overlay.h"
#include "vmm/snapshot-file.h"
#include "vmm/vm.h"

typedef struct Devices Devices;

/* What the devices tell the machine. All are called on the loop's thread, but on_panic, on_failure
 * and on_device_error, which come from any. */
typedef struct DeviceEvents {
        void (*on_panic)(void *userdata, uint8_t pvpanic_event);
        /* The VMM itself can't go on: error is negative. */
        void (*on_failure)(void *userdata, int error, const char *message);
        /* device stopped (NEEDS_RESET) or its host side failed; message is for the journal, already rate-limited */
        void (*on_device_error)(void *userdata, const char *device, const char *message);
        /* The control stream: its guest end connected, a whole frame came, it is gone. */
        void (*on_control_frame)(void *userdata, const FrameHeader *h, const uint8_t *body);
        void (*on_control_lost)(void *userdata);
        void *userdata;
} DeviceEvents;

typedef struct DiskConfig {
        bool present;
        bool read_only;
        int base_fd;            /* owned by the devices from here on */
        OverlayFds over;        /* the same; none when read-only */
        uint64_t base_bytes;
        uint64_t disk_bytes;
} DiskConfig;

void disk_config_done(DiskConfig *c);

typedef struct DevicesConfig {
        DiskConfig disks[2];    /* one of them at most can be written */
        uint32_t guest_cid;
        int tap_fd;             /* owned by the devices from here on; -EBADF: the network card's link is down */
} DevicesConfig;

/* Makes all devices and their threads' resources; nothing is handled before devices_start(). Takes the descriptors
 * in config, in any case. */
int devices_new(Vm *vm, Loop *loop, DevicesConfig *config, const DeviceEvents *events, Devices **ret, ErrorText *e);
/* Registers ioeventfds and starts the disk thread. */
int devices_start(Devices *d);
Devices *devices_free(Devices *d);

/* An MMIO access of a vCPU (any vCPU thread, several at once). len 1, 2, 4 or 8. Reads of nothing
 * give all ones, writes to nothing are dropped (P15). */
void devices_mmio(Devices *d, uint64_t gpa, uint8_t data[static 8], unsigned len, bool write);

/* Loop thread only from here. */

/* Puts a whole frame on the control stream. -ENOTCONN, -EAGAIN when its queue is full. */
int devices_control_send(Devices *d, const uint8_t *frame, size_t size);

/* While cubed is slow: the guest gets no more credit on the control stream, so that not more than
 * what it had credit for still comes. None is let in meanwhile. */
void devices_control_hold(Devices *d, bool hold);

/* With all vCPUs parked: ends what it does for the guest, then touches neither its memory nor its disks.
 * -ETIMEDOUT when a disk does not come to rest: then nothing has changed. */
int devices_pause(Devices *d);
/* Also behind devices_apply(). */
void devices_resume(Devices *d);

/* Both while paused, or before the start. */
void devices_save(Devices *d, SnapshotWriter *w);
/* Loading a snapshot: prepare checks everything and changes nothing, apply can't fail. disk: what else lies over the
 * writable disk's base then; none: it stays. Taken in any case. */
typedef struct DevicesLoad DevicesLoad;
int devices_prepare(Devices *d, const SnapshotFile *f, OverlayFds *disk, DevicesLoad **ret, ErrorText *e);
bool devices_load_has_control(const DevicesLoad *l);
/* Takes l. The devices are paused afterwards, streams from before are gone. */
void devices_apply(Devices *d, DevicesLoad *l);
DevicesLoad *devices_load_free(DevicesLoad *l);

/* The overlay of the disk that can be written; to be changed while paused. NULL without such a disk. */
Overlay *devices_overlay(Devices *d);

/* The agent's first answer to a stream (a whole frame, header included), or error < 0:
 * -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET, -EBADMSG. */
typedef void (*StreamAnswer)(void *userdata, int error, const uint8_t *frame, size_t size);

/* Connects to AGENT_STREAM_PORT in the guest, sends frame, calls back once, and then moves bytes
 * between the connection and fd until both directions ended. Takes fd in any case (a connected
 * unix stream socket; made non-blocking). -EMFILE when the connection table is full, -ENOTCONN
 * before the guest's driver is up: then answer isn't called. */
int devices_stream_open(Devices *d, int fd, const uint8_t *frame, size_t size, StreamAnswer answer, void *userdata);

/* The network card hears nothing while it is held. */
void devices_net_hold(Devices *d, bool hold);
/* What the network card is plugged into; -EBADF: nothing. Borrowed. */
int devices_tap_fd(const Devices *d);

/* What the guest's driver shall make the plugged memory, and the balloon. -ENODEV: there is none. See
 * virtio_mem_request() and virtio_balloon_request(). */
int devices_request_plugged(Devices *d, uint64_t bytes);
int devices_request_balloon(Devices *d, uint64_t bytes);

/* Adds named counters by calling back; for VMM_OP_STATISTICS. */
typedef void (*CounterFn)(void *userdata, const char *name, uint64_t value);
void devices_counters(Devices *d, CounterFn fn, void *userdata);
