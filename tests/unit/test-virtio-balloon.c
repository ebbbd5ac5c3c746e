/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/vmm-proto.h"
#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/memmap.h"
#include "vmm/virtio-balloon.h"

#define RINGS_GPA 0x10000U
#define LIST_GPA 0x40000U
#define STATS_GPA 0x60000U
#define PAGES_GPA MIB(4) /* what is given away */
#define MEMORY MIB(16)
#define FEATURES                                                                         \
        (1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_BALLOON_F_STATS_VQ | 1ULL << VIRTIO_BALLOON_F_REPORTING)

enum { INFLATE, DEFLATE, STATS, REPORTING, REPORTING_BY_TEXT };

static Vm vm;
static Stepper stepper;
static VirtioBalloon *balloon;
static Driver driver;
static char error[200];

static void on_error(void *userdata, const char *name, const char *message) {
        (void) snprintf(error, sizeof(error), "%s: %s", name, message);
}

static void start(void) {
        driver_prepare(&driver, virtio_balloon_pci(balloon), &vm.mem, RINGS_GPA, FEATURES);
        assert_eq(driver_status(&driver), 11);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
}

static void make(void) {
        error[0] = 0;
        fake_vm_init(&vm, MEMORY);
        stepper_init(&stepper);
        assert_ok(virtio_balloon_new(&vm, stepper.loop, 0xc0700000, on_error, NULL, &balloon));
        start();
}

