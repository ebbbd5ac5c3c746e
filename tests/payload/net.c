/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#define HEADER_BYTES 12U
#define NUM_BUFFERS 10U
#define MAC_BYTES 6U
#define BUFFER_BYTES 2048U
#define STATUS_NEEDS_RESET 0x40U

/* Virtio 1.2, 5.1.3: CSUM, GUEST_CSUM, MAC, GUEST_TSO4 and 6, HOST_TSO4 and 6, MRG_RXBUF, STATUS. */
#define FEATURES (1U << 0 | 1U << 1 | 1U << 5 | 1U << 7 | 1U << 8 | 1U << 11 | 1U << 12 | 1U << 15 | 1U << 16)

enum { QUEUE_RX, QUEUE_TX };

static bool ready;
static Device device;
static Queue rx, tx;
static uint8_t buffers[RING_SIZE][BUFFER_BYTES] __attribute__((aligned(4096)));

static void post(uint16_t i) {
        rx.desc[i] = (Desc) { .addr = (uint64_t) buffers[i], .len = BUFFER_BYTES, .flags = DESC_WRITE };
        queue_offer(&rx, i);
}

static void clear_queue(Queue *q) {
        q->avail.idx = q->used.idx = q->last_used = 0;
}

static bool start(void) {
        if (!virtio_begin(&device, FEATURES))
                return false;
        clear_queue(&rx);
        clear_queue(&tx);
        if (!virtio_queue(&device, QUEUE_RX, &rx, true) || !virtio_queue(&device, QUEUE_TX, &tx, false))
                return false;
        virtio_ready(&device);
        for (uint16_t i = 0; i < RING_SIZE; i++)
                post(i);
        queue_kick(&rx);
        return true;
}

bool net_open(void) {
        if (!ready)
                ready = virtio_find(1, 0, &device) && start();
        return ready;
}

void net_read_config(uint8_t config[8]) {
        for (unsigned i = 0; i < 8; i++)
                config[i] = read8(device.config + i);
}

static void swap_addresses(uint8_t *frame) {
        for (unsigned i = 0; i < MAC_BYTES; i++) {
                uint8_t b = frame[i];

                frame[i] = frame[MAC_BYTES + i];
                frame[MAC_BYTES + i] = b;
        }
}

/* Waits until the device has taken it. */
static void transmit(unsigned n) {
        uint32_t head, len;

        for (unsigned i = 0; i < n; i++) {
                tx.desc[i].flags = i + 1 < n ? DESC_NEXT : 0;
                tx.desc[i].next = (uint16_t) (i + 1);
        }
        queue_offer(&tx, 0);
        queue_kick(&tx);
        while (!queue_take(&tx, &head, &len))
                pause_cpu();
}

bool net_echo(void) {
        uint16_t heads[RING_SIZE];
        uint32_t head, len;
        unsigned n = 0, total = 1;

        if (!ready || !queue_take(&rx, &head, &len))
                return false;
        do {
                if (n == 0)
                        total = MIN(*(uint16_t *) (buffers[head] + NUM_BUFFERS), RING_SIZE);
                heads[n] = (uint16_t) head;
                tx.desc[n++] = (Desc) { .addr = (uint64_t) buffers[head], .len = len };
        } while (n < total && queue_take(&rx, &head, &len));

        /* All of a frame are there at once; what is not shows at the other end. */
        swap_addresses(buffers[heads[0]] + HEADER_BYTES);
        transmit(n);
        for (unsigned i = 0; i < n; i++)
                post(heads[i]);
        queue_kick(&rx);
        return true;
}

static uint32_t next_random(uint32_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

/* Mostly within memory and in an order that could be right, so that more than the first check is met. */
static void random_chain(uint32_t *state, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                uint32_t r = next_random(state);

                tx.desc[i] = (Desc) {
                        .addr = r % 61 == 0 ? (uint64_t) r << 20 : (uint64_t) buffers + r % BUFFER_BYTES,
                        .len = r % 7 == 0 ? next_random(state) % 70000 : r % 1600,
                        .flags = (i + 1 < n ? DESC_NEXT : 0) | (r % 53 == 0 ? DESC_WRITE : 0),
                        .next = (uint16_t) (r % 67 == 0 ? r : i + 1),
                };
        }
}

static void random_header(uint32_t *state) {
        static const uint8_t kinds[] = { 0, 1, 4, 3, 0x81, 0xff };
        uint8_t *h = buffers[0];

        for (unsigned i = 0; i < HEADER_BYTES; i++)
                h[i] = (uint8_t) (next_random(state) >> 8);
        h[0] = (uint8_t) (next_random(state) % 3);
        h[1] = kinds[next_random(state) % ELEMENTSOF(kinds)];
        /* Half of them lie by little. */
        if (next_random(state) & 1)
                h[3] = h[5] = h[7] = h[9] = 0;
}

void net_misbehave(uint32_t rounds, uint32_t seed, uint32_t *ret_resets) {
        uint32_t head, len;

        *ret_resets = 0;
        for (uint32_t i = 0; i < rounds && ready; i++) {
                random_header(&seed);
                random_chain(&seed, 1 + next_random(&seed) % 6);
                queue_offer(&tx, 0);
                queue_kick(&tx);
                while (!queue_take(&tx, &head, &len)) {
                        if (!(virtio_status(&device) & STATUS_NEEDS_RESET)) {
                                pause_cpu();
                                continue;
                        }
                        (*ret_resets)++;
                        ready = start();
                        break;
                }
        }
}
