/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two files of a snapshot. All numbers are little-endian; checksums are CRC-32 (that of zlib).
 *
 * State file: a SnapshotHeader, a table of SnapshotSections, their contents in the order of the table, each
 * at a multiple of 8. Written and read by cube-vmm, which knows what is in the sections (vmm/snapshot-*.h).
 * An unknown type or version is refused.
 *
 * Memory file, one layer of the guest's RAM: a SnapshotLayerHeader, n_runs SnapshotRuns by address that
 * don't overlap, and the pages. Written by whoever copied the pages out of the VMM, mapped by the VMM,
 * never changed afterwards. What is in no layer reads as zeros; the upper layer wins.
 *
 * Both carry the snapshot's id and that of the snapshot it stands on (all zeros: none), so that a state
 * can't be put on top of somebody else's memory. */

#include <stdint.h>

#define SNAPSHOT_ID_BYTES 16U
#define SNAPSHOT_PAGE_BYTES 4096U

#define SNAPSHOT_STATE_MAGIC "CUBESTAT"
#define SNAPSHOT_STATE_VERSION 1U
#define SNAPSHOT_STATE_BYTES_MAX (4U * 1024U * 1024U)
#define SNAPSHOT_SECTIONS_MAX 64U
#define SNAPSHOT_ARCH_X86_64 1U

typedef struct SnapshotHeader {
        uint8_t magic[8];
        uint32_t version;
        uint32_t arch;
        uint64_t total_bytes;
        uint8_t id[SNAPSHOT_ID_BYTES];
        uint8_t parent[SNAPSHOT_ID_BYTES];
        uint32_t n_sections;
        uint32_t crc;             /* of header and table, this field as 0 */
} SnapshotHeader;

typedef struct SnapshotSection {
        uint32_t type;            /* SnapshotSectionType */
        uint32_t index;           /* of the vCPU, or of the slot of the device */
        uint32_t version;
        uint32_t crc;             /* of the content */
        uint64_t offset;
        uint64_t bytes;
} SnapshotSection;

typedef enum SnapshotSectionType {
        SNAPSHOT_SECTION_CONFIG = 1, /* shape of the machine */
        SNAPSHOT_SECTION_MEMMAP,     /* where its RAM is */
        SNAPSHOT_SECTION_CPUID,      /* of the first vCPU; those of the others follow from it */
        SNAPSHOT_SECTION_VCPU,       /* one for each */
        SNAPSHOT_SECTION_CLOCK,
        SNAPSHOT_SECTION_SERIAL,
        SNAPSHOT_SECTION_PCI,        /* one for each function: configuration space */
        SNAPSHOT_SECTION_VIRTIO,     /* one for each virtio device: registers, queues, MSI-X */
        SNAPSHOT_SECTION_VSOCK,      /* connections */
        SNAPSHOT_SECTION_AGENT,      /* its AGENT_READY frame; empty: it was not connected */
        SNAPSHOT_SECTION_MEM,        /* which blocks are plugged; only with memory that can be */
        _SNAPSHOT_SECTION_MAX,
} SnapshotSectionType;

#define SNAPSHOT_LAYER_MAGIC "CUBEPAGE"
#define SNAPSHOT_LAYER_VERSION 1U
/* Each run is a mapping, of which a process may have 65,530. */
#define SNAPSHOT_LAYER_RUNS_MAX 4096U
#define SNAPSHOT_LAYERS_MAX 7U
/* Every region of the guest's RAM begins at a multiple of this. A run must lie in one region, so whoever makes one
 * run of two that met, or almost met, doesn't do so across such an address. */
#define SNAPSHOT_REGION_ALIGN (128ULL * 1024U * 1024U)
/* In file_offset: the pages are zeros, and take no place in the file. */
#define SNAPSHOT_RUN_ZERO UINT64_MAX

typedef struct SnapshotLayerHeader {
        uint8_t magic[8];
        uint32_t version;
        uint32_t n_runs;
        uint64_t mem_bytes;       /* of the guest, with what can be plugged */
        uint8_t id[SNAPSHOT_ID_BYTES];
        uint8_t parent[SNAPSHOT_ID_BYTES];
        uint32_t crc;             /* of header and runs, this field as 0 */
        uint32_t reserved;
} SnapshotLayerHeader;

typedef struct SnapshotRun {
        uint64_t gpa;
        uint64_t bytes;
        uint64_t file_offset;
} SnapshotRun;
