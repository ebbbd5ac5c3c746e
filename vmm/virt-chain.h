/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One descriptor chain, taken out of a virtqueue: a plain local copy whose every part has been
 * checked to be guest RAM (virtio 1.2, 2.7.5).
 *
 * Parts [0, n_readable) are for the device to read, the n_writable behind them for it to write;
 * none is empty. Nothing in here is read from the guest again, so that a guest that rewrites its
 * descriptors later changes nothing (P2). The bytes behind the parts are the guest's and may change at
 * any time: copy them out before they are judged. Lives on the stack of whoever serves the queue. */

#include "vmm/guest-mem.h"

#ifndef VIRT_CHAIN_PARTS_MAX /* proofs make do with less */
#define VIRT_CHAIN_PARTS_MAX 256U
#endif

typedef struct VirtPart {
        uint64_t gpa;
        uint32_t len;
} VirtPart;

typedef struct VirtChain {
        uint16_t head;
        uint16_t n_readable;
        uint16_t n_writable;
        uint64_t readable_bytes;
        uint64_t writable_bytes;
        VirtPart parts[VIRT_CHAIN_PARTS_MAX];
} VirtChain;

/* Copies between the chain and a buffer, from offset bytes into the readable (writable) side.
 * Returns how many bytes there were to copy, at most len. */
size_t virt_chain_read(const VirtChain *c, const GuestMem *m, uint64_t offset, void *dst, size_t len);
size_t virt_chain_write(const VirtChain *c, const GuestMem *m, uint64_t offset, const void *src, size_t len);

/* The guest's memory behind up to len bytes from offset, for system calls that move data without a
 * copy. Returns the number of entries; *ret_bytes is what they span. */
size_t virt_chain_readable_iov(const VirtChain *c, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes);
size_t virt_chain_writable_iov(const VirtChain *c, const GuestMem *m, uint64_t offset, uint64_t len,
                               struct iovec iov[static VIRT_CHAIN_PARTS_MAX], size_t *ret_bytes);
