/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_ring.h>
#include <pthread.h>

#include "test.h"
#include "virtio-driver.h"

#define MEM_BYTES MIB(4)
#define RING_GPA 0x10000U
#define DATA_GPA 0x100000U
#define INDIRECT_GPA 0x20000U

static GuestMem mem;
static VirtQueue queue;
static Ring ring;

static void start(uint16_t size, VirtQueueOptions options) {
        guest_mem_done(&mem);
        assert_ok(guest_mem_init(&mem, MEM_BYTES));
        ring_place(&ring, size, RING_GPA);

        VirtQueueConfig c = {
                .size = size, .desc_gpa = ring.desc_gpa, .avail_gpa = ring.avail_gpa, .used_gpa = ring.used_gpa,
        };
        assert_ok(virtqueue_config_check(&c, VIRTQUEUE_SIZE_MAX, &mem));
        if (options.chain_bytes_max == 0)
                options.chain_bytes_max = MIB(1);
        virtqueue_start(&queue, &mem, &c, &options);
}

static void start_plain(uint16_t size) {
        start(size, (VirtQueueOptions) {});
}

static void start_full(uint16_t size) {
        start(size, (VirtQueueOptions) { .event_idx = true, .indirect = true });
}

static void indirect_desc(unsigned i, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next) {
        struct vring_desc d = { .addr = gpa, .len = len, .flags = flags, .next = next };
        assert_ok(guest_mem_write(&mem, INDIRECT_GPA + i * 16ULL, &d, sizeof(d)));
}

/* The queue is broken for good, and says why. */
static void assert_broken(void) {
        VirtChain c;

        assert_eq(virtqueue_pop(&queue, &c), -EBADMSG);
        assert_true(queue.fault);
        printf("# %s\n", queue.fault);
        assert_eq(virtqueue_pop(&queue, &c), -EBADMSG);
        assert_true(!virtqueue_should_signal(&queue));
        assert_true(!virtqueue_rearm(&queue));
}

TEST(config_is_checked) {
        assert_ok(guest_mem_init(&mem, MEM_BYTES));
        const VirtQueueConfig good = { .size = 8, .desc_gpa = 0x1000, .avail_gpa = 0x2000, .used_gpa = 0x3000 };
        VirtQueueConfig c = good;
        assert_ok(virtqueue_config_check(&c, 8, &mem));

        static const uint16_t sizes[] = { 0, 3, 7, 9, 12, 16, 255, 512, 32768, 65535 };
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                c.size = sizes[i];
                assert_eq(virtqueue_config_check(&c, 8, &mem), -EINVAL);
        }

        static const uint64_t bad[] = { 1, 0x1001, MEM_BYTES, MEM_BYTES - 1, MEM_BYTES - 16, UINT64_MAX, UINT64_MAX - 15,
                                        0xfee00000, 1ULL << 63 };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                for (unsigned which = 0; which < 3; which++) {
                        c = good;
                        *(which == 0 ? &c.desc_gpa : which == 1 ? &c.avail_gpa : &c.used_gpa) = bad[i];
                        assert_eq(virtqueue_config_check(&c, 256, &mem), -EINVAL);
                }

        /* Ending with the last byte of memory is fine, one more is not. */
        c = good;
        c.desc_gpa = MEM_BYTES - 8 * 16;
        assert_ok(virtqueue_config_check(&c, 8, &mem));
        c = good;
        c.used_gpa = MEM_BYTES - 72;
        assert_ok(virtqueue_config_check(&c, 8, &mem));
        c.used_gpa += 4;
        assert_eq(virtqueue_config_check(&c, 8, &mem), -EINVAL);
}

TEST(empty_and_stopped) {
        VirtChain c;

        start_plain(8);
        assert_eq(virtqueue_pop(&queue, &c), 0);
        assert_true(!virtqueue_rearm(&queue));
        virtqueue_stop(&queue);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 0);
}

