/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>

#include "base/fd-util.h"
#include "test.h"
#include "vmm/memmap.h"
#include "vmm/pvh.h"
#include "vmm/vmgenid.h"

#define KERNEL_BYTES 8192U

/* As in Xen's start_info.h, written down a second time. */
typedef struct Info {
        uint32_t magic, version, flags, n_modules;
        uint64_t modules, cmdline, rsdp, memmap;
        uint32_t n_memmap, reserved;
} Info;

typedef struct Module {
        uint64_t gpa, size, cmdline, reserved;
} Module;

typedef struct Range {
        uint64_t gpa, size;
        uint32_t type, reserved;
} Range;

static GuestMem mem;
static BuildConfig config;
static ErrorText e;

static int file_of(size_t size, uint8_t first) {
        int fd = memfd_create("file", MFD_CLOEXEC);
        _cleanup_free_ uint8_t *data = malloc(size);

        for (size_t i = 0; i < size; i++)
                data[i] = (uint8_t) (first + i);
        assert_ok(write_full(fd, data, size));
        return fd;
}

static void begin(uint64_t bytes) {
        guest_mem_done(&mem);
        safe_close(config.kernel_fd);
        safe_close(config.initrd_fd);

        assert_ok(guest_mem_init(&mem, bytes));
        e = (ErrorText) {};
        config = BUILD_CONFIG_INIT;
        config.mem_bytes = bytes;
        config.n_cpus = 1;
        config.max_cpus = 16;
        config.cmdline = (char *) "one two";
        config.kernel_fd = file_of(KERNEL_BYTES, 0);
        config.entry = MIB(1);
        config.n_segments = 1;
        config.segments[0] = (VmmSegment) { .gpa = MIB(1), .file_offset = 4096, .file_bytes = 4096,
                                            .mem_bytes = MIB(2) };
}

__attribute__((constructor)) static void first(void) {
        config = BUILD_CONFIG_INIT;
}

static void refused(int error, const char *why) {
        assert_eq(pvh_load(&mem, &config, &e), error);
        if (!strstr(e.text, why))
                test_stop(TEST_FAILED, __LINE__, "\"%s\" does not say \"%s\"", e.text, why);
}

static void add_initrd(size_t size) {
        config.initrd_fd = file_of(size, 7);
        config.initrd_bytes = size;
}

TEST(kernel_and_start_info) {
        Info info;
        char cmdline[8];
        uint8_t *kernel;

        begin(MIB(64));
        assert_ok(pvh_load(&mem, &config, &e));

        assert_ok(guest_mem_read(&mem, MEMMAP_PVH_INFO, &info, sizeof(info)));
        assert_eq(info.magic, 0x336ec578);
        assert_eq(info.version, 1);
        assert_eq(info.n_modules, 0);
        assert_eq(info.rsdp, MEMMAP_ACPI);
        assert_ok(guest_mem_read(&mem, info.cmdline, cmdline, sizeof(cmdline)));
        assert_streq(cmdline, "one two");
        assert_true(memcmp(guest_mem_ptr(&mem, info.rsdp, 8), "RSD PTR ", 8) == 0);

        kernel = guest_mem_ptr(&mem, MIB(1), MIB(2));
        assert_eq(kernel[0], 0);
        assert_eq(kernel[1], 1);
        assert_eq(kernel[4095], 255);
        assert_eq(kernel[4096], 0);
}

TEST(initrd_at_the_top) {
        Info info;
        Module m;

        begin(MIB(64));
        add_initrd(5000);
        assert_ok(pvh_load(&mem, &config, &e));
        assert_ok(guest_mem_read(&mem, MEMMAP_PVH_INFO, &info, sizeof(info)));
        assert_eq(info.n_modules, 1);
        assert_ok(guest_mem_read(&mem, info.modules, &m, sizeof(m)));
        assert_eq(m.gpa, MIB(64) - 8192);
        assert_eq(m.size, 5000);
        assert_eq(((uint8_t *) guest_mem_ptr(&mem, m.gpa, m.size))[4999], (uint8_t) (7 + 4999));

        /* Of a large guest it lies below the hole. */
        begin(GIB(4));
        add_initrd(4096);
        assert_ok(pvh_load(&mem, &config, &e));
        assert_ok(guest_mem_read(&mem, info.modules, &m, sizeof(m)));
        assert_eq(m.gpa, MEMMAP_HOLE_START - 4096);
}

static void check_map(uint64_t bytes) {
        Info info;
        Range r[8];
        uint64_t ram = 0;

        begin(bytes);
        assert_ok(pvh_load(&mem, &config, &e));
        assert_ok(guest_mem_read(&mem, MEMMAP_PVH_INFO, &info, sizeof(info)));
        assert_true(info.n_memmap <= ELEMENTSOF(r));
        assert_ok(guest_mem_read(&mem, info.memmap, r, info.n_memmap * sizeof(Range)));

        for (unsigned i = 0; i < info.n_memmap; i++) {
                if (i > 0)
                        assert_true(r[i].gpa >= r[i - 1].gpa + r[i - 1].size);
                if (r[i].type != 1)
                        continue;
                ram += r[i].size;
                assert_true(guest_mem_ptr(&mem, r[i].gpa, r[i].size));
                assert_true(r[i].gpa + r[i].size <= MEMMAP_HOLE_START || r[i].gpa >= MEMMAP_HOLE_END);
        }
        /* All but what lies between low RAM and 1 MiB. */
        assert_eq(ram, bytes - (MEMMAP_HIGH - MEMMAP_LOW_END));
}

