/* SPDX-License-Identifier: Apache-2.0 */
/* Registers: the transport's state machine, configuration space, the MSI-X table, and accesses that no device has. */

#include "hostile.h"

#define ECAM 0xe0000000ULL
#define ECAM_BYTES 0x100000ULL
#define SLOT_BYTES (1ULL << 15)
#define BARS 0xc0000000ULL
#define BARS_BYTES 0x20000000ULL
#define BAR_STRIDE 0x100000ULL
#define SLOTS 10U
#define CAP_MSIX 0x11U
#define MSIX_ENABLE 0x8000U
#define MSIX_MASKED 0x4000U
#define RING_SIZE_USED 16U

static void write_any(uint64_t at, unsigned width, uint64_t v) {
        switch (width) {
        case 1:
                write8(at, (uint8_t) v);
                break;
        case 2:
                write16(at, (uint16_t) v);
                break;
        case 4:
                write32(at, (uint32_t) v);
                break;
        default:
                *(volatile uint64_t *) at = v;
        }
}

static uint64_t read_any(uint64_t at, unsigned width) {
        switch (width) {
        case 1:
                return read8(at);
        case 2:
                return read16(at);
        case 4:
                return read32(at);
        default:
                return *(volatile uint64_t *) at;
        }
}

static bool is_ones(uint64_t v, unsigned width) {
        return width == 8 ? v == UINT64_MAX : v == (1ULL << (8 * width)) - 1;
}

static void for_each_target(void (*attack)(const Target *t)) {
        for (unsigned i = 0; i < n_targets; i++)
                attack(&targets[i]);
}

/* P4: what a queue is does not change while it lives. */

static const char *after(Raw *r, unsigned queue) {
        uint32_t len;

        return outcome_name(raw_good_request(r, queue, &len));
}

static void change_queue(const Raw *r, unsigned queue, uint16_t vector) {
        uint64_t common = r->device.common;

        write16(common + COMMON_SELECT, (uint16_t) queue);
        for (uint32_t size = 1; size <= 0x8000; size *= 2)
                write16(common + COMMON_SIZE, (uint16_t) size);
        write16(common + COMMON_SIZE, 0);
        write16(common + COMMON_SIZE, 0xffff);
        for (unsigned at = COMMON_DESC; at < COMMON_BYTES; at += 4)
                write32(common + at, 0xfffffff0);
        for (unsigned at = COMMON_DESC; at < COMMON_BYTES; at += 8)
                write_any(common + at, 8, memory_end() - 16);
        write16(common + COMMON_ENABLE, 0);
        write16(common + COMMON_ENABLE, 1);
        write16(common + COMMON_VECTOR, vector);
}

static bool has_changed(const Raw *r, unsigned queue) {
        uint64_t common = r->device.common;
        const Ring *ring = &r->rings[queue];

        write16(common + COMMON_SELECT, (uint16_t) queue);
        return read16(common + COMMON_SIZE) != ring->size || read16(common + COMMON_ENABLE) != 1 ||
               read32(common + COMMON_DESC) != (uint32_t) (uint64_t) ring->desc ||
               read32(common + COMMON_AVAIL) != (uint32_t) (uint64_t) ring->avail ||
               read32(common + COMMON_USED) != (uint32_t) (uint64_t) ring->used ||
               read16(common + COMMON_VECTOR) != NO_VECTOR;
}

/* From when it is enabled on; its vector from DRIVER_OK on, up to which one that does not exist reads as none. */
static void live_queue(const Target *t) {
        Raw r;

        if (!raw_prepare(&r, t, 0, RING_SIZE_USED))
                say(t->name, -1, "does not start");
        for (unsigned q = 0; q < t->n_queues; q++)
                change_queue(&r, q, 0xfffe);
        raw_status(&r, STATUS_DRIVER_OK);
        for (unsigned q = 0; q < t->n_queues; q++)
                change_queue(&r, q, 0);
        write32(r.device.common + COMMON_DRIVER_FEATURES, UINT32_MAX);

        for (unsigned q = 0; q < t->n_queues; q++) {
                if (has_changed(&r, q))
                        say(t->name, (int) q, "has changed");
                else if (raw_queue_is_read(&r, q))
                        say(t->name, (int) q, after(&r, q));
        }
}

