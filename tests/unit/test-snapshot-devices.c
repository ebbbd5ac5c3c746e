/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/snapshot-virtio.h"

#define RINGS_GPA 0x10000U
#define BUFFER_GPA 0x80000U

static Vm vm;
static Stepper stepper;
static VirtioPci dev, other;
static Driver driver;
static unsigned served;

static void on_nothing(VirtioPci *v) {
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtChain c;

        while (virtio_pci_pop(v, queue, &c)) {
                served++;
                virtqueue_push(&v->queues[queue].ring, &c, 0);
        }
        virtio_pci_signal(v, queue);
}

static void make_one(VirtioPci *v, uint8_t last) {
        static const VirtioKind kind = {
                .name = "test", .type = 19, .class_code = 0x078000, .features = 1ULL << 5, .n_queues = 2,
                .queue_size = 16, .chain_bytes_max = 4096, .ops = { on_nothing, on_nothing, on_kick },
        };
        const uint8_t config[] = { 1, 2, 3, 4, 5, 6, 7, last };

        assert_ok(virtio_pci_init(v, &kind, &vm, 0xc0100000, NULL, NULL, NULL));
        virtio_pci_set_config(v, config, sizeof(config));
        assert_ok(virtio_pci_attach(v, stepper.loop));
}

static void make(void) {
        served = 0;
        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        make_one(&dev, 8);
        make_one(&other, 8);
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 1ULL << VIRTIO_F_VERSION_1);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
        ring_desc(&driver.rings[0], &vm.mem, 0, BUFFER_GPA, 64, 0, 0);
        for (unsigned i = 0; i < 5; i++) {
                ring_offer(&driver.rings[0], &vm.mem, 0);
                driver_kick(&driver, 0);
                stepper_run(&stepper, 2);
        }
        assert_eq(served, 5);
}

static void done(void) {
        virtio_pci_done(&dev);
        virtio_pci_done(&other);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static uint8_t *save(VirtioPci *v, size_t *ret_size) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        uint8_t *data;

        snapshot_pci_save(&v->pci, 1, &w);
        snapshot_virtio_save(v, 1, &w);
        assert_ok(snapshot_writer_finish(&w, id, id, &data, ret_size));
        return data;
}

static int load(VirtioPci *v, const uint8_t *data, size_t size, ErrorText *e) {
        SnapshotReader pci_reader, reader;
        SnapshotFile f;
        VirtioLoad l;
        PciState pci;

        int r = snapshot_file_parse(data, size, &f, e);
        if (r >= 0)
                r = snapshot_file_section(&f, SNAPSHOT_SECTION_PCI, 1, &pci_reader, e);
        if (r >= 0)
                r = snapshot_pci_parse(&v->pci, &pci_reader, &pci, e);
        if (r >= 0)
                r = snapshot_file_section(&f, SNAPSHOT_SECTION_VIRTIO, 1, &reader, e);
        if (r >= 0)
                r = snapshot_virtio_parse(v, &reader, &l, e);
        if (r < 0)
                return r;
        snapshot_pci_apply(&v->pci, &pci);
        snapshot_virtio_apply(v, &l);
        return 0;
}

TEST(a_device_goes_on_in_another) {
        _cleanup_free_ uint8_t *data = NULL, *again = NULL;
        size_t size, again_size;
        ErrorText e;

        make();
        virtio_pci_drain(&dev);
        virtio_pci_pause(&dev);
        /* Offered while nobody looks; the bell is lost with the first device. */
        ring_offer(&driver.rings[0], &vm.mem, 0);
        data = save(&dev, &size);

        virtio_pci_pause(&other);
        assert_ok(load(&other, data, size, &e));
        again = save(&other, &again_size);
        assert_true(size == again_size && memcmp(data, again, size) == 0);

        stepper_run(&stepper, 4);
        assert_eq(served, 5);
        virtio_pci_resume(&other);
        stepper_run(&stepper, 4);
        assert_eq(served, 6);
        assert_eq(driver_status(&driver), dev.regs.status);

        driver.device = &other;
        driver_reset(&driver);
        stepper_run(&stepper, 2);
        assert_eq(driver_status(&driver), 0);
        done();
}

TEST(a_changed_configuration_is_told) {
        _cleanup_free_ uint8_t *data = NULL;
        VirtioPci bigger;
        size_t size;

        make();
        data = save(&dev, &size);
        make_one(&bigger, 9);
        virtio_pci_pause(&bigger);
        assert_ok(load(&bigger, data, size, NULL));
        virtio_pci_resume(&bigger);
        assert_true(bigger.isr & 2); /* 4.1.4.5: a change of the configuration */
        assert_eq(bigger.regs.config_generation, (uint8_t) (dev.regs.config_generation + 1));
        virtio_pci_done(&bigger);
        done();
}

