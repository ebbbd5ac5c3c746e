/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>

#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"

#define RINGS_GPA 0x10000U
#define FEATURE (1ULL << 5)

static Vm vm;
static Stepper stepper;
static VirtioPci dev;
static Driver driver;
static unsigned starts, stops, kicks[2], errors;

static void on_start(VirtioPci *v) {
        starts++;
}

static void on_stop(VirtioPci *v) {
        stops++;
}

/* As a disk that reads what the guest had written into the disk's own ring: behind each chain there are more, and no
 * CPU of the guest's is needed for it. */
static bool feeds_itself;

static void feed(VirtioPci *v, unsigned queue, unsigned n) {
        VirtChain c;

        for (; n > 0 && virtio_pci_pop(v, queue, &c); n--) {
                virtqueue_push(&v->queues[queue].ring, &c, 0);
                ring_offer(&driver.rings[queue], &vm.mem, 0);
        }
        virtio_pci_kick_again(v, queue);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtChain c;

        kicks[queue]++;
        if (feeds_itself) {
                feed(v, queue, 4);
                return;
        }
        while (virtio_pci_pop(v, queue, &c))
                virtqueue_push(&v->queues[queue].ring, &c, 0);
        virtio_pci_signal(v, queue);
}

static void on_error(void *userdata, const char *name, const char *message) {
        errors++;
        printf("# %s: %s\n", name, message);
}

static void make(void) {
        static const VirtioKind kind = {
                .name = "test", .type = 19, .class_code = 0x078000, .features = FEATURE, .n_queues = 2, .queue_size = 16,
                .chain_bytes_max = 4096, .ops = { on_start, on_stop, on_kick },
        };
        static const uint8_t config[] = { 1, 2, 3, 4, 5, 6, 7, 8 };

        starts = stops = kicks[0] = kicks[1] = errors = 0;
        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        assert_ok(virtio_pci_init(&dev, &kind, &vm, 0xc0100000, NULL, on_error, NULL));
        virtio_pci_set_config(&dev, config, sizeof(config));
        assert_ok(virtio_pci_attach(&dev, stepper.loop));
}

static void done(void) {
        virtio_pci_done(&dev);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static uint8_t status(void) {
        return bar_get(&dev, VIRTIO_PCI_COMMON_STATUS, 1);
}

static void set_status(uint8_t v) {
        bar_put(&dev, VIRTIO_PCI_COMMON_STATUS, 1, v);
}

static void set_features(uint64_t features) {
        for (unsigned i = 0; i < 2; i++) {
                bar_put(&dev, VIRTIO_PCI_COMMON_GFSELECT, 4, i);
                bar_put(&dev, VIRTIO_PCI_COMMON_GF, 4, (uint32_t) (features >> (i * 32)));
        }
}

static uint64_t offered(void) {
        uint64_t v = 0;

        for (unsigned i = 0; i < 2; i++) {
                bar_put(&dev, VIRTIO_PCI_COMMON_DFSELECT, 4, i);
                v |= bar_get(&dev, VIRTIO_PCI_COMMON_DF, 4) << (i * 32);
        }
        return v;
}

TEST(capabilities_lead_to_the_registers) {
        unsigned seen = 0, at;

        make();
        at = pci_config_read(&dev.pci, PCI_CAPABILITY_LIST, 1);
        for (unsigned i = 0; at && i < 16; i++) {
                unsigned id = pci_config_read(&dev.pci, at, 1);

                assert_eq(at % 4, 0);
                if (id == PCI_CAP_ID_MSIX) {
                        assert_eq(pci_config_read(&dev.pci, at + 2, 2) & PCI_MSIX_FLAGS_QSIZE, 2);
                        assert_eq(pci_config_read(&dev.pci, at + 4, 4), VIRTIO_BAR_MSIX_TABLE);
                        assert_eq(pci_config_read(&dev.pci, at + 8, 4), VIRTIO_BAR_MSIX_PENDING);
                        seen |= 1U << 31;
                } else {
                        unsigned type = pci_config_read(&dev.pci, at + 3, 1);
                        uint32_t offset = pci_config_read(&dev.pci, at + 8, 4), length = pci_config_read(&dev.pci, at + 12, 4);

                        assert_eq(id, PCI_CAP_ID_VNDR);
                        assert_eq(pci_config_read(&dev.pci, at + 4, 1), 0);
                        assert_true(offset + length <= VIRTIO_BAR_BYTES);
                        if (type == VIRTIO_PCI_CAP_COMMON_CFG)
                                assert_eq(length, 56);
                        if (type == VIRTIO_PCI_CAP_DEVICE_CFG)
                                assert_eq(length, 8);
                        if (type == VIRTIO_PCI_CAP_NOTIFY_CFG)
                                assert_eq(pci_config_read(&dev.pci, at + 16, 4), 4);
                        seen |= 1U << type;
                }
                at = pci_config_read(&dev.pci, at + 1, 1);
        }
        assert_eq(at, 0);
        assert_eq(seen, 1U << 31 | 0x3e);
        assert_eq(pci_config_read(&dev.pci, 0, 4), 0x10531af4);
        done();
}

TEST(initial_state) {
        make();
        assert_eq(status(), 0);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_NUMQ, 2), 2);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_MSIX, 2), 0xffff);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_SIZE, 2), 16);
        assert_eq(offered(), FEATURE | 1ULL << 32 | 1ULL << 29 | 1ULL << 28);
        bar_put(&dev, VIRTIO_PCI_COMMON_DFSELECT, 4, 2);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_DF, 4), 0);
        /* A queue that isn't there. */
        bar_put(&dev, VIRTIO_PCI_COMMON_Q_SELECT, 2, 2);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_SIZE, 2), 0);
        bar_put(&dev, VIRTIO_PCI_COMMON_Q_SELECT, 2, 0xffff);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_SIZE, 2), 0);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_NOFF, 2), 0);
        done();
}

