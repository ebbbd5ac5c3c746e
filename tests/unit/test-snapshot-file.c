/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "vmm/snapshot-file.h"

static const uint8_t id[SNAPSHOT_ID_BYTES] = { 1, 2, 3 }, parent[SNAPSHOT_ID_BYTES] = { 4, 5, 6 };
static uint8_t *data;
static size_t size;

static void make(void) {
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        uint8_t body[100];

        for (unsigned i = 0; i < sizeof(body); i++)
                body[i] = (uint8_t) i;
        snapshot_writer_begin(&w, SNAPSHOT_SECTION_CONFIG, 0);
        snapshot_writer_put(&w, body, 13);
        snapshot_writer_begin(&w, SNAPSHOT_SECTION_AGENT, 0);
        snapshot_writer_begin(&w, SNAPSHOT_SECTION_VCPU, 1);
        snapshot_writer_put(&w, body, 50);
        snapshot_writer_put(&w, body + 50, 50);
        assert_ok(snapshot_writer_finish(&w, id, parent, &data, &size));
}

static void done(void) {
        free(TAKE_PTR(data));
}

TEST(round_trip) {
        SnapshotReader r;
        SnapshotFile f;
        uint8_t got[100];
        ErrorText e;

        make();
        assert_ok(snapshot_file_parse(data, size, &f, &e));
        assert_true(memcmp(f.header.id, id, sizeof(id)) == 0 && memcmp(f.header.parent, parent, sizeof(id)) == 0);
        assert_eq(snapshot_file_count(&f, SNAPSHOT_SECTION_VCPU), 1);
        assert_eq(snapshot_file_count(&f, SNAPSHOT_SECTION_CLOCK), 0);

        assert_ok(snapshot_file_section(&f, SNAPSHOT_SECTION_AGENT, 0, &r, &e));
        assert_ok(snapshot_read_end(&r, &e));
        assert_eq(snapshot_read(&r, got, 1, &e), -EBADMSG);
        assert_streq(e.text, "state file, agent 0: ends too early");

        assert_ok(snapshot_file_section(&f, SNAPSHOT_SECTION_VCPU, 1, &r, &e));
        assert_ok(snapshot_read(&r, got, 99, &e));
        assert_eq(got[98], 98);
        assert_eq(snapshot_read_end(&r, &e), -EBADMSG);
        assert_eq(snapshot_file_section(&f, SNAPSHOT_SECTION_VCPU, 0, &r, &e), -EBADMSG);
        done();
}

TEST(no_truncation_passes) {
        SnapshotFile f;

        make();
        for (size_t n = 0; n < size; n++) {
                /* In a buffer of its own, so that a sanitizer sees a step too far. */
                uint8_t *cut = malloc(n);

                if (n > 0)
                        memcpy(cut, data, n);
                assert_true(snapshot_file_parse(cut, n, &f, NULL) < 0);
                free(cut);
        }
        done();
}

/* All bits count but those of the padding between sections. */
TEST(no_flipped_bit_passes) {
        SnapshotFile good, f;
        unsigned passed = 0;

        make();
        assert_ok(snapshot_file_parse(data, size, &good, NULL));
        for (size_t i = 0; i < size * 8; i++) {
                data[i / 8] ^= (uint8_t) (1 << i % 8);
                passed += snapshot_file_parse(data, size, &f, NULL) >= 0;
                data[i / 8] ^= (uint8_t) (1 << i % 8);
        }
        assert_eq(passed, 3 * 8);
        done();
}

/* With checksums put right, whatever is left is inside the file. */
TEST(sealed_nonsense_stays_inside) {
        SnapshotReader r;
        SnapshotFile f;
        unsigned taken = 0;

        make();
        srand(1);
        size_t front = sizeof(SnapshotHeader) + 3 * sizeof(SnapshotSection);
        uint8_t *copy = malloc(size);
        for (unsigned n = 0; n < 20000; n++) {
                memcpy(copy, data, size);
                for (unsigned k = 0; k < 1 + n % 3; k++)
                        copy[(size_t) rand() % front] = (uint8_t) rand();
                (void) snapshot_file_seal(copy, size);
                if (snapshot_file_parse(copy, size, &f, NULL) < 0)
                        continue;
                taken++;
                for (unsigned i = 0; i < f.header.n_sections; i++) {
                        const uint8_t *view;
                        volatile uint8_t sum = 0;

                        assert_ok(snapshot_file_section(&f, f.sections[i].type, f.sections[i].index, &r, NULL));
                        size_t left = r.left;
                        assert_ok(snapshot_read_view(&r, left, &view, NULL));
                        for (size_t b = 0; b < left; b++)
                                sum ^= view[b];
                        assert_true(view >= copy && view + left <= copy + size);
                }
        }
        assert_true(taken > 0);
        free(copy);
        done();
}

TEST(a_writer_has_a_ceiling) {
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *big = calloc(1, MIB(1));

        snapshot_writer_begin(&w, SNAPSHOT_SECTION_VCPU, 0);
        for (unsigned i = 0; i < 5; i++)
                snapshot_writer_put(&w, big, MIB(1));
        assert_eq(snapshot_writer_finish(&w, id, parent, &data, &size), -EFBIG);
        snapshot_writer_done(&w);
        for (unsigned i = 0; i <= SNAPSHOT_SECTIONS_MAX; i++)
                snapshot_writer_begin(&w, SNAPSHOT_SECTION_VCPU, i);
        assert_eq(snapshot_writer_finish(&w, id, parent, &data, &size), -EFBIG);
}
