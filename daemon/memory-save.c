/* SPDX-License-Identifier: Apache-2.0 */

/* The file is an image of the runs, one behind the other, with holes for zeros. So nothing needs to be moved when
 * zeros that were a run of their own shall be none any more, since there are too many runs: they become part of the
 * data around them, and are read out of the hole. */

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/copy-range.h"
#include "daemon/memory-copy.h"

#define PAGE SNAPSHOT_PAGE_BYTES
#define BUFFER_BYTES MIB(1)
#define IOV_MAX_READ 256U
/* More of them only wait for each other in the kernel. */
#define THREADS_MAX 4U
/* A thread must be worth its start. */
#define PIECES_PER_THREAD 2U
#define ZERO_BYTES_LIMIT (1ULL << 52)
/* Less room than this is made anew for each few pages. */
#define ROOM_MIN (SNAPSHOT_LAYER_RUNS_MAX / 8)

typedef struct Stretch {
        uint64_t gpa;
        uint64_t bytes;
        uint64_t offset;          /* in the image */
        bool zero;
        bool joined;              /* goes on, in one region, where the one before ends */
} Stretch;

typedef struct Table {
        Stretch *stretches;
        size_t n;
        uint64_t zero_bytes_min;  /* shorter zeros amid data are data */
} Table;

/* A part of the source that fits into a buffer, and what was found in it. */
typedef struct Piece {
        size_t run;               /* where in the source it begins */
        uint64_t at;              /* in that run */
        uint64_t offset;          /* in the image */
        size_t bytes;
} Piece;

/* Threads copy one piece after the other, in any order: each page has its place in the image. What they find goes into
 * places of its own as well, and the table is made of it when all have ended. */
typedef struct Saving {
        const MemorySource *source;
        pid_t pid;                /* of the source, for as long as that lives */
        int fd;
        Piece *pieces;
        size_t n_pieces;
        bool *zeros;              /* for each page of the image */
        atomic_size_t next;       /* piece that nobody has taken */
        atomic_int error;         /* the first; nobody takes another piece then */
        size_t run;               /* where the table is: in the source, */
        uint64_t at;              /* in that run, */
        uint64_t offset;          /* and in the image */
        uint64_t data_bytes, zero_bytes;
        Table table;
} Saving;

static void saving_done(Saving *s) {
        free(s->pieces);
        free(s->zeros);
        free(s->table.stretches);
}

static void absorb_zeros(Table *t) {
        Stretch *s = t->stretches;
        size_t n = 0;

        for (size_t i = 0; i < t->n; i++) {
                Stretch x = s[i];
                bool behind = x.joined && n > 0 && !s[n - 1].zero;
                bool before = i + 1 < t->n && s[i + 1].joined && !s[i + 1].zero;

                if (x.zero && x.bytes < t->zero_bytes_min && (behind || before))
                        x.zero = false;
                if (n > 0 && x.joined && s[n - 1].zero == x.zero)
                        s[n - 1].bytes += x.bytes;
                else
                        s[n++] = x;
        }
        t->n = n;
}

static void make_room(Table *t) {
        for (;;) {
                absorb_zeros(t);
                if (t->n <= SNAPSHOT_LAYER_RUNS_MAX - ROOM_MIN || t->zero_bytes_min >= ZERO_BYTES_LIMIT)
                        return;
                t->zero_bytes_min = MAX(t->zero_bytes_min * 2, 2ULL * PAGE);
        }
}

static bool extend_last(Table *t, const Stretch *x) {
        Stretch *last = t->n > 0 ? &t->stretches[t->n - 1] : NULL;

        if (!last || !x->joined || (last->zero != x->zero && t->zero_bytes_min < ZERO_BYTES_LIMIT))
                return false;
        last->zero = last->zero && x->zero;
        last->bytes += x->bytes;
        return true;
}

static void table_add(Table *t, const Stretch *x) {
        if (extend_last(t, x))
                return;
        if (t->n == SNAPSHOT_LAYER_RUNS_MAX) {
                make_room(t);
                if (extend_last(t, x))
                        return;
        }
        /* At the limit each run of the source is one stretch, and it has no more runs than there is room. */
        assert(t->n < SNAPSHOT_LAYER_RUNS_MAX);
        t->stretches[t->n++] = *x;
}

static int check_source(const MemorySource *s, uint64_t mem_bytes, uint64_t *ret_bytes) {
        uint64_t end = 0, room = mem_bytes;

        if (s->n_runs > SNAPSHOT_LAYER_RUNS_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < s->n_runs; i++) {
                const VmmRun *run = &s->runs[i];

                if (!memory_range_valid(run->gpa, run->bytes, end, &room) || run->hva > UINT64_MAX - run->bytes)
                        return -EBADMSG;
                end = run->gpa + run->bytes;
        }
        *ret_bytes = mem_bytes - room;
        return 0;
}

