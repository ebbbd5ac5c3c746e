/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <sys/stat.h>

#include "vmm/acpi.h"
#include "vmm/memmap.h"
#include "vmm/pvh.h"

/* xen/include/public/arch-x86/hvm/start_info.h, version 1 */
#define START_INFO_MAGIC 0x336ec578U
#define START_INFO_VERSION 1U
#define MEMMAP_RAM 1U
#define MEMMAP_RESERVED 2U
#define MEMMAP_ENTRIES 5U

#define PAGE 4096U
/* Linux reads at most this much by one call. */
#define READ_MAX 0x7ffff000U

typedef struct PvhStartInfo {
        uint32_t magic;
        uint32_t version;
        uint32_t flags;
        uint32_t n_modules;
        uint64_t modules;
        uint64_t cmdline;
        uint64_t rsdp;
        uint64_t memmap;
        uint32_t n_memmap;
        uint32_t reserved;
} PvhStartInfo;

typedef struct PvhModule {
        uint64_t gpa;
        uint64_t size;
        uint64_t cmdline;
        uint64_t reserved;
} PvhModule;

typedef struct PvhRange {
        uint64_t gpa;
        uint64_t size;
        uint32_t type;
        uint32_t reserved;
} PvhRange;

/* What lies at MEMMAP_PVH_INFO. */
typedef struct PvhBlock {
        PvhStartInfo info;
        PvhModule initrd;
        PvhRange ranges[MEMMAP_ENTRIES];
} PvhBlock;

static_assert(sizeof(PvhStartInfo) == 56, "version 1 of the start info");
static_assert(sizeof(PvhModule) == 32 && sizeof(PvhRange) == 24, "as in start_info.h");

static uint64_t low_ram_end(const GuestMem *mem) {
        return mem->regions[0].size;
}

static int file_size(int fd, const char *what, uint64_t *ret, ErrorText *e) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return error_set_errno(e, -errno, "%s", what);
        if (!S_ISREG(st.st_mode))
                return error_set(e, -EINVAL, "%s: not a regular file", what);
        *ret = (uint64_t) st.st_size;
        return 0;
}

/* The caller has checked that the range lies inside file and memory. */
static int read_into(int fd, uint64_t offset, uint8_t *to, uint64_t size, const char *what, ErrorText *e) {
        while (size > 0) {
                ssize_t n = pread(fd, to, MIN(size, (uint64_t) READ_MAX), (off_t) offset);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return error_set_errno(e, -errno, "reading %s", what);
                }
                if (n == 0)
                        return error_set(e, -EPIPE, "%s: the file ended early", what);
                to += n;
                offset += (uint64_t) n;
                size -= (uint64_t) n;
        }
        return 0;
}

/* [gpa, gpa + bytes) of the segment, which check_segment() has seen not to wrap. */
static uint64_t segment_end(const VmmSegment *s) {
        return s->gpa + s->mem_bytes;
}

static int check_segment(const GuestMem *mem, const BuildConfig *c, unsigned i, uint64_t kernel_bytes,
                         ErrorText *e) {
        const VmmSegment *s = &c->segments[i];

        if (s->mem_bytes == 0 || s->file_bytes > s->mem_bytes)
                return error_set(e, -EINVAL, "kernel segment %u: %" PRIu64 " bytes of file in %" PRIu64
                                 " of memory", i, s->file_bytes, s->mem_bytes);
        if (s->file_offset > kernel_bytes || s->file_bytes > kernel_bytes - s->file_offset)
                return error_set(e, -EINVAL, "kernel segment %u: reaches behind the end of the file", i);
        if (s->gpa < MEMMAP_HIGH)
                return error_set(e, -EINVAL, "kernel segment %u: address 0x%" PRIx64 " is below 1 MiB", i,
                                 s->gpa);
        if (s->mem_bytes > MEMMAP_HOLE_START || s->gpa > MEMMAP_HOLE_START - s->mem_bytes)
                return error_set(e, -EINVAL, "kernel segment %u: 0x%" PRIx64 " bytes at 0x%" PRIx64 " reach "
                                 "behind 3 GiB", i, s->mem_bytes, s->gpa);
        if (!guest_mem_ptr(mem, s->gpa, s->mem_bytes))
                return error_set(e, -ENOMEM, "kernel segment %u: this kernel needs more than %" PRIu64
                                 " MiB of memory, the guest has %" PRIu64 " MiB",
                                 i, segment_end(s) >> 20, c->mem_bytes >> 20);

        for (unsigned k = 0; k < i; k++)
                if (s->gpa < segment_end(&c->segments[k]) && c->segments[k].gpa < segment_end(s))
                        return error_set(e, -EINVAL, "kernel segments %u and %u overlap", k, i);
        return 0;
}