TEST(chain_of_parts) {
        VirtChain c;

        start_plain(8);
        ring_desc(&ring, &mem, 3, DATA_GPA, 16, VRING_DESC_F_NEXT, 1);
        ring_desc(&ring, &mem, 1, DATA_GPA + 4096, 100, VRING_DESC_F_NEXT, 6);
        ring_desc(&ring, &mem, 6, 0, 0, VRING_DESC_F_NEXT, 2); /* empty: counts for nothing */
        ring_desc(&ring, &mem, 2, DATA_GPA + 8192, 50, VRING_DESC_F_WRITE, 0);
        ring_offer(&ring, &mem, 3);

        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_eq(c.head, 3);
        assert_eq(c.n_readable, 2);
        assert_eq(c.n_writable, 1);
        assert_eq(c.readable_bytes, 116);
        assert_eq(c.writable_bytes, 50);
        assert_eq(virtqueue_pop(&queue, &c), 0);
}

TEST(copies_across_parts) {
        uint8_t data[116], back[200];
        VirtChain c;

        start_plain(8);
        for (size_t i = 0; i < sizeof(data); i++)
                data[i] = (uint8_t) i;
        assert_ok(guest_mem_write(&mem, DATA_GPA, data, 16));
        assert_ok(guest_mem_write(&mem, DATA_GPA + 4096, data + 16, 100));
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, VRING_DESC_F_NEXT, 1);
        ring_desc(&ring, &mem, 1, DATA_GPA + 4096, 100, VRING_DESC_F_NEXT, 2);
        ring_desc(&ring, &mem, 2, DATA_GPA + 8192, 10, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 3);
        ring_desc(&ring, &mem, 3, DATA_GPA + 9000, 20, VRING_DESC_F_WRITE, 0);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);

        assert_eq(virt_chain_read(&c, &mem, 0, back, sizeof(back)), 116);
        assert_eq(memcmp(back, data, 116), 0);
        assert_eq(virt_chain_read(&c, &mem, 10, back, 20), 20);
        assert_eq(memcmp(back, data + 10, 20), 0);
        assert_eq(virt_chain_read(&c, &mem, 116, back, 1), 0);
        assert_eq(virt_chain_read(&c, &mem, UINT64_MAX, back, 1), 0);

        assert_eq(virt_chain_write(&c, &mem, 0, data, sizeof(data)), 30);
        assert_ok(guest_mem_read(&mem, DATA_GPA + 9000, back, 20));
        assert_eq(memcmp(back, data + 10, 20), 0);
        assert_eq(virt_chain_write(&c, &mem, 29, data, 5), 1);
}

TEST(used_ring_and_indices_wrap) {
        VirtChain c;
        uint32_t head, len;

        start_plain(4);
        ring_desc(&ring, &mem, 0, DATA_GPA, 64, VRING_DESC_F_WRITE, 0);
        for (unsigned i = 0; i < 70000; i++) {
                ring_offer(&ring, &mem, 0);
                assert_eq(virtqueue_pop(&queue, &c), 1);
                virtqueue_push(&queue, &c, i % 65);
                assert_true(ring_take_used(&ring, &mem, &head, &len));
                assert_eq(head, 0);
                assert_eq(len, i % 65);
        }
        assert_true(!ring_take_used(&ring, &mem, &head, &len));
}

TEST(unpop_restores) {
        VirtChain c;

        start_plain(4);
        ring_desc(&ring, &mem, 2, DATA_GPA, 64, VRING_DESC_F_WRITE, 0);
        ring_offer(&ring, &mem, 2);
        for (unsigned i = 0; i < 100; i++) {
                assert_eq(virtqueue_pop(&queue, &c), 1);
                virtqueue_unpop(&queue, &c);
        }
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_eq(virtqueue_pop(&queue, &c), 0);
}

TEST(push_of_what_is_not_out_is_ignored) {
        VirtChain c = { .head = 1 };
        uint32_t head, len;

        start_plain(4);
        virtqueue_push(&queue, &c, 0);
        assert_true(!ring_take_used(&ring, &mem, &head, &len));
}

