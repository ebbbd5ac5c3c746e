/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A memory file of a snapshot (base/snapshot-format.h), for those who copy pages: cube-stored. The VMM has a reader
 * of its own, which knows where the guest's RAM is.
 *
 * What is read from it is checked: version, checksum, runs that lie in order, within the file, and together are not
 * more than the guest's memory. */

#include "base/macros.h"
#include "base/snapshot-format.h"

/* Room for the largest table in front of the pages; what the table doesn't need is a hole. */
#define MEMORY_FILE_PAGES_OFFSET \
        ALIGN_UP(sizeof(SnapshotLayerHeader) + SNAPSHOT_LAYER_RUNS_MAX * sizeof(SnapshotRun), \
                 (uint64_t) SNAPSHOT_PAGE_BYTES)

typedef struct MemoryFile {
        int fd;                   /* borrowed */
        SnapshotLayerHeader header;
        SnapshotRun *runs;
} MemoryFile;

int memory_file_open(MemoryFile *f, int fd);
void memory_file_done(MemoryFile *f);
/* Header and table, once the pages are there: a file that was left half-way is none. Fills in n_runs and crc. */
int memory_file_seal(int fd, SnapshotLayerHeader *h, const SnapshotRun *runs, size_t n_runs);
void memory_file_header(SnapshotLayerHeader *h, uint64_t mem_bytes, const uint8_t id[static SNAPSHOT_ID_BYTES],
                        const uint8_t parent[static SNAPSHOT_ID_BYTES]);

/* All zeros. */
bool snapshot_id_is_none(const uint8_t id[static SNAPSHOT_ID_BYTES]);
/* Whole pages, behind end, and no more than *room, from which they are taken. */
bool memory_range_valid(uint64_t gpa, uint64_t bytes, uint64_t end, uint64_t *room);
