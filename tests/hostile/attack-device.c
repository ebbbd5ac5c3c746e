/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose chains are right and whose contents are not: disks, network card, balloon, plugged memory, random
 * numbers, and the serial port. */

#include "hostile.h"

#define RING_SIZE_USED 64U
#define SECTOR 512U
#define PORT_SERIAL 0x3f8U
#define PORT_RESET 0x600U
#define PORT_SLEEP 0x601U

static bool open_target(Raw *r, const char *name) {
        const Target *t = target_find(name);

        if (raw_open(r, t, 0, RING_SIZE_USED))
                return true;
        say(name, -1, "does not start");
        return false;
}

static Desc *put_part(Raw *r, unsigned queue, unsigned i, const void *p, uint32_t len, uint16_t flags) {
        Desc *d = &r->rings[queue].desc[i];

        *d = (Desc) { .addr = (uint64_t) p, .len = len, .flags = flags, .next = (uint16_t) (i + 1) };
        return d;
}

static Outcome offer(Raw *r, unsigned queue, uint32_t *ret_len) {
        ring_offer(&r->rings[queue], 0);
        ring_kick(&r->rings[queue]);
        return raw_wait(r, &r->rings[queue], ret_len);
}

/* P10 */

#define BLK_IN 0U
#define BLK_OUT 1U
#define BLK_FLUSH 4U
#define BLK_GET_ID 8U
#define BLK_DISCARD 11U
#define BLK_WRITE_ZEROES 13U

static volatile uint8_t *blk_status(void) {
        return data[1];
}

/* Header, n bytes of data, status. */
static Outcome blk(Raw *r, uint32_t type, uint64_t sector, uint32_t n, uint16_t direction) {
        uint32_t len;

        memset(data[0], 0, 16);
        memcpy(data[0], &type, sizeof(type));
        memcpy(data[0] + 8, &sector, sizeof(sector));
        *blk_status() = 0xee;
        put_part(r, 0, 0, data[0], 16, DESC_NEXT);
        put_part(r, 0, 1, data[2], n, DESC_NEXT | direction);
        put_part(r, 0, 2, (const void *) blk_status(), 1, DESC_WRITE);
        return offer(r, 0, &len);
}

typedef struct BlkCase {
        const char *what;
        uint32_t type;
        uint64_t sector;
        uint32_t bytes;
        uint16_t direction;
} BlkCase;

static void blk_cases(const char *name) {
        Raw r;

        if (!open_target(&r, name))
                return;
        uint64_t capacity = read32(r.device.config) | (uint64_t) read32(r.device.config + 4) << 32;
        const BlkCase cases[] = {
                { "last", BLK_IN, capacity - 1, SECTOR, DESC_WRITE },
                { "over-the-end", BLK_IN, capacity - 1, 2 * SECTOR, DESC_WRITE },
                { "behind-the-end", BLK_IN, capacity, SECTOR, DESC_WRITE },
                { "wrap", BLK_IN, UINT64_MAX, SECTOR, DESC_WRITE },
                { "wrap-to-zero", BLK_IN, 1ULL << 55, SECTOR, DESC_WRITE },
                { "nearly-wrap", BLK_IN, (1ULL << 55) - 1, 2 * SECTOR, DESC_WRITE },
                { "odd-read", BLK_IN, 0, SECTOR + 1, DESC_WRITE },
                { "odd-write", BLK_OUT, 0, SECTOR - 1, 0 },
                { "write-over-the-end", BLK_OUT, capacity - 1, 2 * SECTOR, 0 },
                { "write-wrap", BLK_OUT, UINT64_MAX, SECTOR, 0 },
                { "write-nowhere", BLK_OUT, 1ULL << 54, SECTOR, 0 },
                { "read-as-write", BLK_IN, 0, SECTOR, 0 },
                { "write-as-read", BLK_OUT, 0, SECTOR, DESC_WRITE },
                { "discard", BLK_DISCARD, 0, 16, 0 },
                { "write-zeroes", BLK_WRITE_ZEROES, 0, 16, 0 },
                { "unknown", UINT32_MAX, 0, SECTOR, DESC_WRITE },
                { "long-id", BLK_GET_ID, 0, PAGE, DESC_WRITE },
                { "short-id", BLK_GET_ID, 0, 1, DESC_WRITE },
                { "flush-at-nowhere", BLK_FLUSH, UINT64_MAX, PAGE, DESC_WRITE },
        };

        for (unsigned i = 0; i < ELEMENTSOF(cases); i++) {
                Outcome o = blk(&r, cases[i].type, cases[i].sector, cases[i].bytes, cases[i].direction);

                if (o == OUTCOME_USED)
                        say_number(name, cases[i].what, *blk_status());
                else
                        say(name, -1, outcome_name(o));
        }
}