/* A process that has ended keeps its pid until it is reaped, and is seen to have ended before. */
static int check_alive(int pid_fd) {
        struct pollfd p = { .fd = pid_fd, .events = POLLIN };

        if (poll(&p, 1, 0) < 0)
                return -errno;
        return p.revents == 0 ? 0 : p.revents & POLLNVAL ? -EBADF : -ESRCH;
}

static int pid_of(int pid_fd, pid_t *ret) {
        _cleanup_free_ char *text = NULL;
        char path[64];
        uint32_t pid;

        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pid_fd);
        int r = read_file(AT_FDCWD, path, KIB(4), &text, NULL);
        if (r < 0)
                return r;
        char *line = strstr(text, "\nPid:\t");
        if (!line)
                return -EBADF;
        line += strlen("\nPid:\t");
        line[strcspn(line, "\n")] = 0;
        /* Of one that has ended it is -1, of one in another namespace 0. */
        r = parse_u32(line, &pid);
        if (r < 0 || pid == 0 || pid > INT32_MAX)
                return -ESRCH;
        *ret = (pid_t) pid;
        return 0;
}

static int read_process(pid_t pid, uint8_t *buffer, struct iovec *remote, size_t n_remote) {
        while (n_remote > 0) {
                size_t want = 0;
                for (size_t i = 0; i < n_remote; i++)
                        want += remote[i].iov_len;
                struct iovec local = { buffer, want };
                ssize_t n = process_vm_readv(pid, &local, 1, remote, n_remote, 0);
                if (n <= 0)
                        return n < 0 ? -errno : -EFAULT;

                buffer += n;
                for (; n_remote > 0 && (size_t) n >= remote->iov_len; n_remote--)
                        n -= (ssize_t) (remote++)->iov_len;
                if (n_remote > 0) {
                        remote->iov_base = (uint8_t *) remote->iov_base + n;
                        remote->iov_len -= (size_t) n;
                }
        }
        return 0;
}

static size_t piece_iov(const Saving *s, const Piece *p, struct iovec iov[static IOV_MAX_READ]) {
        size_t n = 0, bytes = 0;
        uint64_t at = p->at;

        for (size_t i = p->run; bytes < p->bytes; i++) {
                const VmmRun *run = &s->source->runs[i];
                size_t take = MIN(run->bytes - at, p->bytes - bytes);

                iov[n++] = (struct iovec) { (void *) (uintptr_t) (run->hva + at), take };
                bytes += take;
                at = 0;
        }
        return n;
}

static int read_piece(const Saving *s, const Piece *p, uint8_t *buffer) {
        struct iovec remote[IOV_MAX_READ];
        size_t n = piece_iov(s, p, remote);

        int r = read_process(s->pid, buffer, remote, n);
        /* While it lives no other has its pid: what was read is its own. */
        return r < 0 ? r : check_alive(s->source->pid_fd);
}

/* As many runs, or parts of them, as fit. */
static void cut_piece(const MemorySource *source, Piece *p, size_t *run, uint64_t *at) {
        for (size_t n = 0; *run < source->n_runs && n < IOV_MAX_READ && p->bytes < BUFFER_BYTES; n++) {
                uint64_t left = source->runs[*run].bytes - *at;
                size_t take = MIN(left, BUFFER_BYTES - p->bytes);

                p->bytes += take;
                *at += take;
                if (take == left) {
                        (*run)++;
                        *at = 0;
                }
        }
}

static int cut(Saving *s, uint64_t total) {
        size_t most = total / BUFFER_BYTES + s->source->n_runs / IOV_MAX_READ + 2, run = 0;
        uint64_t at = 0, offset = 0;

        s->pieces = new0(Piece, most);
        s->zeros = new0(bool, total / PAGE + 1);
        if (!s->pieces || !s->zeros)
                return -ENOMEM;
        while (run < s->source->n_runs) {
                Piece *p = &s->pieces[s->n_pieces++];

                assert(s->n_pieces <= most);
                *p = (Piece) { .run = run, .at = at, .offset = offset };
                cut_piece(s->source, p, &run, &at);
                offset += p->bytes;
        }
        return 0;
}