TEST(features_are_negotiated) {
        static const struct { uint64_t features; bool ok; } cases[] = {
                { 1ULL << 32, true }, { 1ULL << 32 | FEATURE, true }, { 0, false }, { FEATURE, false },
                { 1ULL << 32 | 1, false }, { UINT64_MAX, false }, { 1ULL << 32 | 1ULL << 34, false },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                make();
                set_status(1);
                set_status(3);
                set_features(cases[i].features);
                set_status(11);
                assert_eq(status(), cases[i].ok ? 11 : 3);
                /* Frozen once accepted. */
                uint64_t before = dev.regs.driver_features;
                set_features(0);
                assert_eq(dev.regs.driver_features == before, cases[i].ok || before == 0);
                done();
        }
}

/* Every status the machine can be in, and every value written to it: what comes out follows the rules
 * of 2.1 and 3.1.1, computed here a second time. */
static uint8_t expected_status(uint8_t old, unsigned v) {
        if (v == 0)
                return 0;
        if ((v & 0x30) || (old & 0x8f & ~v))
                return old;
        uint8_t fresh = v & 0x8f & ~old;
        if ((fresh & 2) && !(v & 1))
                return old;
        if ((fresh & 8) && !(old & 2))
                return old;
        if ((fresh & 4) && (!(old & 8) || (old & 0x40) || (v & 0x80)))
                return old;
        return old | fresh;
}

TEST(status_machine_exhaustive) {
        unsigned reached = 0;

        make();
        for (unsigned old = 0; old < 256; old++)
                for (unsigned v = 0; v < 256; v++) {
                        if (old & 0x30)
                                continue;
                        reached++;
                        virtio_regs_reset(&dev.regs);
                        dev.regs.driver_features = 1ULL << VIRTIO_F_VERSION_1;
                        dev.regs.status = old;
                        VirtioAction a = virtio_regs_write(&dev.regs, &vm.mem, VIRTIO_PCI_COMMON_STATUS, 1, v);
                        if (v == 0) {
                                assert_eq(a, VIRTIO_ACTION_RESET);
                                assert_true(dev.regs.resetting);
                                continue;
                        }
                        assert_eq(dev.regs.status, expected_status(old, v));
                        assert_eq(a, (dev.regs.status & ~old & 4) ? VIRTIO_ACTION_START : VIRTIO_ACTION_NONE);
                }
        printf("# %u transitions\n", reached);
        done();
}

