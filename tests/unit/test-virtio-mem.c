/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>
#include <linux/virtio_mem.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/vmm-proto.h"
#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/memmap.h"
#include "vmm/virtio-mem.h"

#define RINGS_GPA 0x10000U
#define REQUEST_GPA 0x100000U
#define RESPONSE_GPA 0x101000U
#define REGION MIB(128)
#define PLUG_GPA MEMMAP_HOLE_END
#define N_BLOCKS (REGION / MEM_BLOCK_BYTES)
#define FIELD(name) offsetof(struct virtio_mem_config, name)
#define NO_ANSWER 99U

static Vm vm;
static Stepper stepper;
static VirtioMem *mem;
static Driver driver;
static char error[200];

static void on_error(void *userdata, const char *name, const char *message) {
        (void) snprintf(error, sizeof(error), "%s: %s", name, message);
}

static void start(void) {
        driver_prepare(&driver, virtio_mem_pci(mem), &vm.mem, RINGS_GPA,
                       1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_MEM_F_UNPLUGGED_INACCESSIBLE);
        assert_eq(driver_status(&driver), 11);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
}

static void make(void) {
        error[0] = 0;
        fake_vm_init(&vm, MIB(4));
        fake_vm_add_plug(&vm, REGION);
        stepper_init(&stepper);
        assert_ok(virtio_mem_new(&vm, stepper.loop, 0xc0800000, on_error, NULL, &mem));
        start();
}

