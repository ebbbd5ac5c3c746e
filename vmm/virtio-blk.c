/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <stdio.h>

#include "vmm/virtio-blk.h"

#define SECTOR 512U
#define QUEUE_SIZE 128U
/* With the header's and the status' parts a request fits into the ring without an indirect table. */
#define SEGMENTS_MAX (QUEUE_SIZE - 2)
/* So that one request is a bounded piece of work for the disk's thread. */
#define SEGMENT_BYTES_MAX KIB(64)
#define REQUEST_BYTES_MAX (SEGMENTS_MAX * SEGMENT_BYTES_MAX + SECTOR)

struct VirtioBlk {
        VirtioPci pci;
        Overlay overlay;
        bool read_only;
        _Atomic bool held;
        _Atomic uint64_t read_bytes, written_bytes, flushes, io_errors;
};

/* A request, out of a copy of its header (5.2.6). */
typedef struct Request {
        uint32_t type;
        uint64_t offset;          /* bytes */
        uint64_t data_bytes;
} Request;

static uint8_t io_result(VirtioBlk *b, const char *what, const Request *q, int r) {
        if (r >= 0)
                return VIRTIO_BLK_S_OK;

        atomic_fetch_add(&b->io_errors, 1);
        virtio_pci_error(&b->pci, "%s of %llu bytes at %llu failed: %s", what, (unsigned long long) q->data_bytes,
                         (unsigned long long) q->offset, strerror(-r));
        return VIRTIO_BLK_S_IOERR;
}

/* P10: whole sectors, inside the disk. offset was computed without a wrap. */
static bool range_ok(const VirtioBlk *b, const Request *q) {
        return q->data_bytes % SECTOR == 0 && q->offset <= b->overlay.disk_bytes &&
               q->data_bytes <= b->overlay.disk_bytes - q->offset;
}

static uint8_t do_read(VirtioBlk *b, const Request *q, const VirtChain *chain, uint64_t *ret_written) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes;

        if (!range_ok(b, q))
                return VIRTIO_BLK_S_IOERR;

        size_t n = virt_chain_writable_iov(chain, &b->pci.vm->mem, 0, q->data_bytes, iov, &bytes);
        uint8_t status = io_result(b, "read", q, overlay_read(&b->overlay, iov, n, q->offset));
        if (status == VIRTIO_BLK_S_OK) {
                atomic_fetch_add(&b->read_bytes, bytes);
                *ret_written = bytes;
        }
        return status;
}

static uint8_t do_write(VirtioBlk *b, const Request *q, const VirtChain *chain) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes;

        if (b->read_only || !range_ok(b, q))
                return VIRTIO_BLK_S_IOERR;

        size_t n = virt_chain_readable_iov(chain, &b->pci.vm->mem, sizeof(struct virtio_blk_outhdr), q->data_bytes,
                                           iov, &bytes);
        uint8_t status = io_result(b, "write", q, overlay_write(&b->overlay, iov, n, q->offset));
        if (status == VIRTIO_BLK_S_OK)
                atomic_fetch_add(&b->written_bytes, bytes);
        return status;
}

static uint8_t do_flush(VirtioBlk *b, const Request *q) {
        atomic_fetch_add(&b->flushes, 1);
        return io_result(b, "flush", q, overlay_flush(&b->overlay));
}

static uint8_t do_get_id(VirtioBlk *b, const VirtChain *chain, uint64_t room, uint64_t *ret_written) {
        char id[VIRTIO_BLK_ID_BYTES] = {};

        (void) snprintf(id, sizeof(id), "cube-%s", b->pci.kind.name);
        *ret_written = virt_chain_write(chain, &b->pci.vm->mem, 0, id, MIN(room, sizeof(id)));
        return VIRTIO_BLK_S_OK;
}

static uint8_t dispatch(VirtioBlk *b, const VirtChain *chain, uint64_t *ret_written) {
        struct virtio_blk_outhdr h;
        uint64_t room = chain->writable_bytes - 1;

        if (virt_chain_read(chain, &b->pci.vm->mem, 0, &h, sizeof(h)) < sizeof(h))
                return VIRTIO_BLK_S_IOERR;

        Request q = { .type = le32toh(h.type) };
        if (__builtin_mul_overflow(le64toh(h.sector), (uint64_t) SECTOR, &q.offset))
                return VIRTIO_BLK_S_IOERR;

        switch (q.type) {
        case VIRTIO_BLK_T_IN:
                q.data_bytes = room;
                return do_read(b, &q, chain, ret_written);
        case VIRTIO_BLK_T_OUT:
                q.data_bytes = chain->readable_bytes - sizeof(h);
                return do_write(b, &q, chain);
        case VIRTIO_BLK_T_FLUSH:
                return do_flush(b, &q);
        case VIRTIO_BLK_T_GET_ID:
                return do_get_id(b, chain, room, ret_written);
        default:
                return VIRTIO_BLK_S_UNSUPP;
        }
}

/* The status is the last writable byte, whatever the parts look like. The used length counts it only
 * when all in front of it was written too (P8, and 2.7.8.2: a driver may trust that length). */