TEST(several_are_pushed_in_one_step) {
        uint32_t head, len;
        VirtUsed used[3];
        uint16_t idx;
        VirtChain c;

        start_plain(4);
        for (uint16_t i = 0; i < 3; i++) {
                ring_desc(&ring, &mem, i, DATA_GPA, 64, VRING_DESC_F_WRITE, 0);
                ring_offer(&ring, &mem, i);
                assert_eq(virtqueue_pop(&queue, &c), 1);
                used[i] = (VirtUsed) { .head = i, .written = 10U + i };
        }
        /* One that is not out does not count. */
        used[1].head = 3;
        virtqueue_push_all(&queue, used, 3);
        assert_ok(guest_mem_load_u16(&mem, ring.used_gpa + 2, &idx));
        assert_eq(idx, 2);
        assert_true(ring_take_used(&ring, &mem, &head, &len) && head == 0 && len == 10);
        assert_true(ring_take_used(&ring, &mem, &head, &len) && head == 2 && len == 12);
        assert_true(!ring_take_used(&ring, &mem, &head, &len));
}

TEST(bad_head) {
        start_plain(8);
        ring_offer(&ring, &mem, 8);
        assert_broken();
}

TEST(bad_next) {
        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, VRING_DESC_F_NEXT, 8);
        ring_offer(&ring, &mem, 0);
        assert_broken();
        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, VRING_DESC_F_NEXT, 65535);
        ring_offer(&ring, &mem, 0);
        assert_broken();
}

TEST(circles_end) {
        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, VRING_DESC_F_NEXT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();

        start_plain(256);
        for (unsigned i = 0; i < 256; i++)
                ring_desc(&ring, &mem, i, 0, 0, VRING_DESC_F_NEXT, (i + 1) % 256);
        ring_offer(&ring, &mem, 0);
        assert_broken();
}

TEST(whole_ring_as_one_chain) {
        VirtChain c;

        start_plain(256);
        for (unsigned i = 0; i < 256; i++)
                ring_desc(&ring, &mem, i, DATA_GPA + i, 1, i < 255 ? VRING_DESC_F_NEXT : 0, i + 1);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_eq(c.n_readable, 256);
        assert_eq(c.readable_bytes, 256);
}

