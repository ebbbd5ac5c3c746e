/* SPDX-License-Identifier: Apache-2.0 */

/* The container of a state file, with its checksums as they are, or made right. */

#include "fuzz.h"
#include "vmm/snapshot-state.h"

static void walk_sections(const SnapshotFile *f) {
        for (unsigned i = 0; i < f->header.n_sections; i++) {
                const uint8_t *view = NULL;
                SnapshotReader reader;

                FUZZ_CHECK(snapshot_file_section(f, f->sections[i].type, f->sections[i].index, &reader, NULL) == 0);
                FUZZ_CHECK(snapshot_read_view(&reader, reader.left, &view, NULL) == 0);
                FUZZ_CHECK(snapshot_read_end(&reader, NULL) == 0);
                uint32_t sum = 0;
                for (size_t k = 0; k < f->sections[i].bytes; k++)
                        sum += view[k];
                __asm__ volatile("" : : "r"(sum));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ uint8_t *copy = malloc(size + 1);
        SnapshotState s;
        SnapshotFile f;
        ErrorText e;

        if (size < 1)
                return 0;
        size--;
        memcpy(copy, data + 1, size);
        if (data[0] & 1)
                (void) snapshot_file_seal(copy, size);

        int r = snapshot_file_parse(copy, size, &f, &e);
        if (r >= 0)
                walk_sections(&f);
        if (snapshot_state_read(fuzz_file(copy, size), &s, &e) >= 0) {
                FUZZ_CHECK(r >= 0);
                snapshot_state_done(&s);
        }
        return 0;
}