TEST(a_changed_configuration_is_told_by_a_copy_of_the_copy) {
        _cleanup_free_ uint8_t *data = NULL, *again = NULL, *told = NULL;
        VirtioPci bigger, copy;
        size_t size;

        make();
        data = save(&dev, &size);
        make_one(&bigger, 9);
        make_one(&copy, 9);
        virtio_pci_pause(&bigger);
        virtio_pci_pause(&copy);
        assert_ok(load(&bigger, data, size, NULL));
        again = save(&bigger, &size);
        assert_ok(load(&copy, again, size, NULL));
        assert_eq(copy.regs.config_generation, (uint8_t) (dev.regs.config_generation + 1));
        virtio_pci_resume(&copy);
        assert_true(copy.isr & 2);

        /* Once. */
        copy.isr = 0;
        virtio_pci_pause(&copy);
        told = save(&copy, &size);
        assert_ok(load(&bigger, told, size, NULL));
        virtio_pci_resume(&bigger);
        assert_eq(bigger.isr & 2, 0);
        virtio_pci_done(&bigger);
        virtio_pci_done(&copy);
        done();
}

/* One change each that no driver could have made. */
TEST(impossible_states_are_refused) {
        static const struct {
                size_t offset;
                uint8_t value;
        } changes[] = {
                { offsetof(VirtioState, type), 1 },
                { offsetof(VirtioState, n_queues), 3 },
                { offsetof(VirtioState, n_vectors), 2 },
                { offsetof(VirtioState, device_features), 0xff },
                { offsetof(VirtioState, driver_features), 0xff },
                { offsetof(VirtioState, status), 0x0b },
                { offsetof(VirtioState, status), 0x04 },
                { offsetof(VirtioState, status), 0x07 },
                { offsetof(VirtioState, status), 0x1f },
                { offsetof(VirtioState, live), 0 },
                { offsetof(VirtioState, live), 2 },
                { offsetof(VirtioState, failed), 1 },
                { offsetof(VirtioState, config_changed), 2 },
                { offsetof(VirtioState, config_vector), 9 },
                { offsetof(VirtioState, config_bytes), 7 },
                { offsetof(VirtioState, msix_pending), 0x80 },
                { offsetof(VirtioState, msix[0].address), 1 },
                { offsetof(VirtioState, queues[0].size), 15 },
                { offsetof(VirtioState, queues[0].size), 32 },
                { offsetof(VirtioState, queues[0].size), 0 },
                { offsetof(VirtioState, queues[0].desc_gpa) + 3, 0x40 },
                { offsetof(VirtioState, queues[0].desc_gpa), 1 },
                { offsetof(VirtioState, queues[0].avail_gpa) + 7, 0x80 },
                { offsetof(VirtioState, queues[0].used_gpa) + 2, 0xff },
                { offsetof(VirtioState, queues[0].vector), 7 },
                { offsetof(VirtioState, queues[0].enabled), 2 },
                { offsetof(VirtioState, queues[0].avail_next), 99 },
                { offsetof(VirtioState, queues[0].in_flight), 1 },
                { offsetof(VirtioState, queues[0].in_flight) + 8, 1 },
        };
        _cleanup_free_ uint8_t *data = NULL;
        SnapshotFile f;
        size_t size;

        make();
        data = save(&dev, &size);
        assert_ok(snapshot_file_parse(data, size, &f, NULL));
        size_t at = f.sections[1].offset;
        for (unsigned i = 0; i < ELEMENTSOF(changes); i++) {
                _cleanup_free_ uint8_t *copy = malloc(size);
                ErrorText e = {};

                memcpy(copy, data, size);
                copy[at + changes[i].offset] = changes[i].value;
                assert_ok(snapshot_file_seal(copy, size));
                if (load(&other, copy, size, &e) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "change %u was taken", i);
                assert_true(e.text[0]);
        }
        assert_eq(other.regs.status, 0);
        done();
}

/* Whatever a file says: refused, or a device that a guest may drive. */
TEST(any_content_is_safe) {
        _cleanup_free_ uint8_t *data = NULL;
        unsigned taken = 0;
        size_t size;

        make();
        data = save(&dev, &size);
        virtio_pci_pause(&other);
        srand(7);
        for (unsigned n = 0; n < 20000; n++) {
                _cleanup_free_ uint8_t *copy = malloc(size);
                size_t front = sizeof(SnapshotHeader) + 2 * sizeof(SnapshotSection);

                memcpy(copy, data, size);
                for (unsigned k = 0; k < 1 + n % 4; k++)
                        copy[front + (size_t) rand() % (size - front)] ^= (uint8_t) (1 << rand() % 8);
                assert_ok(snapshot_file_seal(copy, size));
                if (load(&other, copy, size, NULL) < 0)
                        continue;
                taken++;
                virtio_pci_resume(&other);
                stepper_run(&stepper, 2);
                virtio_pci_drain(&other);
                virtio_pci_pause(&other);
        }
        printf("# %u of 20000 were taken\n", taken);
        assert_true(taken > 0 && taken < 20000);
        done();
}