static void attack_live_queue(void) {
        for_each_target(live_queue);
}

typedef struct BadQueue {
        const char *what;
        uint16_t size;
        uint64_t desc, avail, used;
} BadQueue;

/* In pages of ours, where nothing is said. */
#define GOOD_DESC ((uint64_t) data[16])
#define GOOD_AVAIL ((uint64_t) data[24])
#define GOOD_USED ((uint64_t) data[26])

/* None of these may live; each is tried on a device of its own. */
static void bad_queue(const Target *t, const BadQueue *b) {
        Raw r;

        if (!raw_find(&r, t))
                return;
        raw_reset(&r);
        if (!raw_negotiate(&r, FEATURE_VERSION_1))
                say(t->name, -1, "does not start");
        if (raw_enable(&r, 0, b->size, b->desc, b->avail, b->used))
                say(t->name, 0, b->what);
        raw_status(&r, STATUS_DRIVER_OK);
        if (virtio_status(&r.device) != (11 | STATUS_NEEDS_RESET))
                say(t->name, -1, b->what);
}

static void bad_queues(const Target *t) {
        const uint64_t end = memory_end();
        const BadQueue bad[] = {
                { "size 0", 0, GOOD_DESC, GOOD_AVAIL, GOOD_USED },
                { "size 3", 3, GOOD_DESC, GOOD_AVAIL, GOOD_USED },
                { "size 512", 512, GOOD_DESC, GOOD_AVAIL, GOOD_USED },
                { "size 32768", 32768, GOOD_DESC, GOOD_AVAIL, GOOD_USED },
                { "descriptors at 8", 16, GOOD_DESC + 8, GOOD_AVAIL, GOOD_USED },
                { "available at 1", 16, GOOD_DESC, GOOD_AVAIL + 1, GOOD_USED },
                { "used at 2", 16, GOOD_DESC, GOOD_AVAIL, GOOD_USED + 2 },
                { "descriptors over the end", 16, end - 16 * 16 + 16, GOOD_AVAIL, GOOD_USED },
                { "available over the end", 16, GOOD_DESC, end - 36, GOOD_USED },
                { "used over the end", 16, GOOD_DESC, GOOD_AVAIL, end - 132 },
                { "descriptors in a BAR", 16, BARS + BAR_STRIDE, GOOD_AVAIL, GOOD_USED },
                { "available in a BAR", 16, GOOD_DESC, BARS + BAR_STRIDE, GOOD_USED },
                { "used in a BAR", 16, GOOD_DESC, GOOD_AVAIL, BARS + BAR_STRIDE },
                { "used wraps", 16, GOOD_DESC, GOOD_AVAIL, UINT64_MAX - 3 },
                { "descriptors wrap", 16, UINT64_MAX - 15, GOOD_AVAIL, GOOD_USED },
        };

        for (unsigned i = 0; i < ELEMENTSOF(bad); i++)
                bad_queue(t, &bad[i]);
}

static void attack_bad_queues(void) {
        for_each_target(bad_queues);
}

/* Rings on top of each other, of themselves and of another queue: legal for us, harmful to the guest alone. */
static void rings_on_rings(const Target *t) {
        Raw r;
        uint32_t len;

        if (!raw_find(&r, t))
                return;
        raw_reset(&r);
        (void) raw_negotiate(&r, FEATURE_VERSION_1);
        memset(data[16], 0, PAGE);
        for (unsigned q = 0; q < t->n_queues; q++) {
                (void) raw_enable(&r, q, RING_SIZE_USED, GOOD_DESC, GOOD_DESC, GOOD_DESC);
                r.rings[q] = (Ring) { .size = RING_SIZE_USED, .index = (uint16_t) q, .desc = (Desc *) data[16],
                                      .avail = (uint16_t *) data[16], .used = (uint16_t *) data[16],
                                      .notify = r.device.notify + q * r.device.notify_stride };
        }
        raw_status(&r, STATUS_DRIVER_OK);
        for (unsigned q = 0; q < t->n_queues; q++) {
                (void) raw_good_chain(&r, q);
                ring_kick(&r.rings[q]);
                r.rings[q].avail[1] = 3;
                ring_kick(&r.rings[q]);
        }
        Outcome o = raw_wait(&r, &r.rings[0], &len);
        if (o == OUTCOME_NOTHING)
                say(t->name, -1, outcome_name(o));
}

