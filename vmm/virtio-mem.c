/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mem.h>

#include "vmm/virtio-mem.h"

#define QUEUE_SIZE 64U
#define REQUEST_BYTES sizeof(struct virtio_mem_req)
#define RESPONSE_BYTES sizeof(struct virtio_mem_resp)
#define WORD_BITS 64U

struct VirtioMem {
        VirtioPci pci;
        uint64_t gpa;
        uint64_t n_blocks;
        uint64_t n_plugged;
        uint64_t n_requested;
        uint64_t refused;         /* requests that were not carried out */
        uint64_t plugged[];       /* a bit for each block */
};

/* A request, decoded; nothing of it is checked. */
typedef struct MemRequest {
        uint16_t type;
        uint64_t gpa;
        uint16_t n_blocks;
} MemRequest;

static bool block_plugged(const VirtioMem *m, uint64_t block) {
        return m->plugged[block / WORD_BITS] & 1ULL << block % WORD_BITS;
}

static void set_plugged(VirtioMem *m, uint64_t first, uint64_t n, bool plugged) {
        for (uint64_t i = first; i < first + n; i++)
                if (plugged)
                        m->plugged[i / WORD_BITS] |= 1ULL << i % WORD_BITS;
                else
                        m->plugged[i / WORD_BITS] &= ~(1ULL << i % WORD_BITS);
        m->n_plugged = plugged ? m->n_plugged + n : m->n_plugged - n;

        uint64_t bytes = htole64(m->n_plugged * MEM_BLOCK_BYTES);
        virtio_pci_change_config(&m->pci, offsetof(struct virtio_mem_config, plugged_size), &bytes, sizeof(bytes), false);
}

static uint64_t count_plugged(const VirtioMem *m, uint64_t first, uint64_t n) {
        uint64_t count = 0;

        for (uint64_t i = first; i < first + n; i++)
                count += block_plugged(m, i);
        return count;
}

/* 5.15.6.3: whole blocks, at least one, all in the region. */
static bool request_range(const VirtioMem *m, const MemRequest *q, uint64_t *ret_first) {
        if (q->n_blocks == 0 || q->gpa % MEM_BLOCK_BYTES != 0 || q->gpa < m->gpa)
                return false;

        uint64_t first = (q->gpa - m->gpa) / MEM_BLOCK_BYTES;
        if (first >= m->n_blocks || q->n_blocks > m->n_blocks - first)
                return false;
        *ret_first = first;
        return true;
}

/* Each returns the type of the response, or -errno: the device can't go on. */

static int plug(VirtioMem *m, const MemRequest *q) {
        uint64_t first;

        if (!request_range(m, q, &first) || count_plugged(m, first, q->n_blocks) > 0)
                return VIRTIO_MEM_RESP_ERROR;
        if (m->n_plugged + q->n_blocks > m->n_requested)
                return VIRTIO_MEM_RESP_NACK;
        set_plugged(m, first, q->n_blocks, true);
        return VIRTIO_MEM_RESP_ACK;
}

static int give_back(VirtioMem *m, uint64_t first, uint64_t n) {
        return guest_mem_discard(&m->pci.vm->mem, m->gpa + first * MEM_BLOCK_BYTES, n * MEM_BLOCK_BYTES);
}

static int unplug(VirtioMem *m, const MemRequest *q) {
        uint64_t first;

        if (!request_range(m, q, &first) || count_plugged(m, first, q->n_blocks) != q->n_blocks)
                return VIRTIO_MEM_RESP_ERROR;
        int r = give_back(m, first, q->n_blocks);
        if (r < 0)
                return r;
        set_plugged(m, first, q->n_blocks, false);
        return VIRTIO_MEM_RESP_ACK;
}

/* The whole region, so that what was touched without being plugged goes too. */
static int unplug_all(VirtioMem *m) {
        int r = give_back(m, 0, m->n_blocks);
        if (r < 0)
                return r;
        memset(m->plugged, 0, ALIGN_UP(m->n_blocks, (uint64_t) WORD_BITS) / 8);
        m->n_plugged = 0;
        set_plugged(m, 0, 0, false);
        return VIRTIO_MEM_RESP_ACK;
}

static int state(const VirtioMem *m, const MemRequest *q, uint16_t *ret_state) {
        uint64_t first;

        if (!request_range(m, q, &first))
                return VIRTIO_MEM_RESP_ERROR;
        uint64_t count = count_plugged(m, first, q->n_blocks);
        *ret_state = count == 0           ? VIRTIO_MEM_STATE_UNPLUGGED
                     : count == q->n_blocks ? VIRTIO_MEM_STATE_PLUGGED
                                            : VIRTIO_MEM_STATE_MIXED;
        return VIRTIO_MEM_RESP_ACK;
}

