/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/acpi.h"
#include "vmm/aml.h"
#include "vmm/memmap.h"

/* All structures as in ACPI 6.4, chapter 5. The guest is little-endian, and so are we. */

#define OEM_ID "CUBE  "
#define OEM_TABLE_ID "CUBETABL"
#define CREATOR_ID "CUBE"
#define TABLE_ALIGN 64U
#define TABLE_MAX 1024U

#define FADT_WBINVD (1U << 0)
#define FADT_PWR_BUTTON (1U << 4)      /* no fixed power button */
#define FADT_SLP_BUTTON (1U << 5)      /* no fixed sleep button */
#define FADT_RESET_REG_SUP (1U << 10)
#define FADT_HEADLESS (1U << 12)
#define FADT_HW_REDUCED (1U << 20)

#define BOOT_ARCH_NO_VGA (1U << 2)
/* Without it Linux reads a CMOS clock that is not there, 20,000 times. */
#define BOOT_ARCH_NO_CMOS_RTC (1U << 5)

#define GAS_SYSTEM_IO 1U
#define GAS_BYTE_ACCESS 1U

typedef struct _packed_ AcpiHeader {
        char signature[4];
        uint32_t length;
        uint8_t revision;
        uint8_t checksum;
        char oem_id[6];
        char oem_table_id[8];
        uint32_t oem_revision;
        char creator_id[4];
        uint32_t creator_revision;
} AcpiHeader;

typedef struct _packed_ AcpiAddress {
        uint8_t space;
        uint8_t bit_width;
        uint8_t bit_offset;
        uint8_t access_size;
        uint64_t address;
} AcpiAddress;

typedef struct _packed_ AcpiRsdp {
        char signature[8];
        uint8_t checksum;            /* of the first 20 bytes */
        char oem_id[6];
        uint8_t revision;
        uint32_t rsdt;
        uint32_t length;
        uint64_t xsdt;
        uint8_t extended_checksum;
        uint8_t reserved[3];
} AcpiRsdp;

typedef struct _packed_ AcpiFadt {
        AcpiHeader header;
        uint32_t facs;
        uint32_t dsdt;
        uint8_t fixed_hardware_1[65]; /* zero: there is none */
        uint16_t boot_arch;
        uint8_t reserved;
        uint32_t flags;
        AcpiAddress reset_register;
        uint8_t reset_value;
        uint16_t arm_boot_arch;
        uint8_t minor_version;
        uint64_t x_facs;
        uint64_t x_dsdt;
        uint8_t fixed_hardware_2[96];
        AcpiAddress sleep_control;
        AcpiAddress sleep_status;
        char hypervisor_id[8];
} AcpiFadt;

typedef struct _packed_ AcpiLocalApic {
        uint8_t type;
        uint8_t length;
        uint8_t processor_uid;
        uint8_t apic_id;
        uint32_t flags;
} AcpiLocalApic;

typedef struct _packed_ AcpiMadt {
        AcpiHeader header;
        uint32_t lapic_address;
        uint32_t flags;
        AcpiLocalApic cpus[ACPI_CPUS_MAX];
} AcpiMadt;

typedef struct _packed_ AcpiMcfg {
        AcpiHeader header;
        uint64_t reserved;
        uint64_t base;
        uint16_t segment;
        uint8_t first_bus;
        uint8_t last_bus;
        uint32_t reserved2;
} AcpiMcfg;

typedef struct _packed_ AcpiXsdt {
        AcpiHeader header;
        uint64_t tables[3];
} AcpiXsdt;

static_assert(sizeof(AcpiHeader) == 36, "ACPI 6.4, table 5.4");
static_assert(sizeof(AcpiRsdp) == 36, "ACPI 6.4, table 5.3");
static_assert(sizeof(AcpiFadt) == 276, "ACPI 6.4, table 5.9");
static_assert(offsetof(AcpiFadt, boot_arch) == 109, "ACPI 6.4, table 5.9");
static_assert(offsetof(AcpiFadt, x_dsdt) == 140, "ACPI 6.4, table 5.9");
static_assert(offsetof(AcpiFadt, sleep_control) == 244, "ACPI 6.4, table 5.9");

/* Resource descriptors, ACPI 6.4, 6.4.3. */
typedef struct _packed_ AcpiWordBusNumber {
        uint8_t tag;
        uint16_t length;
        uint8_t type;
        uint8_t flags;
        uint8_t type_flags;
        uint16_t granularity;
        uint16_t min;
        uint16_t max;
        uint16_t translation;
        uint16_t range;
} AcpiWordBusNumber;

typedef struct _packed_ AcpiDwordMemory {
        uint8_t tag;
        uint16_t length;
        uint8_t type;
        uint8_t flags;
        uint8_t type_flags;
        uint32_t granularity;
        uint32_t min;
        uint32_t max;
        uint32_t translation;
        uint32_t range;
} AcpiDwordMemory;

typedef struct _packed_ AcpiMemory32Fixed {
        uint8_t tag;
        uint16_t length;
        uint8_t read_write;
        uint32_t base;
        uint32_t range;
} AcpiMemory32Fixed;