TEST(parts_outside_of_memory) {
        static const struct { uint64_t gpa; uint32_t len; } bad[] = {
                { MEM_BYTES, 1 }, { MEM_BYTES - 1, 2 }, { 0, UINT32_MAX }, { UINT64_MAX, 1 }, { UINT64_MAX - 3, 8 },
                { 0xe0000000, 4 }, { 0xfee00000, 4 }, { 1ULL << 32, 1 }, { 1ULL << 63, 16 },
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                for (unsigned write = 0; write < 2; write++) {
                        start(8, (VirtQueueOptions) { .chain_bytes_max = UINT64_MAX });
                        ring_desc(&ring, &mem, 0, bad[i].gpa, bad[i].len, write ? VRING_DESC_F_WRITE : 0, 0);
                        ring_offer(&ring, &mem, 0);
                        assert_broken();
                }
}

TEST(readable_behind_writable) {
        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 1);
        ring_desc(&ring, &mem, 1, DATA_GPA, 16, 0, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();
}

TEST(too_many_bytes) {
        start(8, (VirtQueueOptions) { .chain_bytes_max = 100 });
        ring_desc(&ring, &mem, 0, DATA_GPA, 50, VRING_DESC_F_NEXT, 1);
        ring_desc(&ring, &mem, 1, DATA_GPA, 51, VRING_DESC_F_WRITE, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();
}

TEST(avail_index_too_far) {
        VirtChain c;

        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        ring_set_avail_idx(&ring, &mem, 9);
        assert_broken();

        /* Backwards is the same as far ahead. */
        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        ring_set_avail_idx(&ring, &mem, 0);
        assert_broken();
}

TEST(head_twice_in_flight) {
        VirtChain c;

        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        ring_offer(&ring, &mem, 0);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_broken();
}

TEST(indirect_good) {
        VirtChain c;

        start_full(8);
        indirect_desc(0, DATA_GPA, 10, VRING_DESC_F_NEXT, 2);
        indirect_desc(2, DATA_GPA + 100, 20, VRING_DESC_F_WRITE, 0);
        ring_desc(&ring, &mem, 4, INDIRECT_GPA, 3 * 16, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 4);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_eq(c.readable_bytes, 10);
        assert_eq(c.writable_bytes, 20);

        /* Behind direct parts, its WRITE flag ignored (2.7.5.3.2). */
        ring_desc(&ring, &mem, 0, DATA_GPA, 5, VRING_DESC_F_NEXT, 1);
        ring_desc(&ring, &mem, 1, INDIRECT_GPA, 3 * 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 0);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_eq(c.readable_bytes, 15);
        assert_eq(c.n_readable, 2);
}

TEST(indirect_bad) {
        static const struct { uint64_t gpa; uint32_t len; uint16_t flags; } bad[] = {
                { INDIRECT_GPA, 0, VRING_DESC_F_INDIRECT },
                { INDIRECT_GPA, 15, VRING_DESC_F_INDIRECT },
                { INDIRECT_GPA, 17, VRING_DESC_F_INDIRECT },
                { INDIRECT_GPA, 257 * 16, VRING_DESC_F_INDIRECT },
                { INDIRECT_GPA, UINT32_MAX & ~15U, VRING_DESC_F_INDIRECT },
                { INDIRECT_GPA, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT },
                { MEM_BYTES - 8, 16, VRING_DESC_F_INDIRECT },
                { UINT64_MAX - 7, 16, VRING_DESC_F_INDIRECT },
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                start_full(8);
                indirect_desc(0, DATA_GPA, 10, 0, 0);
                ring_desc(&ring, &mem, 0, bad[i].gpa, bad[i].len, bad[i].flags, 1);
                ring_offer(&ring, &mem, 0);
                assert_broken();
        }

        /* Not negotiated. */
        start_plain(8);
        indirect_desc(0, DATA_GPA, 10, 0, 0);
        ring_desc(&ring, &mem, 0, INDIRECT_GPA, 16, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();

        /* Two levels, a circle in the table, a next beyond it, more parts than a chain may have. */
        start_full(8);
        indirect_desc(0, INDIRECT_GPA, 16, VRING_DESC_F_INDIRECT, 0);
        ring_desc(&ring, &mem, 0, INDIRECT_GPA, 16, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();

        start_full(8);
        indirect_desc(0, DATA_GPA, 10, VRING_DESC_F_NEXT, 0);
        ring_desc(&ring, &mem, 0, INDIRECT_GPA, 32, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();

        start_full(8);
        indirect_desc(0, DATA_GPA, 10, VRING_DESC_F_NEXT, 2);
        ring_desc(&ring, &mem, 0, INDIRECT_GPA, 32, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();

        start_full(8);
        for (unsigned i = 0; i < 256; i++)
                indirect_desc(i, DATA_GPA, 1, i < 255 ? VRING_DESC_F_NEXT : 0, i + 1);
        ring_desc(&ring, &mem, 0, DATA_GPA, 1, VRING_DESC_F_NEXT, 1);
        ring_desc(&ring, &mem, 1, INDIRECT_GPA, 256 * 16, VRING_DESC_F_INDIRECT, 0);
        ring_offer(&ring, &mem, 0);
        assert_broken();
}

TEST(signals_without_event_idx) {
        VirtChain c;
        uint16_t no_interrupt = VRING_AVAIL_F_NO_INTERRUPT;

        start_plain(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        assert_true(!virtqueue_should_signal(&queue));
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        virtqueue_push(&queue, &c, 0);
        assert_true(virtqueue_should_signal(&queue));
        assert_true(!virtqueue_should_signal(&queue));

        assert_ok(guest_mem_write(&mem, ring.avail_gpa, &no_interrupt, 2));
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        virtqueue_push(&queue, &c, 0);
        assert_true(!virtqueue_should_signal(&queue));
}

TEST(signals_with_event_idx) {
        VirtChain c;

        start_full(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        for (unsigned round = 0; round < 70000; round++) {
                /* Wants to hear of the third from here. */
                uint16_t event = ring.avail_idx + 2;
                assert_ok(guest_mem_store_u16(&mem, ring.avail_gpa + 4 + 8 * 2, event));
                for (unsigned i = 0; i < 3; i++) {
                        ring_offer(&ring, &mem, 0);
                        assert_eq(virtqueue_pop(&queue, &c), 1);
                        virtqueue_push(&queue, &c, 0);
                        assert_eq(virtqueue_should_signal(&queue), i == 2);
                }
        }
}

TEST(rearm_sees_what_came_meanwhile) {
        uint16_t event;
        VirtChain c;

        start_full(8);
        ring_desc(&ring, &mem, 0, DATA_GPA, 16, 0, 0);
        ring_desc(&ring, &mem, 1, DATA_GPA, 16, 0, 0);
        ring_offer(&ring, &mem, 0);
        assert_eq(virtqueue_pop(&queue, &c), 1);
        assert_true(!virtqueue_rearm(&queue));
        assert_ok(guest_mem_load_u16(&mem, ring.used_gpa + 4 + 8 * 8, &event));
        assert_eq(event, 1);
        ring_offer(&ring, &mem, 1);
        assert_true(virtqueue_rearm(&queue));
        assert_eq(virtqueue_pop(&queue, &c), 1);
}

/* A second CPU that rewrites everything while we look. It stands for hardware, which no
 * sanitizer instruments either. */
static _Atomic bool flipping;

__attribute__((no_sanitize("thread"))) static void *flipper(void *userdata) {
        volatile struct vring_desc *d = guest_mem_ptr(&mem, ring.desc_gpa, 16 * 16);
        volatile struct vring_desc *t = guest_mem_ptr(&mem, INDIRECT_GPA, 16 * 16);
        unsigned seed = 1;

        while (flipping) {
                seed = seed * 1103515245 + 12345;
                unsigned i = (seed >> 16) % 16;
                volatile struct vring_desc *v = seed & 0x8000 ? &t[i] : &d[i];

                v->addr = seed & 1 ? DATA_GPA + (seed & 0xff0) : (uint64_t) seed << 20;
                v->len = seed & 2 ? 64 : seed;
                v->flags = (seed >> 8) & 7;
                v->next = (seed >> 20) & 31;
        }
        return NULL;
}

TEST(descriptors_that_change_while_we_look) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        unsigned popped = 0, broken = 0;
        pthread_t thread;
        VirtChain c;

        start_full(16);
        flipping = true;
        assert_eq(pthread_create(&thread, NULL, flipper, NULL), 0);

        /* On a busy machine the other one may not have been there yet. */
        unsigned n = 0;
        for (; n < 300000 || popped <= 100 || broken <= 100; n++) {
                ring_offer(&ring, &mem, n % 16);
                int r = virtqueue_pop(&queue, &c);
                if (r < 0) {
                        VirtQueueOptions options = queue.options;
                        VirtQueueConfig config = queue.config;

                        broken++;
                        ring_set_avail_idx(&ring, &mem, ring.avail_idx = 0);
                        virtqueue_start(&queue, &mem, &config, &options);
                        continue;
                }

                /* Whatever came out is whole and inside memory. */
                size_t bytes;
                popped++;
                (void) virt_chain_readable_iov(&c, &mem, 0, UINT64_MAX, iov, &bytes);
                if (bytes != c.readable_bytes)
                        break;
                (void) virt_chain_writable_iov(&c, &mem, 0, UINT64_MAX, iov, &bytes);
                if (bytes != c.writable_bytes || c.readable_bytes + bytes > MIB(1))
                        break;
                virtqueue_push(&queue, &c, bytes);
        }

        flipping = false;
        pthread_join(thread, NULL);
        printf("# %u chains popped, %u times broken\n", popped, broken);
        assert_eq(popped + broken, n);
}