static void attack_rings_on_rings(void) {
        for_each_target(rings_on_rings);
}

/* Bells before there is a driver, for queues that don't exist, in all widths. */
static void bells(const Target *t) {
        Raw r;

        if (!raw_find(&r, t))
                return;
        raw_reset(&r);
        for (unsigned round = 0; round < 2; round++) {
                for (uint64_t at = r.device.notify; at < r.device.notify + 64; at += 2)
                        write16(at, (uint16_t) at);
                for (unsigned width = 1; width <= 8; width *= 2)
                        for (uint64_t at = r.device.notify; at < r.device.notify + 64; at += width)
                                write_any(at, width, UINT64_MAX);
                (void) raw_negotiate(&r, FEATURE_VERSION_1);
        }
        /* Up, with no queue at all. */
        raw_status(&r, STATUS_DRIVER_OK);
        for (unsigned q = 0; q < t->n_queues; q++)
                write16(r.device.notify + q * r.device.notify_stride, (uint16_t) q);
        if (virtio_status(&r.device) & STATUS_NEEDS_RESET)
                say(t->name, -1, "stopped");
}

static void attack_bells(void) {
        for_each_target(bells);
}

/* Resets with work under way. */
static void reset_storm(const Target *t) {
        Raw r;

        for (unsigned i = 0; i < 20; i++) {
                if (!raw_open(&r, t, i & 1 ? FEATURE_EVENT_IDX : 0, RING_SIZE_USED)) {
                        say(t->name, -1, "does not start");
                        return;
                }
                for (unsigned q = 0; q < t->n_queues; q++) {
                        (void) raw_good_chain(&r, q);
                        for (unsigned k = 0; k < RING_SIZE_USED; k++)
                                ring_offer(&r.rings[q], 0);
                        ring_kick(&r.rings[q]);
                }
                /* Not waited for: the next round's does. */
                raw_status(&r, 0);
                raw_status(&r, 0);
                raw_status(&r, STATUS_DRIVER_OK);
        }
}

static void attack_reset_storm(void) {
        for_each_target(reset_storm);
}

static void status_jumps(const Target *t) {
        Raw r;

        if (!raw_find(&r, t))
                return;
        for (unsigned first = 0; first < 256; first += 5) {
                raw_reset(&r);
                raw_status(&r, (uint8_t) first);
                raw_status(&r, (uint8_t) (first * 7 + 3));
                raw_status(&r, STATUS_DRIVER_OK);
                uint8_t status = virtio_status(&r.device);
                if (status & 4 && !(status & 8))
                        say(t->name, -1, "is up without its features");
        }
        raw_reset(&r);
        if (raw_negotiate(&r, UINT64_MAX))
                say(t->name, -1, "takes all features");
        raw_reset(&r);
        if (raw_negotiate(&r, 0))
                say(t->name, -1, "takes no feature");
}

static void attack_status_jumps(void) {
        for_each_target(status_jumps);
}

/* P15: accesses that are no register's. */

static void widths(const Target *t) {
        static const unsigned all[] = { 1, 2, 4, 8 };
        uint32_t seed = 0x1234567;
        Raw r;

        if (!raw_open(&r, t, 0, RING_SIZE_USED))
                say(t->name, -1, "does not start");
        /* Across pages, over the end, and at every offset of each page's beginning. */
        uint64_t bar = r.device.common;
        for (uint64_t page = 0; page < 9; page++)
                for (uint64_t at = page ? 0 : 1; at < 72; at += 1 + random32(&seed) % 6)
                        for (unsigned w = 0; w < ELEMENTSOF(all); w++) {
                                uint64_t where = bar + page * PAGE + at - (page ? 4 : 0);

                                /* Without writing "reset" into the status. */
                                write_any(where, all[w], random32(&seed) | 0x0101010101010101ULL);
                                (void) read_any(where, all[w]);
                        }
        if (is_ones(read_any(bar + 1, 2), 2) && is_ones(read_any(bar + PAGE - 2, 4), 4) &&
            is_ones(read_any(bar + 0x8000, 4), 4) && is_ones(read_any(bar + 0x7ffc, 8), 8))
                return;
        say(t->name, -1, "answers where nothing is");
}

