/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>
#include <zlib.h>

#include "vmm/memmap.h"
#include "vmm/snapshot-layer.h"

static_assert(MEMMAP_HOLE_END % SNAPSHOT_REGION_ALIGN == 0 && MEMMAP_PLUG_ALIGN % SNAPSHOT_REGION_ALIGN == 0,
              "no two regions in one such piece");

static int pread_full(int fd, void *buffer, size_t size, uint64_t offset, ErrorText *e) {
        uint8_t *p = buffer;

        while (size > 0) {
                ssize_t n = pread(fd, p, size, (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set_errno(e, -errno, "reading a memory file");
                if (n == 0)
                        return error_set(e, -EBADMSG, "a memory file ends too early");
                p += n;
                size -= (size_t) n;
                offset += (uint64_t) n;
        }
        return 0;
}

static int check_header(const SnapshotLayerHeader *h, const GuestMem *m, ErrorText *e) {
        if (memcmp(h->magic, SNAPSHOT_LAYER_MAGIC, sizeof(h->magic)) != 0)
                return error_set(e, -EBADMSG, "this is no memory file of a snapshot");
        if (h->version != SNAPSHOT_LAYER_VERSION)
                return error_set(e, -EPROTONOSUPPORT, "memory file of version %u, this program knows %u", h->version,
                                 SNAPSHOT_LAYER_VERSION);
        if (h->mem_bytes != guest_mem_bytes(m))
                return error_set(e, -EBADMSG, "memory file of a guest with %llu MiB, this one has %llu",
                                 (unsigned long long) (h->mem_bytes >> 20),
                                 (unsigned long long) (guest_mem_bytes(m) >> 20));
        if (h->n_runs > SNAPSHOT_LAYER_RUNS_MAX)
                return error_set(e, -E2BIG, "memory file with %u runs, %u can be", h->n_runs, SNAPSHOT_LAYER_RUNS_MAX);
        return 0;
}

static uint32_t checksum(const Layer *l) {
        SnapshotLayerHeader h = l->header;

        h.crc = 0;
        uLong crc = crc32_z(0, (const Bytef *) &h, sizeof(h));
        return (uint32_t) crc32_z(crc, (const Bytef *) l->runs, h.n_runs * sizeof(SnapshotRun));
}

static bool run_in_file(const SnapshotRun *run, uint64_t file_bytes) {
        if (run->file_offset == SNAPSHOT_RUN_ZERO)
                return true;
        return run->file_offset % SNAPSHOT_PAGE_BYTES == 0 && run->file_offset <= file_bytes &&
               run->bytes <= file_bytes - run->file_offset;
}

static int check_runs(const Layer *l, uint64_t file_bytes, const GuestMem *m, ErrorText *e) {
        uint64_t end = 0;

        for (uint32_t i = 0; i < l->header.n_runs; i++) {
                const SnapshotRun *run = &l->runs[i];

                if (run->bytes == 0 || run->bytes % SNAPSHOT_PAGE_BYTES != 0 || run->gpa % SNAPSHOT_PAGE_BYTES != 0 ||
                    run->gpa < end || !guest_mem_ptr(m, run->gpa, run->bytes))
                        return error_set(e, -EBADMSG, "memory file: run %u is out of place", i);
                if (!run_in_file(run, file_bytes))
                        return error_set(e, -EBADMSG, "memory file: run %u lies outside of the file", i);
                end = run->gpa + run->bytes;
        }
        return 0;
}

static int load(Layer *l, const GuestMem *m, ErrorText *e) {
        struct stat st;

        if (fstat(l->fd, &st) < 0)
                return error_set_errno(e, -errno, "memory file");
        if (!S_ISREG(st.st_mode))
                return error_set(e, -EINVAL, "a memory file is not a regular file");

        int r = pread_full(l->fd, &l->header, sizeof(l->header), 0, e);
        if (r >= 0)
                r = check_header(&l->header, m, e);
        if (r < 0)
                return r;

        l->runs = new0(SnapshotRun, l->header.n_runs + 1);
        if (!l->runs)
                return error_set(e, -ENOMEM, "out of memory");
        r = pread_full(l->fd, l->runs, l->header.n_runs * sizeof(SnapshotRun), sizeof(l->header), e);
        if (r < 0)
                return r;
        if (checksum(l) != l->header.crc)
                return error_set(e, -EBADMSG, "the table of a memory file is damaged");
        return check_runs(l, (uint64_t) st.st_size, m, e);
}

int layer_open(Layer *l, int fd, const GuestMem *m, ErrorText *e) {
        assert(l);
        assert(m);

        *l = (Layer) { .fd = fd };
        int r = load(l, m, e);
        if (r < 0)
                layer_done(l);
        return r;
}

void layer_done(Layer *l) {
        assert(l);

        free(l->runs);
        *l = (Layer) { .fd = -EBADF };
}

int layer_map(const Layer *l, GuestMem *m, ErrorText *e) {
        assert(l);
        assert(m);

        for (uint32_t i = 0; i < l->header.n_runs; i++) {
                const SnapshotRun *run = &l->runs[i];

                int r = run->file_offset == SNAPSHOT_RUN_ZERO ?
                                guest_mem_clear(m, run->gpa, run->bytes) :
                                guest_mem_map_file(m, run->gpa, run->bytes, l->fd, run->file_offset);
                if (r < 0)
                        return error_set_errno(e, r, "mapping %llu KiB of a memory file",
                                               (unsigned long long) (run->bytes >> 10));
        }
        return 0;
}

/* Stacks */

static int check_chain(const LayerStack *s, const uint8_t id[static SNAPSHOT_ID_BYTES], ErrorText *e) {
        uint8_t below[SNAPSHOT_ID_BYTES] = {};
        char a[SNAPSHOT_ID_TEXT], b[SNAPSHOT_ID_TEXT];

        for (unsigned i = 0; i < s->n; i++) {
                const SnapshotLayerHeader *h = &s->layers[i].header;

                if (memcmp(h->parent, below, sizeof(below)) != 0)
                        return error_set(e, -EBADMSG, "memory of snapshot %s stands on %s, not on what was given",
                                         snapshot_id_format(h->id, a), snapshot_id_format(h->parent, b));
                memcpy(below, h->id, sizeof(below));
        }
        if (memcmp(below, id, sizeof(below)) != 0)
                return error_set(e, -EBADMSG, "state of snapshot %s with memory of %s", snapshot_id_format(id, a),
                                 snapshot_id_format(below, b));
        if (layer_stack_runs(s) > LAYER_RUNS_MAX)
                return error_set(e, -E2BIG, "memory files with %u runs together, %u can be", layer_stack_runs(s),
                                 LAYER_RUNS_MAX);
        return 0;
}

int layer_stack_open(LayerStack *s, const int *fds, unsigned n, const uint8_t id[static SNAPSHOT_ID_BYTES],
                     const GuestMem *m, ErrorText *e) {
        assert(s);
        assert(n <= SNAPSHOT_LAYERS_MAX);

        *s = (LayerStack) {};
        for (; s->n < n; s->n++) {
                int r = layer_open(&s->layers[s->n], fds[s->n], m, e);
                if (r < 0) {
                        layer_stack_done(s);
                        return r;
                }
        }

        int r = check_chain(s, id, e);
        if (r < 0)
                layer_stack_done(s);
        return r;
}

void layer_stack_done(LayerStack *s) {
        assert(s);

        while (s->n > 0)
                layer_done(&s->layers[--s->n]);
}

unsigned layer_stack_runs(const LayerStack *s) {
        unsigned n = 0;

        assert(s);

        for (unsigned i = 0; i < s->n; i++)
                n += s->layers[i].header.n_runs;
        return n;
}

int layer_stack_map(const LayerStack *s, GuestMem *m, bool *ret_touched, ErrorText *e) {
        assert(s);
        assert(m);
        assert(ret_touched);

        *ret_touched = false;
        for (unsigned i = 0; i < m->n_regions; i++) {
                int r = guest_mem_clear(m, m->regions[i].gpa, m->regions[i].size);
                if (r < 0)
                        return error_set_errno(e, r, "clearing the guest's memory");
                *ret_touched = true;
        }
        for (unsigned i = 0; i < s->n; i++) {
                int r = layer_map(&s->layers[i], m, e);
                if (r < 0)
                        return r;
        }
        return 0;
}
