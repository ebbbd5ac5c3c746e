/* SPDX-License-Identifier: Apache-2.0 */
/* A second CPU that writes while the VMM reads (P2): descriptors, rings, what requests say, and registers. */

#include "hostile.h"

#define RING_SIZE_USED 16U
#define WORDS_MAX 24U
#define ROUNDS 30U
#define BARS 0xc0000000ULL

/* Values that one place in memory has in turn. */
typedef struct Word {
        volatile uint64_t *at;
        uint64_t value[2];
} Word;

typedef struct Race {
        Word words[WORDS_MAX];
        unsigned n;
} Race;

static Race race;

/* Second CPU. */
static void flip(void *context) {
        const Race *x = context;

        for (unsigned i = 0; i < x->n; i++)
                *x->words[i].at = x->words[i].value[1];
        for (unsigned i = 0; i < x->n; i++)
                *x->words[i].at = x->words[i].value[0];
}

static void add(const volatile void *at, uint64_t other) {
        volatile uint64_t *p = (volatile uint64_t *) at;

        if (race.n < WORDS_MAX)
                race.words[race.n++] = (Word) { .at = p, .value = { *p, other } };
}

/* Requests until so many were done or had stopped the device, which is started anew then. */
static void run(const Target *t, unsigned queue, uint64_t features, void (*prepare)(Raw *r, unsigned queue, unsigned n)) {
        unsigned served = 0, stopped = 0;
        uint32_t len;
        Raw r;

        for (unsigned i = 0; i < ROUNDS; i++) {
                if (i == 0 || virtio_status(&r.device) != STATUS_DRIVER_OK) {
                        smp_stop();
                        if (!raw_open(&r, t, features, RING_SIZE_USED)) {
                                say(t->name, (int) queue, "does not start");
                                return;
                        }
                        race.n = 0;
                        prepare(&r, queue, raw_good_chain(&r, queue));
                        smp_run(flip, &race);
                }
                ring_offer(&r.rings[queue], 0);
                ring_kick(&r.rings[queue]);
                raw_provoke(&r, queue);
                raw_replace(&r, queue);
                Outcome o = raw_wait(&r, &r.rings[queue], &len);
                if (o == OUTCOME_NOTHING) {
                        smp_stop();
                        say(t->name, (int) queue, outcome_name(o));
                        return;
                }
                served += o == OUTCOME_USED;
                stopped += o == OUTCOME_STOPPED;
        }
        smp_stop();
        if (served + stopped != ROUNDS)
                say_number(t->name, "rounds", served + stopped);
}

static void run_all(uint64_t features, void (*prepare)(Raw *r, unsigned queue, unsigned n)) {
        if (!smp_start()) {
                say("race", -1, "without a second CPU");
                return;
        }
        for (unsigned i = 0; i < n_targets; i++)
                for (unsigned q = 0; q < targets[i].n_queues; q++) {
                        bool unread = targets[i].kind == KIND_VSOCK && q == 2;
                        bool provoked = targets[i].kind == KIND_NET && q == 0;

                        /* What comes back over the wire may be dropped on its way: nothing to wait for. */
                        if (!unread && !provoked)
                                run(&targets[i], q, features, prepare);
                }
}

static void race_descriptors(Raw *r, unsigned queue, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                const Desc *d = &r->rings[queue].desc[i];

                add(&d->addr, i & 1 ? memory_end() - 4 : BARS + (1U << 20));
                add(&d->len, UINT32_MAX | (uint64_t) (DESC_NEXT | DESC_INDIRECT) << 32 | 0xffffULL << 48);
        }
}

static void attack_race_descriptors(void) {
        run_all(0, race_descriptors);
}

