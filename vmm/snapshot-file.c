/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <zlib.h>

#include "vmm/snapshot-file.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are written as they lie in memory");

#define SECTION_ALIGN 8U

/* What this program writes, and the only versions it reads. */
static const struct {
        const char *name;
        uint32_t version;
} types[_SNAPSHOT_SECTION_MAX] = {
        [SNAPSHOT_SECTION_CONFIG] = { "config", 1 },
        [SNAPSHOT_SECTION_MEMMAP] = { "memory map", 1 },
        [SNAPSHOT_SECTION_CPUID] = { "cpuid", 1 },
        [SNAPSHOT_SECTION_VCPU] = { "vcpu", 1 },
        [SNAPSHOT_SECTION_CLOCK] = { "clock", 1 },
        [SNAPSHOT_SECTION_SERIAL] = { "serial", 1 },
        [SNAPSHOT_SECTION_PCI] = { "pci", 1 },
        [SNAPSHOT_SECTION_VIRTIO] = { "virtio", 2 },
        [SNAPSHOT_SECTION_VSOCK] = { "vsock", 1 },
        [SNAPSHOT_SECTION_AGENT] = { "agent", 1 },
        [SNAPSHOT_SECTION_MEM] = { "mem", 1 },
};

static uint32_t checksum(uint32_t start, const void *data, size_t size) {
        return (uint32_t) crc32_z(start, data, size);
}

static uint32_t table_checksum(const SnapshotHeader *header, const SnapshotSection *sections) {
        SnapshotHeader h = *header;

        h.crc = 0;
        uint32_t crc = checksum(0, &h, sizeof(h));
        return checksum(crc, sections, h.n_sections * sizeof(*sections));
}

/* Writing */

void snapshot_writer_done(SnapshotWriter *w) {
        assert(w);

        free(w->data);
        *w = (SnapshotWriter) {};
}

static int reserve(SnapshotWriter *w, size_t more) {
        if (more <= w->allocated - w->size)
                return 0;
        if (more > SNAPSHOT_STATE_BYTES_MAX - w->size)
                return -EFBIG;

        size_t want = MAX(w->size + more, MAX(w->allocated * 2, (size_t) KIB(32)));
        uint8_t *data = realloc(w->data, want);
        if (!data)
                return -ENOMEM;
        w->data = data;
        w->allocated = want;
        return 0;
}

static void append(SnapshotWriter *w, const void *data, size_t size) {
        if (w->error < 0)
                return;
        w->error = reserve(w, size);
        if (w->error < 0 || size == 0)
                return;
        memcpy(w->data + w->size, data, size);
        w->size += size;
}

void snapshot_writer_begin(SnapshotWriter *w, SnapshotSectionType type, unsigned index) {
        static const uint8_t padding[SECTION_ALIGN];

        assert(w);

        append(w, padding, ALIGN_UP(w->size, SECTION_ALIGN) - w->size);
        if (w->error < 0)
                return;
        if (w->n_sections == SNAPSHOT_SECTIONS_MAX) {
                w->error = -EFBIG;
                return;
        }
        w->sections[w->n_sections++] = (SnapshotSection) {
                .type = type,
                .index = index,
                .version = types[type].version,
                .offset = w->size, /* inside data until the end */
        };
}

void snapshot_writer_put(SnapshotWriter *w, const void *data, size_t size) {
        assert(w);
        assert(w->error < 0 || w->n_sections > 0);

        append(w, data, size);
        if (w->error >= 0)
                w->sections[w->n_sections - 1].bytes += size;
}

