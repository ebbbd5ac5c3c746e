/* SPDX-License-Identifier: Apache-2.0 */

/* What is in a state file: a good one with its checksums right and some bytes changed, loaded into a machine without
 * KVM. What was taken must be able to run, and be saved.
 *
 * Input: { u8 section, u16 offset, u8 length, bytes }... */

#include <linux/virtio_vsock.h>

#include "base/agent-proto.h"
#include "fuzz.h"
#include "tests/unit/fake-vm.h"
#include "tests/unit/virtio-driver.h"
#include "vmm/cpuid.h"
#include "vmm/devices-private.h"
#include "vmm/snapshot-state.h"
#include "vmm/snapshot-vcpu.h"

#define MEMORY MIB(64)
#define PLUG MIB(128)
#define XSAVE_BYTES 4096U
#define TX 1
#define PACKET_GPA 0x80000U
#define GUEST_BYTES 0x90000U      /* all that the drivers here use */
#define EDITS_MAX 64U

static Vm vm;
static Stepper stepper;
static Devices *devices;
static CpuidTable host;
static const MsrList msrs = { .n = 3, .index = { 0x174, 0x277, 0xc0000102 } };
static const uint8_t no_id[SNAPSHOT_ID_BYTES];
static uint8_t *good;
static size_t good_bytes;
static uint8_t *guest_memory;

static void on_panic(void *userdata, uint8_t event) {
}

static void on_failure(void *userdata, int error, const char *message) {
        FUZZ_CHECK(!"the VMM can't go on");
}

static void on_device_error(void *userdata, const char *device, const char *message) {
}

static void on_control_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
}

static void on_control_lost(void *userdata) {
}

static void make_devices(void) {
        const DeviceEvents events = { on_panic, on_failure, on_device_error, on_control_frame, on_control_lost, NULL };
        DevicesConfig config = { .guest_cid = 3, .tap_fd = -EBADF };

        for (unsigned i = 0; i < 2; i++) {
                int fd = memfd_create("base", MFD_CLOEXEC), overlay = memfd_create("overlay", MFD_CLOEXEC);

                FUZZ_CHECK(ftruncate(fd, 65536) == 0 && ftruncate(overlay, 65536) == 0);
                config.disks[i] = (DiskConfig) {
                        .present = true, .read_only = i == 0, .base_fd = fd, .over.overlay_fd = i == 0 ? -EBADF : overlay,
                        .base_bytes = 65536, .disk_bytes = 65536,
                };
        }
        FUZZ_CHECK(devices_new(&vm, stepper.loop, &config, &events, &devices, NULL) == 0);
        FUZZ_CHECK(devices_start(devices) == 0);
}

static void send_packet(Driver *d) {
        const struct virtio_vsock_hdr h = {
                .src_cid = 3, .dst_cid = 2, .src_port = 1000, .dst_port = AGENT_CONTROL_PORT,
                .type = VIRTIO_VSOCK_TYPE_STREAM, .op = VIRTIO_VSOCK_OP_REQUEST, .buf_alloc = KIB(64),
        };

        FUZZ_CHECK(guest_mem_write(&vm.mem, PACKET_GPA, &h, sizeof(h)) == 0);
        ring_desc(&d->rings[TX], &vm.mem, 0, PACKET_GPA, sizeof(h), 0, 0);
        ring_offer(&d->rings[TX], &vm.mem, 0);
        driver_kick(d, TX);
}

/* Drivers for some of the devices, and the agent's connection. */
static void start_guest(void) {
        VirtioPci *const running[] = {
                virtio_vsock_pci(devices->vsock), virtio_rng_pci(devices->rng), virtio_balloon_pci(devices->balloon),
                virtio_blk_pci(devices->disks[1]),
        };
        static Driver drivers[ELEMENTSOF(running)];

        for (unsigned i = 0; i < ELEMENTSOF(running); i++) {
                driver_prepare(&drivers[i], running[i], &vm.mem, 0x10000U * (i + 1), 0);
                driver_ok(&drivers[i]);
                stepper_run(&stepper, 2);
        }
        send_packet(&drivers[0]);
        stepper_run(&stepper, 4);
}

static void put_section(SnapshotWriter *w, SnapshotSectionType type, const void *data, size_t size) {
        snapshot_writer_begin(w, type, 0);
        snapshot_writer_put(w, data, size);
}

static void put_agent(SnapshotWriter *w) {
        const FrameHeader h = { .type = AGENT_READY };
        uint8_t frame[FRAME_HEADER_SIZE];

        frame_header_put(&h, frame);
        put_section(w, SNAPSHOT_SECTION_AGENT, frame, sizeof(frame));
}

static void put_vcpu(SnapshotWriter *w) {
        static const VcpuFixed fixed = { .n_msrs = 3, .xsave_bytes = XSAVE_BYTES };
        static const uint8_t xsave[XSAVE_BYTES];

        put_section(w, SNAPSHOT_SECTION_VCPU, &fixed, sizeof(fixed));
        for (unsigned i = 0; i < msrs.n; i++) {
                struct kvm_msr_entry entry = { .index = msrs.index[i] };

                snapshot_writer_put(w, &entry, sizeof(entry));
        }
        snapshot_writer_put(w, xsave, sizeof(xsave));
}

