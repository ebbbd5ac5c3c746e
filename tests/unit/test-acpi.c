/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "test.h"
#include "vmm/acpi.h"
#include "vmm/memmap.h"

#define SPACE (MEMMAP_ACPI_END - MEMMAP_ACPI)
#define TABLES_MAX 8U

extern char **environ;

/* A table as found by walking from the RSDP. */
typedef struct Table {
        const uint8_t *data;
        uint32_t length;
} Table;

static uint8_t space[SPACE];

static uint64_t get(const uint8_t *p, unsigned size) {
        uint64_t v = 0;

        memcpy(&v, p, size);
        return v;
}

static uint8_t sum(const uint8_t *p, size_t n) {
        uint8_t s = 0;

        while (n-- > 0)
                s = (uint8_t) (s + *p++);
        return s;
}

static Table table_at(uint64_t gpa) {
        assert_true(gpa >= MEMMAP_ACPI && gpa + 36 <= MEMMAP_ACPI_END);

        Table t = { .data = space + (gpa - MEMMAP_ACPI) };
        t.length = (uint32_t) get(t.data + 4, 4);
        assert_true(t.length >= 36 && gpa + t.length <= MEMMAP_ACPI_END);
        assert_eq(sum(t.data, t.length), 0);
        return t;
}

static Table find(const char *signature) {
        assert_true(memcmp(space, "RSD PTR ", 8) == 0);
        assert_eq(sum(space, 20), 0);
        assert_eq(sum(space, 36), 0);

        Table xsdt = table_at(get(space + 24, 8));
        assert_true(memcmp(xsdt.data, "XSDT", 4) == 0);
        if (streq(signature, "XSDT"))
                return xsdt;

        for (uint32_t at = 36; at < xsdt.length; at += 8) {
                Table t = table_at(get(xsdt.data + at, 8));
                if (memcmp(t.data, "FACP", 4) == 0 && streq(signature, "DSDT")) {
                        assert_eq(get(t.data + 40, 4), get(t.data + 140, 8));
                        return table_at(get(t.data + 140, 8));
                }
                if (memcmp(t.data, signature, 4) == 0)
                        return t;
        }
        test_stop(TEST_FAILED, __LINE__, "no table %s", signature);
}

static void build(unsigned n_cpus) {
        size_t size = 0;

        assert_ok(acpi_build(space, sizeof(space), MEMMAP_ACPI, n_cpus, &size));
        assert_true(size > 0 && size <= sizeof(space));
}

TEST(madt_lists_every_cpu) {
        for (unsigned n = 1; n <= ACPI_CPUS_MAX; n++) {
                build(n);

                Table madt = find("APIC");
                assert_eq(madt.length, 44 + 8 * n);
                assert_eq(get(madt.data + 36, 4), MEMMAP_LAPIC);
                assert_eq(get(madt.data + 40, 4), 0); /* no 8259 */
                for (unsigned i = 0; i < n; i++) {
                        const uint8_t *cpu = madt.data + 44 + 8 * i;

                        assert_eq(cpu[0], 0);
                        assert_eq(cpu[1], 8);
                        assert_eq(cpu[2], i);
                        assert_eq(cpu[3], i);
                        assert_eq(get(cpu + 4, 4), 1);
                }
        }
}

TEST(fadt_says_what_is_missing) {
        build(1);

        Table fadt = find("FACP");
        assert_eq(fadt.length, 276);
        assert_eq(fadt.data[8], 6);

        uint64_t boot_arch = get(fadt.data + 109, 2), flags = get(fadt.data + 112, 4);
        assert_eq(boot_arch, 1 << 2 | 1 << 5);
        assert_true(flags & 1 << 20);
        assert_true(flags & 1 << 10);

        /* reset register, sleep control, sleep status: a byte of I/O space each */
        assert_eq(fadt.data[116], 1);
        assert_eq(get(fadt.data + 120, 8), PIO_ACPI_RESET);
        assert_eq(fadt.data[128], ACPI_RESET_VALUE);
        assert_eq(fadt.data[244], 1);
        assert_eq(get(fadt.data + 248, 8), PIO_ACPI_SLEEP_CONTROL);
        assert_eq(fadt.data[256], 1);
        assert_eq(get(fadt.data + 260, 8), PIO_ACPI_SLEEP_STATUS);
}

TEST(mcfg_is_bus_0) {
        build(1);

        Table mcfg = find("MCFG");
        assert_eq(mcfg.length, 60);
        assert_eq(get(mcfg.data + 44, 8), MEMMAP_ECAM);
        assert_eq(mcfg.data[54], 0);
        assert_eq(mcfg.data[55], MEMMAP_ECAM_SIZE / (1 << 20) - 1);
}

