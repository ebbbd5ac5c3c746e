/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a state file (base/snapshot-format.h) says of the machine as a whole, read and checked as far as that is
 * possible without a machine. vCPUs and devices are left in their sections, for those who know them.
 *
 * It owns the bytes of the file, into which the rest points. */

#include "vmm/build-config.h"
#include "vmm/cpuid.h"
#include "vmm/serial.h"
#include "vmm/snapshot-file.h"

/* Section CONFIG. */
typedef struct DiskShape {
        uint32_t present;
        uint32_t read_only;
        uint64_t disk_bytes;
} DiskShape;

typedef struct ConfigState {
        uint64_t mem_bytes;
        uint32_t n_cpus;
        uint32_t max_cpus;
        uint32_t cpuid_hide;
        uint32_t tsc_khz;
        DiskShape disks[CONFIG_DISKS_MAX];
        uint64_t plug_bytes;
} ConfigState;

/* Section MEMMAP. */
typedef struct MemmapState {
        uint32_t n_regions;
        uint32_t reserved;
        struct {
                uint64_t gpa;
                uint64_t bytes;
        } regions[GUEST_REGIONS_MAX];
} MemmapState;

typedef struct SnapshotState {
        uint8_t *data;
        SnapshotFile file;
        ConfigState config;
        MemmapState memmap;
        uint64_t clock_nsec;
        SerialState serial;
        const uint8_t *agent;     /* its AGENT_READY frame */
        size_t agent_bytes;
} SnapshotState;

int snapshot_state_read(int fd, SnapshotState *ret, ErrorText *e);
void snapshot_state_done(SnapshotState *s);
#define _cleanup_snapshot_state_ _cleanup_(snapshot_state_done)

/* Its guest can go on where KVM gives guests that table, and a TSC of khz: else -EOPNOTSUPP or -EXDEV, by name. */
int snapshot_state_check_host(const SnapshotState *s, const CpuidTable *host, uint32_t tsc_khz, ErrorText *e);
/* The last part of it; cpuid is what the guest has. */
int snapshot_state_check_tsc(const SnapshotState *s, const CpuidTable *cpuid, uint32_t tsc_khz, ErrorText *e);

/* The guest's RAM is where a machine of that shape has it here. */
int snapshot_state_check_memmap(const SnapshotState *s, const GuestMem *mem, ErrorText *e);
