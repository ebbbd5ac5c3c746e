/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the guest's CPUs say about themselves: the host's table as KVM supports it, with the
 * topology of this VM put in and what is not for guests taken out.
 *
 * cpuid_load() asks KVM once per machine; cpuid_set() makes and installs one vCPU's table.
 * cpuid_normalise() is a pure function of its arguments. */

#include <linux/kvm.h>

#include "vmm/snapshot-file.h"

#define CPUID_ENTRIES_MAX 256U

typedef struct CpuidTable {
        struct kvm_cpuid2 head;
        struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
} CpuidTable;

int cpuid_load(int kvm_fd, CpuidTable *ret, ErrorText *e);

/* For the vCPU with this index (its x2APIC id) of n_cpus possible ones; hide: VmmCpuidHide bits. */
void cpuid_normalise(CpuidTable *t, unsigned index, unsigned n_cpus, uint32_t hide);

int cpuid_set(int vcpu_fd, const CpuidTable *host, unsigned index, unsigned n_cpus, uint32_t hide,
              ErrorText *e);

/* The table as a guest with n_cpus possible CPUs gets it, for a snapshot: as of the first vCPU. */
void cpuid_save(const CpuidTable *host, unsigned n_cpus, uint32_t hide, SnapshotWriter *w);
/* Refuses what cpuid_normalise() would have taken out, and, by name, features that host has not. */
int cpuid_parse(SnapshotReader *r, const CpuidTable *host, unsigned n_cpus, uint32_t hide, CpuidTable *ret,
                ErrorText *e);
bool cpuid_has_invariant_tsc(const CpuidTable *t);
