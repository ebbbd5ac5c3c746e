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

static bool start(void) {
        if (!virtio_begin(&device, FEATURES))
                return false;
        queue_clear(&rx);
        queue_clear(&tx);
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

/* IPv4 behind the virtio and Ethernet headers, without options. */
#define ETHER_BYTES 14U
#define IP (HEADER_BYTES + ETHER_BYTES)
#define IP_BYTES 20U
#define UDP (IP + IP_BYTES)
#define UDP_BYTES 8U
#define PROTO_ICMP 1U
#define PROTO_UDP 17U
#define ICMP_UNREACHABLE 3U
#define ASK_PORT 4000U

static const uint8_t guest_mac[] = { 0x02, 0xcb, 0xff, 0, 0, 2 }, gateway_mac[] = { 0x02, 0xcb, 0xff, 0, 0, 1 };
static const uint8_t guest_address[] = { 169, 254, 77, 2 };
static const char question[] = "anybody?";

static void swap_bytes(uint8_t *a, uint8_t *b, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                uint8_t c = a[i];

                a[i] = b[i];
                b[i] = c;
        }
}

static bool is_ip(const uint8_t *f, uint32_t len, uint8_t proto) {
        return len >= UDP + UDP_BYTES && f[IP - 2] == 0x08 && f[IP - 1] == 0 && f[IP] == 0x45 && f[IP + 9] == proto;
}

/* One that fits a buffer; no checksum changes, for all is a sum of the same numbers. */
bool net_serve(void) {
        uint32_t head, len;

        if (!ready || !queue_take(&rx, &head, &len))
                return false;
        uint8_t *f = buffers[head];
        if (*(uint16_t *) (f + NUM_BUFFERS) == 1 && is_ip(f, len, PROTO_UDP)) {
                swap_addresses(f + HEADER_BYTES);
                swap_bytes(f + IP + 12, f + IP + 16, 4);
                swap_bytes(f + UDP, f + UDP + 2, 2);
                tx.desc[0] = (Desc) { .addr = (uint64_t) f, .len = len };
                transmit(1);
        }
        post((uint16_t) head);
        queue_kick(&rx);
        return true;
}

static void put16(uint8_t *p, uint32_t v) {
        p[0] = (uint8_t) (v >> 8);
        p[1] = (uint8_t) v;
}

static void put_ip(uint8_t *p, uint32_t address, uint32_t len) {
        uint32_t sum = 0;

        p[0] = 0x45;
        put16(p + 2, len);
        p[8] = 64;
        p[9] = PROTO_UDP;
        memcpy(p + 12, guest_address, sizeof(guest_address));
        put16(p + 16, address >> 16);
        put16(p + 18, address);
        for (unsigned i = 0; i < IP_BYTES; i += 2)
                sum += (uint32_t) p[i] << 8 | p[i + 1];
        while (sum >> 16)
                sum = (sum & 0xffff) + (sum >> 16);
        put16(p + 10, ~sum);
}

void net_ask(uint32_t address, uint16_t port) {
        static uint8_t f[UDP + UDP_BYTES + sizeof(question)] __attribute__((aligned(16)));
        uint32_t udp = UDP_BYTES + sizeof(question) - 1;

        memset(f, 0, sizeof(f));
        memcpy(f + HEADER_BYTES, gateway_mac, MAC_BYTES);
        memcpy(f + HEADER_BYTES + MAC_BYTES, guest_mac, MAC_BYTES);
        put16(f + IP - 2, 0x0800);
        put_ip(f + IP, address, IP_BYTES + udp);
        put16(f + UDP, ASK_PORT);
        put16(f + UDP + 2, port);
        put16(f + UDP + 4, udp);
        memcpy(f + UDP + UDP_BYTES, question, sizeof(question) - 1);
        tx.desc[0] = (Desc) { .addr = (uint64_t) f, .len = sizeof(f) };
        transmit(1);
}

static int read_answer(const uint8_t *f, uint32_t len, char *buf) {
        if (is_ip(f, len, PROTO_ICMP) && f[UDP] == ICMP_UNREACHABLE)
                return -1 - f[UDP + 1];
        if (!is_ip(f, len, PROTO_UDP) || f[UDP + 2] != ASK_PORT >> 8 || f[UDP + 3] != (ASK_PORT & 0xff))
                return 0;
        uint32_t n = (uint32_t) (f[UDP + 4] << 8 | f[UDP + 5]) - UDP_BYTES;
        n = MIN(MIN(n, len - UDP - UDP_BYTES), NET_ANSWER_BYTES);
        memcpy(buf, f + UDP + UDP_BYTES, n);
        return (int) n;
}

int net_answer(char *buf) {
        uint32_t head, len;

        if (!ready || !queue_take(&rx, &head, &len))
                return 0;
        int n = read_answer(buffers[head], len, buf);
        post((uint16_t) head);
        queue_kick(&rx);
        return n;
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
