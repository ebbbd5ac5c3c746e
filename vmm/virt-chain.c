/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/virt-chain.h"

static size_t parts_iov(const VirtPart *parts, size_t n_parts, const GuestMem *m, uint64_t offset,
                        uint64_t len, struct iovec *iov, size_t *ret_bytes) {
        size_t n = 0, bytes = 0;

        for (size_t i = 0; i < n_parts && len > 0; i++) {
                if (offset >= parts[i].len) {
                        offset -= parts[i].len;
                        continue;
                }

                uint64_t take = MIN(parts[i].len - offset, len);
                void *p = guest_mem_ptr(m, parts[i].gpa + offset, take);
                if (!p)
                        break;

                iov[n++] = (struct iovec) { .iov_base = p, .iov_len = take };
                bytes += take;
                len -= take;
                offset = 0;
        }

        *ret_bytes = bytes;
        return n;
}

size_t virt_chain_readable_iov(const VirtChain *c, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes) {
        assert(c);
        assert(m);
        assert(ret_bytes);

        return parts_iov(c->parts, c->n_readable, m, offset, len, iov, ret_bytes);
}

size_t virt_chain_writable_iov(const VirtChain *c, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes) {
        assert(c);
        assert(m);
        assert(ret_bytes);

        return parts_iov(c->parts + c->n_readable, c->n_writable, m, offset, len, iov, ret_bytes);
}

size_t virt_chain_read(const VirtChain *c, const GuestMem *m, uint64_t offset, void *dst, size_t len) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n = virt_chain_readable_iov(c, m, offset, len, iov, &bytes);
        uint8_t *p = dst;

        for (size_t i = 0; i < n; i++) {
                memcpy(p, iov[i].iov_base, iov[i].iov_len);
                p += iov[i].iov_len;
        }
        guest_mem_copied();
        return bytes;
}

size_t virt_chain_write(const VirtChain *c, const GuestMem *m, uint64_t offset, const void *src, size_t len) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n = virt_chain_writable_iov(c, m, offset, len, iov, &bytes);
        const uint8_t *p = src;

        for (size_t i = 0; i < n; i++) {
                memcpy(iov[i].iov_base, p, iov[i].iov_len);
                p += iov[i].iov_len;
        }
        return bytes;
}
