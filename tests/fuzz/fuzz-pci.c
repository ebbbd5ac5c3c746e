/* SPDX-License-Identifier: Apache-2.0 */

/* Every access that a vCPU can make to all devices of a machine: configuration space, BARs, MSI-X tables, the window of
 * virtio, ports, places where nothing is. What the machine is then it can save, and load.
 *
 * Input: steps, each a byte, its kind in the low half and an argument (mostly the slot) in the high one; see Step. */

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "fuzz.h"
#include "tests/unit/fake-vm.h"
#include "tests/unit/virtio-driver.h"
#include "vmm/devices-private.h"
#include "vmm/memmap.h"
#include "vmm/pio.h"

#define MEMORY MIB(4)
#define PLUG MIB(128)
#define MIB_OF_ALL ((MEMORY + PLUG) >> 20)
#define DISK_BYTES KIB(64)
#define STEPS_MAX 256U
#define SLOT_BYTES 32768U
#define BAR_STRIDE MIB(1)

typedef enum Step {
        STEP_CONFIG_WRITE,     /* u8: 0..3, a power of two, the length; u16 offset, value */
        STEP_CONFIG_READ,
        STEP_BAR_WRITE,        /* the same */
        STEP_BAR_READ,
        STEP_ANY_WRITE,        /* u64 address, u8 length, u64 value */
        STEP_ANY_READ,
        STEP_PORT_WRITE,       /* u16 port; the argument: 0..2, a power of two, the length; value */
        STEP_PORT_READ,
        STEP_SERIAL_WRITE,     /* u8 value: to the register of the argument */
        STEP_SERIAL_READ,
        STEP_ROUNDS,
        STEP_LOAD,             /* saved, and loaded */
        STEP_MEMORY,           /* u16 offset, u8 length, bytes */
        STEP_PLUG,             /* u8 blocks asked of the memory device */
        STEP_BALLOON,          /* u8 MiB asked of the balloon, of those that the machine has */
        STEP_COUNT,
} Step;

static Vm vm;
static Stepper stepper;
static int ring_fd;

typedef struct Board {
        Devices *devices;
        Serial serial;
} Board;

static void on_panic(void *userdata, uint8_t event) {
        FUZZ_CHECK(event != 0);
}

static void on_failure(void *userdata, int error, const char *message) {
        FUZZ_CHECK(!"the VMM can't go on");
}

static void on_device_error(void *userdata, const char *device, const char *message) {
        FUZZ_CHECK(device && message);
}

static void on_counter(void *userdata, const char *name, uint64_t value) {
        FUZZ_CHECK(name);
}

static int open_file(uint64_t bytes) {
        int fd = memfd_create("file", MFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t) bytes) == 0);
        return fd;
}

static Devices *make_devices(void) {
        const DeviceEvents events = { .on_panic = on_panic, .on_failure = on_failure, .on_device_error = on_device_error };
        DevicesConfig config = { .guest_cid = 3, .tap_fd = -EBADF };
        Devices *d;

        for (unsigned i = 0; i < 2; i++)
                config.disks[i] = (DiskConfig) {
                        .present = true, .read_only = i == 0, .base_fd = open_file(DISK_BYTES),
                        .over.overlay_fd = i == 0 ? -EBADF : open_file(DISK_BYTES), .base_bytes = DISK_BYTES,
                        .disk_bytes = DISK_BYTES,
                };
        FUZZ_CHECK(devices_new(&vm, stepper.loop, &config, &events, &d, NULL) == 0);
        return d;
}

static void mmio(Board *b, uint64_t gpa, unsigned len, bool write, uint64_t value) {
        uint8_t data[8];

        memcpy(data, &value, sizeof(data));
        devices_mmio(b->devices, gpa, data, len, write);
}

static void slot_access(Board *b, FuzzInput *in, uint64_t gpa, bool write) {
        unsigned len = 1U << (fuzz_u8(in) & 3), offset = fuzz_u16(in) % SLOT_BYTES;
        uint64_t value = 0;

        if (write)
                (void) fuzz_bytes(in, &value, len);
        mmio(b, gpa + offset / len * len, len, write, value);
}

static void any_access(Board *b, FuzzInput *in, bool write) {
        uint64_t gpa, value;

        (void) fuzz_bytes(in, &gpa, sizeof(gpa));
        unsigned len = fuzz_u8(in);
        (void) fuzz_bytes(in, &value, sizeof(value));
        mmio(b, gpa, len, write, value);
}

static void port_access(Board *b, FuzzInput *in, unsigned argument, bool write) {
        uint16_t port = fuzz_u16(in);
        unsigned len = 1U << argument % 3;
        uint32_t value = 0;

        if (write)
                (void) fuzz_bytes(in, &value, len);
        PioResult r = pio_access(&b->serial, port, &value, len, write);
        FUZZ_CHECK(r == PIO_DONE || write);
}

