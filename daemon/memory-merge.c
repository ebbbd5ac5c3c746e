/* SPDX-License-Identifier: Apache-2.0 */

/* A plan of pieces first, each with the layer that it comes from, then the copy. */

#include "daemon/copy-range.h"
#include "daemon/memory-copy.h"

typedef enum PieceClass {
        PIECE_BELOW,              /* of no layer that is merged */
        PIECE_ZERO,
        PIECE_DATA,
} PieceClass;

typedef struct Piece {
        uint64_t gpa;
        uint64_t bytes;
        uint64_t source_offset;   /* SNAPSHOT_RUN_ZERO: zeros */
        int layer;                /* -1: of none */
        PieceClass class, becomes;
} Piece;

typedef struct Merge {
        MemoryFile layers[SNAPSHOT_LAYERS_MAX];
        size_t n_layers, n_beneath;
        bool complete;            /* what is in none of the layers is zeros */
        Piece *pieces;            /* without gaps */
        size_t n_pieces;
        SnapshotRun *runs;
        size_t n_runs;
} Merge;

static void merge_done(Merge *m) {
        while (m->n_layers > 0)
                memory_file_done(&m->layers[--m->n_layers]);
        free(m->pieces);
        free(m->runs);
}

static int open_layers(Merge *m, const int *fds, size_t n) {
        for (; m->n_layers < n; m->n_layers++) {
                MemoryFile *f = &m->layers[m->n_layers];

                int r = memory_file_open(f, fds[m->n_layers]);
                if (r < 0)
                        return r;
                if (m->n_layers > 0 &&
                    (f->header.mem_bytes != f[-1].header.mem_bytes ||
                     memcmp(f->header.parent, f[-1].header.id, SNAPSHOT_ID_BYTES) != 0)) {
                        memory_file_done(f);
                        return -EBADMSG;
                }
        }
        m->complete = snapshot_id_is_none(m->layers[0].header.parent);
        return 0;
}

static PieceClass classify(const Merge *m, int layer, uint64_t source_offset) {
        if (layer < (int) m->n_beneath)
                return PIECE_BELOW;
        if (source_offset != SNAPSHOT_RUN_ZERO)
                return PIECE_DATA;
        /* With nothing below, zeros need not be told. */
        return m->n_beneath == 0 && m->complete ? PIECE_BELOW : PIECE_ZERO;
}

static void add_piece(Merge *m, uint64_t gpa, uint64_t end, int layer, const SnapshotRun *run) {
        uint64_t offset = run && run->file_offset != SNAPSHOT_RUN_ZERO ? run->file_offset + (gpa - run->gpa) :
                                                                         SNAPSHOT_RUN_ZERO;
        PieceClass class = classify(m, layer, offset);

        m->pieces[m->n_pieces++] = (Piece) {
                .gpa = gpa,
                .bytes = end - gpa,
                .source_offset = offset,
                .layer = layer,
                .class = class,
                .becomes = class,
        };
}

static int allocate_pieces(Merge *m) {
        size_t n = 1;

        /* A piece ends where a run begins or ends. */
        for (size_t i = 0; i < m->n_layers; i++)
                n += 2 * (size_t) m->layers[i].header.n_runs;
        m->pieces = new0(Piece, n);
        m->runs = new0(SnapshotRun, SNAPSHOT_LAYER_RUNS_MAX);
        return m->pieces && m->runs ? 0 : -ENOMEM;
}

/* The uppermost layer with a run at gpa; *ret_end: how far that holds, UINT64_MAX when nothing follows. */
static int uppermost(const Merge *m, size_t cursors[static SNAPSHOT_LAYERS_MAX], uint64_t gpa, uint64_t *ret_end) {
        uint64_t end = UINT64_MAX;
        int top = -1;

        for (int i = (int) m->n_layers - 1; i >= 0 && top < 0; i--) {
                const MemoryFile *f = &m->layers[i];

                while (cursors[i] < f->header.n_runs &&
                       f->runs[cursors[i]].gpa + f->runs[cursors[i]].bytes <= gpa)
                        cursors[i]++;
                if (cursors[i] == f->header.n_runs)
                        continue;
                const SnapshotRun *run = &f->runs[cursors[i]];
                if (run->gpa <= gpa)
                        top = i;
                end = MIN(end, run->gpa <= gpa ? run->gpa + run->bytes : run->gpa);
        }
        *ret_end = end;
        return top;
}