TEST(memory_map) {
        check_map(MIB(64));
        check_map(GIB(3) - MIB(2));
        check_map(GIB(3));
        check_map(GIB(3) + MIB(2));
        check_map(GIB(4));
        check_map(GIB(32));
}

TEST(bad_segments) {
        VmmSegment *s = config.segments;

        begin(MIB(64));
        s[0].file_offset = 4097;
        refused(-EINVAL, "behind the end of the file");

        begin(MIB(64));
        s[0].file_offset = UINT64_MAX - 4095;
        refused(-EINVAL, "behind the end of the file");

        begin(MIB(64));
        s[0].mem_bytes = 4095;
        refused(-EINVAL, "kernel segment 0");

        begin(MIB(64));
        s[0].mem_bytes = s[0].file_bytes = 0;
        refused(-EINVAL, "kernel segment 0");

        begin(MIB(64));
        s[0].gpa = MIB(1) - 1;
        refused(-EINVAL, "below 1 MiB");

        begin(MIB(64));
        s[0].gpa = 0;
        refused(-EINVAL, "below 1 MiB");

        begin(GIB(4));
        s[0].gpa = UINT64_MAX - 4096;
        refused(-EINVAL, "behind 3 GiB");

        begin(GIB(4));
        s[0].mem_bytes = UINT64_MAX - MIB(1);
        refused(-EINVAL, "behind 3 GiB");

        begin(GIB(8));
        s[0].gpa = GIB(4);
        refused(-EINVAL, "behind 3 GiB");

        begin(MIB(64));
        s[0].mem_bytes = MIB(63);
        assert_ok(pvh_load(&mem, &config, &e));
        s[0].mem_bytes++;
        refused(-ENOMEM, "needs more than 64 MiB");

        begin(MIB(64));
        config.n_segments = 2;
        s[1] = (VmmSegment) { .gpa = MIB(3) - 1, .file_bytes = 1, .mem_bytes = 4096 };
        refused(-EINVAL, "segments 0 and 1 overlap");
        s[1].gpa++;
        assert_ok(pvh_load(&mem, &config, &e));
}

TEST(reset_vector) {
        const uint8_t *code;

        begin(MIB(64));
        assert_ok(pvh_load(&mem, &config, &e));
        code = guest_mem_ptr(&mem, 0xffff0, 16);
        assert_eq(code[0], 0xba);
        assert_eq(code[1] | code[2] << 8, PIO_ACPI_RESET);
        assert_eq(code[5], 0xee);
}

TEST(bad_entry) {
        begin(MIB(64));
        config.entry = MIB(3);
        refused(-EINVAL, "in no segment");
        config.entry = MIB(1) - 1;
        refused(-EINVAL, "in no segment");
        config.entry = UINT64_MAX;
        refused(-EINVAL, "in no segment");
        config.entry = MIB(3) - 1;
        assert_ok(pvh_load(&mem, &config, &e));
}

TEST(bad_initrd) {
        begin(MIB(64));
        add_initrd(100);
        config.initrd_bytes = 101;
        refused(-EINVAL, "initrd");

        /* Just fits, then does not: the kernel ends at 3 MiB. */
        begin(MIB(64));
        config.initrd_fd = memfd_create("initrd", MFD_CLOEXEC);
        assert_eq(ftruncate(config.initrd_fd, MIB(100)), 0);
        config.initrd_bytes = MIB(61);
        assert_ok(pvh_load(&mem, &config, &e));
        config.initrd_bytes++;
        refused(-ENOMEM, "need 65 MiB of memory");
        config.initrd_bytes = MIB(100);
        refused(-ENOMEM, "need 103 MiB of memory");
}

TEST(files_that_are_none) {
        int fds[2];

        begin(MIB(64));
        assert_eq(pipe(fds), 0);
        close(config.kernel_fd);
        close(fds[1]);
        config.kernel_fd = fds[0];
        refused(-EINVAL, "not a regular file");
}

TEST(generation_ids_differ) {
        uint8_t a[VMGENID_BYTES], b[VMGENID_BYTES];

        begin(MIB(64));
        assert_ok(pvh_load(&mem, &config, &e));
        assert_ok(guest_mem_read(&mem, MEMMAP_VMGENID, a, sizeof(a)));
        for (size_t i = 0; i < sizeof(a); i++)
                assert_eq(a[i], 0);
        assert_ok(vmgenid_renew(&mem, &e));
        assert_ok(guest_mem_read(&mem, MEMMAP_VMGENID, a, sizeof(a)));
        assert_ok(vmgenid_renew(&mem, &e));
        assert_ok(guest_mem_read(&mem, MEMMAP_VMGENID, b, sizeof(b)));
        assert_true(memcmp(a, b, sizeof(a)) != 0);
}
