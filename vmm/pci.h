/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The configuration space of one PCI function (PCI 3.0, chapter 6), header type 0, with one BAR
 * that the VMM has placed and that never moves.
 *
 * A driver may size the BAR (write ones, read the mask); any other write to it is forgotten, so
 * that no guest can lay a device over RAM or over another device. Interrupt Pin is 0: MSI-X or
 * nothing. Embedded in its device. Accesses come from any vCPU thread; devices.c holds lock around
 * every call into here and into ops, and a device's own thread takes it for what it shares with them. */

#include <pthread.h>

#include "base/macros.h"

#define PCI_CONFIG_BYTES 256U

typedef struct PciFunction PciFunction;

/* Both with the function's lock held. len is 1, 2, 4 or 8, offset a multiple of it, all inside the BAR. */
typedef struct PciOps {
        uint64_t (*bar_read)(PciFunction *f, uint64_t offset, unsigned len);
        void (*bar_write)(PciFunction *f, uint64_t offset, unsigned len, uint64_t value);
        /* Before a read of, and after a write to, a capability; both may be NULL. */
        void (*capability_read)(PciFunction *f, unsigned offset, unsigned len);
        void (*capability_written)(PciFunction *f, unsigned offset, unsigned len);
} PciOps;

typedef struct PciIdentity {
        uint16_t vendor;
        uint16_t device;
        uint8_t revision;
        uint32_t class_code;      /* base class, subclass, programming interface: 0xBBSSPP */
        uint16_t subsystem_vendor;
        uint16_t subsystem;
} PciIdentity;

struct PciFunction {
        pthread_mutex_t lock;
        const PciOps *ops;        /* NULL: no BAR */
        void *owner;
        uint8_t config[PCI_CONFIG_BYTES];
        uint8_t writable[PCI_CONFIG_BYTES]; /* the bits a driver may change */
        uint64_t bar_gpa;
        uint32_t bar_bytes;       /* 0: none */
        bool bar_sizing;          /* ones were written last */
        unsigned last_capability; /* offset, 0: none yet */
        unsigned next_capability;
};

void pci_function_init(PciFunction *f, const PciIdentity *id, const PciOps *ops, void *owner);
void pci_function_done(PciFunction *f);

/* bytes is a power of two and gpa a multiple of it, below 4 GiB. */
void pci_set_bar(PciFunction *f, uint64_t gpa, uint32_t bytes);
/* body is what follows id and next pointer. Returns the capability's offset in configuration space. */
unsigned pci_add_capability(PciFunction *f, uint8_t id, const void *body, size_t size);
void pci_set_writable(PciFunction *f, unsigned offset, const void *mask, size_t size);

/* offset < 4096 and a multiple of len, len 1, 2 or 4. */
uint32_t pci_config_read(PciFunction *f, unsigned offset, unsigned len);
void pci_config_write(PciFunction *f, unsigned offset, unsigned len, uint32_t value);

/* Whether the driver switched memory decoding on, that is, whether the BAR answers. */
bool pci_memory_enabled(const PciFunction *f);

/* Little-endian fields of configuration space. */
uint32_t pci_get(const PciFunction *f, unsigned offset, unsigned len);
void pci_put(PciFunction *f, unsigned offset, unsigned len, uint32_t value);