static void attack_disk_ranges(void) {
        blk_cases("vda");
        blk_cases("vdb");
}

/* Requests without a header, or without a place for the answer. */
static void blk_frame(const char *what, uint32_t header, uint32_t room) {
        uint32_t len;
        Raw r;

        if (!open_target(&r, "vdb"))
                return;
        memset(data[0], 0, 16);
        *blk_status() = 0xee;
        put_part(&r, 0, 0, data[0], header, DESC_NEXT);
        put_part(&r, 0, 1, (const void *) blk_status(), room, DESC_WRITE);
        Outcome o = offer(&r, 0, &len);
        if (o == OUTCOME_USED)
                say_number(what, "used", *blk_status());
        else
                say(what, -1, outcome_name(o));
}

static void attack_disk_frames(void) {
        blk_frame("no-header", 0, 1);
        blk_frame("short-header", 15, 1);
        blk_frame("no-status", 16, 0);
        blk_frame("status-only", 16, 1);
}

/* The disk writes where its own ring and its own request are, with what the guest has put on it. */
static void attack_disk_into_rings(void) {
        Raw r;
        uint32_t len;

        if (!open_target(&r, "vdb"))
                return;
        memset(data[2], 0xa5, SECTOR);
        say("write", -1, outcome_name(blk(&r, BLK_OUT, 3, SECTOR, 0)));
        void *const places[] = { r.rings[0].desc, (void *) r.rings[0].avail, (void *) r.rings[0].used, data[0] };
        for (unsigned i = 0; i < ELEMENTSOF(places); i++) {
                if (!open_target(&r, "vdb"))
                        return;
                memset(data[0], 0, 16);
                data[0][8] = 3;
                put_part(&r, 0, 0, data[0], 16, DESC_NEXT);
                put_part(&r, 0, 1, places[i], SECTOR, DESC_NEXT | DESC_WRITE);
                put_part(&r, 0, 2, (const void *) blk_status(), 1, DESC_WRITE);
                ring_offer(&r.rings[0], 0);
                ring_kick(&r.rings[0]);
                say("read", (int) i, outcome_name(raw_wait(&r, &r.rings[0], &len)));
        }
}

/* As much as a ring can ask for, several times over. */
static void attack_disk_flood(void) {
        uint32_t head, len, done = 0;
        Raw r;

        if (!open_target(&r, "vdb"))
                return;
        memset(data[0], 0, 16);
        put_part(&r, 0, 0, data[0], 16, DESC_NEXT);
        for (unsigned i = 1; i < RING_SIZE_USED - 1; i++)
                put_part(&r, 0, i, data[2], 2 * SECTOR, DESC_NEXT | DESC_WRITE);
        put_part(&r, 0, RING_SIZE_USED - 1, (const void *) blk_status(), 1, DESC_WRITE);
        for (unsigned i = 0; i < 200; i++) {
                ring_offer(&r.rings[0], 0);
                ring_kick(&r.rings[0]);
                if (raw_wait(&r, &r.rings[0], &len) != OUTCOME_USED)
                        break;
                done++;
                while (ring_take(&r.rings[0], &head, &len))
                        ;
        }
        say_number("vdb", "done", done);
}

/* P9 */

#define NET_HEADER_BYTES 12U
#define NET_FEATURES (1ULL << 0 | 1ULL << 1 | 1ULL << 7 | 1ULL << 8 | 1ULL << 11 | 1ULL << 12 | 1ULL << 15)

typedef struct NetCase {
        const char *what;
        uint8_t flags, kind;
        uint16_t header, size, start, offset;
        uint32_t bytes;           /* of the frame, without the header before it */
} NetCase;

static void net_case(Raw *r, const NetCase *c) {
        uint8_t *h = data[0];
        uint32_t len;

        memset(h, 0, PAGE);
        h[0] = c->flags;
        h[1] = c->kind;
        memcpy(h + 2, &c->header, 2);
        memcpy(h + 4, &c->size, 2);
        memcpy(h + 6, &c->start, 2);
        memcpy(h + 8, &c->offset, 2);
        memset(h + NET_HEADER_BYTES, 0xff, 6);
        put_part(r, 1, 0, h, NET_HEADER_BYTES, DESC_NEXT);
        put_part(r, 1, 1, data[0] + NET_HEADER_BYTES, c->bytes, 0);
        say(c->what, -1, outcome_name(offer(r, 1, &len)));
}

