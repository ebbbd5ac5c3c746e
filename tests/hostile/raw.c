/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"
#include "tests/payload/clock.h"
#include "tests/payload/start-info.h"
#include "tests/payload/vsock-packet.h"

/* Looks at a ring for one at its device, which is an exit. */
#define LOOKS_PER_STATUS 16U
#define GUEST_CID 3U
#define NET_HEADER_BYTES 12U
#define SETS 2U
/* Of data, from which those of the second set's good requests are counted. */
#define SECOND_PAGE 52U
/* The page of them that the balloon gets. */
#define LENT 5U
#define ETHER_BYTES 60U

const Target targets[] = {
        { "vda", KIND_BLK, 2, 0, 1 },
        { "vdb", KIND_BLK, 2, 1, 1 },
        { "rng", KIND_RNG, 4, 0, 1 },
        { "net", KIND_NET, 1, 0, 2 },
        { "balloon", KIND_BALLOON, 5, 0, 5 },
        { "mem", KIND_MEM, 24, 0, 1 },
        { "vsock", KIND_VSOCK, 19, 0, 3 },
};
const unsigned n_targets = ELEMENTSOF(targets);

uint8_t data[DATA_PAGES][PAGE] __attribute__((aligned(4096)));

static struct {
        Desc desc[RAW_SIZE_MAX];
        uint16_t avail[PAGE / 2];
        uint16_t used[PAGE / 2];
} memory[SETS][RAW_QUEUES_MAX] __attribute__((aligned(4096)));

static unsigned current_set;

/* What start.S found. */
extern uint32_t start_info;

uint64_t memory_end(void) {
        const StartInfo *info = (const StartInfo *) (uint64_t) start_info;
        const Range *range = (const Range *) info->memmap;
        uint64_t end = 0;

        for (uint32_t i = 0; i < info->n_memmap && i < 16; i++)
                if (range[i].type == 1 && range[i].gpa + range[i].size > end)
                        end = range[i].gpa + range[i].size;
        return end;
}

