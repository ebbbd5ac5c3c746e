/* SPDX-License-Identifier: Apache-2.0 */

/* A memory file, as the VMM reads it and as cube-stored does. What the VMM takes it can map. */

#include <zlib.h>

#include "daemon/memory-file.h"
#include "fuzz.h"
#include "vmm/snapshot-layer.h"

#define MEMORY MIB(4)
#define FILE_MAX KIB(64)

static GuestMem mem;

static void seal(uint8_t *data, size_t size) {
        SnapshotLayerHeader h;

        if (size < sizeof(h))
                return;
        memcpy(&h, data, sizeof(h));
        h.crc = 0;
        size_t n = MIN(h.n_runs * sizeof(SnapshotRun), size - sizeof(h));
        h.crc = (uint32_t) crc32_z(crc32_z(0, (const Bytef *) &h, sizeof(h)), data + sizeof(h), n);
        memcpy(data, &h, sizeof(h));
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        FUZZ_CHECK(guest_mem_init(&mem, MEMORY) == 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static uint8_t copy[FILE_MAX];
        MemoryFile stored;
        Layer layer;
        ErrorText e;

        if (size < 1 || size > sizeof(copy))
                return 0;
        size--;
        memcpy(copy, data + 1, size);
        if (data[0] & 1)
                seal(copy, size);
        int fd = fuzz_file(copy, size);

        if (memory_file_open(&stored, fd) >= 0)
                memory_file_done(&stored);
        if (layer_open(&layer, fd, &mem, &e) < 0)
                return 0;
        FUZZ_CHECK(layer_map(&layer, &mem, &e) == 0);
        for (uint64_t gpa = 0; gpa < MEMORY; gpa += SNAPSHOT_PAGE_BYTES)
                (void) *(volatile uint8_t *) guest_mem_ptr(&mem, gpa, 1);
        layer_done(&layer);
        /* Its file is about to change. */
        FUZZ_CHECK(guest_mem_clear(&mem, 0, MEMORY) == 0);
        return 0;
}