/* The card takes each of them, and throws it away: the host counts them. */
static void attack_frames(void) {
        static const NetCase cases[] = {
                { "nothing", 0, 0, 0, 0, 0, 0, 1 },
                { "short", 0, 0, 0, 0, 0, 0, 13 },
                { "long", 0, 0, 0, 0, 0, 0, 65551 },
                { "very-long", 0, 0, 0, 0, 0, 0, 200000 },
                { "checksum-outside", 1, 0, 0, 0, 0xffff, 0xffff, 60 },
                { "checksum-over-the-end", 1, 0, 0, 0, 58, 1, 60 },
                { "checksum-in-ethernet", 1, 0, 0, 0, 3, 1, 60 },
                { "segments-of-0", 1, 1, 54, 0, 34, 16, 1000 },
                { "segments-of-1", 1, 1, 54, 1, 34, 16, 60000 },
                { "segments-without-checksum", 0, 1, 54, 1000, 0, 0, 1000 },
                { "segments-unknown", 1, 7, 54, 1000, 34, 16, 1000 },
                { "udp-segments", 1, 3, 42, 1000, 34, 6, 1000 },
                { "header-outside", 1, 1, 0xffff, 1000, 34, 16, 1000 },
                { "tcp-outside", 1, 4, 54, 1000, 990, 16, 1000 },
        };
        Raw r;

        if (!raw_open(&r, target_find("net"), NET_FEATURES, RING_SIZE_USED)) {
                say("net", -1, "does not start");
                return;
        }
        for (unsigned i = 0; i < ELEMENTSOF(cases); i++)
                net_case(&r, &cases[i]);
}

/* Buffers that nothing fits into, the same buffer again while it is held. */
static void net_buffer(const char *what, uint32_t len, unsigned times, uint64_t features) {
        uint32_t n;
        Raw r;

        if (!raw_open(&r, target_find("net"), features, RING_SIZE_USED))
                say("net", -1, "does not start");
        put_part(&r, 0, 0, data[4], len, DESC_WRITE);
        /* All at once: a frame of somebody else may come in between. */
        for (unsigned i = 0; i < times; i++)
                r.rings[0].avail[2 + i] = 0;
        barrier();
        r.rings[0].avail[1] = (uint16_t) times;
        ring_kick(&r.rings[0]);
        raw_provoke(&r, 0);
        say(what, -1, outcome_name(raw_wait(&r, &r.rings[0], &n)));
}

static void attack_buffers(void) {
        net_buffer("none", 0, 1, NET_FEATURES);
        net_buffer("header-less", NET_HEADER_BYTES - 1, 1, NET_FEATURES);
        net_buffer("twice", PAGE, 2, NET_FEATURES);
}

/* P12 */

static void balloon_pages(const char *what, unsigned queue, const uint32_t *pfns, uint32_t bytes) {
        uint32_t len;
        Raw r;

        if (!open_target(&r, "balloon"))
                return;
        memcpy(data[0], pfns, MIN(bytes, PAGE));
        put_part(&r, queue, 0, data[0], bytes, 0);
        say(what, (int) queue, outcome_name(offer(&r, queue, &len)));
}

static void attack_balloon_pages(void) {
        const uint32_t end = (uint32_t) (memory_end() / PAGE), own = (uint32_t) ((uint64_t) data[40] / PAGE);
        const struct {
                const char *what;
                uint32_t pfns[2];
                uint32_t bytes;
        } cases[] = {
                { "firmware", { own, 0xe0 }, 8 },
                { "video", { own, 0xa0 }, 8 },
                { "end", { own, end }, 8 },
                { "bar", { own, 0xc0100 }, 8 },
                { "apic", { own, 0xfee00 }, 8 },
                { "far", { own, UINT32_MAX }, 8 },
                { "far-half", { own, 0x80000000 }, 8 },
                { "odd", { own, own }, 7 },
                { "none", { own, own }, 0 },
                { "long", { own, own }, 16385 * 4 },
                { "good", { own, own }, 8 },
        };

        for (unsigned i = 0; i < ELEMENTSOF(cases); i++)
                for (unsigned q = 0; q < 2; q++)
                        balloon_pages(cases[i].what, q, cases[i].pfns, cases[i].bytes);
}