static void make_cpuid(void) {
        static const uint32_t leaves[][2] = {
                { 1, 0 }, { 4, 0 }, { 4, 3 }, { 7, 0 }, { 7, 1 }, { 0xb, 0 }, { 0xb, 1 }, { 0xd, 0 }, { 0xd, 1 }, { 0xd, 2 },
                { 0x40000001, 0 }, { 0x80000001, 0 }, { 0x80000007, 0 }, { 0x80000008, 0 }, { 0x8000001d, 3 },
        };

        for (unsigned i = 0; i < ELEMENTSOF(leaves); i++)
                host.entries[host.head.nent++] = (struct kvm_cpuid_entry2) {
                        .function = leaves[i][0], .index = leaves[i][1], .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
                        .eax = 0x77777777, .ebx = 0x77777777, .ecx = 0x77777777, .edx = 0x77777777,
                };
}

static void make_good(void) {
        static const ConfigState config = {
                .mem_bytes = MEMORY, .n_cpus = 1, .max_cpus = 4, .tsc_khz = 2000000, .plug_bytes = PLUG,
        };
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        MemmapState memmap = { .n_regions = vm.mem.n_regions };
        static const SerialState serial;
        uint64_t clock = 1;

        for (unsigned i = 0; i < memmap.n_regions; i++) {
                memmap.regions[i].gpa = vm.mem.regions[i].gpa;
                memmap.regions[i].bytes = vm.mem.regions[i].size;
        }
        put_section(&w, SNAPSHOT_SECTION_CONFIG, &config, sizeof(config));
        put_section(&w, SNAPSHOT_SECTION_MEMMAP, &memmap, sizeof(memmap));
        cpuid_save(&host, config.max_cpus, 0, &w);
        put_vcpu(&w);
        put_section(&w, SNAPSHOT_SECTION_CLOCK, &clock, sizeof(clock));
        put_section(&w, SNAPSHOT_SECTION_SERIAL, &serial, sizeof(serial));
        devices_save(devices, &w);
        put_agent(&w);
        FUZZ_CHECK(snapshot_writer_finish(&w, no_id, no_id, &good, &good_bytes) == 0);
}

static void edit(uint8_t *file, FuzzInput *in) {
        SnapshotFile f;

        FUZZ_CHECK(snapshot_file_parse(file, good_bytes, &f, NULL) == 0);
        for (unsigned i = 0; i < EDITS_MAX && in->left > 0; i++) {
                const SnapshotSection *s = &f.sections[fuzz_u8(in) % f.header.n_sections];
                size_t at = fuzz_u16(in) % s->bytes, n = fuzz_u8(in) % 8 + 1U;

                (void) fuzz_bytes(in, file + s->offset + at, MIN(n, s->bytes - at));
        }
        FUZZ_CHECK(snapshot_file_seal(file, good_bytes) == 0);
}

static int read_cpus(const SnapshotState *s, ErrorText *e) {
        SnapshotReader reader;
        CpuidTable cpuid;
        VcpuState vcpu;

        int r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_CPUID, 0, &reader, e);
        if (r >= 0)
                r = cpuid_parse(&reader, &host, s->config.max_cpus, s->config.cpuid_hide, &cpuid, e);
        if (r >= 0)
                r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_VCPU, 0, &reader, e);
        return r < 0 ? r : snapshot_vcpu_parse(&reader, &msrs, XSAVE_BYTES, &vcpu, e);
}

static void run(void) {
        _cleanup_snapshot_writer_ SnapshotWriter w = {};

        devices_resume(devices);
        stepper_run(&stepper, 3);
        FUZZ_CHECK(devices_pause(devices) == 0);
        devices_save(devices, &w);
        FUZZ_CHECK(w.error == 0);
}

/* True when all of it was taken. */
static bool load(const uint8_t *file) {
        OverlayFds none = OVERLAY_FDS_NONE;
        DevicesLoad *l = NULL;
        SnapshotState s;
        ErrorText e;

        if (snapshot_state_read(fuzz_file(file, good_bytes), &s, &e) < 0)
                return false;
        bool same_memory = snapshot_state_check_memmap(&s, &vm.mem, &e) >= 0;
        bool cpus = read_cpus(&s, &e) >= 0;
        bool taken = devices_prepare(devices, &s.file, &none, &l, &e) >= 0;
        if (taken) {
                memcpy(guest_mem_ptr(&vm.mem, 0, GUEST_BYTES), guest_memory, GUEST_BYTES);
                devices_apply(devices, l);
                run();
        }
        snapshot_state_done(&s);
        return same_memory && cpus && taken;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        fake_vm_init(&vm, MEMORY);
        fake_vm_add_plug(&vm, PLUG);
        stepper_init(&stepper);
        make_devices();
        start_guest();
        FUZZ_CHECK(devices_pause(devices) == 0);
        make_cpuid();
        make_good();
        guest_memory = malloc(GUEST_BYTES);
        FUZZ_CHECK(guest_memory);
        memcpy(guest_memory, guest_mem_ptr(&vm.mem, 0, GUEST_BYTES), GUEST_BYTES);
        FUZZ_CHECK(load(good));
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ uint8_t *file = malloc(good_bytes);
        FuzzInput in = { data, size };

        FUZZ_CHECK(file);
        memcpy(file, good, good_bytes);
        edit(file, &in);
        (void) load(file);
        return 0;
}
