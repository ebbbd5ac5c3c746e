/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One virtual CPU and the thread that runs it.
 *
 * The thread is there from the start and parked: it enters the guest only after vcpu_resume(), and
 * parks again, with no I/O half done, after vcpu_pause(). Owned by the machine, whose thread calls
 * everything here; state of a parked vCPU may be read and written through its fd by any thread. */

#include "base/vmm-proto.h"
#include "vmm/cpuid.h"
#include "vmm/devices.h"
#include "vmm/pio.h"

typedef struct Vcpu Vcpu;

typedef struct VcpuConfig {
        Vm *vm;
        Devices *devices;
        Serial *serial;
        const CpuidTable *cpuid; /* only for vcpu_new() */
        unsigned index;
        unsigned n_possible;     /* CPUs in the MADT */
        uint32_t cpuid_hide;
        /* The guest is over, as seen by this vCPU, which runs no more. Called on its thread. */
        void (*on_end)(void *userdata, VmmExitReason reason, uint32_t status, const char *message);
        void *userdata;
} VcpuConfig;

typedef struct VcpuCounters {
        uint64_t exits;
        uint64_t mmio;
        uint64_t pio;
} VcpuCounters;

int vcpu_new(const VcpuConfig *config, Vcpu **ret, ErrorText *e);
Vcpu *vcpu_free(Vcpu *v);

/* 32-bit protected mode at entry, EBX = info (PVH). The other CPUs wait for INIT and SIPI. */
int vcpu_set_entry(Vcpu *v, uint64_t entry, uint64_t info, ErrorText *e);

/* To get and set the state of a parked vCPU by. Borrowed. */
int vcpu_fd(const Vcpu *v);

void vcpu_resume(Vcpu *v);
/* Asks only; returns at once. */
void vcpu_pause(Vcpu *v);
/* False when it has not parked in time. */
bool vcpu_wait_parked(Vcpu *v, uint64_t timeout_usec);

void vcpu_counters(const Vcpu *v, VcpuCounters *ret);
