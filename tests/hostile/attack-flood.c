/* SPDX-License-Identifier: Apache-2.0 */
/* A second CPU that keeps one ring full, and rings its bell, while the first one uses all other devices (P6). */

#include "hostile.h"
#include "tests/payload/clock.h"

#define RING_SIZE_USED 16U

typedef struct Flood {
        const char *name;
        unsigned queue;
} Flood;

static Raw flooded;

/* As many again as were used. */
static void fill(Ring *ring) {
        ring->avail[1] = (uint16_t) (ring->used[1] + ring->size);
        ring_kick(ring);
}

/* Second CPU. */
static void flood(void *context) {
        const Flood *f = context;

        fill(&flooded.rings[f->queue]);
        /* Else what the host has to say fills up, and with it the flood ends. */
        if (flooded.target->kind == KIND_VSOCK)
                fill(&flooded.rings[0]);
}

/* Returns when it flows. */
static bool start(const Flood *f) {
        raw_use(1);
        bool up = raw_open(&flooded, target_find(f->name), 0, RING_SIZE_USED);
        raw_use(0);
        if (!up)
                return false;

        (void) raw_good_chain(&flooded, f->queue);
        if (flooded.target->kind == KIND_VSOCK)
                for (unsigned i = 0; i < RING_SIZE_USED; i++) {
                        (void) raw_good_chain(&flooded, 0);
                        flooded.rings[0].desc[i] = flooded.rings[0].desc[0];
                        flooded.rings[0].avail[2 + i] = (uint16_t) i;
                }
        /* The same chain over and over: it is given back before it is taken again. */
        for (unsigned i = 0; i < RING_SIZE_USED; i++)
                flooded.rings[f->queue].avail[2 + i] = 0;
        smp_run(flood, (void *) f);
        for (uint64_t end = 0; flooded.rings[f->queue].used[1] == 0;) {
                if (!clock_patient(&end))
                        return false;
                pause_cpu();
        }
        return true;
}

/* Behind a restore the host holds back what comes from the network until it has heard the agent, which is away as long as
 * this runs. */
static bool answers(const Target *t, bool *was_away) {
        *was_away |= clock_was_away();
        return t->kind != KIND_NET || !*was_away;
}

static void run(const Flood *f, bool *was_away) {
        if (!start(f)) {
                smp_stop();
                say(f->name, -1, "does not start");
                return;
        }
        for (unsigned i = 0; i < n_targets; i++)
                if (&targets[i] != flooded.target && answers(&targets[i], was_away))
                        say_alive(&targets[i]);
        smp_stop();
        say(f->name, (int) f->queue, virtio_status(&flooded.device) & STATUS_NEEDS_RESET ? "stopped" : "over");
        raw_reset(&flooded);
}

static void attack_floods(void) {
        static const Flood floods[] = {
                { "vda", 0 }, { "vdb", 0 }, { "rng", 0 }, { "net", 1 }, { "balloon", 0 }, { "balloon", 1 },
                { "balloon", 3 }, { "mem", 0 }, { "vsock", 1 },
        };
        bool was_away = false;

        if (!smp_start()) {
                say("flood", -1, "without a second CPU");
                return;
        }
        (void) clock_was_away();
        for (unsigned i = 0; i < ELEMENTSOF(floods); i++)
                run(&floods[i], &was_away);
}

/* A disk that goes on by itself: a sector is read over the available ring. It makes another ring full of requests
 * available, the last of which reads the next sector there. After as many sectors as it takes for the index to come
 * round, it starts over. The guest's CPUs have nothing to do with it. */

#define FEED_SIZE 128U
#define FEED_SECTORS (65536U / FEED_SIZE)
#define SECTOR 512U
#define BATCH 256U                /* sectors that are written by one request */
#define FEED_PAGE 40U
#define BLK_IN 0U
#define BLK_OUT 1U
#define BLK_GET_ID 8U

