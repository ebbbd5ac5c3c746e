/* SPDX-License-Identifier: Apache-2.0 */

/* P8: what a device copies into a chain lands in its writable parts and nowhere else, and no more than they hold; P1:
 * each range for a system call or a copy lies in RAM and within its part.
 * Bounds: chains of up to 3 parts, anywhere in a region of up to 1 TiB, of any lengths; any offset and length; room for 3
 * parts in place of 256. Copies are judged by their ranges, not done. */

#define VIRT_CHAIN_PARTS_MAX 3U

#include "any-memory.h"

static void copy(const uint8_t *dst, const uint8_t *src, size_t n);

#define memcpy(dst, src, n) copy((const uint8_t *) (dst), (const uint8_t *) (src), n)
#include "vmm/guest-mem.c"
#include "vmm/virt-chain.c"

static GuestMem mem;
static VirtChain chain;
static bool writing;
static uint8_t buffer;           /* where the device's begins */
static uint64_t buffer_bytes, copied;

static bool in_a_part(const uint8_t *p, uint64_t n) {
        uint64_t gpa = mem.regions[0].gpa + ((uint64_t) p - (uint64_t) mem.regions[0].hva);
        unsigned first = writing ? chain.n_readable : 0, end = first + (writing ? chain.n_writable : chain.n_readable);

        for (unsigned i = first; i < end; i++)
                if (gpa >= chain.parts[i].gpa && gpa - chain.parts[i].gpa < chain.parts[i].len &&
                    n <= chain.parts[i].len - (gpa - chain.parts[i].gpa))
                        return true;
        return false;
}

static void copy(const uint8_t *dst, const uint8_t *src, size_t n) {
        prove(in_a_part(writing ? dst : src, n));
        prove((writing ? src : dst) == &buffer + copied);
        copied += n;
        prove(copied <= buffer_bytes);
}

static void any_chain(void) {
        mem = any_memory();
        assume(mem.n_regions == 1);
        writing = any_bool();
        chain.n_readable = (uint16_t) any_below(3);
        chain.n_writable = (uint16_t) any_below(3);
        unsigned n = (unsigned) chain.n_readable + chain.n_writable;

        assume(n <= 3);
        for (unsigned i = 0; i < n; i++) {
                chain.parts[i] = (VirtPart) { .gpa = any_u64(), .len = any_u32() };
                assume(chain.parts[i].len > 0 && in_one_region(&mem, chain.parts[i].gpa, chain.parts[i].len));
                if (i < chain.n_readable)
                        chain.readable_bytes += chain.parts[i].len;
                else
                        chain.writable_bytes += chain.parts[i].len;
        }
}

static uint64_t room(uint64_t offset, uint64_t len) {
        uint64_t bytes = writing ? chain.writable_bytes : chain.readable_bytes;

        return offset >= bytes ? 0 : MIN(bytes - offset, len);
}

static size_t any_entries(struct iovec *iov, uint64_t offset, uint64_t len, size_t *ret_bytes) {
        any_chain();
        return writing ? virt_chain_writable_iov(&chain, &mem, offset, len, iov, ret_bytes)
                       : virt_chain_readable_iov(&chain, &mem, offset, len, iov, ret_bytes);
}

PROOF(entries_are_parts_of_parts, 3) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n = any_entries(iov, any_u64(), any_u64(), &bytes);

        prove(n <= (writing ? chain.n_writable : chain.n_readable));
        for (size_t i = 0; i < n; i++)
                prove(iov[i].iov_len > 0 && in_a_part(iov[i].iov_base, iov[i].iov_len));
}

PROOF(entries_come_to_what_there_is_room_for, 3) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        uint64_t offset = any_u64(), len = any_u64();
        size_t bytes, sum = 0, n = any_entries(iov, offset, len, &bytes);

        for (size_t i = 0; i < n; i++)
                sum += iov[i].iov_len;
        prove(bytes == room(offset, len) && sum == bytes);
}

PROOF(copies_stay_in_parts_and_buffer, 3) {
        uint64_t offset = any_u64();

        any_chain();
        buffer_bytes = any_u64();
        size_t n = writing ? virt_chain_write(&chain, &mem, offset, &buffer, buffer_bytes)
                           : virt_chain_read(&chain, &mem, offset, &buffer, buffer_bytes);
        prove(n == room(offset, buffer_bytes) && copied == n);
}