static void attack_widths(void) {
        for_each_target(widths);
}

static void attack_nowhere(void) {
        uint32_t seed = 0x7654321;
        unsigned answers = 0;

        for (unsigned i = 0; i < 400; i++) {
                /* Slots that are empty, functions but the first, space between BARs, behind all of it. */
                const uint64_t places[] = {
                        ECAM + (SLOTS + random32(&seed) % (32 - SLOTS)) * SLOT_BYTES + random32(&seed) % PAGE,
                        ECAM + random32(&seed) % SLOTS * SLOT_BYTES + PAGE * (1 + random32(&seed) % 7),
                        BARS + SLOTS * BAR_STRIDE + random32(&seed) % (BARS_BYTES - SLOTS * BAR_STRIDE - 8),
                        BARS + random32(&seed) % SLOTS * BAR_STRIDE + 0x8000 + random32(&seed) % 0xf0000,
                        ECAM + ECAM_BYTES + random32(&seed) % 0x1000000,
                };

                for (unsigned k = 0; k < ELEMENTSOF(places); k++) {
                        unsigned width = 1U << random32(&seed) % 4;

                        write_any(places[k], width, random32(&seed));
                        answers += !is_ones(read_any(places[k], width), width);
                }
        }
        if (answers > 0)
                say_number("nowhere", "answered", answers);
}

/* Configuration space */

static void keep_identity(unsigned slot, uint64_t ecam, const uint32_t before[2]) {
        if (read32(ecam) != before[0])
                say_number("slot", "has changed", slot);
        /* What was written last was no request for its size. */
        if ((read32(ecam + 0x10) & ~15U) != before[1])
                say_number("slot", "has moved", slot);
}

static void config_space(unsigned slot) {
        uint64_t ecam = ECAM + slot * SLOT_BYTES;
        uint32_t seed = 0xabcdef + slot;

        if (read32(ecam) == UINT32_MAX)
                return;
        const uint32_t before[] = { read32(ecam), read32(ecam + 0x10) & ~15U };
        for (unsigned width = 1; width <= 8; width *= 2) {
                for (uint64_t at = 0; at < 0x120; at += width)
                        write_any(ecam + at, width, random32(&seed) | (uint64_t) random32(&seed) << 32);
                for (uint64_t at = 0; at < 0x120; at += width)
                        write_any(ecam + at + 1, width, UINT64_MAX);
                write_any(ecam + 0xffd, width, UINT64_MAX);
        }
        write32(ecam + 0x10, 0x00100000);
        keep_identity(slot, ecam, before);
        /* Decoding on again, for those who come after. */
        write32(ecam + 4, 6);
}

static void attack_config_space(void) {
        for (unsigned slot = 0; slot < SLOTS; slot++)
                config_space(slot);
}

static uint64_t find_capability(const Raw *r, unsigned id, unsigned type) {
        uint64_t ecam = r->device.ecam;
        uint8_t at = read8(ecam + 0x34);

        for (unsigned i = 0; at && i < 16; i++) {
                if (read8(ecam + at) == id && (type == 0 || read8(ecam + at + 3) == type))
                        return ecam + at;
                at = read8(ecam + at + 1);
        }
        return 0;
}

