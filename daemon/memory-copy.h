/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes memory files of snapshots: out of a process, or out of other memory files. Stateless, with fixed buffers. */

#include <stdint.h>
#include <sys/types.h>

#include "base/vmm-proto.h"
#include "daemon/memory-file.h"

typedef struct MemorySource {
        int pid_fd;               /* not trusted either: what is no pidfd is refused */
        const VmmRun *runs;       /* not trusted */
        size_t n_runs;
} MemorySource;

/* h: as from memory_file_header(). Pages of zeros take no place in the file. */
int memory_save(const MemorySource *s, SnapshotLayerHeader *h, int fd, uint64_t *ret_data_bytes,
                uint64_t *ret_zero_bytes);

/* Lowest first, each standing on the one before. The result is made of those behind the first n_beneath, which only
 * lend pages: what lies between two runs may have to be copied too, for there to be no more runs than there can be.
 * -E2BIG when that would need pages of a layer that isn't given. */
int memory_merge(const int *layers, size_t n_layers, size_t n_beneath, int fd);