static void done(void) {
        mem = virtio_mem_free(mem);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static uint64_t config(unsigned offset) {
        return bar_get(virtio_mem_pci(mem), VIRTIO_BAR_DEVICE + offset, 8);
}

static uint64_t block_gpa(uint64_t block) {
        return vm.plug_gpa + block * MEM_BLOCK_BYTES;
}

static bool answered(uint32_t *ret_len) {
        uint32_t head;

        for (unsigned i = 0; i < 5; i++) {
                if (ring_take_used(&driver.rings[0], &vm.mem, &head, ret_len))
                        return true;
                stepper_run(&stepper, 1);
        }
        return false;
}

static void offer(uint32_t request_len, uint32_t response_len) {
        Ring *r = &driver.rings[0];

        ring_desc(r, &vm.mem, 0, REQUEST_GPA, request_len, VRING_DESC_F_NEXT, 1);
        ring_desc(r, &vm.mem, 1, RESPONSE_GPA, response_len, VRING_DESC_F_WRITE, 0);
        ring_offer(r, &vm.mem, 0);
        driver_kick(&driver, 0);
}

static struct virtio_mem_resp response;

static unsigned ask(uint16_t type, uint64_t gpa, uint16_t n) {
        struct virtio_mem_req q = { .type = type, .u.plug = { .addr = gpa, .nb_blocks = n } };
        uint32_t len;

        memset(&response, 0xff, sizeof(response));
        assert_ok(guest_mem_write(&vm.mem, REQUEST_GPA, &q, sizeof(q)));
        assert_ok(guest_mem_write(&vm.mem, RESPONSE_GPA, &response, sizeof(response)));
        offer(sizeof(q), sizeof(response));
        if (!answered(&len))
                return NO_ANSWER;
        assert_eq(len, sizeof(response));
        assert_ok(guest_mem_read(&vm.mem, RESPONSE_GPA, &response, sizeof(response)));
        return response.type;
}

static unsigned plug(uint64_t block, uint16_t n) {
        return ask(VIRTIO_MEM_REQ_PLUG, block_gpa(block), n);
}

static unsigned unplug(uint64_t block, uint16_t n) {
        return ask(VIRTIO_MEM_REQ_UNPLUG, block_gpa(block), n);
}

static unsigned state(uint64_t block, uint16_t n) {
        return ask(VIRTIO_MEM_REQ_STATE, block_gpa(block), n) == VIRTIO_MEM_RESP_ACK ? response.u.state.state : NO_ANSWER;
}

/* Pages of the block that the host holds for it. */
static unsigned resident(uint64_t block) {
        uint8_t map[MEM_BLOCK_BYTES / 4096];
        unsigned n = 0;

        assert_ok(mincore(guest_mem_ptr(&vm.mem, block_gpa(block), MEM_BLOCK_BYTES), MEM_BLOCK_BYTES, map));
        for (size_t i = 0; i < sizeof(map); i++)
                n += map[i] & 1;
        return n;
}

static void fill(uint64_t block) {
        memset(guest_mem_ptr(&vm.mem, block_gpa(block), MEM_BLOCK_BYTES), 0x5a, MEM_BLOCK_BYTES);
}

TEST(configuration) {
        make();
        assert_eq(config(FIELD(block_size)), MEM_BLOCK_BYTES);
        assert_eq(config(FIELD(addr)), vm.plug_gpa);
        assert_eq(config(FIELD(region_size)), REGION);
        assert_eq(config(FIELD(usable_region_size)), REGION);
        assert_eq(config(FIELD(plugged_size)), 0);
        assert_eq(config(FIELD(requested_size)), 0);
        bar_put(virtio_mem_pci(mem), VIRTIO_BAR_DEVICE + FIELD(requested_size), 8, REGION);
        assert_eq(config(FIELD(requested_size)), 0);
        done();
}

TEST(a_request_of_the_host_interrupts) {
        make();
        unsigned before = fake_msi_count;
        uint8_t generation = bar_get(virtio_mem_pci(mem), VIRTIO_PCI_COMMON_CFGGENERATION, 1);
        assert_ok(virtio_mem_request(mem, MIB(64)));
        assert_eq(config(FIELD(requested_size)), MIB(64));
        assert_eq(fake_msi_count, before + 1);
        assert_eq(fake_msi_last.data, 0x40);
        assert_true(generation != bar_get(virtio_mem_pci(mem), VIRTIO_PCI_COMMON_CFGGENERATION, 1));

        assert_eq(virtio_mem_request(mem, MIB(1)), -EINVAL);
        assert_eq(virtio_mem_request(mem, REGION + MEM_BLOCK_BYTES), -EINVAL);
        assert_eq(virtio_mem_request(mem, UINT64_MAX), -EINVAL);
        assert_eq(config(FIELD(requested_size)), MIB(64));

        /* Nobody to tell. */
        driver_reset(&driver);
        stepper_run(&stepper, 2);
        assert_ok(virtio_mem_request(mem, REGION));
        assert_eq(fake_msi_count, before + 1);
        assert_eq(config(FIELD(requested_size)), REGION);
        done();
}

TEST(plug_up_to_what_is_asked) {
        make();
        assert_eq(plug(0, 1), VIRTIO_MEM_RESP_NACK);
        assert_ok(virtio_mem_request(mem, MIB(8)));
        assert_eq(plug(0, 2), VIRTIO_MEM_RESP_ACK);
        assert_eq(config(FIELD(plugged_size)), MIB(4));
        assert_eq(plug(10, 3), VIRTIO_MEM_RESP_NACK);
        assert_eq(plug(10, 2), VIRTIO_MEM_RESP_ACK);
        assert_eq(config(FIELD(plugged_size)), MIB(8));
        assert_eq(plug(20, 1), VIRTIO_MEM_RESP_NACK);
        assert_eq(state(0, 2), VIRTIO_MEM_STATE_PLUGGED);
        assert_eq(state(2, 8), VIRTIO_MEM_STATE_UNPLUGGED);
        assert_eq(state(1, 2), VIRTIO_MEM_STATE_MIXED);
        assert_eq(state(0, N_BLOCKS), VIRTIO_MEM_STATE_MIXED);
        done();
}

TEST(unplugged_memory_goes_back) {
        make();
        assert_ok(virtio_mem_request(mem, REGION));
        assert_eq(plug(0, N_BLOCKS), VIRTIO_MEM_RESP_ACK);
        for (uint64_t i = 3; i < 6; i++)
                fill(i);
        assert_eq(unplug(4, 1), VIRTIO_MEM_RESP_ACK);
        assert_eq(resident(3), 512);
        assert_eq(resident(4), 0);
        assert_eq(resident(5), 512);
        assert_eq(config(FIELD(plugged_size)), REGION - MEM_BLOCK_BYTES);

        /* It can be touched all the same, and plugged again. */
        fill(4);
        assert_eq(ask(VIRTIO_MEM_REQ_UNPLUG_ALL, 0, 0), VIRTIO_MEM_RESP_ACK);
        for (uint64_t i = 3; i < 6; i++)
                assert_eq(resident(i), 0);
        assert_eq(config(FIELD(plugged_size)), 0);
        assert_eq(state(0, N_BLOCKS), VIRTIO_MEM_STATE_UNPLUGGED);
        assert_eq(plug(N_BLOCKS - 1, 1), VIRTIO_MEM_RESP_ACK);
        assert_eq(config(FIELD(plugged_size)), MEM_BLOCK_BYTES);
        done();
}

TEST(a_reset_changes_no_block) {
        make();
        assert_ok(virtio_mem_request(mem, MIB(8)));
        assert_eq(plug(7, 3), VIRTIO_MEM_RESP_ACK);
        fill(7);
        driver_reset(&driver);
        stepper_run(&stepper, 2);
        assert_eq(driver_status(&driver), 0);
        assert_eq(resident(7), 512);
        assert_eq(config(FIELD(plugged_size)), MIB(6));
        start();
        assert_eq(state(7, 3), VIRTIO_MEM_STATE_PLUGGED);
        done();
}

TEST(bad_ranges) {
        static const struct {
                uint64_t gpa;
                uint16_t n;
        } bad[] = {
                { 0, 1 },
                { 4096, 1 },
                { PLUG_GPA - MEM_BLOCK_BYTES, 1 },
                { PLUG_GPA - MEM_BLOCK_BYTES, 2 },
                { PLUG_GPA + 4096, 1 },
                { PLUG_GPA, 0 },
                { PLUG_GPA, N_BLOCKS + 1 },
                { PLUG_GPA, UINT16_MAX },
                { PLUG_GPA + REGION, 1 },
                { PLUG_GPA + REGION - MEM_BLOCK_BYTES, 2 },
                { UINT64_MAX, 1 },
                { UINT64_MAX - MEM_BLOCK_BYTES + 1, 1 },
                { UINT64_MAX - MEM_BLOCK_BYTES + 1, UINT16_MAX },
        };
        static const uint16_t types[] = { VIRTIO_MEM_REQ_PLUG, VIRTIO_MEM_REQ_UNPLUG, VIRTIO_MEM_REQ_STATE };

        make();
        assert_eq(vm.plug_gpa, PLUG_GPA);
        assert_ok(virtio_mem_request(mem, REGION));
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                for (size_t t = 0; t < ELEMENTSOF(types); t++)
                        assert_eq(ask(types[t], bad[i].gpa, bad[i].n), VIRTIO_MEM_RESP_ERROR);
        assert_eq(ask(4, vm.plug_gpa, 1), VIRTIO_MEM_RESP_ERROR);
        assert_eq(ask(UINT16_MAX, vm.plug_gpa, 1), VIRTIO_MEM_RESP_ERROR);
        assert_eq(config(FIELD(plugged_size)), 0);

        /* Twice, and half of it. */
        assert_eq(plug(4, 2), VIRTIO_MEM_RESP_ACK);
        assert_eq(plug(4, 2), VIRTIO_MEM_RESP_ERROR);
        assert_eq(plug(3, 2), VIRTIO_MEM_RESP_ERROR);
        assert_eq(unplug(3, 2), VIRTIO_MEM_RESP_ERROR);
        assert_eq(unplug(5, 2), VIRTIO_MEM_RESP_ERROR);
        assert_eq(unplug(4, 2), VIRTIO_MEM_RESP_ACK);
        assert_eq(unplug(4, 2), VIRTIO_MEM_RESP_ERROR);
        assert_eq(driver_status(&driver), 15);
        done();
}

TEST(short_requests_stop_the_device) {
        const struct {
                uint32_t request, response;
        } cases[] = { { 23, 10 }, { 24, 9 }, { 0, 10 }, { 24, 0 } };
        uint32_t len;

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                make();
                offer(cases[i].request, cases[i].response);
                assert_true(!answered(&len));
                assert_true(driver_status(&driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
                assert_true(strstr(error, "too short"));
                done();
        }
}

TEST(rings_and_requests_may_lie_in_plugged_memory) {
        struct virtio_mem_req q = { .type = VIRTIO_MEM_REQ_UNPLUG_ALL };
        uint32_t len;

        make();
        assert_ok(virtio_mem_request(mem, REGION));
        assert_eq(plug(0, 1), VIRTIO_MEM_RESP_ACK);
        /* The answer goes to where the memory has just been given back from. */
        assert_ok(guest_mem_write(&vm.mem, vm.plug_gpa, &q, sizeof(q)));
        ring_desc(&driver.rings[0], &vm.mem, 0, vm.plug_gpa, sizeof(q), VRING_DESC_F_NEXT, 1);
        ring_desc(&driver.rings[0], &vm.mem, 1, vm.plug_gpa + 4096, 10, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);
        assert_true(answered(&len));
        assert_eq(len, 10);
        assert_eq(resident(0), 1);
        done();
}

TEST(memory_that_cannot_be_given_back_stops_the_device) {
        make();
        assert_ok(virtio_mem_request(mem, REGION));
        assert_eq(plug(0, 4), VIRTIO_MEM_RESP_ACK);
        uint8_t *p = guest_mem_ptr(&vm.mem, block_gpa(2), 4096);
        /* A sanitizer makes nothing of the C library's mlock(). */
        if (syscall(SYS_mlock, p, 4096) < 0) {
                done();
                test_skip("mlock is not allowed");
        }
        *p = 42;
        assert_eq(unplug(0, 4), NO_ANSWER);
        assert_true(driver_status(&driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
        assert_true(strstr(error, "given back"));
        /* All still there, by the books and for real. */
        assert_eq(*p, 42);
        assert_eq(config(FIELD(plugged_size)), MIB(8));
        assert_ok(syscall(SYS_munlock, p, 4096));
        driver_reset(&driver);
        stepper_run(&stepper, 2);
        start();
        assert_eq(state(0, 4), VIRTIO_MEM_STATE_PLUGGED);
        assert_eq(unplug(0, 4), VIRTIO_MEM_RESP_ACK);
        assert_eq(resident(2), 0);
        done();
}

static uint64_t counted;

static void on_counter(void *userdata, const char *name, uint64_t value) {
        assert_true(strlen(name) < sizeof(((VmmCounter *) NULL)->name));
        if (streq(name, userdata))
                counted = value;
}

TEST(counters) {
        char plugged[] = "mem-plugged-bytes", refused[] = "mem-refused";

        make();
        assert_ok(virtio_mem_request(mem, MIB(4)));
        assert_eq(plug(0, 3), VIRTIO_MEM_RESP_NACK);
        assert_eq(plug(0, 1), VIRTIO_MEM_RESP_ACK);
        virtio_mem_counters(mem, on_counter, plugged);
        assert_eq(counted, MIB(2));
        virtio_mem_counters(mem, on_counter, refused);
        assert_eq(counted, 1);
        done();
}

/* A snapshot: saved, and what it says taken by another device over the same memory. */
TEST(a_snapshot_has_what_is_plugged) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *data = NULL;
        SnapshotReader reader, transport_reader;
        VirtioLoad transport;
        SnapshotFile f;
        ErrorText e;
        size_t size;
        MemLoad l;

        make();
        assert_ok(virtio_mem_request(mem, 8 * MEM_BLOCK_BYTES));
        assert_eq(plug(3, 2), VIRTIO_MEM_RESP_ACK);
        assert_eq(plug(N_BLOCKS - 1, 1), VIRTIO_MEM_RESP_ACK);
        virtio_pci_drain(virtio_mem_pci(mem));
        virtio_pci_pause(virtio_mem_pci(mem));
        snapshot_virtio_save(virtio_mem_pci(mem), 8, &w);
        virtio_mem_save(mem, 8, &w);
        assert_ok(snapshot_writer_finish(&w, id, id, &data, &size));
        assert_ok(snapshot_file_parse(data, size, &f, &e));
        virtio_pci_resume(virtio_mem_pci(mem));

        /* Meanwhile it goes on. */
        assert_eq(unplug(3, 2), VIRTIO_MEM_RESP_ACK);
        assert_ok(virtio_mem_request(mem, 0));
        virtio_pci_drain(virtio_mem_pci(mem));
        virtio_pci_pause(virtio_mem_pci(mem));

        assert_ok(snapshot_file_section(&f, SNAPSHOT_SECTION_VIRTIO, 8, &transport_reader, &e));
        assert_ok(snapshot_virtio_parse(virtio_mem_pci(mem), &transport_reader, &transport, &e));
        assert_ok(snapshot_file_section(&f, SNAPSHOT_SECTION_MEM, 8, &reader, &e));
        assert_ok(virtio_mem_parse(mem, &transport.state, &reader, &l, &e));
        virtio_mem_apply(mem, &l);
        assert_eq(config(FIELD(plugged_size)), 3 * MEM_BLOCK_BYTES);
        assert_eq(config(FIELD(requested_size)), 8 * MEM_BLOCK_BYTES);

        /* The rings were not put back: the driver goes on where it is. */
        virtio_pci_resume(virtio_mem_pci(mem));
        assert_eq(state(3, 2), VIRTIO_MEM_STATE_PLUGGED);
        assert_eq(state(0, 3), VIRTIO_MEM_STATE_UNPLUGGED);
        assert_eq(state(N_BLOCKS - 1, 1), VIRTIO_MEM_STATE_PLUGGED);
        assert_eq(plug(10, 5), VIRTIO_MEM_RESP_ACK);
        assert_eq(plug(20, 1), VIRTIO_MEM_RESP_NACK);
        done();
}
