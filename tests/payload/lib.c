/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"

#define PORT_SERIAL 0x3f8
#define PORT_RESET 0x600
#define PORT_SLEEP 0x601
#define RESET_VALUE 0x01
#define SLEEP_S5 (1U << 5 | 5U << 2) /* SLP_EN, SLP_TYP 5 */

#define MSR_APIC_BASE 0x1bU
#define APIC_BASE_X2APIC (3U << 10)  /* enabled, x2APIC */
#define MSR_X2APIC_TPR 0x808U
#define MSR_X2APIC_SPURIOUS 0x80fU
#define MSR_X2APIC_LVT_TIMER 0x832U
#define MSR_X2APIC_TIMER_COUNT 0x838U
#define MSR_X2APIC_TIMER_DIVIDE 0x83eU
#define LVT_PERIODIC (1U << 17)
#define LVT_DEADLINE (2U << 17)
#define MSR_TSC_DEADLINE 0x6e0U
#define DIVIDE_BY_128 0xaU
/* KVM's APIC timer counts nanoseconds. */
#define COUNTS_PER_MSEC (1000000U / 128U)

typedef struct PACKED Gate {
        uint16_t offset_low;
        uint16_t selector;
        uint8_t stack;
        uint8_t type;
        uint16_t offset_middle;
        uint32_t offset_high;
        uint32_t reserved;
} Gate;

extern Gate idt[256];
extern uint8_t exception_entries[];
extern void interrupt_entry(void);
extern void timer_entry(void);
extern volatile uint64_t ticks;
void payload_exception(uint64_t vector, uint64_t first, uint64_t second);

/* By eights: a PVM host takes the same time for each step of a string instruction, whatever its width. */
void *memcpy(void *dst, const void *src, size_t n) {
        void *d = dst;
        size_t words = n / 8, rest = n % 8;

        __asm__ volatile("rep movsq" : "+D"(d), "+S"(src), "+c"(words) : : "memory");
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(src), "+c"(rest) : : "memory");
        return dst;
}

void *memset(void *dst, int c, size_t n) {
        void *d = dst;
        size_t words = n / 8, rest = n % 8;
        uint64_t pattern = (uint8_t) c * 0x0101010101010101ULL;

        __asm__ volatile("rep stosq" : "+D"(d), "+c"(words) : "a"(pattern) : "memory");
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(rest) : "a"(pattern) : "memory");
        return dst;
}

size_t strlen(const char *s) {
        size_t n = 0;

        while (s[n])
                n++;
        return n;
}

bool streq(const char *a, const char *b) {
        while (*a && *a == *b)
                a++, b++;
        return *a == *b;
}

bool has_word(const char *list, const char *word) {
        while (*list) {
                const char *w = word;

                while (*w && *list == *w)
                        list++, w++;
                if (!*w && (*list == ' ' || !*list))
                        return true;
                while (*list && *list != ' ')
                        list++;
                while (*list == ' ')
                        list++;
        }
        return false;
}

uint64_t parse_number(const char *s) {
        uint64_t v = 0;

        for (; *s >= '0' && *s <= '9'; s++)
                v = v * 10 + (uint64_t) (*s - '0');
        return v;
}

size_t format_number(char *buf, uint64_t v) {
        char digits[20];
        size_t n = 0, k = 0;

        do
                digits[n++] = (char) ('0' + v % 10);
        while (v /= 10);
        while (n > 0)
                buf[k++] = digits[--n];
        buf[k] = 0;
        return k;
}

void put_string(const char *s) {
        for (; *s; s++)
                outb(PORT_SERIAL, (uint8_t) *s);
}

void put_number(const char *what, uint64_t v) {
        char buf[24];

        put_string(what);
        (void) format_number(buf, v);
        put_string(buf);
        put_string("\n");
}

void spin_for_ever(void) {
        for (;;)
                pause_cpu();
}

void power_off(void) {
        outb(PORT_SLEEP, SLEEP_S5);
        spin_for_ever();
}

void reset(void) {
        outb(PORT_RESET, RESET_VALUE);
        spin_for_ever();
}

void triple_fault(void) {
        static const struct PACKED {
                uint16_t limit;
                uint64_t base;
        } nothing;

        __asm__ volatile("lidt %0; ud2" : : "m"(nothing));
        spin_for_ever();
}

void payload_exception(uint64_t vector, uint64_t first, uint64_t second) {
        put_number("payload: exception ", vector);
        put_number("  first word on the stack ", first);
        put_number("  second ", second);
}

static void set_gate(unsigned vector, uint64_t entry) {
        idt[vector] = (Gate) {
                .offset_low = (uint16_t) entry,
                .selector = 0x08,
                .type = 0x8e, /* present, interrupt gate: enters with interrupts off */
                .offset_middle = (uint16_t) (entry >> 16),
                .offset_high = (uint32_t) (entry >> 32),
        };
}

void interrupts_init(void) {
        for (unsigned i = 0; i < 32; i++)
                set_gate(i, (uint64_t) exception_entries + i * 16U);
        set_gate(VECTOR_DEVICE, (uint64_t) interrupt_entry);
        set_gate(VECTOR_TIMER, (uint64_t) timer_entry);
        set_gate(0xff, (uint64_t) interrupt_entry);

        wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
        wrmsr(MSR_X2APIC_TPR, 0);
        wrmsr(MSR_X2APIC_SPURIOUS, 0x1ff);
}

void timer_set(uint32_t msec) {
        wrmsr(MSR_X2APIC_TIMER_DIVIDE, DIVIDE_BY_128);
        wrmsr(MSR_X2APIC_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
        wrmsr(MSR_X2APIC_TIMER_COUNT, (uint64_t) msec * COUNTS_PER_MSEC);
}

void timer_set_once(uint32_t msec) {
        wrmsr(MSR_X2APIC_TIMER_DIVIDE, DIVIDE_BY_128);
        wrmsr(MSR_X2APIC_LVT_TIMER, VECTOR_TIMER);
        wrmsr(MSR_X2APIC_TIMER_COUNT, (uint64_t) msec * COUNTS_PER_MSEC);
}

void timer_set_deadline(uint64_t tsc) {
        wrmsr(MSR_X2APIC_LVT_TIMER, LVT_DEADLINE | VECTOR_TIMER);
        wrmsr(MSR_TSC_DEADLINE, tsc);
}

uint64_t timer_ticks(void) {
        return ticks;
}
