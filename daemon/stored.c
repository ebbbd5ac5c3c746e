/* SPDX-License-Identifier: Apache-2.0 */

/* cube-stored: file system work for cubed, which asks on fd 3 and never waits for a disk itself.
 *
 * The main thread receives requests and puts each into a queue with threads of its own, by what it may have to wait
 * for: a copy of memory, for which a guest is paused, never stands behind a removal or a merge. A job's thread answers
 * it. Reaches nothing outside the directory that the first request brings, but for the files that requests bring.
 * Ends when cubed closes the socket, whatever is under way: nobody is there to be told. */

#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <signal.h>

#include "base/fd-util.h"
#include "daemon/disk-merge.h"
#include "daemon/memory-copy.h"
#include "daemon/store-proto.h"
#include "daemon/stored-tree.h"
#include "daemon/work-queue.h"

#define STORED_FD 3

typedef enum Lane {
        LANE_SAVE,
        LANE_SYNC,
        LANE_REMOVE,
        LANE_MERGE,
        _LANE_MAX,
} Lane;

/* A merge keeps a disk busy, two of them do it no faster. */
static const unsigned lane_threads[_LANE_MAX] = {
        [LANE_SAVE] = 4,
        [LANE_SYNC] = 4,
        [LANE_REMOVE] = 2,
        [LANE_MERGE] = 1,
};

typedef struct Stored {
        int root_fd;              /* set once, before the first job */
        WorkQueue lanes[_LANE_MAX];
} Stored;

/* What the records of a request say. */
typedef struct Request {
        char *path, *target;
        uint32_t n_beneath;
        VmmRun *runs;
        size_t n_runs;
        uint64_t mem_bytes;
        uint8_t id[SNAPSHOT_ID_BYTES], parent[SNAPSHOT_ID_BYTES];
} Request;

static void request_done(Request *q) {
        free(q->path);
        free(q->target);
        free(q->runs);
}

static int get_path(const Tlv *t, char **ret) {
        return *ret ? -EBADMSG : tlv_get_str(t, ret);
}

static int get_runs(const Tlv *t, Request *q) {
        if (q->runs || t->len % sizeof(VmmRun) != 0 || t->len / sizeof(VmmRun) > SNAPSHOT_LAYER_RUNS_MAX)
                return -EBADMSG;
        q->n_runs = t->len / sizeof(VmmRun);
        q->runs = new0(VmmRun, q->n_runs + 1);
        if (!q->runs)
                return -ENOMEM;
        memcpy(q->runs, t->data, t->len);
        return 0;
}

static int get_record(const Tlv *t, Request *q) {
        switch (t->tag) {
        case STORE_TAG_PATH:
                return get_path(t, &q->path);
        case STORE_TAG_TARGET:
                return get_path(t, &q->target);
        case STORE_TAG_BENEATH:
                return tlv_get_u32(t, &q->n_beneath);
        case STORE_TAG_RUNS:
                return get_runs(t, q);
        case STORE_TAG_MEM_BYTES:
                return tlv_get_u64(t, &q->mem_bytes);
        case STORE_TAG_ID:
                return tlv_get_struct(t, q->id, sizeof(q->id));
        case STORE_TAG_PARENT:
                return tlv_get_struct(t, q->parent, sizeof(q->parent));
        default:
                return -EBADMSG;
        }
}

static int parse(const Job *job, Request *q) {
        TlvReader reader = TLV_READER_INIT(job->body, job->header.len);
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                r = get_record(&t, q);
                if (r < 0)
                        return r;
        }
        return r;
}

static int save_memory(const Request *q, int fd, int pid_fd, TlvWriter *answer) {
        uint64_t data_bytes, zero_bytes;
        SnapshotLayerHeader h;

        if (!q->runs || snapshot_id_is_none(q->id))
                return -EBADMSG;
        memory_file_header(&h, q->mem_bytes, q->id, q->parent);
        MemorySource source = { pid_fd, q->runs, q->n_runs };
        int r = memory_save(&source, &h, fd, &data_bytes, &zero_bytes);
        if (r < 0)
                return r;
        tlv_put_u64(answer, STORE_TAG_DATA_BYTES, data_bytes);
        tlv_put_u64(answer, STORE_TAG_ZERO_BYTES, zero_bytes);
        return tlv_writer_finish(answer);
}

static int work(const Stored *s, Job *job, TlvWriter *answer) {
        _cleanup_(request_done) Request q = {};

        int r = parse(job, &q);
        if (r < 0)
                return r;
        switch (job->header.op) {
        case STORE_OP_SYNC:
                if (job->n_fds != 1)
                        return -EBADF;
                return fsync(job->fds[0]) < 0 ? -errno : 0;
        case STORE_OP_RENAME:
                return q.path && q.target ? tree_rename(s->root_fd, q.path, q.target) : -EBADMSG;
        case STORE_OP_REMOVE:
                return q.path ? tree_remove(s->root_fd, q.path) : -EBADMSG;
        case STORE_OP_SAVE_MEMORY:
                return job->n_fds == 2 ? save_memory(&q, job->fds[0], job->fds[1], answer) : -EBADF;
        case STORE_OP_MERGE_MEMORY:
                return job->n_fds < 2 ? -EBADF :
                        memory_merge(job->fds + 1, job->n_fds - 1, q.n_beneath, job->fds[0]);
        case STORE_OP_MERGE_DISK:
                return job->n_fds < 2 ? -EBADF : disk_merge(job->fds + 1, job->n_fds - 1, job->fds[0]);
        default:
                return -EOPNOTSUPP;
        }
}