static void serve_one(VirtioBlk *b, const VirtChain *chain) {
        uint64_t written = 0;

        uint8_t status = dispatch(b, chain, &written);
        (void) virt_chain_write(chain, &b->pci.vm->mem, chain->writable_bytes - 1, &status, 1);
        if (written == chain->writable_bytes - 1)
                written++;
        virtqueue_push(&b->pci.queues[0].ring, chain, written);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtioBlk *b = v->owner;
        uint64_t bytes = 0;
        VirtChain chain;
        bool more = true;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS && bytes < VIRTIO_VISIT_BYTES && !atomic_load(&b->held); n++) {
                if (!virtio_pci_pop(v, 0, &chain)) {
                        more = !v->failed && virtqueue_rearm(&v->queues[0].ring);
                        if (!more)
                                break;
                        continue;
                }
                if (chain.writable_bytes == 0) {
                        virtio_pci_fail(v, "request has no place for its status");
                        return;
                }

                serve_one(b, &chain);
                bytes += chain.readable_bytes + chain.writable_bytes;
        }

        virtio_pci_signal(v, 0);
        if (more)
                virtio_pci_kick_again(v, 0);
}

static void on_start(VirtioPci *v) {
        on_kick(v, 0);
}

/* Requests are done before they are let go of, so that there is nothing left to cancel. */
static void on_stop(VirtioPci *v) {
}

VirtioPci *virtio_blk_pci(VirtioBlk *b) {
        assert(b);
        return &b->pci;
}

Overlay *virtio_blk_overlay(VirtioBlk *b) {
        assert(b);
        return &b->overlay;
}

void virtio_blk_hold(VirtioBlk *b, bool hold) {
        assert(b);
        atomic_store(&b->held, hold);
}

static void count(VirtioBlk *b, const char *what, uint64_t value, CounterFn fn, void *userdata) {
        char name[24];

        (void) snprintf(name, sizeof(name), "%s-%s", b->pci.kind.name, what);
        fn(userdata, name, value);
}

void virtio_blk_counters(VirtioBlk *b, CounterFn fn, void *userdata) {
        assert(b);
        assert(fn);

        count(b, "read-bytes", atomic_load(&b->read_bytes), fn, userdata);
        count(b, "written-bytes", atomic_load(&b->written_bytes), fn, userdata);
        count(b, "flushes", atomic_load(&b->flushes), fn, userdata);
        count(b, "io-errors", atomic_load(&b->io_errors), fn, userdata);
}

static int blk_init(VirtioBlk *b, Vm *vm, uint64_t bar_gpa, const char *name, VirtioErrorFn on_error,
                    void *on_error_userdata) {
        VirtioKind kind = {
                .name = name,
                .type = VIRTIO_ID_BLOCK,
                .class_code = 0x018000, /* mass storage, other */
                .features = 1ULL << VIRTIO_BLK_F_SIZE_MAX | 1ULL << VIRTIO_BLK_F_SEG_MAX | 1ULL << VIRTIO_BLK_F_BLK_SIZE |
                            (b->read_only ? 1ULL << VIRTIO_BLK_F_RO : 1ULL << VIRTIO_BLK_F_FLUSH),
                .n_queues = 1,
                .queue_size = QUEUE_SIZE,
                .chain_bytes_max = REQUEST_BYTES_MAX,
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };
        struct virtio_blk_config config = {
                .capacity = htole64(b->overlay.disk_bytes / SECTOR),
                .size_max = htole32(SEGMENT_BYTES_MAX),
                .seg_max = htole32(SEGMENTS_MAX),
                .blk_size = htole32(SECTOR),
        };

        int r = virtio_pci_init(&b->pci, &kind, vm, bar_gpa, b, on_error, on_error_userdata);
        if (r < 0)
                return r;
        virtio_pci_set_config(&b->pci, &config, offsetof(struct virtio_blk_config, wce));
        return 0;
}

static int check_config(const DiskConfig *c, const char *name, ErrorText *e) {
        if (c->disk_bytes % SECTOR != 0)
                return error_set(e, -EINVAL, "%s: %llu bytes are not whole sectors", name,
                                 (unsigned long long) c->disk_bytes);
        if (c->read_only != (c->over.overlay_fd < 0))
                return error_set(e, -EINVAL, "%s: an overlay is what a disk has that can be written", name);
        return 0;
}

int virtio_blk_new(Vm *vm, uint64_t bar_gpa, const char *name, DiskConfig *config, VirtioErrorFn on_error,
                   void *on_error_userdata, VirtioBlk **ret, ErrorText *e) {
        assert(vm);
        assert(name);
        assert(config);
        assert(ret);

        _cleanup_free_ VirtioBlk *b = new0(VirtioBlk, 1);
        int r = b ? check_config(config, name, e) : error_set(e, -ENOMEM, "out of memory");
        if (r < 0) {
                disk_config_done(config);
                return r;
        }
        b->read_only = config->read_only;

        r = overlay_init(&b->overlay, TAKE_FD(config->base_fd), config->base_bytes, config->disk_bytes,
                         &config->over, e);
        if (r < 0)
                return r;

        r = blk_init(b, vm, bar_gpa, name, on_error, on_error_userdata);
        if (r < 0) {
                overlay_done(&b->overlay);
                return error_set_errno(e, r, "%s", name);
        }

        *ret = TAKE_PTR(b);
        return 0;
}

VirtioBlk *virtio_blk_free(VirtioBlk *b) {
        if (!b)
                return NULL;

        virtio_pci_done(&b->pci);
        overlay_done(&b->overlay);
        free(b);
        return NULL;
}
