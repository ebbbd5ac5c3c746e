/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/eventfd.h>

#include "base/fd-util.h"
#include "base/tlv.h"
#include "test.h"
#include "vmm/build-config.h"

/* A request as cubed would write it, to be spoilt by the tests. */
typedef struct Draft {
        TlvWriter w;
        int fds[VMM_FDS_MAX];
        size_t n_fds;
} Draft;

static Draft draft;
static BuildConfig config;
static ErrorText e;

static void put_fd(VmmFdRole role) {
        tlv_put_u32(&draft.w, VMM_TAG_FD, role);
        draft.fds[draft.n_fds++] = eventfd(0, EFD_CLOEXEC);
}

static void put_segment(void) {
        const VmmSegment s = { .gpa = MIB(1), .file_offset = 4096, .file_bytes = 100, .mem_bytes = 200 };
        tlv_put(&draft.w, VMM_TAG_SEGMENT, &s, sizeof(s));
}

static void put_disk(uint32_t index, bool read_only) {
        const VmmDisk d = { .index = index, .read_only = read_only, .base_bytes = 4096,
                            .disk_bytes = read_only ? 4096 : MIB(1) };
        tlv_put(&draft.w, VMM_TAG_DISK, &d, sizeof(d));
}

static void discard(void) {
        close_many(draft.fds, draft.n_fds);
        tlv_writer_done(&draft.w);
        draft = (Draft) { .w = TLV_WRITER_INIT(KIB(64)) };
        e = (ErrorText) {};
}

static void begin(void) {
        discard();
        put_fd(VMM_FD_KVM);
        put_fd(VMM_FD_KERNEL);
        put_fd(VMM_FD_EXIT);
        tlv_put_u64(&draft.w, VMM_TAG_MEM_BYTES, MIB(128));
        tlv_put_u32(&draft.w, VMM_TAG_CPUS, 2);
        tlv_put_u64(&draft.w, VMM_TAG_ENTRY, MIB(1));
        put_segment();
}

static int parse(void) {
        config = BUILD_CONFIG_INIT;
        return build_config_parse(VMM_OP_BUILD, draft.w.data, draft.w.size, draft.fds, draft.n_fds, &config, &e);
}

static void parsed(void) {
        int r = parse();
        if (r < 0)
                test_stop(TEST_FAILED, __LINE__, "%s: %s", strerror(-r), e.text);
        for (size_t i = 0; i < draft.n_fds; i++)
                assert_eq(draft.fds[i], -EBADF);
}

static void refused(int error, const char *why) {
        int before = draft.n_fds > 0 ? draft.fds[0] : 0;

        assert_eq(parse(), error);
        if (!strstr(e.text, why))
                test_stop(TEST_FAILED, __LINE__, "\"%s\" does not say \"%s\"", e.text, why);
        if (draft.n_fds > 0) {
                assert_eq(draft.fds[0], before);
                assert_true(fcntl(before, F_GETFD) >= 0);
                close_many(draft.fds, draft.n_fds);
        }
}

TEST(smallest) {
        begin();
        parsed();
        assert_eq(config.mem_bytes, MIB(128));
        assert_eq(config.n_cpus, 2);
        assert_eq(config.max_cpus, 2);
        assert_eq(config.n_segments, 1);
        assert_eq(config.segments[0].mem_bytes, 200);
        assert_eq(config.stop_timeout_usec, CONFIG_STOP_TIMEOUT_USEC);
        assert_streq(config.cmdline, "");
        assert_true(config.kvm_fd >= 0 && config.kernel_fd >= 0 && config.exit_fd >= 0);
        assert_true(config.initrd_fd < 0 && config.console_fd < 0 && config.tap_fd < 0);
        build_config_done(&config);
}

TEST(largest) {
        begin();
        tlv_put_u32(&draft.w, VMM_TAG_MAX_CPUS, 16);
        tlv_put_u64(&draft.w, VMM_TAG_PLUG_BYTES, GIB(32) - MIB(128));
        tlv_put_str(&draft.w, VMM_TAG_CMDLINE, "console=ttyS0");
        tlv_put_u64(&draft.w, VMM_TAG_INITRD_BYTES, 4096);
        tlv_put_u64(&draft.w, VMM_TAG_STOP_TIMEOUT_USEC, 5);
        tlv_put_u32(&draft.w, VMM_TAG_UID, getuid());
        tlv_put_u32(&draft.w, VMM_TAG_CPUID_HIDE, VMM_CPUID_HIDE_XSAVE);
        put_disk(1, false);
        put_disk(0, true);
        put_fd(VMM_FD_INITRD);
        put_fd(VMM_FD_CONSOLE);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_OVERLAY);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_TAP);
        int tap = draft.fds[8];
        int base_b = draft.fds[5], overlay_b = draft.fds[6], base_a = draft.fds[7];
        parsed();
        assert_eq(config.max_cpus, 16);
        assert_eq(config.plug_bytes, GIB(32) - MIB(128));
        assert_streq(config.cmdline, "console=ttyS0");
        assert_eq(config.stop_timeout_usec, 5);
        assert_true(config.disks[0].present && config.disks[0].read_only);
        assert_true(config.disks[1].present && !config.disks[1].read_only);
        assert_eq(config.disks[0].base_fd, base_a);
        assert_eq(config.disks[0].over.overlay_fd, -EBADF);
        assert_eq(config.disks[1].base_fd, base_b);
        assert_eq(config.disks[1].over.overlay_fd, overlay_b);
        assert_eq(config.tap_fd, tap);
        build_config_done(&config);
        assert_true(fcntl(overlay_b, F_GETFD) < 0);
        assert_true(fcntl(tap, F_GETFD) < 0);
}

