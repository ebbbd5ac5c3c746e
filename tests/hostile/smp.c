/* SPDX-License-Identifier: Apache-2.0 */
#include "smp.h"
#include "tests/payload/clock.h"

#define AP_PAGE 0x8000U
#define AP_ID 1U
#define MSR_X2APIC_ICR 0x830U
#define ICR_INIT 0x4500U
#define ICR_STARTUP 0x4600U

extern const uint8_t ap_code[], ap_code_end[];
void ap_main(void);

static volatile bool up;
static void (*volatile job)(void *context);
static void *volatile job_context;
static volatile bool busy;

void ap_main(void) {
        up = true;
        for (;;) {
                /* Before the look, so that who takes the job away and then sees "not busy" is right. */
                busy = true;
                full_barrier();
                void (*now)(void *context) = job;

                if (!now) {
                        busy = false;
                        pause_cpu();
                        continue;
                }
                now(job_context);
        }
}

static void send(uint32_t what) {
        wrmsr(MSR_X2APIC_ICR, (uint64_t) AP_ID << 32 | what);
}

bool smp_start(void) {
        if (up)
                return true;
        memcpy((void *) (uint64_t) AP_PAGE, ap_code, (size_t) (ap_code_end - ap_code));
        send(ICR_INIT);
        send(ICR_STARTUP | AP_PAGE >> 12);
        for (uint64_t end = 0; !up && clock_patient(&end);)
                pause_cpu();
        return up;
}

void smp_sleep(void) {
        send(ICR_INIT);
        job = NULL;
        up = busy = false;
}

void smp_run(void (*what)(void *context), void *context) {
        job_context = context;
        barrier();
        job = what;
        (void) smp_start();
}

void smp_stop(void) {
        if (!up)
                return;
        job = NULL;
        full_barrier();
        while (busy)
                pause_cpu();
        smp_sleep();
}