static void serial_access(Board *b, FuzzInput *in, unsigned argument, bool write) {
        uint8_t value = write ? fuzz_u8(in) : 0;

        (void) pio_access(&b->serial, (uint16_t) (PIO_SERIAL + argument % SERIAL_PORTS), &value, 1, write);
}

static void serve_disks(Board *b) {
        for (unsigned i = 0; i < ELEMENTSOF(b->devices->disks); i++)
                virtio_pci_drain(virtio_blk_pci(b->devices->disks[i]));
}

static void load(Board *b, const uint8_t *data, size_t size) {
        OverlayFds none = OVERLAY_FDS_NONE;
        SnapshotReader reader;
        SerialState serial;
        SnapshotFile f;
        DevicesLoad *l;

        FUZZ_CHECK(snapshot_file_parse(data, size, &f, NULL) == 0);
        FUZZ_CHECK(devices_prepare(b->devices, &f, &none, &l, NULL) == 0);
        FUZZ_CHECK(snapshot_file_section(&f, SNAPSHOT_SECTION_SERIAL, 0, &reader, NULL) == 0);
        FUZZ_CHECK(serial_parse(&reader, &serial, NULL) == 0);
        FUZZ_CHECK(!devices_load_has_control(l));
        devices_apply(b->devices, l);
        serial_apply(&b->serial, &serial);
}

static void save_and_load(Board *b) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        serve_disks(b);
        FUZZ_CHECK(devices_pause(b->devices) == 0);
        serial_save(&b->serial, &w);
        devices_save(b->devices, &w);
        FUZZ_CHECK(snapshot_writer_finish(&w, id, id, &data, &size) == 0);
        load(b, data, size);
        devices_resume(b->devices);
        serve_disks(b);
}

static void write_memory(FuzzInput *in) {
        uint64_t gpa = fuzz_u16(in);
        uint8_t data[UINT8_MAX];
        size_t n = fuzz_u8(in);

        (void) fuzz_bytes(in, data, n);
        FUZZ_CHECK(guest_mem_write(&vm.mem, gpa, data, n) == 0);
}

static void step(Board *b, FuzzInput *in) {
        uint8_t what = fuzz_u8(in);
        unsigned argument = what >> 4;

        switch ((Step) (what & 15)) {

        case STEP_CONFIG_WRITE: slot_access(b, in, MEMMAP_ECAM + argument * SLOT_BYTES, true); break;
        case STEP_CONFIG_READ: slot_access(b, in, MEMMAP_ECAM + argument * SLOT_BYTES, false); break;
        case STEP_BAR_WRITE: slot_access(b, in, MEMMAP_PCI_MMIO + argument * BAR_STRIDE, true); break;
        case STEP_BAR_READ: slot_access(b, in, MEMMAP_PCI_MMIO + argument * BAR_STRIDE, false); break;
        case STEP_ANY_WRITE: any_access(b, in, true); break;
        case STEP_ANY_READ: any_access(b, in, false); break;
        case STEP_PORT_WRITE: port_access(b, in, argument, true); break;
        case STEP_PORT_READ: port_access(b, in, argument, false); break;
        case STEP_SERIAL_WRITE: serial_access(b, in, argument, true); break;
        case STEP_SERIAL_READ: serial_access(b, in, argument, false); break;
        case STEP_ROUNDS:
                serve_disks(b);
                stepper_run(&stepper, argument + 1);
                break;
        case STEP_LOAD: save_and_load(b); break;
        case STEP_MEMORY: write_memory(in); break;
        case STEP_PLUG: (void) devices_request_plugged(b->devices, fuzz_u8(in) * MEM_BLOCK_BYTES); break;
        case STEP_BALLOON: (void) devices_request_balloon(b->devices, MIB(fuzz_u8(in) % MIB_OF_ALL)); break;
        case STEP_COUNT: devices_counters(b->devices, on_counter, NULL); break;
        }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        fake_vm_init(&vm, MEMORY);
        fake_vm_add_plug(&vm, PLUG);
        stepper_init(&stepper);
        ring_fd = open_file(sizeof(ConsoleRing));
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        Board b = {};

        FUZZ_CHECK(guest_mem_drop_private(&vm.mem) == 0);
        b.devices = make_devices();
        serial_init(&b.serial);
        FUZZ_CHECK(serial_attach(&b.serial, ring_fd, NULL) == 0);
        for (unsigned i = 0; i < STEPS_MAX && in.left > 0; i++)
                step(&b, &in);
        save_and_load(&b);
        serial_done(&b.serial);
        devices_free(b.devices);
        return 0;
}