static int carry_out(VirtioMem *m, const MemRequest *q, uint16_t *ret_state) {
        switch (q->type) {

        case VIRTIO_MEM_REQ_PLUG:
                return plug(m, q);

        case VIRTIO_MEM_REQ_UNPLUG:
                return unplug(m, q);

        case VIRTIO_MEM_REQ_UNPLUG_ALL:
                return unplug_all(m);

        case VIRTIO_MEM_REQ_STATE:
                return state(m, q, ret_state);

        default:
                return VIRTIO_MEM_RESP_ERROR;
        }
}

static MemRequest decode(const struct virtio_mem_req *raw) {
        /* The three kinds with a range have it in the same place. */
        return (MemRequest) {
                .type = le16toh(raw->type),
                .gpa = le64toh(raw->u.plug.addr),
                .n_blocks = le16toh(raw->u.plug.nb_blocks),
        };
}

/* False when the device has stopped. */
static bool handle(VirtioMem *m, const VirtChain *chain) {
        struct virtio_mem_req raw;
        struct virtio_mem_resp response = {};
        uint16_t found = 0;

        if (chain->writable_bytes < RESPONSE_BYTES ||
            virt_chain_read(chain, &m->pci.vm->mem, 0, &raw, REQUEST_BYTES) < REQUEST_BYTES) {
                virtio_pci_fail(&m->pci, "memory request or its answer's place is too short");
                return false;
        }

        MemRequest q = decode(&raw);
        int r = carry_out(m, &q, &found);
        if (r < 0) {
                virtio_pci_error(&m->pci, "memory could not be given back to the host: %s", strerror(-r));
                virtio_pci_fail(&m->pci, "no memory can be unplugged");
                return false;
        }

        m->refused += r != VIRTIO_MEM_RESP_ACK;
        response.type = htole16(r);
        response.u.state.state = htole16(found);
        size_t n = virt_chain_write(chain, &m->pci.vm->mem, 0, &response, RESPONSE_BYTES);
        virtqueue_push(&m->pci.queues[0].ring, chain, n);
        return true;
}

static void serve(VirtioMem *m) {
        VirtChain chain;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS; n++) {
                if (!virtio_pci_pop(&m->pci, 0, &chain)) {
                        if (m->pci.failed || !virtqueue_rearm(&m->pci.queues[0].ring))
                                return;
                        continue;
                }
                if (!handle(m, &chain))
                        return;
        }
        virtio_pci_kick_again(&m->pci, 0);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        serve(v->owner);
        virtio_pci_signal(v, 0);
}

static void on_start(VirtioPci *v) {
        on_kick(v, 0);
}

static void on_stop(VirtioPci *v) {
}

VirtioPci *virtio_mem_pci(VirtioMem *m) {
        assert(m);
        return &m->pci;
}

int virtio_mem_request(VirtioMem *m, uint64_t bytes) {
        assert(m);

        if (bytes % MEM_BLOCK_BYTES != 0 || bytes / MEM_BLOCK_BYTES > m->n_blocks)
                return -EINVAL;

        m->n_requested = bytes / MEM_BLOCK_BYTES;
        uint64_t requested = htole64(bytes);
        virtio_pci_change_config(&m->pci, offsetof(struct virtio_mem_config, requested_size), &requested,
                                 sizeof(requested), true);
        return 0;
}

void virtio_mem_counters(VirtioMem *m, CounterFn fn, void *userdata) {
        assert(m);
        assert(fn);

        fn(userdata, "mem-region-bytes", m->n_blocks * MEM_BLOCK_BYTES);
        fn(userdata, "mem-requested-bytes", m->n_requested * MEM_BLOCK_BYTES);
        fn(userdata, "mem-plugged-bytes", m->n_plugged * MEM_BLOCK_BYTES);
        fn(userdata, "mem-refused", m->refused);
}

static struct virtio_mem_config make_config(const VirtioMem *m, uint64_t n_plugged, uint64_t n_requested) {
        return (struct virtio_mem_config) {
                .block_size = htole64(MEM_BLOCK_BYTES),
                .addr = htole64(m->gpa),
                .region_size = htole64(m->n_blocks * MEM_BLOCK_BYTES),
                /* All of it, always: it costs nothing more. */
                .usable_region_size = htole64(m->n_blocks * MEM_BLOCK_BYTES),
                .plugged_size = htole64(n_plugged * MEM_BLOCK_BYTES),
                .requested_size = htole64(n_requested * MEM_BLOCK_BYTES),
        };
}