TEST(a_driver_that_has_failed_starts_nothing) {
        make();
        set_status(1);
        set_status(3);
        set_features(1ULL << VIRTIO_F_VERSION_1);
        set_status(11);
        /* in one write as well as in two */
        assert_eq(virtio_regs_write(&dev.regs, &vm.mem, VIRTIO_PCI_COMMON_STATUS, 1, 0x8f), VIRTIO_ACTION_NONE);
        assert_eq(status(), 11);
        set_status(0x8b);
        assert_eq(virtio_regs_write(&dev.regs, &vm.mem, VIRTIO_PCI_COMMON_STATUS, 1, 0x8f), VIRTIO_ACTION_NONE);
        assert_eq(status(), 0x8b);
        done();
}

/* State by register by value: outside of its window a register does not change (P4). */
TEST(registers_are_closed_outside_of_their_state) {
        static const struct { unsigned offset, len; uint8_t from, until; } regs[] = {
                /* status bits that must be there, and that must not */
                { VIRTIO_PCI_COMMON_GF, 4, 2, 8 },
                { VIRTIO_PCI_COMMON_MSIX, 2, 0, 4 },
                { VIRTIO_PCI_COMMON_Q_SIZE, 2, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_MSIX, 2, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_ENABLE, 2, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_DESCLO, 4, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_DESCHI, 4, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_DESCLO, 8, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_AVAILLO, 4, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_AVAILHI, 4, 8, 0x44 },
                { VIRTIO_PCI_COMMON_Q_USEDLO, 8, 8, 0x44 },
                { VIRTIO_PCI_COMMON_NUMQ, 2, 0, 0xff },
                { VIRTIO_PCI_COMMON_Q_NOFF, 2, 0, 0xff },
                { VIRTIO_PCI_COMMON_CFGGENERATION, 1, 0, 0xff },
                { VIRTIO_PCI_COMMON_DF, 4, 0, 0xff },
        };
        static const uint8_t states[] = { 0, 1, 3, 11, 15, 0x4b, 0x4f, 0x83, 0x8f };
        static const uint64_t values[] = { 0, 1, 2, 0x1000, 0xffff, UINT32_MAX, 1ULL << 40, UINT64_MAX };

        make();
        for (size_t i = 0; i < ELEMENTSOF(regs); i++)
                for (size_t s = 0; s < ELEMENTSOF(states); s++)
                        for (size_t v = 0; v < ELEMENTSOF(values); v++)
                                for (unsigned resetting = 0; resetting < 2; resetting++) {
                                        virtio_regs_reset(&dev.regs);
                                        dev.regs.status = states[s];
                                        dev.regs.resetting = resetting;
                                        dev.regs.rejected = 0;
                                        VirtioRegs before = dev.regs;
                                        bool open = (states[s] & regs[i].from) == regs[i].from &&
                                                    !(states[s] & regs[i].until) && regs[i].until != 0xff && !resetting;

                                        (void) virtio_regs_write(&dev.regs, &vm.mem, regs[i].offset, regs[i].len, values[v]);
                                        if (open)
                                                continue;
                                        assert_eq(dev.regs.rejected, 1);
                                        dev.regs.rejected = 0;
                                        assert_eq(memcmp(&before, &dev.regs, sizeof(before)), 0);
                                }
        done();
}

TEST(widths_and_holes) {
        make();
        for (unsigned offset = 0; offset < 4096; offset++)
                for (unsigned len = 1; len <= 8; len *= 2) {
                        if (offset % len != 0)
                                continue;
                        bool exists = offset < 56 && bar_get(&dev, offset, len) != UINT64_MAX;
                        VirtioRegs before = dev.regs;

                        if (exists)
                                continue;
                        bar_put(&dev, offset, len, UINT64_MAX);
                        before.rejected++;
                        assert_eq(memcmp(&before, &dev.regs, sizeof(before)), 0);
                }
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_STATUS, 4), UINT64_MAX);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_SELECT, 1), UINT64_MAX);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_DF, 8), UINT64_MAX);
        done();
}

