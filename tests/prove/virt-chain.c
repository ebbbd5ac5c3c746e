/* SPDX-License-Identifier: Apache-2.0 */

/* P8: what a device copies into a chain lands in its writable parts and nowhere else, and no more than they hold; P1:
 * each entry for a system call lies in RAM and within its part.
 * Bounds: chains of up to 3 parts in 16 bytes of memory, any offset, up to 8 bytes (iov: any length). */

#include "any-memory.h"
#include "vmm/guest-mem.c"
#include "vmm/virt-chain.c"

#define BYTES 16U

static VirtChain any_chain(const GuestMem *m) {
        VirtChain c = { .n_readable = (uint16_t) any_below(3), .n_writable = (uint16_t) any_below(3) };
        unsigned n = (unsigned) c.n_readable + c.n_writable;

        assume(n <= 3);
        for (unsigned i = 0; i < n; i++) {
                c.parts[i] = (VirtPart) { .gpa = any_u64(), .len = any_u32() };
                assume(c.parts[i].len > 0 && in_one_region(m, c.parts[i].gpa, c.parts[i].len));
                if (i < c.n_readable)
                        c.readable_bytes += c.parts[i].len;
                else
                        c.writable_bytes += c.parts[i].len;
        }
        return c;
}

static uint64_t room(uint64_t bytes, uint64_t offset, uint64_t len) {
        return offset >= bytes ? 0 : MIN(bytes - offset, len);
}

PROOF(entries_are_parts_of_parts, 3) {
        GuestMem m = any_small_memory(BYTES);
        VirtChain c = any_chain(&m);
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        uint64_t offset = any_u64(), len = any_u64();
        size_t bytes, sum = 0;
        bool write = any_bool();

        size_t n = write ? virt_chain_writable_iov(&c, &m, offset, len, iov, &bytes)
                         : virt_chain_readable_iov(&c, &m, offset, len, iov, &bytes);
        prove(n <= (write ? c.n_writable : c.n_readable));
        prove(bytes == room(write ? c.writable_bytes : c.readable_bytes, offset, len));
        for (size_t i = 0; i < n; i++) {
                prove(__CPROVER_same_object(iov[i].iov_base, m.regions[0].hva));
                prove(__CPROVER_rw_ok(iov[i].iov_base, iov[i].iov_len) && iov[i].iov_len > 0);
                sum += iov[i].iov_len;
        }
        prove(sum == bytes);
}

static bool in_writable(const VirtChain *c, uint64_t gpa) {
        for (unsigned i = c->n_readable; i < c->n_readable + c->n_writable; i++)
                if (gpa >= c->parts[i].gpa && gpa - c->parts[i].gpa < c->parts[i].len)
                        return true;
        return false;
}

PROOF(writes_land_in_writable_parts, 8) {
        GuestMem m = any_small_memory(BYTES);
        VirtChain c = any_chain(&m);
        uint8_t src[8];
        uint64_t offset = any_u64(), k = any_below(BYTES);
        size_t len = (size_t) any_below(sizeof(src) + 1);

        uint8_t before = m.regions[0].hva[k];
        size_t n = virt_chain_write(&c, &m, offset, src, len);
        prove(n == room(c.writable_bytes, offset, len));
        prove(in_writable(&c, m.regions[0].gpa + k) || m.regions[0].hva[k] == before);
}

PROOF(reads_fill_what_they_say, 8) {
        GuestMem m = any_small_memory(BYTES);
        VirtChain c = any_chain(&m);
        uint8_t dst[8], before[8];
        uint64_t offset = any_u64();
        size_t len = (size_t) any_below(sizeof(dst) + 1), k = (size_t) any_below(sizeof(dst));

        memcpy(before, dst, sizeof(dst));
        size_t n = virt_chain_read(&c, &m, offset, dst, len);
        prove(n == room(c.readable_bytes, offset, len));
        prove(k < n || dst[k] == before[k]);
}
