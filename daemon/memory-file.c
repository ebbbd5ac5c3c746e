/* SPDX-License-Identifier: Apache-2.0 */
#include <zlib.h>

#include "daemon/copy-range.h"
#include "daemon/memory-file.h"

/* Wider than what an x86 CPU can address: sums of two don't overflow. */
#define GPA_MAX (1ULL << 52)

bool snapshot_id_is_none(const uint8_t id[static SNAPSHOT_ID_BYTES]) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];

        return memcmp(id, none, sizeof(none)) == 0;
}

bool memory_range_valid(uint64_t gpa, uint64_t bytes, uint64_t end, uint64_t *room) {
        if (gpa % SNAPSHOT_PAGE_BYTES != 0 || bytes % SNAPSHOT_PAGE_BYTES != 0 || bytes == 0 || gpa < end ||
            gpa > GPA_MAX || bytes > GPA_MAX || bytes > *room)
                return false;
        *room -= bytes;
        return true;
}

static uint32_t checksum(const SnapshotLayerHeader *header, const SnapshotRun *runs) {
        SnapshotLayerHeader h = *header;

        h.crc = 0;
        uLong crc = crc32_z(0, (const Bytef *) &h, sizeof(h));
        return (uint32_t) crc32_z(crc, (const Bytef *) runs, h.n_runs * sizeof(SnapshotRun));
}

static bool run_in_file(const SnapshotRun *run, uint64_t file_bytes) {
        if (run->file_offset == SNAPSHOT_RUN_ZERO)
                return true;
        return run->file_offset % SNAPSHOT_PAGE_BYTES == 0 && run->file_offset <= file_bytes &&
               run->bytes <= file_bytes - run->file_offset;
}

static int check_runs(const MemoryFile *f, uint64_t file_bytes) {
        uint64_t end = 0, room = f->header.mem_bytes;

        for (uint32_t i = 0; i < f->header.n_runs; i++) {
                const SnapshotRun *run = &f->runs[i];

                if (!memory_range_valid(run->gpa, run->bytes, end, &room) || !run_in_file(run, file_bytes))
                        return -EBADMSG;
                end = run->gpa + run->bytes;
        }
        return 0;
}

static int load(MemoryFile *f) {
        SnapshotLayerHeader *h = &f->header;
        uint64_t size;

        int r = check_regular(f->fd, false, &size);
        if (r < 0)
                return r;
        if (size < sizeof(*h))
                return -EBADMSG;
        r = pread_all(f->fd, h, sizeof(*h), 0);
        if (r < 0)
                return r;
        if (memcmp(h->magic, SNAPSHOT_LAYER_MAGIC, sizeof(h->magic)) != 0)
                return -EBADMSG;
        if (h->version != SNAPSHOT_LAYER_VERSION)
                return -EPROTONOSUPPORT;
        if (h->n_runs > SNAPSHOT_LAYER_RUNS_MAX || size - sizeof(*h) < h->n_runs * sizeof(SnapshotRun))
                return -EBADMSG;

        f->runs = new0(SnapshotRun, h->n_runs + 1);
        if (!f->runs)
                return -ENOMEM;
        r = pread_all(f->fd, f->runs, h->n_runs * sizeof(SnapshotRun), sizeof(*h));
        if (r < 0)
                return r;
        return checksum(h, f->runs) == h->crc ? check_runs(f, size) : -EBADMSG;
}

int memory_file_open(MemoryFile *f, int fd) {
        *f = (MemoryFile) { .fd = fd };
        int r = load(f);
        if (r < 0)
                memory_file_done(f);
        return r;
}

void memory_file_done(MemoryFile *f) {
        free(f->runs);
        *f = (MemoryFile) { .fd = -EBADF };
}

void memory_file_header(SnapshotLayerHeader *h, uint64_t mem_bytes, const uint8_t id[static SNAPSHOT_ID_BYTES],
                        const uint8_t parent[static SNAPSHOT_ID_BYTES]) {
        *h = (SnapshotLayerHeader) { .version = SNAPSHOT_LAYER_VERSION, .mem_bytes = mem_bytes };
        memcpy(h->magic, SNAPSHOT_LAYER_MAGIC, sizeof(h->magic));
        memcpy(h->id, id, sizeof(h->id));
        memcpy(h->parent, parent, sizeof(h->parent));
}

int memory_file_seal(int fd, SnapshotLayerHeader *h, const SnapshotRun *runs, size_t n_runs) {
        assert(n_runs <= SNAPSHOT_LAYER_RUNS_MAX);

        h->n_runs = (uint32_t) n_runs;
        h->crc = checksum(h, runs);
        int r = pwrite_all(fd, runs, n_runs * sizeof(*runs), sizeof(*h));
        return r < 0 ? r : pwrite_all(fd, h, sizeof(*h), 0);
}