static int send_answer(const PacketHeader *request, int error, const TlvWriter *body) {
        PacketHeader answer = {
                .magic = STORE_PROTO_MAGIC,
                .version = STORE_PROTO_VERSION,
                .op = request->op,
                .flags = PACKET_FLAG_REPLY,
                .seq = request->seq,
                .error = error,
                .len = error >= 0 && body ? (uint32_t) body->size : 0,
        };
        struct iovec iov[2] = { { &answer, sizeof(answer) }, { body ? body->data : NULL, answer.len } };
        return send_packet(STORED_FD, iov, answer.len > 0 ? 2 : 1, NULL, 0);
}

static bool is_gone(int error) {
        return error == -EPIPE || error == -ECONNRESET;
}

static void on_job(Job *job, void *userdata) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(4096);
        PacketHeader h = job->header;

        int error = work(userdata, job, &body);
        /* Closed before the answer: cubed may count on being the last with a file open. */
        job_free(job);
        int r = send_answer(&h, error, &body);
        if (r < 0 && !is_gone(r)) {
                /* An answer that is lost would be waited for without end. */
                fprintf(stderr, "cube-stored: an answer could not be sent: %s\n", strerror(-r));
                _exit(EXIT_FAILURE);
        }
}

static int set_root(Stored *s, int *fds, size_t n_fds) {
        struct stat st;

        if (s->root_fd >= 0)
                return -EPROTO;
        if (n_fds != 1 || fstat(fds[0], &st) < 0 || !S_ISDIR(st.st_mode))
                return -EBADF;
        s->root_fd = TAKE_FD(fds[0]);
        return 0;
}

static int op_lane(uint16_t op) {
        switch (op) {
        case STORE_OP_SAVE_MEMORY:
                return LANE_SAVE;
        case STORE_OP_SYNC:
        case STORE_OP_RENAME:
                return LANE_SYNC;
        case STORE_OP_REMOVE:
                return LANE_REMOVE;
        case STORE_OP_MERGE_MEMORY:
        case STORE_OP_MERGE_DISK:
                return LANE_MERGE;
        default:
                return -EOPNOTSUPP;
        }
}

static int enqueue(Stored *s, const PacketHeader *h, const uint8_t *body, int *fds, size_t n_fds) {
        _cleanup_(job_freep) Job *job = NULL;

        int lane = op_lane(h->op);
        if (lane < 0)
                return lane;
        if (s->root_fd < 0)
                return -EPROTO;
        int r = job_new(h, body, fds, n_fds, &job);
        if (r >= 0)
                r = work_queue_add(&s->lanes[lane], job, STORE_PENDING_MAX);
        if (r >= 0)
                (void) TAKE_PTR(job);
        return r;
}

static int handle(Stored *s, const uint8_t *packet, size_t size, int *fds, size_t n_fds) {
        PacketHeader h;
        int r;

        if (size < sizeof(h))
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != STORE_PROTO_MAGIC || h.version != STORE_PROTO_VERSION || h.len != size - sizeof(h))
                return -EBADMSG;

        if (h.op == STORE_OP_ROOT)
                return send_answer(&h, set_root(s, fds, n_fds), NULL);
        r = enqueue(s, &h, packet + sizeof(h), fds, n_fds);
        return r < 0 ? send_answer(&h, r, NULL) : 0;
}

static int run(Stored *s) {
        static uint8_t packet[STORE_PACKET_MAX];

        for (unsigned i = 0; i < _LANE_MAX; i++) {
                int r = work_queue_init(&s->lanes[i], lane_threads[i], on_job, s);
                if (r < 0)
                        return r;
        }
        for (;;) {
                int fds[PACKET_FDS_LIMIT];
                size_t n_fds;

                ssize_t n = recv_packet(STORED_FD, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
                if (n <= 0)
                        return (int) n;
                int r = handle(s, packet, (size_t) n, fds, n_fds);
                close_many(fds, n_fds);
                if (r < 0)
                        return is_gone(r) ? 0 : r;
        }
}

int main(int argc, char *argv[]) {
        /* Threads use it until the very end. */
        static Stored stored = { .root_fd = -EBADF };
        struct stat st;

        if (argc == 2 && streq(argv[1], "--version")) {
                puts("cube-stored " CUBED_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc != 1 || fstat(STORED_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fputs("cube-stored is started by cubed, with a socket as fd 3.\n", stderr);
                return EXIT_FAILURE;
        }

        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) fd_set_cloexec(STORED_FD, true);
        int r = run(&stored);
        if (r < 0) {
                fprintf(stderr, "cube-stored: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
