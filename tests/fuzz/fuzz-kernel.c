/* SPDX-License-Identifier: Apache-2.0 */

/* A kernel: the file that somebody gave, as cube-image reads it, and what it says of it as cube-vmm loads it into memory.
 * What cube-image takes the VMM can load, if the guest has the memory.
 *
 * Input: u8 kind, then by it: 0 a file, 1 a BuildConfig's segments as they are (u8 how many, u64 entry, u64 bytes of
 * initrd, the segments) and the file. */

#include "base/fd-util.h"
#include "daemon/image/kernel-image.h"
#include "fuzz.h"
#include "vmm/pvh.h"

#define MEMORY MIB(64)

static GuestMem mem;

static int open_initrd(void) {
        int fd = memfd_create("initrd", MFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && ftruncate(fd, 5000) == 0);
        return fd;
}

static int boot(BuildConfig *c, const void *file, size_t size, ErrorText *e) {
        char cmdline[] = "console=ttyS0";

        c->mem_bytes = MEMORY;
        c->max_cpus = 2;
        c->cmdline = cmdline;
        c->kernel_fd = fuzz_file(file, size);
        c->initrd_fd = open_initrd();
        int r = pvh_load(&mem, c, e);
        FUZZ_CHECK(r == 0 || *e->text);
        safe_close(c->initrd_fd);
        FUZZ_CHECK(guest_mem_drop_private(&mem) == 0);
        return r;
}

static void load_file(const uint8_t *data, size_t size) {
        BuildConfig c = BUILD_CONFIG_INIT;
        KernelImage k = {};
        Fault fault = {};
        ErrorText e = {};

        int r = kernel_image_load(data, size, &k, &fault);
        if (r < 0) {
                FUZZ_CHECK(*fault.text);
                return;
        }
        FUZZ_CHECK(k.info.n_segments > 0 && k.info.n_segments <= CONFIG_SEGMENTS_MAX);
        FUZZ_CHECK(*k.info.release == 0 || kernel_release_valid(k.info.release));
        c.entry = k.info.entry;
        c.initrd_bytes = 5000;
        c.n_segments = (unsigned) k.info.n_segments;
        memcpy(c.segments, k.info.segments, k.info.n_segments * sizeof(c.segments[0]));
        r = boot(&c, k.elf, k.elf_size, &e);
        FUZZ_CHECK(r == 0 || r == -ENOMEM);
        FUZZ_CHECK(r == 0 || kernel_info_floor(&k.info, 5000) > MEMORY);
        kernel_image_done(&k);
}

static void load_segments(FuzzInput *in) {
        BuildConfig c = BUILD_CONFIG_INIT;
        ErrorText e = {};

        c.n_segments = fuzz_u8(in) % CONFIG_SEGMENTS_MAX + 1;
        (void) fuzz_bytes(in, &c.entry, sizeof(c.entry));
        (void) fuzz_bytes(in, &c.initrd_bytes, sizeof(c.initrd_bytes));
        (void) fuzz_bytes(in, c.segments, c.n_segments * sizeof(c.segments[0]));
        (void) boot(&c, in->data, in->left, &e);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        FUZZ_CHECK(guest_mem_init(&mem, MEMORY) == 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        if (fuzz_u8(&in) & 1)
                load_segments(&in);
        else
                load_file(in.data, in.left);
        return 0;
}