TEST(refuses_what_does_not_fit) {
        size_t size;

        assert_eq(acpi_build(space, sizeof(space), MEMMAP_ACPI, 0, &size), -EINVAL);
        assert_eq(acpi_build(space, sizeof(space), MEMMAP_ACPI, ACPI_CPUS_MAX + 1, &size), -EINVAL);
        assert_eq(acpi_build(space, sizeof(space), MEMMAP_ACPI + 1, 1, &size), -EINVAL);

        assert_ok(acpi_build(space, sizeof(space), MEMMAP_ACPI, 16, &size));
        for (size_t room = 0; room < size; room += 7) {
                size_t ignored;

                /* Exact, so that a sanitizer sees a byte too many. */
                uint8_t *exact = malloc(room + 1);
                assert_eq(acpi_build(exact, room, MEMMAP_ACPI, 16, &ignored), -ENOSPC);
                free(exact);
        }
}

static void dump(int dirfd, const char *name, Table t) {
        _cleanup_close_ int fd = openat(dirfd, name, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_ok(write_full(fd, t.data, t.length));
}

static int run_iasl(const char *file) {
        posix_spawn_file_actions_t actions;
        char *argv[] = { (char *) "iasl", (char *) "-d", (char *) file, NULL };
        pid_t pid;
        int status = -1;

        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        int r = posix_spawnp(&pid, "iasl", &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (r == ENOENT)
                test_skip("iasl (acpica-tools) is not installed");
        assert_eq(r, 0);
        assert_eq(waitpid(pid, &status, 0), pid);
        return status;
}

static void disassemble(const char *dir, const char *signature, const char *const *expected) {
        char path[128];
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int dirfd = open(dir, O_PATH|O_DIRECTORY|O_CLOEXEC);

        snprintf(path, sizeof(path), "%s/%s.dat", dir, signature);
        dump(dirfd, path, find(signature));
        assert_eq(run_iasl(path), 0);

        snprintf(path, sizeof(path), "%s.dsl", signature);
        assert_ok(read_file(dirfd, path, MIB(1), &text, NULL));
        for (; *expected; expected++)
                if (!strstr(text, *expected))
                        test_stop(TEST_FAILED, __LINE__, "%s: no \"%s\" in\n%s", signature, *expected, text);

        snprintf(path, sizeof(path), "%s.dat", signature);
        (void) unlinkat(dirfd, path, 0);
        snprintf(path, sizeof(path), "%s.dsl", signature);
        (void) unlinkat(dirfd, path, 0);
}

TEST(iasl_understands_every_table) {
        static const char *const dsdt[] = {
                "Scope (\\_SB)", "Device (PCI0)", "EisaId (\"PNP0A08\")", "EisaId (\"PNP0A03\")",
                "WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode",
                "DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable, ReadWrite",
                "0xC0000000,         // Range Minimum", "0xDFFFFFFF,         // Range Maximum",
                "EisaId (\"PNP0C02\")", "Memory32Fixed (ReadWrite", "0xE0000000,         // Address Base",
                "Name (\\_S5, Package (0x04)", "Device (VGEN)", "Name (_HID, \"VMGENCTR\")", "Name (_CID, \"VM_Gen_Counter\")",
                "Name (ADDR, Package (0x02)", "0x000FE000,", NULL
        };
        static const char *const fadt[] = {
                "Hardware Reduced (V5) : 1", "Reset Register Supported (V2) : 1", "VGA Not Present (V4) : 1",
                "CMOS RTC Not Present (V5) : 1", "8042 Present on ports 60/64 (V2) : 0", NULL
        };
        static const char *const madt[] = { "PC-AT Compatibility : 0", "Processor Enabled : 1", NULL };
        static const char *const mcfg[] = { "Base Address : 00000000E0000000", NULL };
        static const char *const xsdt[] = { "ACPI Table Address   2", NULL };
        char dir[] = "/tmp/cubed-acpi-XXXXXX";

        assert_true(mkdtemp(dir));
        for (unsigned n = 1; n <= ACPI_CPUS_MAX; n += 5) {
                build(n);
                disassemble(dir, "DSDT", dsdt);
                disassemble(dir, "FACP", fadt);
                disassemble(dir, "APIC", madt);
                disassemble(dir, "MCFG", mcfg);
                disassemble(dir, "XSDT", xsdt);
        }
        assert_eq(rmdir(dir), 0);
}