TEST(bad_queues_are_not_enabled) {
        static const struct { unsigned offset; uint64_t value; } bad[] = {
                { VIRTIO_PCI_COMMON_Q_SIZE, 0 }, { VIRTIO_PCI_COMMON_Q_SIZE, 3 }, { VIRTIO_PCI_COMMON_Q_SIZE, 32 },
                { VIRTIO_PCI_COMMON_Q_SIZE, 65535 }, { VIRTIO_PCI_COMMON_Q_DESCLO, 8 },
                { VIRTIO_PCI_COMMON_Q_DESCLO, MIB(4) }, { VIRTIO_PCI_COMMON_Q_AVAILLO, 1 },
                { VIRTIO_PCI_COMMON_Q_AVAILLO, UINT32_MAX & ~1U }, { VIRTIO_PCI_COMMON_Q_USEDLO, 2 },
                { VIRTIO_PCI_COMMON_Q_USEDHI, 1 },
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                make();
                set_status(1);
                set_status(3);
                set_features(1ULL << 32);
                set_status(11);
                bar_put(&dev, bad[i].offset, bad[i].offset == VIRTIO_PCI_COMMON_Q_SIZE ? 2 : 4, bad[i].value);
                bar_put(&dev, VIRTIO_PCI_COMMON_Q_ENABLE, 2, 1);
                assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_ENABLE, 2), 0);
                assert_eq(status(), 0x4b);
                set_status(0x4f);
                assert_eq(status(), 0x4b);
                stepper_run(&stepper, 3);
                assert_eq(starts, 0);
                assert_eq(errors, 1);
                set_status(0);
                assert_eq(status(), 0);
                done();
        }
}

/* CVE-2026-5747: queue_size enlarged after activation. */
TEST(an_enabled_queue_is_frozen) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        VirtioRegs before = dev.regs;
        for (unsigned round = 0; round < 2; round++) {
                for (unsigned q = 0; q < 2; q++) {
                        bar_put(&dev, VIRTIO_PCI_COMMON_Q_SELECT, 2, q);
                        bar_put(&dev, VIRTIO_PCI_COMMON_Q_SIZE, 2, 32768);
                        bar_put(&dev, VIRTIO_PCI_COMMON_Q_DESCLO, 8, 0);
                        bar_put(&dev, VIRTIO_PCI_COMMON_Q_ENABLE, 2, 0);
                        bar_put(&dev, VIRTIO_PCI_COMMON_Q_ENABLE, 2, 1);
                        assert_eq(memcmp(&before.queues[q].config, &dev.regs.queues[q].config, sizeof(VirtQueueConfig)), 0);
                        assert_true(dev.regs.queues[q].enabled);
                }
                driver_ok(&driver);
                stepper_run(&stepper, 3);
        }
        assert_eq(starts, 1);
        assert_eq(dev.queues[0].ring.config.size, 16);
        done();
}

TEST(start_kick_and_interrupt) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        ring_desc(&driver.rings[1], &vm.mem, 0, 0x100000, 16, 0, 0);
        ring_offer(&driver.rings[1], &vm.mem, 0);

        /* Before DRIVER_OK nobody looks. */
        driver_kick(&driver, 1);
        stepper_run(&stepper, 3);
        assert_eq(kicks[1], 0);

        driver_ok(&driver);
        stepper_run(&stepper, 3);
        assert_eq(starts, 1);
        driver_kick(&driver, 1);
        stepper_run(&stepper, 3);
        assert_eq(kicks[1], 1);
        assert_eq(fake_msi_count, 1);
        assert_eq(fake_msi_last.data, 0x42);

        /* Bells of queues that don't exist. */
        bar_put(&dev, VIRTIO_BAR_NOTIFY + 8, 2, 0);
        bar_put(&dev, VIRTIO_BAR_NOTIFY + 0xffc, 4, 7);
        stepper_run(&stepper, 3);
        assert_eq(kicks[0] + kicks[1], 1);
        done();
}