int snapshot_writer_finish(const SnapshotWriter *w, const uint8_t id[static SNAPSHOT_ID_BYTES],
                           const uint8_t parent[static SNAPSHOT_ID_BYTES], uint8_t **ret, size_t *ret_size) {
        SnapshotHeader header = {
                .magic = SNAPSHOT_STATE_MAGIC,
                .version = SNAPSHOT_STATE_VERSION,
                .arch = SNAPSHOT_ARCH_X86_64,
                .n_sections = w->n_sections,
        };

        assert(w);
        assert(ret);

        if (w->error < 0)
                return w->error;

        size_t front = sizeof(header) + w->n_sections * sizeof(SnapshotSection);
        header.total_bytes = front + w->size;
        if (header.total_bytes > SNAPSHOT_STATE_BYTES_MAX)
                return -EFBIG;

        uint8_t *file = malloc(header.total_bytes);
        if (!file)
                return -ENOMEM;

        SnapshotSection *table = (SnapshotSection *) (file + sizeof(header));
        for (unsigned i = 0; i < w->n_sections; i++) {
                table[i] = w->sections[i];
                table[i].crc = checksum(0, w->data + table[i].offset, table[i].bytes);
                table[i].offset += front;
        }
        memcpy(header.id, id, sizeof(header.id));
        memcpy(header.parent, parent, sizeof(header.parent));
        header.crc = table_checksum(&header, table);
        memcpy(file, &header, sizeof(header));
        if (w->size > 0)
                memcpy(file + front, w->data, w->size);

        *ret = file;
        *ret_size = header.total_bytes;
        return 0;
}

/* Reading */

static int parse_header(const uint8_t *data, size_t size, SnapshotFile *f, ErrorText *e) {
        SnapshotHeader *h = &f->header;

        if (size < sizeof(*h) || memcmp(data, SNAPSHOT_STATE_MAGIC, sizeof(h->magic)) != 0)
                return error_set(e, -EBADMSG, "this is no state file of a snapshot");
        memcpy(h, data, sizeof(*h));

        if (h->version != SNAPSHOT_STATE_VERSION)
                return error_set(e, -EPROTONOSUPPORT, "state file of version %u, this program knows %u", h->version,
                                 SNAPSHOT_STATE_VERSION);
        if (h->arch != SNAPSHOT_ARCH_X86_64)
                return error_set(e, -EPROTONOSUPPORT, "state file for architecture %u, this is x86-64", h->arch);
        if (h->total_bytes != size || size > SNAPSHOT_STATE_BYTES_MAX)
                return error_set(e, -EBADMSG, "state file of %zu bytes says it has %llu", size,
                                 (unsigned long long) h->total_bytes);
        if (h->n_sections > SNAPSHOT_SECTIONS_MAX ||
            h->n_sections * sizeof(SnapshotSection) > size - sizeof(*h))
                return error_set(e, -EBADMSG, "state file with %u sections", h->n_sections);
        return 0;
}

static int check_section(const SnapshotFile *f, unsigned i, ErrorText *e) {
        const SnapshotSection *s = &f->sections[i];
        size_t size = f->header.total_bytes;

        if (s->type == 0 || s->type >= _SNAPSHOT_SECTION_MAX)
                return error_set(e, -EPROTONOSUPPORT, "state file has a section of unknown type %u", s->type);
        if (s->version != types[s->type].version)
                return error_set(e, -EPROTONOSUPPORT, "section %s of version %u, this program knows %u",
                                 types[s->type].name, s->version, types[s->type].version);
        if (s->offset % SECTION_ALIGN != 0 || s->offset > size || s->bytes > size - s->offset)
                return error_set(e, -EBADMSG, "section %s %u lies outside of the file", types[s->type].name, s->index);
        for (unsigned k = 0; k < i; k++)
                if (f->sections[k].type == s->type && f->sections[k].index == s->index)
                        return error_set(e, -EBADMSG, "section %s %u is there twice", types[s->type].name, s->index);
        if (checksum(0, f->data + s->offset, s->bytes) != s->crc)
                return error_set(e, -EBADMSG, "section %s %u is damaged", types[s->type].name, s->index);
        return 0;
}

