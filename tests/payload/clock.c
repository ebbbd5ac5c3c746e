/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#define MSR_KVM_SYSTEM_TIME_NEW 0x4b564d01U
#define SYSTEM_TIME_ENABLE 1U
#define FLAG_GUEST_STOPPED (1U << 1)
#define NSEC_PER_MSEC 1000000U
#define PATIENCE_NSEC (60000ULL * NSEC_PER_MSEC)

/* struct pvclock_vcpu_time_info */
typedef struct PACKED ClockPage {
        uint32_t version;         /* odd: being written */
        uint32_t reserved;
        uint64_t tsc;
        uint64_t nsec;
        uint32_t multiplier;      /* of nanoseconds per tick, 32 bits behind the point */
        int8_t shift;
        uint8_t flags;
        uint8_t reserved2[2];
} ClockPage;

static volatile ClockPage page __attribute__((aligned(64)));
static uint64_t realtime_offset;

static void start(void) {
        static bool started;

        if (!started)
                wrmsr(MSR_KVM_SYSTEM_TIME_NEW, (uint64_t) &page | SYSTEM_TIME_ENABLE);
        started = true;
}

static uint64_t scale(uint64_t ticks) {
        ticks = page.shift < 0 ? ticks >> -page.shift : ticks << page.shift;
        return (ticks >> 32) * page.multiplier + ((ticks & UINT32_MAX) * page.multiplier >> 32);
}

uint64_t clock_monotonic(void) {
        uint32_t version;
        uint64_t nsec;

        start();
        do {
                version = page.version & ~1U;
                barrier();
                nsec = page.nsec + scale(rdtsc() - page.tsc);
                barrier();
        } while (page.version != version);
        return page.multiplier ? nsec : 0;
}

void clock_set_realtime(uint64_t nsec) {
        realtime_offset = nsec - clock_monotonic();
}

uint64_t clock_realtime(void) {
        return realtime_offset ? realtime_offset + clock_monotonic() : 0;
}

bool clock_was_away(void) {
        bool away;

        start();
        away = page.flags & FLAG_GUEST_STOPPED;
        page.flags &= (uint8_t) ~FLAG_GUEST_STOPPED;
        return away;
}

bool clock_patient(uint64_t *end) {
        uint64_t now = clock_monotonic();

        if (*end == 0)
                *end = now + PATIENCE_NSEC;
        return now < *end;
}

uint64_t clock_tsc_per_msec(void) {
        start();
        if (!page.multiplier)
                return 0;
        uint64_t ticks = ((uint64_t) NSEC_PER_MSEC << 32) / page.multiplier;
        return page.shift < 0 ? ticks << -page.shift : ticks >> page.shift;
}