static void done(void) {
        balloon = virtio_balloon_free(balloon);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static bool answered(unsigned queue) {
        uint32_t head, len;

        for (unsigned i = 0; i < 5; i++) {
                if (ring_take_used(&driver.rings[queue], &vm.mem, &head, &len)) {
                        assert_eq(len, 0);
                        return true;
                }
                stepper_run(&stepper, 1);
        }
        return false;
}

static bool failed(void) {
        return driver_status(&driver) & VIRTIO_CONFIG_S_NEEDS_RESET;
}

static void offer(unsigned queue, uint64_t gpa, uint32_t len, uint16_t flags) {
        ring_desc(&driver.rings[queue], &vm.mem, 0, gpa, len, flags, 0);
        ring_offer(&driver.rings[queue], &vm.mem, 0);
        driver_kick(&driver, queue);
}

static bool give(unsigned queue, const uint32_t *pfns, size_t n) {
        assert_ok(guest_mem_write(&vm.mem, LIST_GPA, pfns, n * sizeof(*pfns)));
        offer(queue, LIST_GPA, n * sizeof(*pfns), 0);
        return answered(queue);
}

static bool give_one(unsigned queue, uint32_t pfn) {
        return give(queue, &pfn, 1);
}

static void fill(void) {
        memset(guest_mem_ptr(&vm.mem, PAGES_GPA, MEMORY - PAGES_GPA), 0x5a, MEMORY - PAGES_GPA);
}

/* A page behind PAGES_GPA. */
static bool resident(unsigned page) {
        uint8_t v;

        assert_ok(mincore(guest_mem_ptr(&vm.mem, PAGES_GPA + page * 4096ULL, 4096), 4096, &v));
        return v & 1;
}

static uint32_t pfn(unsigned page) {
        return PAGES_GPA / 4096 + page;
}

static uint32_t config(unsigned offset) {
        return bar_get(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE + offset, 4);
}

static uint64_t counted;

static void on_counter(void *userdata, const char *name, uint64_t value) {
        assert_true(strlen(name) < sizeof(((VmmCounter *) NULL)->name));
        if (streq(name, userdata))
                counted = value;
}

static uint64_t counter(const char *name) {
        char copy[32];

        (void) snprintf(copy, sizeof(copy), "%s", name);
        counted = UINT64_MAX;
        virtio_balloon_counters(balloon, on_counter, copy);
        return counted;
}

TEST(configuration) {
        make();
        unsigned before = fake_msi_count;
        assert_ok(virtio_balloon_request(balloon, MIB(1)));
        assert_eq(config(0), 256);
        assert_eq(fake_msi_count, before + 1);
        assert_eq(virtio_balloon_request(balloon, 4095), -EINVAL);
        assert_eq(virtio_balloon_request(balloon, 1ULL << 44), -EINVAL);
        assert_eq(config(0), 256);

        /* The driver may write one field, whole. */
        bar_put(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE, 4, 7);
        bar_put(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE, 8, 7);
        bar_put(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE + 4, 8, UINT64_MAX);
        bar_put(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE + 8, 4, 7);
        assert_eq(config(0), 256);
        assert_eq(config(4), 0);
        assert_eq(config(8), UINT32_MAX);
        bar_put(virtio_balloon_pci(balloon), VIRTIO_BAR_DEVICE + 4, 4, 200);
        assert_eq(config(4), 200);
        assert_eq(counter("balloon-bytes"), 200 * 4096);
        assert_eq(counter("balloon-requested-bytes"), MIB(1));

        driver_reset(&driver);
        stepper_run(&stepper, 2);
        assert_eq(config(4), 0);
        assert_eq(config(0), 256);
        done();
}

TEST(inflated_pages_go_back) {
        /* One, some upwards, some downwards, the last one. */
        const uint32_t pfns[] = { pfn(1), pfn(10), pfn(11), pfn(12), pfn(22), pfn(21), pfn(20), MEMORY / 4096 - 1 };

        make();
        fill();
        assert_true(give(INFLATE, pfns, ELEMENTSOF(pfns)));
        for (unsigned i = 0; i < 30; i++)
                assert_eq(resident(i), !(i == 1 || (i >= 10 && i <= 12) || (i >= 20 && i <= 22)));
        assert_true(!resident((MEMORY - PAGES_GPA) / 4096 - 1));
        assert_eq(counter("balloon-taken-bytes"), ELEMENTSOF(pfns) * 4096);

        /* Usable at once, told or not. */
        memset(guest_mem_ptr(&vm.mem, PAGES_GPA + 4096, 4096), 1, 4096);
        assert_true(give(DEFLATE, pfns, ELEMENTSOF(pfns)));
        assert_true(resident(1));
        assert_true(!failed());
        done();
}

TEST(pages_that_are_not_ram) {
        static const uint32_t bad[] = {
                MEMORY / 4096, MEMMAP_HOLE_START / 4096, MEMMAP_ECAM / 4096, MEMMAP_LAPIC / 4096,
                MEMMAP_HOLE_END / 4096, UINT32_MAX, MEMMAP_ACPI / 4096, MEMMAP_HIGH / 4096 - 1, MEMMAP_LOW_END / 4096,
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                for (unsigned queue = INFLATE; queue <= DEFLATE; queue++) {
                        make();
                        assert_true(!give_one(queue, bad[i]));
                        assert_true(failed());
                        assert_true(strstr(error, "no RAM"));
                        done();
                }
        make();
        assert_true(give_one(INFLATE, MEMMAP_HIGH / 4096));
        assert_true(give_one(INFLATE, MEMMAP_LOW_END / 4096 - 1));
        done();
}

TEST(lists_of_a_bad_length) {
        make();
        offer(INFLATE, LIST_GPA, 3, 0);
        assert_true(!answered(INFLATE));
        assert_true(failed());
        done();

        make();
        offer(INFLATE, PAGES_GPA, BALLOON_PAGES_MAX * 4 + 4, 0);
        assert_true(!answered(INFLATE));
        assert_true(failed());
        done();

        /* The longest, all the same page, in the list itself. */
        make();
        uint32_t *list = guest_mem_ptr(&vm.mem, PAGES_GPA, BALLOON_PAGES_MAX * 4);
        for (unsigned i = 0; i < BALLOON_PAGES_MAX; i++)
                list[i] = pfn(0);
        offer(INFLATE, PAGES_GPA, BALLOON_PAGES_MAX * 4, 0);
        assert_true(answered(INFLATE));
        assert_true(!failed());
        done();

        /* Nothing to read. */
        make();
        offer(INFLATE, LIST_GPA, 64, VRING_DESC_F_WRITE);
        assert_true(answered(INFLATE));
        assert_true(!failed());
        done();
}

TEST(a_ring_in_the_balloon_breaks_no_more_than_itself) {
        make();
        uint32_t ring = driver.rings[INFLATE].desc_gpa / 4096;
        (void) give_one(INFLATE, ring);
        stepper_run(&stepper, 5);
        driver_reset(&driver);
        stepper_run(&stepper, 3);
        start();
        fill();
        assert_true(give_one(INFLATE, pfn(3)));
        assert_true(!resident(3));
        done();
}

TEST(free_pages_are_given_back) {
        for (unsigned queue = REPORTING; queue <= REPORTING_BY_TEXT; queue++) {
                make();
                fill();
                Ring *r = &driver.rings[queue];
                ring_desc(r, &vm.mem, 0, PAGES_GPA + MIB(2), MIB(2), VRING_DESC_F_WRITE|VRING_DESC_F_NEXT, 1);
                /* Whole pages only. */
                ring_desc(r, &vm.mem, 1, PAGES_GPA + 100, 4096, VRING_DESC_F_WRITE|VRING_DESC_F_NEXT, 2);
                ring_desc(r, &vm.mem, 2, PAGES_GPA + 8192 + 1, 3 * 4096 - 2, VRING_DESC_F_WRITE, 0);
                ring_offer(r, &vm.mem, 0);
                driver_kick(&driver, queue);
                assert_true(answered(queue));
                assert_true(resident(0) && resident(1) && resident(2) && !resident(3) && resident(4));
                assert_true(resident(511) && !resident(512) && !resident(1023) && resident(1024));
                assert_eq(counter("balloon-reported-bytes"), MIB(2) + 4096);
                done();
        }
}

TEST(free_pages_that_are_not_ram) {
        static const struct {
                uint64_t gpa;
                uint32_t len;
        } bad[] = {
                { MEMORY - 4096, 8192 }, { MEMORY, 4096 }, { UINT64_MAX - 4095, 4096 }, { MEMMAP_ACPI, 4096 },
                { 0, MIB(2) }, { MEMMAP_ACPI - 4096, MIB(1) },
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                make();
                offer(REPORTING, bad[i].gpa, bad[i].len, VRING_DESC_F_WRITE);
                assert_true(!answered(REPORTING));
                assert_true(failed());
                done();
        }

        /* Pages to read are no report. */
        make();
        fill();
        offer(REPORTING, PAGES_GPA, 4096, 0);
        assert_true(answered(REPORTING));
        assert_true(resident(0));
        done();
}

TEST(a_page_that_cannot_be_given_back_stops_the_device) {
        make();
        fill();
        uint8_t *p = guest_mem_ptr(&vm.mem, PAGES_GPA, 4096);
        /* A sanitizer makes nothing of the C library's mlock(). */
        if (syscall(SYS_mlock, p, 4096) < 0) {
                done();
                test_skip("mlock is not allowed");
        }
        assert_true(!give_one(INFLATE, pfn(0)));
        assert_true(failed());
        assert_true(strstr(error, "given back"));
        assert_eq(*p, 0x5a);
        assert_ok(syscall(SYS_munlock, p, 4096));
        driver_reset(&driver);
        stepper_run(&stepper, 2);
        start();
        assert_true(give_one(INFLATE, pfn(0)));
        assert_true(!resident(0));
        done();
}

static void offer_stats(uint16_t tag, uint64_t value) {
        const struct virtio_balloon_stat stats[] = {
                { .tag = VIRTIO_BALLOON_S_MEMTOT, .val = MEMORY },
                { .tag = UINT16_MAX, .val = 1 },
                { .tag = tag, .val = value },
        };

        assert_ok(guest_mem_write(&vm.mem, STATS_GPA, stats, sizeof(stats)));
        offer(STATS, STATS_GPA, sizeof(stats), 0);
        stepper_run(&stepper, 2);
}

TEST(statistics) {
        make();
        assert_eq(counter("guest-total-bytes"), UINT64_MAX);
        offer_stats(VIRTIO_BALLOON_S_MEMFREE, 1234);
        /* Kept until somebody asks, who gets what there is. */
        assert_true(!answered(STATS));
        assert_eq(counter("guest-free-bytes"), 1234);
        assert_true(answered(STATS));
        assert_eq(counter("guest-total-bytes"), MEMORY);
        assert_eq(counter("guest-available-bytes"), UINT64_MAX);
        assert_true(!answered(STATS));
        offer_stats(VIRTIO_BALLOON_S_AVAIL, 99);
        assert_eq(counter("guest-available-bytes"), 99);
        assert_eq(counter("guest-free-bytes"), UINT64_MAX);
        assert_true(counter("guest-age-msec") < 10000);

        driver_reset(&driver);
        stepper_run(&stepper, 2);
        assert_eq(counter("guest-total-bytes"), UINT64_MAX);
        start();
        offer_stats(VIRTIO_BALLOON_S_AVAIL, 100);
        assert_eq(counter("guest-available-bytes"), 100);
        done();
}

TEST(odd_statistics) {
        make();
        /* Nothing in it, half an entry, nothing to read. */
        offer(STATS, STATS_GPA, 0, 0);
        stepper_run(&stepper, 2);
        assert_eq(counter("guest-total-bytes"), UINT64_MAX);
        assert_true(answered(STATS));
        offer(STATS, STATS_GPA, 9, 0);
        stepper_run(&stepper, 2);
        (void) counter("");
        assert_true(answered(STATS));
        offer(STATS, STATS_GPA, 64, VRING_DESC_F_WRITE);
        stepper_run(&stepper, 2);
        (void) counter("");
        assert_true(answered(STATS));

        /* Very many, and a second one before the first came back. */
        memset(guest_mem_ptr(&vm.mem, PAGES_GPA, MIB(1)), 0xff, MIB(1));
        offer(STATS, PAGES_GPA, MIB(1), 0);
        stepper_run(&stepper, 2);
        assert_eq(counter("guest-total-bytes"), UINT64_MAX);
        assert_true(answered(STATS));
        ring_desc(&driver.rings[STATS], &vm.mem, 1, STATS_GPA, 10, 0, 0);
        ring_offer(&driver.rings[STATS], &vm.mem, 1);
        offer(STATS, STATS_GPA, 10, 0);
        assert_true(answered(STATS));
        assert_true(!answered(STATS));
        assert_true(!failed());
        done();
}

TEST(before_a_snapshot_statistics_are_handed_back) {
        make();
        offer_stats(VIRTIO_BALLOON_S_MEMFREE, 1234);
        assert_true(!answered(STATS));
        virtio_pci_drain(virtio_balloon_pci(balloon));
        virtio_balloon_settle(balloon);
        virtio_pci_pause(virtio_balloon_pci(balloon));
        assert_true(answered(STATS));
        assert_eq(virtio_balloon_pci(balloon)->queues[STATS].ring.in_flight[0], 0);

        /* What they said is still known; there is nothing to hand back twice. */
        assert_eq(counter("guest-free-bytes"), 1234);
        assert_true(!answered(STATS));
        virtio_pci_resume(virtio_balloon_pci(balloon));
        offer_stats(VIRTIO_BALLOON_S_AVAIL, 99);
        assert_eq(counter("guest-available-bytes"), 99);
        done();
}
