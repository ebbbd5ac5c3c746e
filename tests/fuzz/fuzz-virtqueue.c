/* SPDX-License-Identifier: Apache-2.0 */

/* A ring full of whatever. Each chain that comes out of it lies in the guest's memory, and is given back. */

#include "fuzz.h"
#include "vmm/virtqueue.h"

#define MEMORY MIB(2)
#define SIZE 16U
#define DESC_GPA 0x1000U
#define AVAIL_GPA 0x2000U
#define USED_GPA 0x3000U
#define TABLE_GPA 0x4000U         /* where indirect tables may be */
#define CHAIN_BYTES_MAX KIB(64)
#define STEPS_MAX 64U

static GuestMem mem;

static void fill(FuzzInput *in, uint64_t gpa, size_t size) {
        uint8_t data[512];

        (void) fuzz_bytes(in, data, size);
        FUZZ_CHECK(guest_mem_write(&mem, gpa, data, size) == 0);
}

static void check_chain(const VirtChain *c) {
        uint64_t bytes = 0;

        FUZZ_CHECK(c->n_readable + c->n_writable <= VIRT_CHAIN_PARTS_MAX && c->head < SIZE);
        for (unsigned i = 0; i < c->n_readable + c->n_writable; i++) {
                FUZZ_CHECK(c->parts[i].len > 0 && guest_mem_ptr(&mem, c->parts[i].gpa, c->parts[i].len));
                bytes += c->parts[i].len;
        }
        FUZZ_CHECK(bytes == c->readable_bytes + c->writable_bytes && bytes <= CHAIN_BYTES_MAX);
}

static void use_chain(const VirtChain *c, FuzzInput *in) {
        uint8_t data[64] = {};
        uint64_t offset = fuzz_u16(in);

        FUZZ_CHECK(virt_chain_read(c, &mem, offset, data, sizeof(data)) <= sizeof(data));
        FUZZ_CHECK(virt_chain_write(c, &mem, offset, data, sizeof(data)) <= sizeof(data));
}

static void steps(VirtQueue *q, FuzzInput *in) {
        VirtChain c;

        for (unsigned i = 0; i < STEPS_MAX && in->left > 0; i++) {
                uint8_t what = fuzz_u8(in);

                if (what & 1)
                        fill(in, (what & 2) ? AVAIL_GPA + 2 : DESC_GPA + (what >> 4) * 16U, (what & 2) ? 2 : 16);
                int r = virtqueue_pop(q, &c);
                FUZZ_CHECK(r == -EBADMSG ? !!q->fault : r >= 0);
                if (r > 0) {
                        check_chain(&c);
                        use_chain(&c, in);
                        if (what & 4)
                                virtqueue_unpop(q, &c);
                        else if (what & 8)
                                virtqueue_push(q, &c, fuzz_u32(in) % (c.writable_bytes + 1));
                }
                (void) virtqueue_should_signal(q);
                (void) virtqueue_rearm(q);
        }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        FUZZ_CHECK(guest_mem_init(&mem, MEMORY) == 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const VirtQueueConfig config = {
                .size = SIZE, .desc_gpa = DESC_GPA, .avail_gpa = AVAIL_GPA, .used_gpa = USED_GPA,
        };
        FuzzInput in = { data, size };
        VirtQueue q = {};

        uint8_t options = fuzz_u8(&in);
        fill(&in, AVAIL_GPA, 6 + 2 * SIZE);
        fill(&in, DESC_GPA, 16 * SIZE);
        fill(&in, TABLE_GPA, 64);
        FUZZ_CHECK(virtqueue_config_check(&config, SIZE, &mem) == 0);
        virtqueue_start(&q, &mem, &config, &(VirtQueueOptions) {
                .event_idx = options & 1, .indirect = options & 2, .chain_bytes_max = CHAIN_BYTES_MAX,
        });
        steps(&q, &in);
        virtqueue_stop(&q);
        return 0;
}