uint32_t random32(uint32_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

const Target *target_find(const char *name) {
        for (unsigned i = 0; i < n_targets; i++)
                if (streq(targets[i].name, name))
                        return &targets[i];
        return NULL;
}

void raw_use(unsigned set) {
        current_set = set;
}

/* The nth page of those that good requests are made of. */
static uint8_t *page(const Raw *r, unsigned n) {
        return data[r->set * SECOND_PAGE + n];
}

bool raw_find(Raw *r, const Target *t) {
        memset(r, 0, sizeof(*r));
        r->target = t;
        r->set = current_set;
        return virtio_find(t->type, t->nth, &r->device);
}

void raw_status(Raw *r, uint8_t status) {
        write8(r->device.common + COMMON_STATUS, status);
}

void raw_reset(Raw *r) {
        raw_status(r, 0);
        while (virtio_status(&r->device) != 0)
                pause_cpu();
}

bool raw_negotiate(Raw *r, uint64_t features) {
        uint64_t common = r->device.common;

        raw_status(r, 1);
        raw_status(r, 3);
        for (unsigned i = 0; i < 2; i++) {
                write32(common + COMMON_DRIVER_SELECT, i);
                write32(common + COMMON_DRIVER_FEATURES, (uint32_t) (features >> (32 * i)));
        }
        raw_status(r, 11);
        r->features = features;
        return virtio_status(&r->device) & 8;
}

static void write_halves(uint64_t at, uint64_t v) {
        write32(at, (uint32_t) v);
        write32(at + 4, (uint32_t) (v >> 32));
}

uint16_t raw_queue_size(const Raw *r, unsigned queue) {
        write16(r->device.common + COMMON_SELECT, (uint16_t) queue);
        return read16(r->device.common + COMMON_SIZE);
}

bool raw_enable(Raw *r, unsigned queue, uint16_t size, uint64_t desc, uint64_t avail, uint64_t used) {
        uint64_t common = r->device.common;

        write16(common + COMMON_SELECT, (uint16_t) queue);
        write16(common + COMMON_SIZE, size);
        write16(common + COMMON_VECTOR, 0);
        write_halves(common + COMMON_DESC, desc);
        write_halves(common + COMMON_AVAIL, avail);
        write_halves(common + COMMON_USED, used);
        write16(common + COMMON_ENABLE, 1);
        return read16(common + COMMON_ENABLE) == 1;
}

static bool enable_own(Raw *r, unsigned queue, uint16_t size) {
        Ring *ring = &r->rings[queue];
        uint16_t most = raw_queue_size(r, queue);

        *ring = (Ring) {
                .size = MIN(size, most),
                .index = (uint16_t) queue,
                .desc = memory[r->set][queue].desc,
                .avail = memory[r->set][queue].avail,
                .used = memory[r->set][queue].used,
                .notify = r->device.notify +
                          (uint64_t) read16(r->device.common + COMMON_NOTIFY_OFF) * r->device.notify_stride,
        };
        ring->avail[0] = 1; /* no interrupts */
        ring->avail[1] = 0;
        ring->used[0] = ring->used[1] = 0;
        return raw_enable(r, queue, ring->size, (uint64_t) ring->desc, (uint64_t) ring->avail, (uint64_t) ring->used);
}

bool raw_prepare(Raw *r, const Target *t, uint64_t features, uint16_t size) {
        if (!raw_find(r, t))
                return false;
        raw_reset(r);
        if (!raw_negotiate(r, features | FEATURE_VERSION_1))
                return false;
        for (unsigned i = 0; i < t->n_queues; i++)
                if (!enable_own(r, i, size))
                        return false;
        return true;
}

bool raw_open(Raw *r, const Target *t, uint64_t features, uint16_t size) {
        if (!raw_prepare(r, t, features, size))
                return false;
        raw_status(r, STATUS_DRIVER_OK);
        return virtio_status(&r->device) == STATUS_DRIVER_OK;
}

void ring_offer(Ring *ring, uint16_t head) {
        uint16_t i = ring->avail[1];

        ring->avail[2 + i % ring->size] = head;
        barrier();
        ring->avail[1] = (uint16_t) (i + 1);
}

void ring_kick(const Ring *ring) {
        full_barrier();
        write16(ring->notify, ring->index);
}

bool ring_take(Ring *ring, uint32_t *ret_head, uint32_t *ret_len) {
        const volatile uint32_t *element = (const volatile uint32_t *) (ring->used + 2) + ring->last_used % ring->size * 2U;

        if (ring->used[1] == ring->last_used)
                return false;
        barrier();
        *ret_head = element[0];
        *ret_len = element[1];
        ring->last_used++;
        return true;
}

Outcome raw_wait(Raw *r, Ring *ring, uint32_t *ret_len) {
        uint64_t end = 0;
        uint32_t head;

        for (unsigned i = 0; clock_patient(&end); i++) {
                if (ring_take(ring, &head, ret_len))
                        return OUTCOME_USED;
                if (i % LOOKS_PER_STATUS == 0 && virtio_status(&r->device) & STATUS_NEEDS_RESET)
                        return OUTCOME_STOPPED;
                pause_cpu();
        }
        return OUTCOME_NOTHING;
}

const char *outcome_name(Outcome o) {
        static const char *const names[] = { "used", "stopped", "nothing" };

        return names[o];
}

/* Good requests */

static Desc part(const void *p, uint32_t len, uint16_t flags) {
        return (Desc) { .addr = (uint64_t) p, .len = len, .flags = flags };
}

/* To a port where nobody is: the answer is a RST. */
static void stray_packet(void *p) {
        *(Packet *) p = (Packet) {
                .src_cid = GUEST_CID,
                .dst_cid = HOST_CID,
                .src_port = 7,
                .dst_port = 7,
                .type = VSOCK_STREAM,
                .op = OP_REQUEST,
        };
}

/* Who has 169.254.77.1? A sandbox's gateway answers that under any policy. */
static void put_frame(uint8_t *p) {
        static const uint8_t question[] = {
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0xcb, 0xff, 0, 0, 2, 8, 6,
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0xcb, 0xff, 0, 0, 2, 169, 254, 77, 2, 0, 0, 0, 0, 0, 0, 169, 254, 77, 1,
        };

        memset(p, 0, NET_HEADER_BYTES + ETHER_BYTES);
        memcpy(p + NET_HEADER_BYTES, question, sizeof(question));
}

static unsigned blk_chain(const Raw *r, Desc *d) {
        memset(page(r, 0), 0, 16);
        page(r, 1)[0] = 0xff;
        d[0] = part(page(r, 0), 16, DESC_NEXT);
        d[1] = part(page(r, 2), 512, DESC_NEXT | DESC_WRITE);
        d[2] = part(page(r, 1), 1, DESC_WRITE);
        d[0].next = 1;
        d[1].next = 2;
        return 3;
}

static unsigned mem_chain(const Raw *r, Desc *d) {
        uint64_t region = read32(r->device.config + 16) | (uint64_t) read32(r->device.config + 20) << 32;

        memset(page(r, 0), 0, 24);
        page(r, 0)[0] = 3; /* what state is it in? */
        memcpy(page(r, 0) + 8, &region, 8);
        page(r, 0)[16] = 1;
        d[0] = part(page(r, 0), 24, DESC_NEXT);
        d[1] = part(page(r, 1), 10, DESC_WRITE);
        d[0].next = 1;
        return 2;
}

static unsigned balloon_chain(const Raw *r, unsigned queue, Desc *d) {
        uint32_t pfn = (uint32_t) ((uint64_t) page(r, LENT) / PAGE);

        if (queue >= 3) {
                d[0] = part(page(r, LENT), PAGE, DESC_WRITE);
                return 1;
        }
        memcpy(page(r, 0), &pfn, sizeof(pfn));
        d[0] = part(page(r, 0), queue == 2 ? 10 : 4, 0);
        return 1;
}

static unsigned in_or_out(const Raw *r, unsigned queue, Desc *d, void (*put)(void *p), uint32_t bytes) {
        if (queue == 0)
                d[0] = part(page(r, 4), PAGE, DESC_WRITE);
        else {
                put(page(r, 0));
                d[0] = part(page(r, 0), bytes, 0);
        }
        return 1;
}

unsigned raw_good_chain(Raw *r, unsigned queue) {
        Desc *d = r->rings[queue].desc;

        switch (r->target->kind) {
        case KIND_BLK:
                return blk_chain(r, d);
        case KIND_NET:
                return in_or_out(r, queue, d, (void (*)(void *)) put_frame, NET_HEADER_BYTES + ETHER_BYTES);
        case KIND_VSOCK:
                return in_or_out(r, queue, d, stray_packet, sizeof(Packet));
        case KIND_BALLOON:
                return balloon_chain(r, queue, d);
        case KIND_MEM:
                return mem_chain(r, d);
        default:
                d[0] = part(page(r, 2), 64, DESC_WRITE);
                return 1;
        }
}

/* A frame that the other end of the wire answers; a packet that is answered. */
void raw_provoke(Raw *r, unsigned queue) {
        Ring *tx = &r->rings[1];

        if (queue != 0 || (r->target->kind != KIND_NET && r->target->kind != KIND_VSOCK))
                return;
        (void) raw_good_chain(r, 1);
        ring_offer(tx, 0);
        ring_kick(tx);
}

/* One more set of figures, for the older ones are given back then. */
void raw_replace(Raw *r, unsigned queue) {
        Ring *ring = &r->rings[queue];

        if (r->target->kind != KIND_BALLOON || queue != 2)
                return;
        ring->desc[ring->size - 1] = part(page(r, 3), 10, 0);
        ring_offer(ring, (uint16_t) (ring->size - 1));
        ring_kick(ring);
}

Outcome raw_good_request(Raw *r, unsigned queue, uint32_t *ret_len) {
        (void) raw_good_chain(r, queue);
        ring_offer(&r->rings[queue], 0);
        ring_kick(&r->rings[queue]);
        raw_provoke(r, queue);
        raw_replace(r, queue);
        return raw_wait(r, &r->rings[queue], ret_len);
}

bool raw_queue_is_read(const Raw *r, unsigned queue) {
        return r->target->kind != KIND_VSOCK || queue != 2;
}
