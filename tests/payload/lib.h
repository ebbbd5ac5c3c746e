/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a program without a kernel and a C library needs: port I/O, MSRs, strings, the serial port.
 *
 * Everything is plain integer code without SSE, atomics or exceptions, and loops are short: a PVM host
 * emulates ring 0 at about a microsecond an instruction. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define PACKED __attribute__((packed))

static inline void outb(uint16_t port, uint8_t v) {
        __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port) : "memory");
}

static inline uint64_t rdmsr(uint32_t msr) {
        uint32_t lo, hi;

        __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
        return (uint64_t) hi << 32 | lo;
}

static inline void wrmsr(uint32_t msr, uint64_t v) {
        __asm__ volatile("wrmsr" : : "c"(msr), "a"((uint32_t) v), "d"((uint32_t) (v >> 32)) : "memory");
}

static inline uint64_t rdtsc(void) {
        uint32_t lo, hi;

        __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
        return (uint64_t) hi << 32 | lo;
}

static inline void barrier(void) {
        __asm__ volatile("" : : : "memory");
}

/* Loads may otherwise pass earlier stores. XCHG with memory is a full fence that every emulator has. */
static inline void full_barrier(void) {
        uint32_t scratch = 0, v = 0;

        __asm__ volatile("xchgl %0, %1" : "+r"(v), "+m"(scratch) : : "memory");
}

static inline void pause_cpu(void) {
        __asm__ volatile("pause" : : : "memory");
}

static inline uint8_t read8(uint64_t a) { return *(volatile uint8_t *) a; }
static inline uint16_t read16(uint64_t a) { return *(volatile uint16_t *) a; }
static inline uint32_t read32(uint64_t a) { return *(volatile uint32_t *) a; }
static inline void write8(uint64_t a, uint8_t v) { *(volatile uint8_t *) a = v; }
static inline void write16(uint64_t a, uint16_t v) { *(volatile uint16_t *) a = v; }
static inline void write32(uint64_t a, uint32_t v) { *(volatile uint32_t *) a = v; }

void *memcpy(void *dst, const void *src, size_t n);
void *memset(void *dst, int c, size_t n);
size_t strlen(const char *s);
bool streq(const char *a, const char *b);
/* Does the space-separated list have this word? */
bool has_word(const char *list, const char *word);
uint64_t parse_number(const char *s);
size_t format_number(char *buf, uint64_t v);

void put_string(const char *s);
void put_number(const char *what, uint64_t v);

void power_off(void);
void reset(void);
void triple_fault(void);
void spin_for_ever(void);

/* start.S */
void wait_for_interrupt(void);
/* Takes vectors 0x20 and up; they only end wait_for_interrupt(). */
void interrupts_init(void);
#define VECTOR_DEVICE 0x40U
#define VECTOR_TIMER 0x41U
/* Interrupts every msec milliseconds, 0: never. */
void timer_set(uint32_t msec);
uint64_t timer_ticks(void);