TEST(missing_things) {
        discard();
        refused(-EINVAL, "memory of 0 bytes");

        begin();
        draft.n_fds = 2;
        refused(-EINVAL, "2 file descriptors for 3 roles");

        discard();
        tlv_put_u64(&draft.w, VMM_TAG_MEM_BYTES, MIB(128));
        tlv_put_u32(&draft.w, VMM_TAG_CPUS, 1);
        refused(-EINVAL, "segments and an entry");

        tlv_put_u64(&draft.w, VMM_TAG_ENTRY, MIB(1));
        put_segment();
        refused(-EINVAL, "KVM");
        put_fd(VMM_FD_KVM);
        put_fd(VMM_FD_KERNEL);
        refused(-EINVAL, "exit record");
}

TEST(unknown_and_repeated) {
        begin();
        tlv_put_u32(&draft.w, 77, 1);
        refused(-EINVAL, "unknown tag 77");

        begin();
        tlv_put_u32(&draft.w, VMM_TAG_STATE, 1);
        refused(-EINVAL, "unknown tag 3");

        begin();
        tlv_put_u32(&draft.w, VMM_TAG_CPUS, 2);
        refused(-EINVAL, "twice");

        begin();
        put_fd(VMM_FD_KVM);
        refused(-EINVAL, "role 0");

        begin();
        put_fd(VMM_FD_TAP);
        put_fd(VMM_FD_TAP);
        refused(-EINVAL, "role 8");

        begin();
        put_fd(VMM_FD_STREAM);
        refused(-EINVAL, "role 7");

        begin();
        put_fd((VmmFdRole) 99);
        refused(-EINVAL, "role 99");

        begin();
        for (unsigned i = 0; i < CONFIG_SEGMENTS_MAX; i++)
                put_segment();
        refused(-E2BIG, "segments");

        begin();
        for (unsigned i = 0; i < VMM_FDS_MAX; i++)
                tlv_put_u32(&draft.w, VMM_TAG_FD, VMM_FD_KVM);
        refused(-E2BIG, "file descriptors");
}

static void refused_number(VmmTag tag, uint64_t v, bool wide, const char *why) {
        discard();
        put_fd(VMM_FD_KVM);
        put_fd(VMM_FD_KERNEL);
        put_fd(VMM_FD_EXIT);
        tlv_put_u64(&draft.w, VMM_TAG_ENTRY, MIB(1));
        put_segment();
        if (tag != VMM_TAG_MEM_BYTES)
                tlv_put_u64(&draft.w, VMM_TAG_MEM_BYTES, MIB(128));
        if (tag != VMM_TAG_CPUS)
                tlv_put_u32(&draft.w, VMM_TAG_CPUS, 2);
        if (wide)
                tlv_put_u64(&draft.w, tag, v);
        else
                tlv_put_u32(&draft.w, tag, (uint32_t) v);
        refused(tag == VMM_TAG_UID ? -EPERM : -EINVAL, why);
}

TEST(numbers_out_of_range) {
        refused_number(VMM_TAG_MEM_BYTES, MIB(62), true, "memory");
        refused_number(VMM_TAG_MEM_BYTES, GIB(32) + MIB(2), true, "memory");
        refused_number(VMM_TAG_MEM_BYTES, MIB(128) + 4096, true, "memory");
        refused_number(VMM_TAG_MEM_BYTES, UINT64_MAX, true, "memory");
        refused_number(VMM_TAG_PLUG_BYTES, MIB(64), true, "to plug");
        refused_number(VMM_TAG_PLUG_BYTES, GIB(32), true, "to plug");
        refused_number(VMM_TAG_PLUG_BYTES, UINT64_MAX & ~(MIB(128) - 1), true, "to plug");
        refused_number(VMM_TAG_CPUS, 0, false, "CPUs");
        refused_number(VMM_TAG_CPUS, 17, false, "CPUs");
        refused_number(VMM_TAG_MAX_CPUS, 1, false, "CPUs");
        refused_number(VMM_TAG_MAX_CPUS, 17, false, "CPUs");
        refused_number(VMM_TAG_CPUID_HIDE, 2, false, "CPUID");
        refused_number(VMM_TAG_UID, getuid() + 1, false, "uid");
}