int snapshot_file_parse(const uint8_t *data, size_t size, SnapshotFile *ret, ErrorText *e) {
        assert(data || size == 0);
        assert(ret);

        *ret = (SnapshotFile) { .data = data };
        int r = parse_header(data, size, ret, e);
        if (r < 0)
                return r;

        memcpy(ret->sections, data + sizeof(SnapshotHeader), ret->header.n_sections * sizeof(SnapshotSection));
        if (table_checksum(&ret->header, ret->sections) != ret->header.crc)
                return error_set(e, -EBADMSG, "the table of the state file is damaged");
        for (unsigned i = 0; i < ret->header.n_sections; i++) {
                r = check_section(ret, i, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

unsigned snapshot_file_count(const SnapshotFile *f, SnapshotSectionType type) {
        unsigned n = 0;

        assert(f);

        for (unsigned i = 0; i < f->header.n_sections; i++)
                n += f->sections[i].type == type;
        return n;
}

int snapshot_file_section(const SnapshotFile *f, SnapshotSectionType type, unsigned index, SnapshotReader *ret,
                          ErrorText *e) {
        assert(f);
        assert(ret);

        for (unsigned i = 0; i < f->header.n_sections; i++) {
                const SnapshotSection *s = &f->sections[i];

                if (s->type != type || s->index != index)
                        continue;
                *ret = (SnapshotReader) { .name = types[type].name, .index = index, .data = f->data + s->offset,
                                          .left = s->bytes };
                return 0;
        }
        return error_set(e, -EBADMSG, "the state file has no section %s %u", types[type].name, index);
}

int snapshot_file_seal(uint8_t *data, size_t size) {
        SnapshotFile f = { .data = data };

        int r = parse_header(data, size, &f, NULL);
        if (r < 0)
                return r;

        SnapshotSection *table = (SnapshotSection *) (data + sizeof(SnapshotHeader));
        for (unsigned i = 0; i < f.header.n_sections; i++)
                if (table[i].offset <= size && table[i].bytes <= size - table[i].offset)
                        table[i].crc = checksum(0, data + table[i].offset, table[i].bytes);
        f.header.crc = table_checksum(&f.header, table);
        memcpy(data, &f.header, sizeof(f.header));
        return 0;
}

int snapshot_bad(const SnapshotReader *r, ErrorText *e, const char *format, ...) {
        char what[120];
        va_list ap;

        assert(r);

        va_start(ap, format);
        (void) vsnprintf(what, sizeof(what), format, ap);
        va_end(ap);
        return error_set(e, -EBADMSG, "state file, %s %u: %s", r->name, r->index, what);
}

int snapshot_read_view(SnapshotReader *r, size_t size, const uint8_t **ret, ErrorText *e) {
        assert(r);
        assert(ret);

        if (size > r->left)
                return snapshot_bad(r, e, "ends too early");
        *ret = r->data;
        r->data += size;
        r->left -= size;
        return 0;
}

int snapshot_read(SnapshotReader *r, void *ret, size_t size, ErrorText *e) {
        const uint8_t *view;

        int k = snapshot_read_view(r, size, &view, e);
        if (k < 0)
                return k;
        memcpy(ret, view, size);
        return 0;
}

int snapshot_read_end(const SnapshotReader *r, ErrorText *e) {
        assert(r);
        return r->left > 0 ? snapshot_bad(r, e, "%zu bytes too many", r->left) : 0;
}

int snapshot_file_read(const SnapshotFile *f, SnapshotSectionType type, void *ret, size_t size, ErrorText *e) {
        SnapshotReader reader;

        assert(f);
        assert(ret);

        int r = snapshot_file_section(f, type, 0, &reader, e);
        if (r >= 0)
                r = snapshot_read(&reader, ret, size, e);
        return r < 0 ? r : snapshot_read_end(&reader, e);
}

const char *snapshot_id_format(const uint8_t id[static SNAPSHOT_ID_BYTES], char ret[static SNAPSHOT_ID_TEXT]) {
        for (unsigned i = 0; i < SNAPSHOT_ID_BYTES; i++)
                (void) snprintf(ret + 2 * i, 3, "%02x", id[i]);
        return ret;
}