#define DESCRIPTOR_HEADER 3U
#define TAG_MEMORY32_FIXED 0x86U
#define TAG_DWORD_ADDRESS 0x87U
#define TAG_WORD_ADDRESS 0x88U
#define ADDRESS_TYPE_MEMORY 0U
#define ADDRESS_TYPE_BUS 2U
#define ADDRESS_MIN_MAX_FIXED 0x0cU
#define MEMORY_READ_WRITE 0x01U

/* Where the next table goes. */
typedef struct AcpiWriter {
        uint8_t *data;
        size_t size;
        size_t max;
        uint64_t gpa;
} AcpiWriter;

static uint8_t checksum(const void *data, size_t size) {
        const uint8_t *p = data;
        uint8_t sum = 0;

        for (size_t i = 0; i < size; i++)
                sum = (uint8_t) (sum + p[i]);
        return (uint8_t) -sum;
}

/* Completes the header in front of table and copies it in. The gpa it got, or -ENOSPC. */
static int64_t table_add(AcpiWriter *w, void *table, const char *signature, uint8_t revision, size_t size) {
        AcpiHeader header = { .length = (uint32_t) size, .revision = revision, .oem_revision = 1,
                              .creator_revision = 1 };

        memcpy(header.signature, signature, sizeof(header.signature));
        memcpy(header.oem_id, OEM_ID, sizeof(header.oem_id));
        memcpy(header.oem_table_id, OEM_TABLE_ID, sizeof(header.oem_table_id));
        memcpy(header.creator_id, CREATOR_ID, sizeof(header.creator_id));
        memcpy(table, &header, sizeof(header));
        ((uint8_t *) table)[offsetof(AcpiHeader, checksum)] = checksum(table, size);

        size_t at = ALIGN_UP(w->size, TABLE_ALIGN);
        if (at > w->max || size > w->max - at)
                return -ENOSPC;
        memcpy(w->data + at, table, size);
        w->size = at + size;
        return (int64_t) (w->gpa + at);
}

static void dsdt_pci(AmlWriter *w) {
        const struct _packed_ {
                AcpiWordBusNumber bus;
                AcpiDwordMemory window;
        } resources = {
                .bus = {
                        .tag = TAG_WORD_ADDRESS,
                        .length = sizeof(AcpiWordBusNumber) - DESCRIPTOR_HEADER,
                        .type = ADDRESS_TYPE_BUS,
                        .flags = ADDRESS_MIN_MAX_FIXED,
                        .range = 1,
                },
                .window = {
                        .tag = TAG_DWORD_ADDRESS,
                        .length = sizeof(AcpiDwordMemory) - DESCRIPTOR_HEADER,
                        .type = ADDRESS_TYPE_MEMORY,
                        .flags = ADDRESS_MIN_MAX_FIXED,
                        .type_flags = MEMORY_READ_WRITE,
                        .min = MEMMAP_PCI_MMIO,
                        .max = MEMMAP_PCI_MMIO + MEMMAP_PCI_MMIO_SIZE - 1,
                        .range = MEMMAP_PCI_MMIO_SIZE,
                },
        };

        size_t device = aml_device_begin(w, "PCI0");
        aml_name_eisa_id(w, "_HID", "PNP0A08");
        aml_name_eisa_id(w, "_CID", "PNP0A03");
        aml_name_integer(w, "_SEG", 0);
        aml_name_integer(w, "_BBN", 0);
        aml_name_integer(w, "_UID", 0);
        aml_name_resources(w, "_CRS", &resources, sizeof(resources));
        aml_package_length_end(w, device);
}

/* Linux takes the ECAM window of the MCFG table only if it is a motherboard resource too. */
static void dsdt_motherboard(AmlWriter *w) {
        const AcpiMemory32Fixed ecam = {
                .tag = TAG_MEMORY32_FIXED,
                .length = sizeof(AcpiMemory32Fixed) - DESCRIPTOR_HEADER,
                .read_write = MEMORY_READ_WRITE,
                .base = MEMMAP_ECAM,
                .range = MEMMAP_ECAM_SIZE,
        };

        size_t device = aml_device_begin(w, "MBRD");
        aml_name_eisa_id(w, "_HID", "PNP0C02");
        aml_name_integer(w, "_UID", 0);
        aml_name_resources(w, "_CRS", &ecam, sizeof(ecam));
        aml_package_length_end(w, device);
}

/* Linux knows it by the first name, others by the second, which is too long for a hardware id. */
static void dsdt_generation(AmlWriter *w) {
        const uint32_t address[] = { MEMMAP_VMGENID, 0 };

        size_t device = aml_device_begin(w, "VGEN");
        aml_name_string(w, "_HID", "VMGENCTR");
        aml_name_string(w, "_CID", "VM_Gen_Counter");
        aml_name_string(w, "_DDN", "VM_Gen_Counter");
        aml_name_package(w, "ADDR", address, ELEMENTSOF(address));
        aml_package_length_end(w, device);
}