/* The window of 4.1.4.9, which reaches into the BAR: of wrong BARs, lengths and offsets. */
static void window(const Target *t) {
        static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 8, 0x1000, UINT32_MAX };
        static const uint32_t offsets[] = { 1, 0x7fff, 0x8000, 0x7ffe, 0x5010, 0x10000, UINT32_MAX, UINT32_MAX - 3 };
        Raw r;

        if (!raw_open(&r, t, 0, RING_SIZE_USED))
                say(t->name, -1, "does not start");
        uint64_t cap = find_capability(&r, 9, 5);
        for (unsigned bar = 0; bar < 8 && cap; bar++)
                for (unsigned l = 0; l < ELEMENTSOF(lengths); l++)
                        for (unsigned o = 0; o < ELEMENTSOF(offsets); o++) {
                                write8(cap + 4, (uint8_t) (bar == 7 ? 255 : bar));
                                write32(cap + 8, offsets[o]);
                                write32(cap + 12, lengths[l]);
                                write32(cap + 16, UINT32_MAX);
                                (void) read32(cap + 16);
                                (void) read16(cap + 18);
                                write8(cap + 17, 0xff);
                        }
}

static void attack_window(void) {
        for_each_target(window);
}

/* MSI-X */

static void write_entries(uint64_t table, unsigned n, uint64_t address, uint32_t message, uint32_t control) {
        for (unsigned i = 0; i < n; i++) {
                uint64_t at = table + 16ULL * i;

                write_any(at, 8, address);
                write32(at + 8, message);
                write32(at + 12, control);
        }
}

/* Interrupts to addresses that are no local APIC, through entries that don't exist, masked and unmasked while they
 * are pending. The guest's own interrupts are off. */
static void msix(const Target *t) {
        static const uint64_t addresses[] = {
                0, 1, 0xfee00000, 0xfee0f00c, 0xfeefffff, 0xc0100000, UINT64_MAX, 0x1ffffffff00000, 0xfee00000ULL | 7ULL << 40,
        };
        uint32_t len;
        Raw r;

        if (!raw_find(&r, t))
                return;
        raw_reset(&r);
        (void) raw_negotiate(&r, FEATURE_VERSION_1);
        uint64_t cap = find_capability(&r, CAP_MSIX, 0), common = r.device.common;
        uint64_t table = (common & ~0xffffULL) + read32(cap + 4), pending = (common & ~0xffffULL) + read32(cap + 8);

        for (unsigned v = t->n_queues + 1; v < 0x10000; v = v * 3 + 1) {
                write16(common + COMMON_CONFIG_VECTOR, (uint16_t) v);
                if (read16(common + COMMON_CONFIG_VECTOR) != NO_VECTOR)
                        say(t->name, -1, "has a vector too many");
        }
        for (unsigned i = 0; i < ELEMENTSOF(addresses); i++) {
                if (!raw_open(&r, t, 0, RING_SIZE_USED)) {
                        say(t->name, -1, "does not start");
                        return;
                }
                r.rings[0].avail[0] = 0;
                write_entries(table, 64, addresses[i], i & 1 ? UINT32_MAX : 0x41, i & 1);
                write16(cap + 2, MSIX_ENABLE | (i & 2 ? MSIX_MASKED : 0));
                (void) raw_good_request(&r, 0, &len);
                for (unsigned at = 0; at < 64; at += 8)
                        write_any(pending + at, 8, UINT64_MAX);
                /* What is pending goes out now. */
                write16(cap + 2, MSIX_ENABLE);
                write_entries(table, 64, addresses[i], 0x41, 0);
                for (unsigned at = 0; at < 128; at += 3)
                        write_any(table + at, 4, UINT32_MAX);
                write16(cap + 2, 0);
                Outcome o = raw_good_request(&r, 0, &len);
                if (o != OUTCOME_USED)
                        say(t->name, (int) i, outcome_name(o));
        }
}

static void attack_msix(void) {
        for_each_target(msix);
}

const Attack register_attacks[] = {
        { "live-queue", attack_live_queue },
        { "bad-queues", attack_bad_queues },
        { "rings-on-rings", attack_rings_on_rings },
        { "bells", attack_bells },
        { "reset-storm", attack_reset_storm },
        { "status-jumps", attack_status_jumps },
        { "widths", attack_widths },
        { "nowhere", attack_nowhere },
        { "config-space", attack_config_space },
        { "window", attack_window },
        { "msix", attack_msix },
        {},
};
