/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A guest and its host as a script: the input says what both do to one virtio device, whose code runs in this process
 * over a machine without KVM. Shared by the targets of the devices, which have their host's side in ScriptHost.
 *
 * Input: steps, each a byte, its kind in the low half and an argument in the high one; see ScriptStep. As long as the
 * guest writes nothing over its own rings, what comes back on them is checked: only what was offered, and no more bytes
 * than there was room for (P8), with nothing written but what may be. Of a device that takes memory out of the guest neither
 * is: it may be where a ring is. What a device in any state saves it can load. */

#include "fuzz.h"
#include "tests/unit/fake-vm.h"
#include "tests/unit/virtio-driver.h"

#define SCRIPT_RAM_BYTES MIB(4)
#define SCRIPT_RINGS_GPA 0x10000U
#define SCRIPT_DATA_GPA 0x100000U
#define SCRIPT_DATA_BYTES MIB(2)
#define SCRIPT_PARTS_MAX 8U

typedef enum ScriptStep {
        SCRIPT_BAR_WRITE,      /* u16 offset, value; the argument's low two bits: its length */
        SCRIPT_BAR_READ,       /* u16 offset */
        SCRIPT_CONFIG_WRITE,   /* u8 offset, value: of the PCI function */
        SCRIPT_CONFIG_READ,    /* u8 offset */
        SCRIPT_MEMORY,         /* u16 offset, u8 length, bytes: into the rings, with an argument into the data */
        SCRIPT_DRIVER,         /* u64 features: a driver comes up; argument 1 takes those that the device has too,
                                * 2 stops before DRIVER_OK */
        SCRIPT_CHAIN,          /* on the queue of the argument; see chain_read() */
        SCRIPT_KICK,           /* the queue of the argument */
        SCRIPT_ROUNDS,         /* argument + 1 rounds of the loop */
        SCRIPT_HOST,           /* what the device's host does, by the argument */
        SCRIPT_TAKE,           /* what was used */
        SCRIPT_RESET,
        SCRIPT_PAUSE,          /* with argument 1 it is loaded with what was saved */
        SCRIPT_OFFER,          /* u16: the available index of the argument's queue */
        SCRIPT_MSI,            /* with an argument the host's kernel refuses interrupts */
        SCRIPT_TIME,           /* 2^argument milliseconds go by */
} ScriptStep;

/* What the device's own target does; each may be NULL. */
typedef struct ScriptHost {
        void (*act)(void *userdata, unsigned what, FuzzInput *in);
        void (*pause)(void *userdata);     /* else as most devices */
        void (*resume)(void *userdata);
        void *userdata;
        bool takes_memory;                 /* out of the guest, where zeros are then */
} ScriptHost;

extern Vm script_vm;
extern Stepper script_stepper;

/* Once, in LLVMFuzzerInitialize(). plug_bytes: of a region for memory that is plugged, 0: none. */
void script_init(uint64_t plug_bytes);
/* Guest memory is zeros, no time has passed: before the device is made. */
void script_begin(void);
void script_run(VirtioPci *device, const ScriptHost *host, FuzzInput *in);

void script_on_error(void *userdata, const char *name, const char *message);
void script_on_counter(void *userdata, const char *name, uint64_t value);
