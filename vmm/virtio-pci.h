/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The modern virtio transport over PCI (virtio 1.2, 4.1), under every virtio device.
 *
 * One BAR holds everything, a page each: common configuration, ISR, device configuration, notify,
 * MSI-X table and pending bits. No legacy interface, no INTx.
 *
 * Two sides meet here. vCPU threads touch registers, under the function's lock and for an instant. The
 * device's own thread, that of the loop it is attached to, owns its queues and all of its state; start,
 * stop and kick run there and nowhere else, so that a device needs no lock of its own. The register
 * side tells it by eventfds: one for each queue, which KVM signals for a guest's notification without
 * leaving the kernel, and one for "start" and "reset". A reset is therefore done when the device's
 * thread has let go, never while it is inside a request; until then device_status doesn't read 0 (2.1.2,
 * 4.1.4.3.1), and the driver waits. */

#include "vmm/loop.h"
#include "vmm/msix.h"
#include "vmm/pci.h"
#include "vmm/virtio-regs.h"

/* How much a device does for one queue before it lets the others have their turn (P6). */
#define VIRTIO_VISIT_CHAINS 64U
#define VIRTIO_VISIT_BYTES KIB(256)

#define VIRTIO_CONFIG_BYTES_MAX 128U

/* Offsets in the BAR. */
#define VIRTIO_BAR_BYTES 0x8000U
#define VIRTIO_BAR_COMMON 0x0000U
#define VIRTIO_BAR_ISR 0x1000U
#define VIRTIO_BAR_DEVICE 0x2000U
#define VIRTIO_BAR_NOTIFY 0x3000U
#define VIRTIO_BAR_MSIX_TABLE 0x4000U
#define VIRTIO_BAR_MSIX_PENDING 0x5000U
#define VIRTIO_NOTIFY_STRIDE 4U

typedef struct VirtioPci VirtioPci;

/* All on the device's thread. */
typedef struct VirtioOps {
        void (*start)(VirtioPci *v);              /* queues are live and may hold chains already */
        void (*stop)(VirtioPci *v);               /* reset or failed: forget all that the guest knows of */
        void (*kick)(VirtioPci *v, unsigned queue);
} VirtioOps;

typedef struct VirtioKind {
        const char *name;         /* in messages and counters: "vsock", "vda" */
        uint16_t type;            /* virtio 1.2, 5: device ID */
        uint32_t class_code;
        uint64_t features;        /* beside VERSION_1, EVENT_IDX and INDIRECT_DESC, which all have */
        unsigned n_queues;
        uint16_t queue_size;
        uint64_t chain_bytes_max;
        /* What the driver may write of the device configuration; the rest ignores it. */
        unsigned config_writable_offset, config_writable_bytes;
        VirtioOps ops;
} VirtioKind;

/* message is for people; name is the kind's. Any thread. */
typedef void (*VirtioErrorFn)(void *userdata, const char *name, const char *message);

typedef struct VirtioQueue {
        VirtioPci *device;
        VirtQueue ring;           /* device's thread */
        uint16_t vector;          /* the same, frozen at start */
        int kick_fd;
        LoopSource *kick_source;
} VirtioQueue;

struct VirtioPci {
        PciFunction pci;          /* its lock guards regs, config */
        VirtioKind kind;
        Vm *vm;
        void *owner;
        VirtioErrorFn on_error;
        void *on_error_userdata;

        VirtioRegs regs;
        uint8_t config[VIRTIO_CONFIG_BYTES_MAX];
        size_t config_bytes;
        unsigned window;          /* offset of the PCI configuration access capability */
        Msix msix;
        unsigned msix_capability;
        _Atomic uint8_t isr;

        int state_fd;
        LoopSource *state_source;
        bool start_requested;     /* under the lock */

        /* Device's thread from here on. */
        VirtioQueue queues[VIRTIO_QUEUES_MAX];
        bool live;                /* between start and stop */
        bool failed;              /* NEEDS_RESET: stays quiet until the reset */
        bool paused;              /* between pause and resume: touches neither rings nor memory */
        bool config_changed;      /* by a snapshot of another configuration, or while paused; the driver is told at
                                     resume */
        _Atomic uint64_t n_chains, n_resets, n_faults;
        _Atomic uint64_t error_usec;      /* when the last error was reported */
        _Atomic uint64_t errors_hidden;
};

int virtio_pci_init(VirtioPci *v, const VirtioKind *kind, Vm *vm, uint64_t bar_gpa, void *owner,
                    VirtioErrorFn on_error, void *on_error_userdata);
/* The device's thread must have ended, or be the caller. */
void virtio_pci_done(VirtioPci *v);
/* Before the guest runs: the device-specific configuration. */
void virtio_pci_set_config(VirtioPci *v, const void *config, size_t size);
/* Makes loop's thread the device's. ioeventfds are KVM's shortcut to the kick fds. */
int virtio_pci_attach(VirtioPci *v, Loop *loop);
int virtio_pci_add_ioeventfds(VirtioPci *v);

/* Device's thread. */

/* Does all that the guest has asked for, once no vCPU runs. */
void virtio_pci_drain(VirtioPci *v);
/* Sees a start, reset or failure through, and leaves in the rings what is in them: it is found there at resume. */
void virtio_pci_settle(VirtioPci *v);
/* Behind either: nothing is handled any more, bells wait. */
void virtio_pci_pause(VirtioPci *v);
/* Looks into all rings, whether their bells ring or not. Also a device whose state was loaded is woken so. */
void virtio_pci_resume(VirtioPci *v);
/* Starts one ring with what its registers say, which were checked when it was enabled. */
void virtio_pci_start_queue(VirtioPci *v, unsigned queue);

/* virtqueue_pop() of a queue of the device; a broken queue stops the device and reads as empty. */
bool virtio_pci_pop(VirtioPci *v, unsigned queue, VirtChain *ret);
/* Changes a part of the configuration, and tells the driver if it should look. */
void virtio_pci_change_config(VirtioPci *v, size_t offset, const void *data, size_t size, bool tell);
/* As it is now, with what the driver has written. */
void virtio_pci_get_config(VirtioPci *v, size_t offset, void *ret, size_t size);
/* Interrupts the driver for what was pushed, if it wants that. */
void virtio_pci_signal(VirtioPci *v, unsigned queue);
/* Comes back to this queue in a later round of the loop. */
void virtio_pci_kick_again(VirtioPci *v, unsigned queue);
/* The driver broke the rules: DEVICE_NEEDS_RESET, and nothing more until it resets. */
void virtio_pci_fail(VirtioPci *v, const char *message);
/* Tells the host about trouble that is not the driver's fault. At most one message in ten seconds. */
void virtio_pci_error(VirtioPci *v, const char *format, ...) _printf_(2, 3);