static void race_tables(Raw *r, unsigned queue, unsigned n) {
        Desc *table = (Desc *) data[8], *d = &r->rings[queue].desc[0];

        memcpy(table, d, n * sizeof(Desc));
        *d = (Desc) { .addr = (uint64_t) table, .len = n * (uint32_t) sizeof(Desc), .flags = DESC_INDIRECT };
        for (unsigned i = 0; i < n; i++)
                add(&table[i].len, 0xfffffff0 | (uint64_t) (DESC_NEXT | DESC_WRITE | DESC_INDIRECT) << 32);
        add(&d->len, 4096 | (uint64_t) DESC_INDIRECT << 32);
        add(&d->addr, memory_end() - 16);
}

static void attack_race_tables(void) {
        run_all(FEATURE_INDIRECT, race_tables);
}

/* What a request says: its header, page numbers, a packet's length. */
static void race_contents(Raw *r, unsigned queue, unsigned n) {
        /* What is to come back there depends on a packet that says the truth. */
        if (r->target->kind == KIND_VSOCK && queue == 0)
                return;
        for (unsigned i = 0; i < 6; i++)
                add(data[0] + 8 * i, i & 1 ? UINT64_MAX : 0x0102040810204080ULL);
}

static void attack_race_contents(void) {
        run_all(0, race_contents);
}

static void race_rings(Raw *r, unsigned queue, unsigned n) {
        /* Not the index: what was not offered is not waited for. */
        add(&r->rings[queue].avail[4], 0x000100ffffff0000ULL);
        add(&r->rings[queue].avail[8], UINT64_MAX);
        add(&r->rings[queue].used[4], UINT64_MAX);
}

static void attack_race_rings(void) {
        run_all(FEATURE_EVENT_IDX, race_rings);
}

/* Registers, from both sides at once. */

typedef struct Registers {
        uint64_t common, table, config, notify;
        uint32_t seed;
} Registers;

static void scribble(void *context) {
        static const uint8_t statuses[] = { 0, 1, 3, 11, 15, 0x8f };
        Registers *x = context;
        uint32_t v = random32(&x->seed);

        write16(x->common + COMMON_SELECT, (uint16_t) (v % 6));
        write16(x->common + COMMON_SIZE, (uint16_t) (1U << v % 9));
        write32(x->common + COMMON_DESC, v);
        write16(x->common + COMMON_ENABLE, 1);
        write32(x->table + v % 8 * 4, v & 0xff);
        write16(x->notify, 0);
        (void) read32(x->config);
        if (v % 4 == 0)
                write8(x->common + COMMON_STATUS, statuses[v / 4 % ELEMENTSOF(statuses)]);
}

static void race_registers(const Target *t) {
        Registers x;
        Raw r;

        if (!raw_find(&r, t))
                return;
        x = (Registers) { .common = r.device.common, .table = r.device.common + 4 * PAGE, .config = r.device.config,
                          .notify = r.device.notify, .seed = 4711 };
        if (!x.config)
                x.config = x.common;
        smp_run(scribble, &x);
        for (unsigned i = 0; i < 15; i++) {
                /* Nobody waits for anybody here. */
                raw_status(&r, 0);
                (void) raw_negotiate(&r, FEATURE_VERSION_1);
                for (unsigned q = 0; q < t->n_queues; q++)
                        (void) raw_enable(&r, q, RING_SIZE_USED, (uint64_t) data[16], (uint64_t) data[17], (uint64_t) data[18]);
                raw_status(&r, STATUS_DRIVER_OK);
                write16(r.device.notify, 0);
        }
        smp_stop();
        raw_reset(&r);
        /* It may have been left masked, or with an address of nowhere. */
        if (!raw_open(&r, t, 0, RING_SIZE_USED))
                say(t->name, -1, "does not start");
}

static void attack_race_registers(void) {
        if (!smp_start()) {
                say("race", -1, "without a second CPU");
                return;
        }
        for (unsigned i = 0; i < n_targets; i++)
                race_registers(&targets[i]);
}

const Attack race_attacks[] = {
        { "race-descriptors", attack_race_descriptors },
        { "race-tables", attack_race_tables },
        { "race-contents", attack_race_contents },
        { "race-rings", attack_race_rings },
        { "race-registers", attack_race_registers },
        {},
};
