/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/pci_regs.h>

#include "vmm/pci.h"

uint32_t pci_get(const PciFunction *f, unsigned offset, unsigned len) {
        uint32_t v = 0;

        assert(f);
        assert(len <= sizeof(v) && offset + len <= PCI_CONFIG_BYTES);

        memcpy(&v, f->config + offset, len);
        return le32toh(v);
}

void pci_put(PciFunction *f, unsigned offset, unsigned len, uint32_t value) {
        assert(f);
        assert(len <= sizeof(value) && offset + len <= PCI_CONFIG_BYTES);

        value = htole32(value);
        memcpy(f->config + offset, &value, len);
}

void pci_set_writable(PciFunction *f, unsigned offset, const void *mask, size_t size) {
        assert(f);
        assert(offset + size <= PCI_CONFIG_BYTES);

        memcpy(f->writable + offset, mask, size);
}

void pci_function_init(PciFunction *f, const PciIdentity *id, const PciOps *ops, void *owner) {
        static const uint16_t command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE;
        static const uint8_t interrupt_line = 0xff;

        assert(f);
        assert(id);

        *f = (PciFunction) {
                .ops = ops,
                .owner = owner,
                .next_capability = PCI_STD_HEADER_SIZEOF,
        };
        pthread_mutex_init(&f->lock, NULL);

        pci_put(f, PCI_VENDOR_ID, 2, id->vendor);
        pci_put(f, PCI_DEVICE_ID, 2, id->device);
        pci_put(f, PCI_CLASS_REVISION, 4, id->class_code << 8 | id->revision);
        pci_put(f, PCI_SUBSYSTEM_VENDOR_ID, 2, id->subsystem_vendor);
        pci_put(f, PCI_SUBSYSTEM_ID, 2, id->subsystem);

        pci_set_writable(f, PCI_COMMAND, &command, sizeof(command));
        /* A scratch register for the guest's own bookkeeping; there is no line behind it. */
        pci_set_writable(f, PCI_INTERRUPT_LINE, &interrupt_line, sizeof(interrupt_line));
}

void pci_function_done(PciFunction *f) {
        assert(f);
        pthread_mutex_destroy(&f->lock);
}

void pci_set_bar(PciFunction *f, uint64_t gpa, uint32_t bytes) {
        assert(f);
        assert(f->ops);
        assert(bytes >= 16 && (bytes & (bytes - 1)) == 0);
        assert(gpa % bytes == 0 && gpa + bytes <= UINT32_MAX);

        f->bar_gpa = gpa;
        f->bar_bytes = bytes;
}

unsigned pci_add_capability(PciFunction *f, uint8_t id, const void *body, size_t size) {
        unsigned at = f->next_capability;

        assert(f);
        assert(at + PCI_CAP_SIZEOF + size <= PCI_CONFIG_BYTES);

        f->config[at + PCI_CAP_LIST_ID] = id;
        memcpy(f->config + at + PCI_CAP_FLAGS, body, size);

        if (f->last_capability == 0) {
                f->config[PCI_CAPABILITY_LIST] = at;
                f->config[PCI_STATUS] |= PCI_STATUS_CAP_LIST;
        } else
                f->config[f->last_capability + PCI_CAP_LIST_NEXT] = at;

        f->last_capability = at;
        f->next_capability = ALIGN_UP(at + 2 + (unsigned) size, 4U);
        return at;
}

bool pci_memory_enabled(const PciFunction *f) {
        assert(f);
        return f->config[PCI_COMMAND] & PCI_COMMAND_MEMORY;
}

static uint32_t bar_value(const PciFunction *f) {
        if (f->bar_sizing)
                return ~(f->bar_bytes - 1);
        return (uint32_t) f->bar_gpa;
}

static bool is_bar(const PciFunction *f, unsigned offset) {
        return f->bar_bytes > 0 && ALIGN_DOWN(offset, 4U) == PCI_BASE_ADDRESS_0;
}

uint32_t pci_config_read(PciFunction *f, unsigned offset, unsigned len) {
        assert(f);
        assert(len <= 4 && offset % len == 0);

        /* Extended space is there, and empty: "no capability" reads as zero. */
        if (offset >= PCI_CONFIG_BYTES)
                return 0;

        if (is_bar(f, offset))
                return bar_value(f) >> (offset % 4 * 8);

        if (f->ops && f->ops->capability_read && offset >= PCI_STD_HEADER_SIZEOF)
                f->ops->capability_read(f, offset, len);
        return pci_get(f, offset, len);
}

void pci_config_write(PciFunction *f, unsigned offset, unsigned len, uint32_t value) {
        assert(f);
        assert(len <= 4 && offset % len == 0);

        if (offset >= PCI_CONFIG_BYTES)
                return;

        if (is_bar(f, offset)) {
                f->bar_sizing = len == 4 && (value | (f->bar_bytes - 1)) == UINT32_MAX;
                return;
        }

        for (unsigned i = 0; i < len; i++) {
                uint8_t mask = f->writable[offset + i];
                f->config[offset + i] = (f->config[offset + i] & ~mask) | ((value >> (i * 8)) & mask);
        }

        if (f->ops && f->ops->capability_written && offset >= PCI_STD_HEADER_SIZEOF)
                f->ops->capability_written(f, offset, len);
}
