/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a snapshot of the fixture shows, whatever its layers are. */

#include "snapshot-fixture.h"

#define N_PAGES (MADE_MEMORY / PAGE)

/* First byte of each page, seen through the whole chain. */
typedef struct View {
        uint8_t memory[N_PAGES];
        uint8_t disk[N_PAGES];
} View;

static void view_memory(Snapshot *s, uint8_t *view) {
        SnapshotLayerHeader h;
        SnapshotRun run;
        int fd;

        assert_ok(snapshot_open_file(s, SNAPSHOT_FILE_MEMORY, &fd));
        assert_eq(pread(fd, &h, sizeof(h), 0), sizeof(h));
        for (unsigned i = 0; i < h.n_runs; i++) {
                assert_eq(pread(fd, &run, sizeof(run), (off_t) (sizeof(h) + i * sizeof(run))), sizeof(run));
                for (uint64_t k = 0; k < run.bytes / PAGE; k++) {
                        uint8_t byte = 0;
                        if (run.file_offset != SNAPSHOT_RUN_ZERO)
                                assert_eq(pread(fd, &byte, 1, (off_t) (run.file_offset + k * PAGE)), 1);
                        assert_true(run.gpa / PAGE + k < N_PAGES);
                        view[run.gpa / PAGE + k] = byte;
                }
        }
        close(fd);
}

static void view_disk(Snapshot *s, uint8_t *view) {
        int fd;

        assert_ok(snapshot_open_file(s, SNAPSHOT_FILE_DISK, &fd));
        for (off_t at = 0; (at = lseek(fd, at, SEEK_DATA)) >= 0; at += PAGE) {
                assert_true(at < (off_t) MADE_DISK);
                assert_eq(pread(fd, &view[at / PAGE], 1, at), 1);
        }
        close(fd);
}

static View view_of(Snapshot *s) {
        Snapshot *list[8];
        View v = {};

        for (int i = 0, n = snapshot_memory_chain(s, list, 8); i < n; i++)
                view_memory(list[i], v.memory);
        for (int i = 0, n = snapshot_disk_chain(s, list, 8); i < n; i++)
                view_disk(list[i], v.disk);
        return v;
}

_unused_ static bool same_view(Snapshot *s, const View *v) {
        View now = view_of(s);

        return memcmp(&now, v, sizeof(now)) == 0;
}
