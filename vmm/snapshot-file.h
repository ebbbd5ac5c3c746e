/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The container of a machine's state (base/snapshot-format.h): a writer that collects sections in memory,
 * and a reader that trusts nothing.
 *
 * A SnapshotWriter owns its buffer and grows it up to the format's ceiling; the first error sticks. A
 * SnapshotFile borrows the bytes it was read from: what it holds are checked views into them. What a
 * section means is for those who ask for it. */

#include "base/snapshot-format.h"
#include "vmm/error.h"

typedef struct SnapshotWriter {
        uint8_t *data;            /* contents, each padded to 8 */
        size_t size;
        size_t allocated;
        SnapshotSection sections[SNAPSHOT_SECTIONS_MAX];
        unsigned n_sections;
        int error;
} SnapshotWriter;

void snapshot_writer_done(SnapshotWriter *w);
#define _cleanup_snapshot_writer_ _cleanup_(snapshot_writer_done)
/* Begins a section; what is put from here on is in it. */
void snapshot_writer_begin(SnapshotWriter *w, SnapshotSectionType type, unsigned index);
void snapshot_writer_put(SnapshotWriter *w, const void *data, size_t size);
/* The whole file, to be freed by the caller. -ENOMEM, -EFBIG. */
int snapshot_writer_finish(const SnapshotWriter *w, const uint8_t id[static SNAPSHOT_ID_BYTES],
                           const uint8_t parent[static SNAPSHOT_ID_BYTES], uint8_t **ret, size_t *ret_size);

typedef struct SnapshotFile {
        const uint8_t *data;
        SnapshotHeader header;
        SnapshotSection sections[SNAPSHOT_SECTIONS_MAX];
} SnapshotFile;

/* Bytes of a section that are read front to back. */
typedef struct SnapshotReader {
        const char *name;         /* for errors */
        unsigned index;
        const uint8_t *data;
        size_t left;
} SnapshotReader;

/* Checks container and checksums: afterwards all sections lie inside of data, with known types and
 * versions, no type and index twice. Takes any bytes: the entry for fuzzers. */
int snapshot_file_parse(const uint8_t *data, size_t size, SnapshotFile *ret, ErrorText *e);
unsigned snapshot_file_count(const SnapshotFile *f, SnapshotSectionType type);
int snapshot_file_section(const SnapshotFile *f, SnapshotSectionType type, unsigned index, SnapshotReader *ret,
                          ErrorText *e);
/* Puts right checksums right over a file whose container is sound: for tests that damage what is inside. */
int snapshot_file_seal(uint8_t *data, size_t size);

/* Copies out exactly size bytes. */
int snapshot_read(SnapshotReader *r, void *ret, size_t size, ErrorText *e);
/* The next size bytes in place. */
int snapshot_read_view(SnapshotReader *r, size_t size, const uint8_t **ret, ErrorText *e);
/* -EBADMSG when something is left. */
int snapshot_read_end(const SnapshotReader *r, ErrorText *e);
/* -EBADMSG with "<section> <index>: <what>". */
int snapshot_bad(const SnapshotReader *r, ErrorText *e, const char *format, ...) _printf_(3, 4);

/* All of a section, which has no index and exactly size bytes. */
int snapshot_file_read(const SnapshotFile *f, SnapshotSectionType type, void *ret, size_t size, ErrorText *e);

/* id as hexadecimal digits, for messages. */
#define SNAPSHOT_ID_TEXT (2 * SNAPSHOT_ID_BYTES + 1)
const char *snapshot_id_format(const uint8_t id[static SNAPSHOT_ID_BYTES], char ret[static SNAPSHOT_ID_TEXT]);
