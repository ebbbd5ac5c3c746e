/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <time.h>

#include "base/packet-client.h"
#include "daemon/log.h"
#include "daemon/store-client.h"
#include "daemon/store-proto.h"

#define STORE_PENDING_MAX 1024U
#define STORE_QUEUE_MAX (1024U * 1024U)

struct StoreClient {
        sd_event *event;
        sd_event_source *source;
        PacketClient *packets;
        int root_fd;
};

typedef struct Request {
        StoreDone done;
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

static void on_reply(int error, const PacketBody *body, void *userdata) {
        Request *q = userdata;

        if (q->done)
                q->done(error, q->userdata);
        else if (error < 0)
                log_warning_errno(error, "A request to cube-stored failed: %m");
        free(q);
}

static int call(StoreClient *c, StoreOp op, const TlvWriter *body, int fd, StoreDone done, void *userdata) {
        if (!c->packets)
                return -ENOTCONN;
        Request *q = new0(Request, 1);
        if (!q)
                return -ENOMEM;
        *q = (Request) { done, userdata };

        /* Without a time-out: a disk may be slow, and a dead cube-stored is noticed by its socket. */
        int r = packet_client_call(c->packets, op, body, &fd, fd >= 0 ? 1 : 0, UINT64_MAX, on_reply, q);
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
        return call(c, STORE_OP_ROOT, NULL, c->root_fd, NULL, NULL);
}

int store_client_sync(StoreClient *c, int fd, StoreDone done, void *userdata) {
        return call(c, STORE_OP_SYNC, NULL, fd, done, userdata);
}

int store_client_rename(StoreClient *c, const char *from, const char *to, StoreDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(16384);

        tlv_put_str(&w, STORE_TAG_PATH, from);
        tlv_put_str(&w, STORE_TAG_TARGET, to);
        return call(c, STORE_OP_RENAME, &w, -EBADF, done, userdata);
}

int store_client_remove(StoreClient *c, const char *path, StoreDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(8192);

        tlv_put_str(&w, STORE_TAG_PATH, path);
        return call(c, STORE_OP_REMOVE, &w, -EBADF, done, userdata);
}