/* What is in a sector, and what lies in memory: an available ring, and the header of the request that reads the next. */
typedef struct Feed {
        uint16_t flags, index, entries[FEED_SIZE], used_event;
        uint8_t padding[10];
        uint32_t type, reserved;
        uint64_t sector;
        uint8_t rest[SECTOR - 288];
} Feed;

_Static_assert(sizeof(Feed) == SECTOR, "one sector");

static void make_feed(Feed *f, uint32_t sector) {
        memset(f, 0, sizeof(*f));
        f->flags = 1;
        f->index = (uint16_t) ((sector + 2) * FEED_SIZE);
        for (unsigned i = 0; i + 1 < FEED_SIZE; i++)
                f->entries[i] = 3;
        f->type = BLK_IN;
        f->sector = (sector + 1) % FEED_SECTORS;
}

static Desc *chain(Raw *r, unsigned first, const void *header, const void *where, uint32_t bytes, uint16_t direction) {
        Desc *d = r->rings[0].desc + first;

        d[0] = (Desc) { .addr = (uint64_t) header, .len = 16, .flags = DESC_NEXT, .next = (uint16_t) (first + 1) };
        d[1] = (Desc) { .addr = (uint64_t) where, .len = bytes, .flags = direction | DESC_NEXT,
                        .next = (uint16_t) (first + 2) };
        d[2] = (Desc) { .addr = (uint64_t) data[FEED_PAGE + 2], .len = 1, .flags = DESC_WRITE };
        return d;
}

/* Onto the disk. */
static bool write_feed(Raw *r) {
        struct PACKED {
                uint32_t type, reserved;
                uint64_t sector;
        } header = { .type = BLK_OUT };
        uint32_t len;

        for (; header.sector < FEED_SECTORS; header.sector += BATCH) {
                for (uint32_t i = 0; i < BATCH; i++)
                        make_feed((Feed *) data[0] + i, (uint32_t) header.sector + i);
                (void) chain(r, 0, &header, data[0], BATCH * SECTOR, 0);
                ring_offer(&r->rings[0], 0);
                ring_kick(&r->rings[0]);
                if (raw_wait(r, &r->rings[0], &len) != OUTCOME_USED || data[FEED_PAGE + 2][0] != 0)
                        return false;
        }
        return true;
}

static void attack_disk_feeds_itself(void) {
        Feed *feed = (Feed *) data[FEED_PAGE];
        Raw r;

        /* Out of the way of what is done to others meanwhile. */
        raw_use(1);
        bool up = raw_open(&r, target_find("vdb"), 0, FEED_SIZE) && write_feed(&r);
        raw_use(0);
        if (!up) {
                say("vdb", -1, "can't be written");
                return;
        }

        raw_reset(&r);
        (void) raw_negotiate(&r, FEATURE_VERSION_1);
        /* As if the last sector of all had just been read. */
        make_feed(feed, FEED_SECTORS - 1);
        memset(data[FEED_PAGE + 1], 0, 16);
        data[FEED_PAGE + 1][0] = BLK_GET_ID;
        (void) chain(&r, 0, &feed->type, feed, SECTOR, DESC_WRITE);
        (void) chain(&r, 3, data[FEED_PAGE + 1], data[FEED_PAGE + 3], 20, DESC_WRITE);
        r.rings[0].used[0] = r.rings[0].used[1] = 0;
        up = raw_enable(&r, 0, FEED_SIZE, (uint64_t) r.rings[0].desc, (uint64_t) feed, (uint64_t) r.rings[0].used);
        raw_status(&r, STATUS_DRIVER_OK);
        ring_kick(&r.rings[0]);
        say("vdb", -1, up ? "feeds itself" : "does not start");
}

const Attack flood_attacks[] = {
        { "floods", attack_floods },
        { "disk-feeds-itself", attack_disk_feeds_itself },
        {},
};