static bool is_zero(const uint8_t *page) {
        return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

static bool goes_on(const MemorySource *s, size_t run) {
        const VmmRun *a = &s->runs[run - 1], *b = &s->runs[run];

        return a->gpa + a->bytes == b->gpa && a->hva + a->bytes == b->hva;
}

static void add_page(Saving *s, bool zero) {
        const VmmRun *run = &s->source->runs[s->run];

        table_add(&s->table, &(Stretch) {
                .gpa = run->gpa + s->at,
                .bytes = PAGE,
                .offset = s->offset,
                .zero = zero,
                .joined = s->at > 0 || (s->run > 0 && goes_on(s->source, s->run)),
        });
        *(zero ? &s->zero_bytes : &s->data_bytes) += PAGE;
        s->offset += PAGE;
        s->at += PAGE;
        if (s->at == run->bytes) {
                s->run++;
                s->at = 0;
        }
}

static int write_piece(Saving *s, const Piece *p, const uint8_t *buffer) {
        uint64_t base = MEMORY_FILE_PAGES_OFFSET + p->offset;
        bool *zeros = s->zeros + p->offset / PAGE;
        size_t start = 0, end = 0;        /* data that isn't written yet */

        for (size_t at = 0; at < p->bytes; at += PAGE) {
                zeros[at / PAGE] = is_zero(buffer + at);
                if (zeros[at / PAGE])
                        continue;
                if (at != end) {
                        int r = pwrite_all(s->fd, buffer + start, end - start, base + start);
                        if (r < 0)
                                return r;
                        start = at;
                }
                end = at + PAGE;
        }
        return pwrite_all(s->fd, buffer + start, end - start, base + start);
}

static void *copy_pieces(void *userdata) {
        Saving *s = userdata;
        _cleanup_free_ uint8_t *buffer = malloc(BUFFER_BYTES);
        int r = buffer ? 0 : -ENOMEM, none = 0;

        while (r >= 0 && atomic_load(&s->error) == 0) {
                size_t i = atomic_fetch_add(&s->next, 1);
                if (i >= s->n_pieces)
                        break;
                r = read_piece(s, &s->pieces[i], buffer);
                if (r >= 0)
                        r = write_piece(s, &s->pieces[i], buffer);
        }
        if (r < 0)
                (void) atomic_compare_exchange_strong(&s->error, &none, r);
        return NULL;
}

/* A guest waits for this, and its vCPUs don't need theirs: this thread, and helpers where there is something to gain. */
static int copy_all(Saving *s) {
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        size_t want = MIN(MIN((size_t) MAX(cpus, 1L), (size_t) THREADS_MAX), s->n_pieces / PIECES_PER_THREAD + 1), n = 0;
        pthread_t threads[THREADS_MAX];

        /* Without one it takes longer. */
        while (n + 1 < want && pthread_create(&threads[n], NULL, copy_pieces, s) == 0)
                n++;
        (void) copy_pieces(s);
        while (n > 0)
                (void) pthread_join(threads[--n], NULL);
        return atomic_load(&s->error);
}

/* With nothing below, zeros need not be told. */
static int seal(const Saving *s, SnapshotLayerHeader *h) {
        const Table *t = &s->table;
        bool tell_zeros = !snapshot_id_is_none(h->parent);
        size_t n = 0;

        _cleanup_free_ SnapshotRun *runs = new0(SnapshotRun, t->n + 1);
        if (!runs)
                return -ENOMEM;
        for (size_t i = 0; i < t->n; i++) {
                const Stretch *x = &t->stretches[i];

                if (x->zero && !tell_zeros)
                        continue;
                runs[n++] = (SnapshotRun) {
                        .gpa = x->gpa,
                        .bytes = x->bytes,
                        .file_offset = x->zero ? SNAPSHOT_RUN_ZERO : MEMORY_FILE_PAGES_OFFSET + x->offset,
                };
        }
        return memory_file_seal(s->fd, h, runs, n);
}

int memory_save(const MemorySource *source, SnapshotLayerHeader *h, int fd, uint64_t *ret_data_bytes,
                uint64_t *ret_zero_bytes) {
        _cleanup_(saving_done) Saving s = { .source = source, .fd = fd };
        uint64_t total;

        int r = check_source(source, h->mem_bytes, &total);
        if (r >= 0)
                r = pid_of(source->pid_fd, &s.pid);
        if (r >= 0)
                r = check_alive(source->pid_fd);
        if (r >= 0)
                r = check_regular(fd, true, NULL);
        if (r < 0)
                return r;
        if (ftruncate(fd, (off_t) (MEMORY_FILE_PAGES_OFFSET + total)) < 0)
                return -errno;
        s.table.stretches = new0(Stretch, SNAPSHOT_LAYER_RUNS_MAX);
        if (!s.table.stretches)
                return -ENOMEM;

        r = cut(&s, total);
        if (r >= 0)
                r = copy_all(&s);
        if (r < 0)
                return r;
        while (s.run < source->n_runs)
                add_page(&s, s.zeros[s.offset / PAGE]);
        r = seal(&s, h);
        if (r < 0)
                return r;
        *ret_data_bytes = s.data_bytes;
        *ret_zero_bytes = s.zero_bytes;
        return 0;
}