TEST(a_ring_that_fills_itself_does_not_keep_a_pause_waiting) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        stepper_run(&stepper, 3);
        ring_desc(&driver.rings[0], &vm.mem, 0, 0x100000, 16, 0, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);

        /* As much as both rings could have held, rounded up to whole visits. */
        feeds_itself = true;
        virtio_pci_drain(&dev);
        feeds_itself = false;
        printf("# %llu chains\n", (unsigned long long) dev.n_chains);
        assert_true(dev.n_chains >= 1 && dev.n_chains <= 2 * 16 + 4);

        /* What is left is not forgotten. */
        uint64_t before = dev.n_chains;
        virtio_pci_pause(&dev);
        virtio_pci_resume(&dev);
        stepper_run(&stepper, 3);
        assert_true(dev.n_chains > before);
        done();
}

/* What a disk has in its ring may be more than the host's does in minutes. */
TEST(a_device_that_settles_leaves_requests_where_they_are) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        stepper_run(&stepper, 3);
        ring_desc(&driver.rings[0], &vm.mem, 0, 0x100000, 16, 0, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);

        uint64_t before = dev.n_chains;
        virtio_pci_settle(&dev);
        virtio_pci_pause(&dev);
        stepper_run(&stepper, 3);
        assert_eq(dev.n_chains, before);
        virtio_pci_resume(&dev);
        stepper_run(&stepper, 3);
        assert_eq(dev.n_chains, before + 1);

        driver_reset(&driver);
        virtio_pci_settle(&dev);
        assert_eq(driver_status(&driver), 0);
        done();
}

TEST(without_msix_the_isr_tells) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        msix_set_control(&dev.msix, false, false);
        driver_ok(&driver);
        ring_desc(&driver.rings[0], &vm.mem, 0, 0x100000, 16, 0, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);
        stepper_run(&stepper, 4);
        assert_eq(fake_msi_count, 0);
        assert_eq(bar_get(&dev, VIRTIO_BAR_ISR, 1), 1);
        assert_eq(bar_get(&dev, VIRTIO_BAR_ISR, 1), 0);
        done();
}

TEST(vectors_that_do_not_exist) {
        make();
        set_status(1);
        set_status(3);
        set_features(1ULL << 32);
        set_status(11);
        bar_put(&dev, VIRTIO_PCI_COMMON_MSIX, 2, 2);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_MSIX, 2), 2);
        bar_put(&dev, VIRTIO_PCI_COMMON_MSIX, 2, 3);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_MSIX, 2), 0xffff);
        bar_put(&dev, VIRTIO_PCI_COMMON_Q_MSIX, 2, 0x1234);
        assert_eq(bar_get(&dev, VIRTIO_PCI_COMMON_Q_MSIX, 2), 0xffff);
        done();
}

TEST(reset_waits_for_the_device) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        stepper_run(&stepper, 3);
        set_status(0);
        /* The device's thread has not been there yet. */
        assert_eq(status(), 15);
        assert_true(dev.regs.queues[0].enabled);
        set_status(1);
        assert_eq(status(), 15);
        stepper_run(&stepper, 3);
        assert_eq(status(), 0);
        assert_eq(stops, 1);
        assert_eq(dev.queues[0].ring.started, false);
        assert_true(!dev.regs.queues[0].enabled);

        /* And again from the start. */
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        /* Reset before the device has seen DRIVER_OK at all. */
        set_status(0);
        stepper_run(&stepper, 3);
        assert_eq(status(), 0);
        assert_eq(starts, 1);
        assert_eq(stops, 1);
        done();
}

