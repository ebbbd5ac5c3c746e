/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The accessors of vmm/guest-mem.h as the guest's worst makes them look to a queue: each load gives any
 * value, whatever was there before and whatever was stored, as if another vCPU had just written it (P2).
 * Which ranges are RAM doesn't change: that is one range here, of any place and size; guest-mem.c shows
 * what guest_mem_ptr() makes of several. Each access is shown to on_access(), which the proof has. */

#include "prove.h"
#include "vmm/guest-mem.h"

typedef enum Access { ACCESS_LOAD, ACCESS_READ, ACCESS_WRITE, ACCESS_STORE, ACCESS_FENCE } Access;

static void on_access(Access access, uint64_t gpa, const void *data);

static uint64_t ram_gpa, ram_bytes;

static inline bool is_ram(uint64_t gpa, uint64_t len) {
        return gpa >= ram_gpa && gpa - ram_gpa < ram_bytes && len <= ram_bytes - (gpa - ram_gpa);
}

static inline void any_ram(void) {
        ram_gpa = any_u64();
        ram_bytes = any_u64();
        assume(ram_bytes > 0 && ram_bytes <= UINT64_MAX - ram_gpa);
}

/* In place of the compiler's: what a fence orders can't be shown here, where it stands can. */
#define __atomic_thread_fence(order) on_access(ACCESS_FENCE, 0, NULL)

void *guest_mem_ptr(const GuestMem *m, uint64_t gpa, uint64_t len) {
        static uint8_t some_byte;

        return is_ram(gpa, len) ? &some_byte : NULL;
}

int guest_mem_load_u16(const GuestMem *m, uint64_t gpa, uint16_t *ret) {
        if (gpa % 2 != 0 || !is_ram(gpa, 2))
                return -EFAULT;
        on_access(ACCESS_LOAD, gpa, NULL);
        *ret = any_u16();
        return 0;
}

/* Of descriptors: a queue copies nothing else. Nothing may rest on that one is in RAM: any of them may be said not to be. */
int guest_mem_read(const GuestMem *m, uint64_t gpa, void *dst, size_t len) {
        uint64_t *words = dst;

        prove(len == 16);
        if (any_bool())
                return -EFAULT;
        words[0] = any_u64();
        words[1] = any_u64();
        on_access(ACCESS_READ, gpa, dst);
        return 0;
}

/* Of used elements: a queue writes nothing else. */
int guest_mem_write(const GuestMem *m, uint64_t gpa, const void *src, size_t len) {
        prove(len == 8);
        if (!is_ram(gpa, len))
                return -EFAULT;
        on_access(ACCESS_WRITE, gpa, src);
        return 0;
}

int guest_mem_store_u16(const GuestMem *m, uint64_t gpa, uint16_t v) {
        if (gpa % 2 != 0 || !is_ram(gpa, 2))
                return -EFAULT;
        on_access(ACCESS_STORE, gpa, &v);
        return 0;
}