static void find_pieces(Merge *m) {
        size_t cursors[SNAPSHOT_LAYERS_MAX] = {};
        uint64_t gpa = 0, end;

        for (;; gpa = end) {
                int top = uppermost(m, cursors, gpa, &end);
                if (end == UINT64_MAX)
                        return;
                add_piece(m, gpa, end, top, top < 0 ? NULL : &m->layers[top].runs[cursors[top]]);
        }
}

static bool in_one_region(uint64_t first, uint64_t end) {
        return first / SNAPSHOT_REGION_ALIGN == end / SNAPSHOT_REGION_ALIGN;
}

/* Stretches shorter than limit that are no data become data, where that joins what lies around them. */
static void fill(Merge *m, uint64_t limit) {
        Piece *p = m->pieces;

        for (size_t i = 0, j; i < m->n_pieces; i = j) {
                uint64_t bytes = 0;

                for (j = i; j < m->n_pieces && p[j].class == p[i].class; j++)
                        bytes += p[j].bytes;
                if (p[i].class == PIECE_DATA || bytes >= limit || i == 0 || j == m->n_pieces)
                        continue;
                if (p[i].class == PIECE_BELOW && (!m->complete || !in_one_region(p[i].gpa - 1, p[i].gpa + bytes)))
                        continue;
                for (size_t k = i; k < j; k++)
                        p[k].becomes = PIECE_DATA;
        }
}

static bool add_to_run(SnapshotRun *run, const Piece *p) {
        if (run->gpa + run->bytes != p->gpa || !in_one_region(p->gpa - 1, p->gpa) ||
            (run->file_offset == SNAPSHOT_RUN_ZERO) != (p->becomes == PIECE_ZERO))
                return false;
        run->bytes += p->bytes;
        return true;
}

/* false: too many. */
static bool make_runs(Merge *m) {
        uint64_t offset = MEMORY_FILE_PAGES_OFFSET;

        m->n_runs = 0;
        for (size_t i = 0; i < m->n_pieces; i++) {
                const Piece *p = &m->pieces[i];

                if (p->becomes == PIECE_BELOW)
                        continue;
                if (m->n_runs == 0 || !add_to_run(&m->runs[m->n_runs - 1], p)) {
                        if (m->n_runs == SNAPSHOT_LAYER_RUNS_MAX)
                                return false;
                        m->runs[m->n_runs++] = (SnapshotRun) {
                                .gpa = p->gpa,
                                .bytes = p->bytes,
                                .file_offset = p->becomes == PIECE_ZERO ? SNAPSHOT_RUN_ZERO : offset,
                        };
                }
                if (p->becomes == PIECE_DATA)
                        offset += p->bytes;
        }
        return true;
}

static int plan(Merge *m) {
        find_pieces(m);
        for (uint64_t limit = SNAPSHOT_PAGE_BYTES; !make_runs(m); fill(m, limit)) {
                if (limit > SNAPSHOT_REGION_ALIGN)
                        return -E2BIG;
                limit *= 2;
        }
        return 0;
}

static int copy_pieces(const Merge *m, int fd) {
        uint64_t offset = MEMORY_FILE_PAGES_OFFSET;

        for (size_t i = 0; i < m->n_pieces; i++) {
                const Piece *p = &m->pieces[i];

                if (p->becomes != PIECE_DATA)
                        continue;
                if (p->source_offset != SNAPSHOT_RUN_ZERO) {
                        int r = copy_range_sparse(m->layers[p->layer].fd, fd,
                                                  (FileRange) { p->source_offset, offset, p->bytes });
                        if (r < 0)
                                return r;
                }
                offset += p->bytes;
        }
        return ftruncate(fd, (off_t) offset) < 0 ? -errno : 0;
}

int memory_merge(const int *layers, size_t n_layers, size_t n_beneath, int fd) {
        _cleanup_(merge_done) Merge m = { .n_beneath = n_beneath };
        SnapshotLayerHeader h;

        if (n_layers > SNAPSHOT_LAYERS_MAX || n_beneath >= n_layers)
                return -EINVAL;
        int r = check_regular(fd, true, NULL);
        if (r >= 0)
                r = open_layers(&m, layers, n_layers);
        if (r >= 0)
                r = allocate_pieces(&m);
        if (r >= 0)
                r = plan(&m);
        if (r >= 0)
                r = copy_pieces(&m, fd);
        if (r < 0)
                return r;
        const SnapshotLayerHeader *top = &m.layers[n_layers - 1].header;
        memory_file_header(&h, top->mem_bytes, top->id, m.layers[n_beneath].header.parent);
        return memory_file_seal(fd, &h, m.runs, m.n_runs);
}
