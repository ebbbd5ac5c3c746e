/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One vCPU's state, through its fd: out of a parked vCPU into a section, and back.
 *
 * The structs of KVM's ABI are stored as they are. What depends on the time at which the guest goes on
 * (local APIC with its timer, TSC, deadline) is kept aside as a VcpuTime when a state is loaded, and set
 * right before the vCPU runs: a guest may be loaded long before. Pure functions of their arguments but
 * for the ioctls; the machine's thread calls them. */

#include <linux/kvm.h>

#include "vmm/snapshot-file.h"

#define MSRS_MAX 256U

/* The MSRs that a snapshot holds: those that KVM on this host knows, of those that we know. */
typedef struct MsrList {
        unsigned n;
        uint32_t index[MSRS_MAX];
} MsrList;

typedef struct VcpuTime {
        uint64_t tsc;
        uint64_t deadline;        /* IA32_TSC_DEADLINE */
        struct kvm_lapic_state lapic;
} VcpuTime;

/* What the section begins with. */
typedef struct VcpuFixed {
        struct kvm_mp_state mp;
        uint32_t n_msrs;
        uint32_t xsave_bytes;
        uint32_t reserved;
        struct kvm_regs regs;
        struct kvm_sregs2 sregs;
        struct kvm_xcrs xcrs;
        struct kvm_debugregs debugregs;
        struct kvm_vcpu_events events;
        VcpuTime time;
} VcpuFixed;

/* A checked section; borrows the file's bytes. */
typedef struct VcpuState {
        VcpuFixed fixed;
        const uint8_t *msrs;      /* struct kvm_msr_entry */
        const uint8_t *xsave;
} VcpuState;

int msr_list_load(int kvm_fd, MsrList *ret, ErrorText *e);

/* host_tsc: that of the instant that the state is of. pending: what was loaded and never set, else NULL. */
int snapshot_vcpu_save(int fd, unsigned index, const MsrList *msrs, uint32_t xsave_bytes, uint64_t host_tsc,
                       const VcpuTime *pending, SnapshotWriter *w, ErrorText *e);
/* Nothing but MSRs of the list, each once, and sizes of this host. */
int snapshot_vcpu_parse(SnapshotReader *r, const MsrList *msrs, uint32_t xsave_bytes, VcpuState *ret, ErrorText *e);
/* All but the time. CPUID must be set. */
int snapshot_vcpu_load(int fd, unsigned index, const VcpuState *s, ErrorText *e);

/* Local APIC and TSC, so that the guest's counter reads time->tsc when the host's reads host_tsc. Where KVM has the guest
 * read something else, time becomes what that is: as long before the deadline. */
int snapshot_vcpu_set_time(int fd, unsigned index, VcpuTime *time, uint64_t host_tsc, ErrorText *e);
/* Of a vCPU without a state of its own: the TSC of one that has one. */
int snapshot_vcpu_set_tsc(int fd, unsigned index, uint64_t tsc, uint64_t host_tsc, ErrorText *e);
/* Behind set_time() and the VM's clock. */
int snapshot_vcpu_set_deadline(int fd, unsigned index, const VcpuTime *time, ErrorText *e);
/* Tells the guest's watchdogs that it was away, however it was. */
int snapshot_vcpu_was_away(int fd, unsigned index, ErrorText *e);