static int check_entry(const BuildConfig *c, ErrorText *e) {
        for (unsigned i = 0; i < c->n_segments; i++)
                if (c->entry >= c->segments[i].gpa && c->entry < segment_end(&c->segments[i]))
                        return 0;
        return error_set(e, -EINVAL, "kernel entry 0x%" PRIx64 " is in no segment", c->entry);
}

/* Memory is fresh and zero, so only what is in the file is written. */
static int load_kernel(const GuestMem *mem, const BuildConfig *c, ErrorText *e) {
        uint64_t kernel_bytes = 0;

        int r = file_size(c->kernel_fd, "kernel", &kernel_bytes, e);
        if (r < 0)
                return r;

        for (unsigned i = 0; i < c->n_segments; i++) {
                r = check_segment(mem, c, i, kernel_bytes, e);
                if (r < 0)
                        return r;
        }
        r = check_entry(c, e);
        if (r < 0)
                return r;

        for (unsigned i = 0; i < c->n_segments; i++) {
                const VmmSegment *s = &c->segments[i];
                uint8_t *to = guest_mem_ptr(mem, s->gpa, s->mem_bytes);

                r = read_into(c->kernel_fd, s->file_offset, to, s->file_bytes, "kernel", e);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* At the top of low RAM, above the kernel. */
static int load_initrd(const GuestMem *mem, const BuildConfig *c, PvhModule *ret, ErrorText *e) {
        uint64_t available = 0, kernel_end = MEMMAP_HIGH, top = low_ram_end(mem);

        int r = file_size(c->initrd_fd, "initrd", &available, e);
        if (r < 0)
                return r;
        if (c->initrd_bytes > available)
                return error_set(e, -EINVAL, "initrd: %" PRIu64 " bytes asked for, the file has %" PRIu64,
                                 c->initrd_bytes, available);

        for (unsigned i = 0; i < c->n_segments; i++)
                kernel_end = MAX(kernel_end, segment_end(&c->segments[i]));
        uint64_t room = top - ALIGN_UP(kernel_end, (uint64_t) PAGE);
        if (c->initrd_bytes > room)
                return error_set(e, -ENOMEM, "kernel and initrd need %" PRIu64 " MiB of memory, "
                                 "the guest has %" PRIu64 " MiB",
                                 (kernel_end + c->initrd_bytes + MIB(1) - 1) >> 20, c->mem_bytes >> 20);

        uint64_t gpa = ALIGN_DOWN(top - c->initrd_bytes, (uint64_t) PAGE);
        *ret = (PvhModule) { .gpa = gpa, .size = c->initrd_bytes };
        return read_into(c->initrd_fd, 0, guest_mem_ptr(mem, gpa, c->initrd_bytes), c->initrd_bytes,
                         "initrd", e);
}

static int load_acpi(const GuestMem *mem, const BuildConfig *c, ErrorText *e) {
        size_t size = MEMMAP_VMGENID - MEMMAP_ACPI, used;

        int r = acpi_build(guest_mem_ptr(mem, MEMMAP_ACPI, size), size, MEMMAP_ACPI, c->max_cpus, &used);
        return r < 0 ? error_set_errno(e, r, "ACPI tables for %u CPUs", c->max_cpus) : 0;
}

/* Linux takes reduced-hardware ACPI for a sign of EFI, finds none when it wants to reset (also after a
 * panic), and then jumps to where a BIOS would be, in real mode: F000:FFF0. */
static int load_reset_vector(const GuestMem *mem, ErrorText *e) {
        static const uint8_t code[] = {
                0xba, PIO_ACPI_RESET & 0xff, PIO_ACPI_RESET >> 8, /* mov $port, %dx */
                0xb0, ACPI_RESET_VALUE,                           /* mov $value, %al */
                0xee,                                             /* out %al, %dx */
                0xf4,                                             /* 1: hlt */
                0xeb, 0xfd,                                       /* jmp 1b */
        };

        static_assert(MEMMAP_VMGENID + PAGE <= MEMMAP_RESET_VECTOR, "one behind the other");
        static_assert(sizeof(code) <= MEMMAP_ACPI_END - MEMMAP_RESET_VECTOR, "ends at 1 MiB");
        int r = guest_mem_write(mem, MEMMAP_RESET_VECTOR, code, sizeof(code));
        return r < 0 ? error_set_errno(e, r, "reset vector") : 0;
}

static unsigned memory_map(const GuestMem *mem, uint64_t mem_bytes, PvhRange ranges[static MEMMAP_ENTRIES]) {
        unsigned n = 0;

        ranges[n++] = (PvhRange) { .gpa = 0, .size = MEMMAP_LOW_END, .type = MEMMAP_RAM };
        ranges[n++] = (PvhRange) { .gpa = MEMMAP_ACPI, .size = MEMMAP_ACPI_END - MEMMAP_ACPI,
                                   .type = MEMMAP_RESERVED };
        ranges[n++] = (PvhRange) { .gpa = MEMMAP_HIGH, .size = low_ram_end(mem) - MEMMAP_HIGH,
                                   .type = MEMMAP_RAM };
        ranges[n++] = (PvhRange) { .gpa = MEMMAP_ECAM, .size = MEMMAP_ECAM_SIZE, .type = MEMMAP_RESERVED };
        /* What is plugged later is not in here: its driver tells Linux about it. */
        if (mem_bytes > MEMMAP_HOLE_START)
                ranges[n++] = (PvhRange) { .gpa = mem->regions[1].gpa, .size = mem->regions[1].size,
                                           .type = MEMMAP_RAM };
        return n;
}

static int write_start_info(const GuestMem *mem, const BuildConfig *c, const PvhModule *initrd, ErrorText *e) {
        PvhBlock block = {
                .info = {
                        .magic = START_INFO_MAGIC,
                        .version = START_INFO_VERSION,
                        .n_modules = initrd->size > 0,
                        .modules = initrd->size > 0 ? MEMMAP_PVH_INFO + offsetof(PvhBlock, initrd) : 0,
                        .cmdline = MEMMAP_CMDLINE,
                        .rsdp = MEMMAP_ACPI,
                        .memmap = MEMMAP_PVH_INFO + offsetof(PvhBlock, ranges),
                },
                .initrd = *initrd,
        };

        block.info.n_memmap = memory_map(mem, c->mem_bytes, block.ranges);
        int r = guest_mem_write(mem, MEMMAP_PVH_INFO, &block, sizeof(block));
        return r < 0 ? error_set_errno(e, r, "PVH start info") : 0;
}

int pvh_load(const GuestMem *mem, const BuildConfig *config, ErrorText *e) {
        PvhModule initrd = {};

        assert(mem);
        assert(config);

        int r = load_kernel(mem, config, e);
        if (r < 0)
                return r;

        if (config->initrd_bytes > 0) {
                r = load_initrd(mem, config, &initrd, e);
                if (r < 0)
                        return r;
        }

        r = guest_mem_write(mem, MEMMAP_CMDLINE, config->cmdline, strlen(config->cmdline) + 1);
        if (r < 0)
                return error_set_errno(e, r, "kernel command line");

        r = load_acpi(mem, config, e);
        if (r < 0)
                return r;
        r = load_reset_vector(mem, e);
        if (r < 0)
                return r;
        return write_start_info(mem, config, &initrd, e);
}