/* Free pages that are none, and what a driver may not write. */
static void attack_balloon_reports(void) {
        static const uint64_t places[] = { 0xe0000, 0xa0000, 0x9f000 };
        uint32_t len;
        Raw r;

        for (unsigned i = 0; i < ELEMENTSOF(places); i++) {
                if (!open_target(&r, "balloon"))
                        return;
                put_part(&r, 3, 0, (void *) places[i], 2 * PAGE, DESC_WRITE);
                say("report", (int) i, outcome_name(offer(&r, 3, &len)));
        }
        for (unsigned at = 0; at < 64; at += 4)
                write32(r.device.config + at, UINT32_MAX);
        say_number("balloon", "asked", read32(r.device.config));
        write32(r.device.config + 4, 0);
}

/* Figures without end, of tags that don't exist. */
static void attack_balloon_figures(void) {
        uint32_t len;
        Raw r;

        if (!open_target(&r, "balloon"))
                return;
        memset(data[0], 0xff, PAGE);
        for (unsigned i = 0; i < 100; i++) {
                uint16_t head = (uint16_t) (i % RING_SIZE_USED);

                put_part(&r, 2, head, data[0], 1 + i * 37 % PAGE, 0);
                ring_offer(&r.rings[2], head);
                ring_kick(&r.rings[2]);
                if (i > 0 && raw_wait(&r, &r.rings[2], &len) != OUTCOME_USED)
                        say_number("figures", "nothing", i);
        }
        /* One that is held already. */
        ring_offer(&r.rings[2], 99 % RING_SIZE_USED);
        ring_kick(&r.rings[2]);
        say("held", -1, outcome_name(raw_wait(&r, &r.rings[2], &len)));
}

/* Plugged memory */

#define MEM_PLUG 0U
#define MEM_UNPLUG 1U
#define MEM_UNPLUG_ALL 2U
#define MEM_STATE 3U

static void mem_case(Raw *r, const char *what, uint16_t type, uint64_t gpa, uint16_t n) {
        uint32_t len;

        memset(data[0], 0, 24);
        memcpy(data[0], &type, 2);
        memcpy(data[0] + 8, &gpa, 8);
        memcpy(data[0] + 16, &n, 2);
        data[1][0] = 0xee;
        put_part(r, 0, 0, data[0], 24, DESC_NEXT);
        put_part(r, 0, 1, data[1], 10, DESC_WRITE);
        Outcome o = offer(r, 0, &len);
        if (o == OUTCOME_USED)
                say_number("mem", what, data[1][0]);
        else
                say(what, -1, outcome_name(o));
}

static void attack_mem_ranges(void) {
        Raw r;

        if (!open_target(&r, "mem"))
                return;
        uint64_t block = read32(r.device.config);
        uint64_t gpa = read32(r.device.config + 16) | (uint64_t) read32(r.device.config + 20) << 32;
        uint64_t bytes = read32(r.device.config + 24) | (uint64_t) read32(r.device.config + 28) << 32;

        mem_case(&r, "unasked", MEM_PLUG, gpa, 1);
        mem_case(&r, "before", MEM_PLUG, gpa - block, 1);
        mem_case(&r, "behind", MEM_PLUG, gpa + bytes, 1);
        mem_case(&r, "over", MEM_PLUG, gpa + bytes - block, 2);
        mem_case(&r, "odd", MEM_PLUG, gpa + 1, 1);
        mem_case(&r, "none", MEM_PLUG, gpa, 0);
        mem_case(&r, "many", MEM_PLUG, gpa, 0xffff);
        mem_case(&r, "zero", MEM_UNPLUG, 0, 1);
        mem_case(&r, "unplugged", MEM_UNPLUG, gpa, 1);
        mem_case(&r, "wrap", MEM_UNPLUG, 0 - block, 2);
        mem_case(&r, "wrap-far", MEM_UNPLUG, gpa, 0xffff);
        mem_case(&r, "state-outside", MEM_STATE, 0, 1);
        mem_case(&r, "all", MEM_UNPLUG_ALL, UINT64_MAX, 0xffff);
        mem_case(&r, "unknown", 0xffff, gpa, 1);
        write32(r.device.config + 48, UINT32_MAX);
        mem_case(&r, "asked-by-itself", MEM_PLUG, gpa, 1);
}

