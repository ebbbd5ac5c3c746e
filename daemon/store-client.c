/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <time.h>

#include "base/packet-client.h"
#include "daemon/log.h"
#include "daemon/store-client.h"
#include "daemon/store-proto.h"

/* cube-stored takes requests off the socket at once; this is for many memories saved in one breath. */
#define STORE_QUEUE_MAX (32U * 1024U * 1024U)

struct StoreClient {
        sd_event *event;
        sd_event_source *source;
        PacketClient *packets;
        int root_fd;
};

typedef struct Request {
        StoreDone done;
        StoreMemoryDone memory_done;
        void *userdata;
} Request;

static const PacketProtocol protocol = {
        .magic = STORE_PROTO_MAGIC,
        .version = STORE_PROTO_VERSION,
        .max_pending = STORE_PENDING_MAX,
        .max_queued_bytes = STORE_QUEUE_MAX,
};

int store_client_new(sd_event *event, int root_fd, StoreClient **ret) {
        StoreClient *c = new0(StoreClient, 1);
        if (!c)
                return -ENOMEM;
        c->event = sd_event_ref(event);
        c->root_fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 3);
        if (c->root_fd < 0) {
                int r = -errno;
                store_client_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

void store_client_detach(StoreClient *c) {
        c->source = sd_event_source_disable_unref(c->source);
        packet_client_free(TAKE_PTR(c->packets));
}

StoreClient *store_client_free(StoreClient *c) {
        if (!c)
                return NULL;
        store_client_detach(c);
        sd_event_unref(c->event);
        safe_close(c->root_fd);
        free(c);
        return NULL;
}

static void rearm(StoreClient *c) {
        if (c->packets)
                (void) sd_event_source_set_io_events(c->source, packet_client_events(c->packets));
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        StoreClient *c = userdata;

        if (packet_client_process(c->packets, revents) < 0)
                store_client_detach(c);
        rearm(c);
        return 0;
}

static int get_bytes(const PacketBody *body, uint64_t *ret_data_bytes, uint64_t *ret_zero_bytes) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag == STORE_TAG_DATA_BYTES)
                        r = tlv_get_u64(&t, ret_data_bytes);
                else if (t.tag == STORE_TAG_ZERO_BYTES)
                        r = tlv_get_u64(&t, ret_zero_bytes);
                if (r < 0)
                        return r;
        }
        return r;
}

static void on_reply(int error, const PacketBody *body, void *userdata) {
        uint64_t data_bytes = 0, zero_bytes = 0;
        Request *q = userdata;

        if (q->memory_done) {
                int r = get_bytes(body, &data_bytes, &zero_bytes);
                q->memory_done(error < 0 ? error : r, data_bytes, zero_bytes, q->userdata);
        } else if (q->done)
                q->done(error, q->userdata);
        else if (error < 0)
                log_warning_errno(error, "A request to cube-stored failed: %m");
        free(q);
}

/* Files of a request; there may be none. */
typedef struct Files {
        const int *fds;
        size_t n;
} Files;

static int call(StoreClient *c, StoreOp op, const TlvWriter *body, Files files, const Request *request) {
        if (!c->packets)
                return -ENOTCONN;
        Request *q = new0(Request, 1);
        if (!q)
                return -ENOMEM;
        *q = *request;

        /* Without a time-out: a disk may be slow, and a dead cube-stored is noticed by its socket. */
        int r = packet_client_call(c->packets, op, body, files.fds, files.n, UINT64_MAX, on_reply, q);
        if (r < 0)
                free(q);
        rearm(c);
        return r;
}

int store_client_attach(StoreClient *c, int fd) {
        store_client_detach(c);

        int r = sd_event_add_io(c->event, &c->source, fd, EPOLLIN, on_io, c);
        if (r >= 0)
                r = packet_client_new(fd, &protocol, c, &c->packets);
        if (r < 0) {
                store_client_detach(c);
                return r;
        }
        return call(c, STORE_OP_ROOT, NULL, (Files) { &c->root_fd, 1 }, &(Request) {});
}

int store_client_sync(StoreClient *c, int fd, StoreDone done, void *userdata) {
        return call(c, STORE_OP_SYNC, NULL, (Files) { &fd, 1 }, &(Request) { .done = done, .userdata = userdata });
}

int store_client_rename(StoreClient *c, const char *from, const char *to, StoreDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(16384);

        tlv_put_str(&w, STORE_TAG_PATH, from);
        tlv_put_str(&w, STORE_TAG_TARGET, to);
        return call(c, STORE_OP_RENAME, &w, (Files) {}, &(Request) { .done = done, .userdata = userdata });
}

int store_client_remove(StoreClient *c, const char *path, StoreDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(8192);

        tlv_put_str(&w, STORE_TAG_PATH, path);
        return call(c, STORE_OP_REMOVE, &w, (Files) {}, &(Request) { .done = done, .userdata = userdata });
}

int store_client_save_memory(StoreClient *c, const StoreMemory *m, int fd, StoreMemoryDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(STORE_PACKET_MAX - sizeof(PacketHeader));

        if (m->n_runs > SNAPSHOT_LAYER_RUNS_MAX)
                return -E2BIG;
        tlv_put_u64(&w, STORE_TAG_MEM_BYTES, m->mem_bytes);
        tlv_put(&w, STORE_TAG_ID, m->id, sizeof(m->id));
        tlv_put(&w, STORE_TAG_PARENT, m->parent, sizeof(m->parent));
        tlv_put(&w, STORE_TAG_RUNS, m->runs, m->n_runs * sizeof(*m->runs));
        return call(c, STORE_OP_SAVE_MEMORY, &w, (Files) { (int[]) { fd, m->pid_fd }, 2 },
                    &(Request) { .memory_done = done, .userdata = userdata });
}

static int merge(StoreClient *c, StoreOp op, const TlvWriter *body, Files layers, int fd, const Request *request) {
        int fds[PACKET_FDS_LIMIT];

        if (layers.n == 0)
                return -EINVAL;
        if (layers.n > ELEMENTSOF(fds) - 1)
                return -E2BIG;
        fds[0] = fd;
        memcpy(fds + 1, layers.fds, layers.n * sizeof(*fds));
        return call(c, op, body, (Files) { fds, layers.n + 1 }, request);
}

int store_client_merge_memory(StoreClient *c, const int *layers, size_t n_layers, size_t n_beneath, int fd,
                              StoreDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);

        tlv_put_u32(&w, STORE_TAG_BENEATH, (uint32_t) MIN(n_beneath, (size_t) UINT32_MAX));
        return merge(c, STORE_OP_MERGE_MEMORY, &w, (Files) { layers, n_layers }, fd,
                     &(Request) { .done = done, .userdata = userdata });
}

int store_client_merge_disk(StoreClient *c, const int *layers, size_t n_layers, int fd, StoreDone done,
                            void *userdata) {
        return merge(c, STORE_OP_MERGE_DISK, NULL, (Files) { layers, n_layers }, fd,
                     &(Request) { .done = done, .userdata = userdata });
}