static void set_config(VirtioMem *m) {
        struct virtio_mem_config config = make_config(m, m->n_plugged, m->n_requested);

        virtio_pci_set_config(&m->pci, &config, sizeof(config));
}

/* Snapshots */

static size_t bitmap_bytes(const VirtioMem *m) {
        return ALIGN_UP(m->n_blocks, (uint64_t) WORD_BITS) / 8;
}

void virtio_mem_save(const VirtioMem *m, unsigned slot, SnapshotWriter *w) {
        assert(m);
        assert(w);

        snapshot_writer_begin(w, SNAPSHOT_SECTION_MEM, slot);
        snapshot_writer_put(w, m->plugged, bitmap_bytes(m));
}

static int check_blocks(const VirtioMem *m, const SnapshotReader *r, MemLoad *l, ErrorText *e) {
        for (uint64_t i = 0; i < MEM_BLOCKS_MAX; i++) {
                if (!(l->plugged[i / WORD_BITS] & 1ULL << i % WORD_BITS))
                        continue;
                if (i >= m->n_blocks)
                        return snapshot_bad(r, e, "a plugged block outside of the region");
                l->n_plugged++;
        }
        return 0;
}

/* All of the configuration follows from what is plugged and what is asked for. */
static int check_config(const VirtioMem *m, const VirtioState *transport, const SnapshotReader *r, MemLoad *l,
                        ErrorText *e) {
        struct virtio_mem_config config;

        if (transport->config_bytes != sizeof(config))
                return snapshot_bad(r, e, "a configuration of %u bytes", transport->config_bytes);
        memcpy(&config, transport->config, sizeof(config));
        l->n_requested = le64toh(config.requested_size) / MEM_BLOCK_BYTES;
        if (l->n_requested > m->n_blocks)
                return snapshot_bad(r, e, "more is asked for than can be plugged");

        struct virtio_mem_config expected = make_config(m, l->n_plugged, l->n_requested);
        if (memcmp(&config, &expected, sizeof(config)) != 0)
                return snapshot_bad(r, e, "a configuration that is not of what is plugged");
        return 0;
}

int virtio_mem_parse(const VirtioMem *m, const VirtioState *transport, SnapshotReader *r, MemLoad *ret, ErrorText *e) {
        assert(m);
        assert(transport);
        assert(ret);

        *ret = (MemLoad) {};
        int k = snapshot_read(r, ret->plugged, bitmap_bytes(m), e);
        if (k >= 0)
                k = snapshot_read_end(r, e);
        if (k >= 0)
                k = check_blocks(m, r, ret, e);
        return k < 0 ? k : check_config(m, transport, r, ret, e);
}

void virtio_mem_apply(VirtioMem *m, const MemLoad *l) {
        assert(m);
        assert(l);

        memcpy(m->plugged, l->plugged, bitmap_bytes(m));
        m->n_plugged = l->n_plugged;
        m->n_requested = l->n_requested;
        struct virtio_mem_config config = make_config(m, m->n_plugged, m->n_requested);
        virtio_pci_change_config(&m->pci, 0, &config, sizeof(config), false);
}

int virtio_mem_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioMem **ret) {
        static const VirtioKind kind = {
                .name = "mem",
                .type = VIRTIO_ID_MEM,
                .class_code = 0xff0000, /* none of the others */
                .features = 1ULL << VIRTIO_MEM_F_UNPLUGGED_INACCESSIBLE,
                .n_queues = 1,
                .queue_size = QUEUE_SIZE,
                .chain_bytes_max = KIB(4),
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };

        assert(vm);
        assert(loop);
        assert(ret);
        assert(vm->plug_bytes > 0 && vm->plug_bytes % MEM_BLOCK_BYTES == 0);

        uint64_t n_blocks = vm->plug_bytes / MEM_BLOCK_BYTES;
        assert(n_blocks <= MEM_BLOCKS_MAX);
        VirtioMem *m = calloc(1, sizeof(*m) + ALIGN_UP(n_blocks, (uint64_t) WORD_BITS) / 8);
        if (!m)
                return -ENOMEM;
        m->gpa = vm->plug_gpa;
        m->n_blocks = n_blocks;

        int r = virtio_pci_init(&m->pci, &kind, vm, bar_gpa, m, on_error, on_error_userdata);
        if (r < 0) {
                free(m);
                return r;
        }
        set_config(m);

        r = virtio_pci_attach(&m->pci, loop);
        if (r < 0) {
                virtio_mem_free(m);
                return r;
        }

        *ret = m;
        return 0;
}

VirtioMem *virtio_mem_free(VirtioMem *m) {
        if (!m)
                return NULL;

        virtio_pci_done(&m->pci);
        free(m);
        return NULL;
}