static int64_t dsdt_add(AcpiWriter *acpi) {
        const uint32_t s5[] = { ACPI_SLEEP_TYPE_S5, 0, 0, 0 };
        uint8_t table[TABLE_MAX];
        AmlWriter w = { .data = table, .size = sizeof(AcpiHeader), .max = sizeof(table) };

        size_t scope = aml_scope_begin(&w, "\\_SB");
        dsdt_pci(&w);
        dsdt_motherboard(&w);
        dsdt_generation(&w);
        aml_package_length_end(&w, scope);
        aml_name_package(&w, "\\_S5", s5, ELEMENTSOF(s5));
        if (w.overflow)
                return -ENOSPC;

        return table_add(acpi, table, "DSDT", 2, w.size);
}

static AcpiAddress io_byte(uint16_t port) {
        return (AcpiAddress) { .space = GAS_SYSTEM_IO, .bit_width = 8, .access_size = GAS_BYTE_ACCESS,
                               .address = port };
}

static int64_t fadt_add(AcpiWriter *acpi, uint64_t dsdt) {
        AcpiFadt fadt = {
                .dsdt = (uint32_t) dsdt,
                .x_dsdt = dsdt,
                .boot_arch = BOOT_ARCH_NO_VGA | BOOT_ARCH_NO_CMOS_RTC,
                .flags = FADT_WBINVD | FADT_PWR_BUTTON | FADT_SLP_BUTTON | FADT_RESET_REG_SUP |
                         FADT_HEADLESS | FADT_HW_REDUCED,
                .reset_register = io_byte(PIO_ACPI_RESET),
                .reset_value = ACPI_RESET_VALUE,
                .minor_version = 4,
                .sleep_control = io_byte(PIO_ACPI_SLEEP_CONTROL),
                .sleep_status = io_byte(PIO_ACPI_SLEEP_STATUS),
                .hypervisor_id = { 'C', 'U', 'B', 'E' },
        };

        return table_add(acpi, &fadt, "FACP", 6, sizeof(fadt));
}

static int64_t madt_add(AcpiWriter *acpi, unsigned n_cpus) {
        AcpiMadt madt = { .lapic_address = MEMMAP_LAPIC };

        for (unsigned i = 0; i < n_cpus; i++)
                madt.cpus[i] = (AcpiLocalApic) {
                        .length = sizeof(AcpiLocalApic),
                        .processor_uid = (uint8_t) i,
                        .apic_id = (uint8_t) i,
                        .flags = 1, /* enabled */
                };

        return table_add(acpi, &madt, "APIC", 5, offsetof(AcpiMadt, cpus) + n_cpus * sizeof(AcpiLocalApic));
}

static int64_t mcfg_add(AcpiWriter *acpi) {
        AcpiMcfg mcfg = { .base = MEMMAP_ECAM };

        return table_add(acpi, &mcfg, "MCFG", 1, sizeof(mcfg));
}

static int64_t xsdt_add(AcpiWriter *acpi, unsigned n_cpus) {
        int64_t dsdt = dsdt_add(acpi);
        if (dsdt < 0)
                return dsdt;

        int64_t tables[] = { fadt_add(acpi, (uint64_t) dsdt), madt_add(acpi, n_cpus), mcfg_add(acpi) };
        AcpiXsdt xsdt;
        static_assert(ELEMENTSOF(tables) == ELEMENTSOF(xsdt.tables), "one entry each");
        for (size_t i = 0; i < ELEMENTSOF(tables); i++) {
                if (tables[i] < 0)
                        return tables[i];
                xsdt.tables[i] = (uint64_t) tables[i];
        }

        return table_add(acpi, &xsdt, "XSDT", 1, sizeof(xsdt));
}

int acpi_build(void *buffer, size_t size, uint64_t gpa, unsigned n_cpus, size_t *ret_size) {
        assert(buffer);
        assert(ret_size);

        if (n_cpus < 1 || n_cpus > ACPI_CPUS_MAX || gpa > UINT32_MAX || gpa % TABLE_ALIGN != 0)
                return -EINVAL;
        if (size < sizeof(AcpiRsdp))
                return -ENOSPC;

        memset(buffer, 0, size);
        AcpiWriter w = { .data = buffer, .size = sizeof(AcpiRsdp), .max = size, .gpa = gpa };
        int64_t xsdt = xsdt_add(&w, n_cpus);
        if (xsdt < 0)
                return (int) xsdt;

        AcpiRsdp rsdp = { .revision = 2, .length = sizeof(rsdp), .xsdt = (uint64_t) xsdt };
        memcpy(rsdp.signature, "RSD PTR ", sizeof(rsdp.signature));
        memcpy(rsdp.oem_id, OEM_ID, sizeof(rsdp.oem_id));
        rsdp.checksum = checksum(&rsdp, offsetof(AcpiRsdp, length));
        rsdp.extended_checksum = checksum(&rsdp, sizeof(rsdp));
        memcpy(buffer, &rsdp, sizeof(rsdp));

        *ret_size = w.size;
        return 0;
}
