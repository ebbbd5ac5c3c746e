/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the machine, done from where nobody expects it. The VMM has to say why. */

#include "hostile.h"
#include "tests/payload/process.h"

#define BARS 0xc0000000ULL
#define ECAM 0xe0000000ULL
#define MSR_X2APIC_ICR 0x830U
#define MSR_APIC_BASE 0x1bU
#define APIC_BASE_X2APIC (3U << 10)
#define ICR_INIT 0x4500U
#define ICR_STARTUP 0x4600U
#define OTHER 1ULL

static void rest(void) {
        for (;;)
                pause_cpu();
}

/* Code where a device is. */
static void attack_run_a_device(void) {
        void (*code)(void) = (void (*)(void)) (BARS + (1U << 20));

        code();
}

static void attack_stack_in_a_device(void) {
        __asm__ volatile("movq %0, %%rsp; pushq $1; ret" : : "r"(BARS + (1U << 20) + 64) : "memory");
}

/* Page tables in a device. */
static void attack_tables_in_a_device(void) {
        __asm__ volatile("movq %0, %%cr3" : : "r"(ECAM) : "memory");
        rest();
}

static void triple(void *context) {
        triple_fault();
}

static void off(void *context) {
        power_off();
}

static void panic(void *context) {
        machine_panic();
}

static void on_second(void (*what)(void *context)) {
        if (!smp_start()) {
                say("machine", -1, "without a second CPU");
                return;
        }
        smp_run(what, NULL);
        rest();
}

static void attack_second_triple(void) {
        on_second(triple);
}

static void attack_second_off(void) {
        on_second(off);
}

static void attack_second_panic(void) {
        on_second(panic);
}

/* All ends at once, and only one can be it. */
static void attack_ends_at_once(void) {
        if (!smp_start()) {
                say("machine", -1, "without a second CPU");
                return;
        }
        smp_run(triple, NULL);
        machine_panic();
}

static void init_first(void *context) {
        wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
        wrmsr(MSR_X2APIC_ICR, ICR_INIT);
        wrmsr(MSR_X2APIC_ICR, ICR_STARTUP);
        rest();
}

/* The first CPU starts again where nothing is. */
static void attack_second_resets_first(void) {
        on_second(init_first);
}

/* Interrupts of every kind (the delivery mode stands in bits 8 to 10), system management's among them, to a CPU that is
 * in any state, and to one that is not there. */
static void attack_ipis(void) {
        static const uint64_t to[] = { OTHER << 32, 200ULL << 32 };

        for (unsigned i = 0; i < 200; i++)
                for (unsigned k = 0; k < ELEMENTSOF(to); k++) {
                        wrmsr(MSR_X2APIC_ICR, to[k] | (i % 8) << 8 | 0x4000 | i);
                        wrmsr(MSR_X2APIC_ICR, to[k] | ICR_INIT);
                        wrmsr(MSR_X2APIC_ICR, to[k] | ICR_STARTUP | (i & 0xff));
                        wrmsr(MSR_X2APIC_ICR, to[k] | (i * 3 % 8) << 8 | 0x4000 | 0x41);
                }
        smp_sleep();
        say("second", -1, smp_start() ? "starts" : "does not start");
        smp_sleep();
}

const Attack machine_attacks[] = {
        { "run-a-device", attack_run_a_device },
        { "stack-in-a-device", attack_stack_in_a_device },
        { "tables-in-a-device", attack_tables_in_a_device },
        { "second-triple", attack_second_triple },
        { "second-off", attack_second_off },
        { "second-panic", attack_second_panic },
        { "second-resets-first", attack_second_resets_first },
        { "ends-at-once", attack_ends_at_once },
        { "ipis", attack_ipis },
        {},
};
