/* SPDX-License-Identifier: Apache-2.0 */
/* A second CPU that keeps one ring full, and rings its bell, while the first one uses all other devices (P6). */

#include "hostile.h"

#define RING_SIZE_USED 16U
/* Looks, each of which is a microsecond or more. */
#define PATIENCE 3000000U

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
        /* Until it flows. */
        for (unsigned i = 0; i < PATIENCE && flooded.rings[f->queue].used[1] == 0; i++)
                pause_cpu();
        return true;
}

static void run(const Flood *f) {
        if (!start(f)) {
                say(f->name, -1, "does not start");
                return;
        }
        bool flowed = flooded.rings[f->queue].used[1] != 0;
        for (unsigned i = 0; i < n_targets; i++)
                if (&targets[i] != flooded.target)
                        say_alive(&targets[i]);
        smp_stop();
        if (virtio_status(&flooded.device) & STATUS_NEEDS_RESET)
                say(f->name, (int) f->queue, "stopped");
        else
                say(f->name, (int) f->queue, flowed ? "over" : "nothing");
        raw_reset(&flooded);
}

static void attack_floods(void) {
        static const Flood floods[] = {
                { "vda", 0 }, { "vdb", 0 }, { "rng", 0 }, { "net", 1 }, { "balloon", 0 }, { "balloon", 1 },
                { "balloon", 3 }, { "mem", 0 }, { "vsock", 1 },
        };

        if (!smp_start()) {
                say("flood", -1, "without a second CPU");
                return;
        }
        for (unsigned i = 0; i < ELEMENTSOF(floods); i++)
                run(&floods[i]);
}

const Attack flood_attacks[] = {
        { "floods", attack_floods },
        {},
};