static void attack_mem_frames(void) {
        static const struct {
                const char *what;
                uint32_t in, out;
        } cases[] = { { "short", 23, 10 }, { "narrow", 24, 9 }, { "nothing", 24, 0 }, { "empty", 0, 10 } };
        uint32_t len;
        Raw r;

        for (unsigned i = 0; i < ELEMENTSOF(cases); i++) {
                if (!open_target(&r, "mem"))
                        return;
                put_part(&r, 0, 0, data[0], cases[i].in, DESC_NEXT);
                put_part(&r, 0, 1, data[1], cases[i].out, DESC_WRITE);
                say(cases[i].what, -1, outcome_name(offer(&r, 0, &len)));
        }
}

/* P13 */

static void attack_random_bytes(void) {
        uint32_t head, len, total = 0;
        Raw r;

        if (!open_target(&r, "rng"))
                return;
        Ring *ring = &r.rings[0];
        for (unsigned i = 0; i < ring->size; i++) {
                put_part(&r, 0, i, data, sizeof(data), DESC_WRITE);
                ring_offer(ring, (uint16_t) i);
        }
        ring_kick(ring);
        for (unsigned i = 0; i < ring->size; i++) {
                if (raw_wait(&r, ring, &len) != OUTCOME_USED) {
                        say_number("rng", "silent-after", i);
                        break;
                }
                if (len > total)
                        total = len;
        }
        say_number("rng", "largest", total);
        while (ring_take(ring, &head, &len))
                ;
        /* None at all, and nothing to write to. */
        put_part(&r, 0, 0, data[0], 0, DESC_WRITE);
        say("empty", -1, outcome_name(offer(&r, 0, &len)));
        put_part(&r, 0, 0, data[0], PAGE, 0);
        say("read-only", -1, outcome_name(offer(&r, 0, &len)));
}

/* P14 */

static void outs(uint16_t port, const void *p, uint64_t n) {
        __asm__ volatile("rep outsb" : "+S"(p), "+c"(n) : "d"(port) : "memory");
}

static void ins(uint16_t port, void *p, uint64_t n) {
        __asm__ volatile("rep insb" : "+D"(p), "+c"(n) : "d"(port) : "memory");
}

static void print_pages(uint32_t pages) {
        memset(data[0], 'x', PAGE);
        data[0][PAGE - 1] = '\n';
        for (uint32_t i = 0; i < pages; i++)
                outs(PORT_SERIAL, data[0], PAGE);
        say_number("console", "pages", pages);
}

/* Each byte is an exit of its own. The ring of it that the VMM keeps is 64 KiB. */
static void attack_console(void) {
        print_pages(17);
}

static void attack_console_long(void) {
        print_pages(512);
}

static void attack_ports(void) {
        uint32_t seed = 0x55aa55;

        for (uint32_t port = 0; port < 0x10000; port += port < 0x400 ? 1 : 37) {
                uint32_t v = random32(&seed);

                if (port + 4 > PORT_RESET && port <= PORT_SLEEP + 1)
                        continue;
                outb((uint16_t) port, (uint8_t) v);
                __asm__ volatile("outw %0, %1" : : "a"((uint16_t) v), "d"((uint16_t) port));
                __asm__ volatile("outl %0, %1" : : "a"(v), "d"((uint16_t) port));
                (void) inb((uint16_t) port);
                __asm__ volatile("inw %%dx, %%ax" : "=a"(v) : "d"((uint16_t) port));
                __asm__ volatile("inl %%dx, %%eax" : "=a"(v) : "d"((uint16_t) port));
                if (v != UINT32_MAX)
                        say_number("port", "answers 32 bits", port);
        }
        for (uint16_t port = PORT_SERIAL; port < PORT_SERIAL + 8; port++)
                ins(port, data[0], PAGE);
        /* As it was, so that what is printed comes out. */
        outb(PORT_SERIAL + 3, 3);
        outb(PORT_SERIAL + 4, 0);
        put_string("\npayload: ports\n");
}

const Attack device_attacks[] = {
        { "disk-ranges", attack_disk_ranges },
        { "disk-frames", attack_disk_frames },
        { "disk-into-rings", attack_disk_into_rings },
        { "disk-flood", attack_disk_flood },
        { "frames", attack_frames },
        { "buffers", attack_buffers },
        { "balloon-pages", attack_balloon_pages },
        { "balloon-reports", attack_balloon_reports },
        { "balloon-figures", attack_balloon_figures },
        { "mem-ranges", attack_mem_ranges },
        { "mem-frames", attack_mem_frames },
        { "random-bytes", attack_random_bytes },
        { "console", attack_console },
        { "console-long", attack_console_long },
        { "ports", attack_ports },
        {},
};
