/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pci_regs.h>

#include "vmm/msix.h"

void msix_init(Msix *x, Vm *vm, unsigned n_vectors) {
        assert(x);
        assert(n_vectors > 0 && n_vectors <= MSIX_VECTORS_MAX);

        *x = (Msix) { .vm = vm, .n_vectors = n_vectors };
        pthread_mutex_init(&x->lock, NULL);
        for (unsigned i = 0; i < n_vectors; i++)
                x->entries[i].control = PCI_MSIX_ENTRY_CTRL_MASKBIT;
}

void msix_done(Msix *x) {
        assert(x);
        pthread_mutex_destroy(&x->lock);
}

static bool deliverable(const Msix *x, unsigned vector) {
        return x->enabled && !x->masked && !(x->entries[vector].control & PCI_MSIX_ENTRY_CTRL_MASKBIT);
}

static void deliver(Msix *x, unsigned vector) {
        const MsixEntry *e = &x->entries[vector];

        if (vm_signal_msi(x->vm, e->address, e->data) < 0)
                x->failed++;
        else
                x->delivered++;
}

static void deliver_pending(Msix *x) {
        for (unsigned i = 0; i < x->n_vectors; i++)
                if ((x->pending & (1U << i)) && deliverable(x, i)) {
                        x->pending &= ~(1U << i);
                        deliver(x, i);
                }
}

/* One 32-bit word of the table; index is below n_vectors. */
static uint32_t word_get(const MsixEntry *e, unsigned word) {
        switch (word) {
        case 0:
                return (uint32_t) e->address;
        case 1:
                return (uint32_t) (e->address >> 32);
        case 2:
                return e->data;
        default:
                return e->control;
        }
}

static void word_set(MsixEntry *e, unsigned word, uint32_t v) {
        switch (word) {
        case 0:
                e->address = (e->address & ~0xffffffffULL) | (v & ~3U);
                break;
        case 1:
                e->address = (e->address & 0xffffffffULL) | (uint64_t) v << 32;
                break;
        case 2:
                e->data = v;
                break;
        default:
                e->control = v & PCI_MSIX_ENTRY_CTRL_MASKBIT;
        }
}

static bool access_ok(uint64_t offset, unsigned len, uint64_t size) {
        return (len == 4 || len == 8) && offset % len == 0 && offset < size && len <= size - offset;
}

uint64_t msix_table_read(Msix *x, uint64_t offset, unsigned len) {
        uint64_t v;

        assert(x);

        if (!access_ok(offset, len, (uint64_t) x->n_vectors * MSIX_ENTRY_BYTES))
                return UINT64_MAX;

        pthread_mutex_lock(&x->lock);
        const MsixEntry *e = &x->entries[offset / MSIX_ENTRY_BYTES];
        unsigned word = offset % MSIX_ENTRY_BYTES / 4;
        v = word_get(e, word);
        if (len == 8)
                v |= (uint64_t) word_get(e, word + 1) << 32;
        pthread_mutex_unlock(&x->lock);
        return v;
}

void msix_table_write(Msix *x, uint64_t offset, unsigned len, uint64_t value) {
        assert(x);

        if (!access_ok(offset, len, (uint64_t) x->n_vectors * MSIX_ENTRY_BYTES))
                return;

        pthread_mutex_lock(&x->lock);
        MsixEntry *e = &x->entries[offset / MSIX_ENTRY_BYTES];
        unsigned word = offset % MSIX_ENTRY_BYTES / 4;
        word_set(e, word, (uint32_t) value);
        if (len == 8)
                word_set(e, word + 1, (uint32_t) (value >> 32));
        deliver_pending(x);
        pthread_mutex_unlock(&x->lock);
}

uint64_t msix_pending_read(Msix *x, uint64_t offset, unsigned len) {
        uint64_t v;

        assert(x);

        /* All bits fit into the first of the array's 64-bit words. */
        if (!access_ok(offset, len, sizeof(uint64_t)))
                return UINT64_MAX;

        pthread_mutex_lock(&x->lock);
        v = (uint64_t) x->pending >> (offset * 8);
        pthread_mutex_unlock(&x->lock);
        return v;
}

void msix_set_control(Msix *x, bool enabled, bool masked) {
        assert(x);

        pthread_mutex_lock(&x->lock);
        x->enabled = enabled;
        x->masked = masked;
        if (!enabled)
                x->pending = 0;
        deliver_pending(x);
        pthread_mutex_unlock(&x->lock);
}

bool msix_enabled(Msix *x) {
        assert(x);

        pthread_mutex_lock(&x->lock);
        bool enabled = x->enabled;
        pthread_mutex_unlock(&x->lock);
        return enabled;
}

void msix_signal(Msix *x, unsigned vector) {
        assert(x);

        if (vector >= x->n_vectors)
                return;

        pthread_mutex_lock(&x->lock);
        if (deliverable(x, vector))
                deliver(x, vector);
        else if (x->enabled)
                x->pending |= 1U << vector;
        pthread_mutex_unlock(&x->lock);
}