TEST(a_broken_queue_stops_the_device) {
        make();
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        ring_desc(&driver.rings[0], &vm.mem, 0, UINT64_MAX, 16, 0, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);
        stepper_run(&stepper, 5);
        assert_eq(status(), 0x4f);
        assert_eq(errors, 1);
        assert_eq(fake_msi_count, 1); /* the configuration interrupt, vector 0 */
        assert_eq(fake_msi_last.data, 0x40);
        assert_eq(bar_get(&dev, VIRTIO_BAR_ISR, 1), 2);
        assert_eq(stops, 1);

        /* Quiet, both queues. */
        unsigned before = kicks[0] + kicks[1];
        driver_kick(&driver, 0);
        driver_kick(&driver, 1);
        stepper_run(&stepper, 5);
        assert_eq(kicks[0] + kicks[1], before);

        driver_reset(&driver);
        stepper_run(&stepper, 3);
        assert_eq(status(), 0);
        assert_eq(stops, 1);
        driver_prepare(&driver, &dev, &vm.mem, RINGS_GPA, 0);
        driver_ok(&driver);
        stepper_run(&stepper, 3);
        assert_eq(status(), 15);
        assert_eq(starts, 2);
        done();
}

TEST(errors_are_rationed) {
        make();
        for (unsigned i = 0; i < 1000; i++)
                virtio_pci_error(&dev, "number %u", i);
        assert_eq(errors, 1);
        assert_eq(dev.errors_hidden, 999);
        done();
}

TEST(device_configuration) {
        make();
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE, 8), 0x0807060504030201);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE + 4, 4), 0x08070605);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE + 7, 1), 8);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE + 8, 1), UINT64_MAX);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE + 0xff8, 8), UINT64_MAX);
        bar_put(&dev, VIRTIO_BAR_DEVICE, 8, 0);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE, 1), 1);
        done();
}

TEST(the_host_changes_the_configuration) {
        uint8_t bytes[2] = { 0xaa, 0xbb };

        make();
        uint8_t generation = bar_get(&dev, VIRTIO_PCI_COMMON_CFGGENERATION, 1);
        unsigned before = fake_msi_count;
        virtio_pci_change_config(&dev, 6, bytes, 2, true);
        assert_eq(bar_get(&dev, VIRTIO_BAR_DEVICE, 8), 0xbbaa060504030201);
        assert_true(bar_get(&dev, VIRTIO_PCI_COMMON_CFGGENERATION, 1) != generation);
        /* No driver yet. */
        assert_eq(fake_msi_count, before);
        memset(bytes, 0, 2);
        virtio_pci_get_config(&dev, 6, bytes, 2);
        assert_true(bytes[0] == 0xaa && bytes[1] == 0xbb);
        done();
}

TEST(window_in_configuration_space) {
        make();
        unsigned w = dev.window;
        pci_config_write(&dev.pci, w + 4, 1, 0);
        pci_config_write(&dev.pci, w + 8, 4, VIRTIO_PCI_COMMON_STATUS);
        pci_config_write(&dev.pci, w + 12, 4, 1);
        pci_config_write(&dev.pci, w + 16, 1, 1);
        assert_eq(status(), 1);
        assert_eq(pci_config_read(&dev.pci, w + 16, 1), 1);

        /* Places that don't exist: no effect. */
        static const struct { uint32_t bar, offset, len; } bad[] = {
                { 1, 20, 1 }, { 0, VIRTIO_BAR_BYTES, 1 }, { 0, UINT32_MAX, 1 }, { 0, 20, 0 }, { 0, 20, 3 }, { 0, 20, 8 },
                { 0, 20, UINT32_MAX }, { 0, VIRTIO_BAR_BYTES - 1, 4 }, { 0, 21, 2 },
        };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                pci_config_write(&dev.pci, w + 4, 1, bad[i].bar);
                pci_config_write(&dev.pci, w + 8, 4, bad[i].offset);
                pci_config_write(&dev.pci, w + 12, 4, bad[i].len);
                pci_config_write(&dev.pci, w + 16, 1, 3);
                pci_config_write(&dev.pci, w + 16, 4, 3);
                (void) pci_config_read(&dev.pci, w + 16, 4);
                assert_eq(status(), 1);
        }
        done();
}