TEST(wrong_sizes) {
        begin();
        tlv_put_u64(&draft.w, VMM_TAG_MAX_CPUS, 4);
        refused(-EBADMSG, "tag 6");

        begin();
        tlv_put(&draft.w, VMM_TAG_DISK, "x", 1);
        refused(-EBADMSG, "tag 11");

        begin();
        tlv_put(&draft.w, VMM_TAG_CMDLINE, "a\0b", 3);
        refused(-EBADMSG, "tag 7");

        begin();
        draft.w.size -= 4;
        refused(-EBADMSG, "malformed");
}

TEST(command_line_length) {
        char line[4097];

        memset(line, 'x', sizeof(line));
        line[4095] = 0;
        begin();
        tlv_put_str(&draft.w, VMM_TAG_CMDLINE, line);
        parsed();
        build_config_done(&config);

        line[4095] = 'x';
        line[4096] = 0;
        begin();
        tlv_put_str(&draft.w, VMM_TAG_CMDLINE, line);
        refused(-EINVAL, "command line");
}

static void refused_disk(VmmDisk d, const char *why) {
        begin();
        tlv_put(&draft.w, VMM_TAG_DISK, &d, sizeof(d));
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_OVERLAY);
        refused(-EINVAL, why);
}

TEST(disks) {
        refused_disk((VmmDisk) { .index = 2, .disk_bytes = 512 }, "index 2");
        refused_disk((VmmDisk) { .index = 0, .read_only = 2, .disk_bytes = 512 }, "read_only");
        refused_disk((VmmDisk) { .index = 0, .disk_bytes = 0 }, "0 bytes");
        refused_disk((VmmDisk) { .index = 0, .disk_bytes = 513 }, "513 bytes");
        refused_disk((VmmDisk) { .index = 0, .disk_bytes = 512, .base_bytes = 1024 }, "base of 1024");
        refused_disk((VmmDisk) { .index = 0, .disk_bytes = UINT64_MAX & ~511ULL }, "bytes");
        /* An overlay of a read-only disk is of no use. */
        refused_disk((VmmDisk) { .index = 0, .read_only = 1, .disk_bytes = 512 }, "role 6");

        begin();
        put_disk(0, true);
        put_disk(0, true);
        refused(-EINVAL, "twice");

        begin();
        put_disk(0, false);
        put_disk(1, false);
        refused(-EINVAL, "one disk can be written");

        begin();
        put_disk(0, false);
        put_fd(VMM_FD_DISK_BASE);
        refused(-EINVAL, "disk 0 lacks");
}

TEST(layers_of_the_disk_that_can_be_written) {
        int layers[VMM_DISK_LAYERS_MAX];

        begin();
        put_disk(0, true);
        put_disk(1, false);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_OVERLAY);
        for (unsigned i = 0; i < VMM_DISK_LAYERS_MAX; i++) {
                put_fd(VMM_FD_DISK_LAYER);
                layers[i] = draft.fds[draft.n_fds - 1];
        }
        parsed();
        assert_eq(config.disks[0].over.n_layers, 0);
        assert_eq(config.disks[1].over.n_layers, VMM_DISK_LAYERS_MAX);
        assert_eq(memcmp(config.disks[1].over.layer_fds, layers, sizeof(layers)), 0);
        build_config_done(&config);
        for (unsigned i = 0; i < VMM_DISK_LAYERS_MAX; i++)
                assert_true(fcntl(layers[i], F_GETFD) < 0);

        begin();
        put_disk(1, false);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_OVERLAY);
        for (unsigned i = 0; i <= VMM_DISK_LAYERS_MAX; i++)
                put_fd(VMM_FD_DISK_LAYER);
        refused(-EINVAL, "role 19");

        begin();
        put_disk(0, true);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_LAYER);
        refused(-EINVAL, "role 19");

        begin();
        put_disk(0, false);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_LAYER);
        refused(-EINVAL, "disk 0 lacks");
}

/* Whatever is cut off or flipped: an answer, never a crash, and no descriptor lost. */
TEST(spoilt_input) {
        begin();
        put_disk(1, false);
        put_fd(VMM_FD_DISK_BASE);
        put_fd(VMM_FD_DISK_OVERLAY);
        const size_t size = draft.w.size;

        for (size_t n = 0; n < size; n++) {
                uint8_t *exact = malloc(n + 1);

                memcpy(exact, draft.w.data, n);
                config = BUILD_CONFIG_INIT;
                assert_true(build_config_parse(VMM_OP_BUILD, exact, n, draft.fds, draft.n_fds, &config, NULL) < 0);
                free(exact);
        }

        for (size_t i = 0; i < size * 8; i++) {
                int fds[VMM_FDS_MAX];

                memcpy(fds, draft.fds, sizeof(fds));
                draft.w.data[i / 8] ^= (uint8_t) (1u << i % 8);
                config = BUILD_CONFIG_INIT;
                if (build_config_parse(VMM_OP_BUILD, draft.w.data, size, fds, draft.n_fds, &config, NULL) >= 0)
                        free(config.cmdline);
                draft.w.data[i / 8] ^= (uint8_t) (1u << i % 8);
        }
        discard();
}
