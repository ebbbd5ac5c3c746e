/* SPDX-License-Identifier: Apache-2.0 */

/* The vsock device between a guest that sends any packets and a host that opens streams, writes and hangs up.
 *
 * Input: steps, each a byte: its kind in the low three bits, the stream and an option in the others; see step(). */

#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "clock.h"
#include "fuzz.h"
#include "tests/unit/fake-vm.h"
#include "tests/unit/virtio-driver.h"
#include "vmm/virtio-vsock.h"

#define CID 3U
#define RX 0
#define TX 1
#define RX_BUFFERS 16U
#define RX_BYTES KIB(4)
#define RX_GPA 0x100000U
#define TX_GPA 0x200000U
#define DATA_MAX 256U
#define LARGE 200U                /* a length from here on is so many KiB more, of zeros */
#define STEPS_MAX 256U
#define STREAMS 4U

static Vm vm;
static Stepper stepper;

typedef struct Side {
        VirtioVsock *dev;
        Driver driver;
        int streams[STREAMS];
        struct virtio_vsock_hdr last; /* that came from the device */
        uint32_t taken;               /* bytes on its connection */
} Side;

static void on_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
}

static void on_lost(void *userdata) {
}

static void on_answer(void *userdata, int error, const uint8_t *frame, size_t size) {
}

static void on_device_error(void *userdata, const char *name, const char *message) {
}

static void post_rx(Side *s, unsigned i) {
        ring_desc(&s->driver.rings[RX], &vm.mem, (uint16_t) i, RX_GPA + i * RX_BYTES, RX_BYTES, 2 /* to be written */, 0);
        ring_offer(&s->driver.rings[RX], &vm.mem, (uint16_t) i);
}

/* Most fields are from the packet before, so that connections come about. */
static void guest_packet(Side *s, FuzzInput *in) {
        struct virtio_vsock_hdr h = {
                .src_cid = CID, .dst_cid = 2, .src_port = s->last.dst_port ?: 1000, .dst_port = s->last.src_port,
                .type = VIRTIO_VSOCK_TYPE_STREAM, .buf_alloc = KIB(64), .fwd_cnt = s->taken,
        };
        uint8_t data[DATA_MAX], what = fuzz_u8(in);
        uint32_t head, used;

        h.op = what & 15;
        h.flags = what >> 4 & 3;
        h.len = fuzz_u8(in);
        if (h.len >= LARGE)
                h.len = (uint32_t) KIB(h.len - LARGE + 1);
        if (what & 64)
                h.dst_port = AGENT_CONTROL_PORT;
        if (what & 128)
                (void) fuzz_bytes(in, &h, sizeof(h));
        (void) fuzz_bytes(in, data, h.len < LARGE ? h.len : 0);
        FUZZ_CHECK(guest_mem_write(&vm.mem, TX_GPA, &h, sizeof(h)) == 0);
        FUZZ_CHECK(guest_mem_write(&vm.mem, TX_GPA + sizeof(h), data, sizeof(data)) == 0);
        ring_desc(&s->driver.rings[TX], &vm.mem, 0, TX_GPA, sizeof(h) + MIN(h.len, (uint32_t) KIB(64)), 0, 0);
        ring_offer(&s->driver.rings[TX], &vm.mem, 0);
        driver_kick(&s->driver, TX);
        stepper_run(&stepper, 2);
        (void) ring_take_used(&s->driver.rings[TX], &vm.mem, &head, &used);
}

static void take_packets(Side *s) {
        uint32_t head, used;

        for (unsigned i = 0; i < RX_BUFFERS && ring_take_used(&s->driver.rings[RX], &vm.mem, &head, &used); i++) {
                FUZZ_CHECK(head < RX_BUFFERS && used >= sizeof(s->last) && used <= RX_BYTES);
                FUZZ_CHECK(guest_mem_read(&vm.mem, RX_GPA + head * RX_BYTES, &s->last, sizeof(s->last)) == 0);
                FUZZ_CHECK(used == sizeof(s->last) + s->last.len);
                if (s->last.op == VIRTIO_VSOCK_OP_REQUEST || s->last.op == VIRTIO_VSOCK_OP_RESPONSE)
                        s->taken = 0;
                s->taken += s->last.len;
                post_rx(s, head);
        }
        driver_kick(&s->driver, RX);
}

static void open_stream(Side *s, unsigned i) {
        const FrameHeader h = { .type = AGENT_STREAM_PROCESS, .id = i };
        static const int small = 4096;
        uint8_t frame[FRAME_HEADER_SIZE];
        int ends[2];

        frame_header_put(&h, frame);
        s->streams[i] = safe_close(s->streams[i]);
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        /* So that it is full soon. */
        FUZZ_CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
        s->streams[i] = ends[0];
        (void) virtio_vsock_stream_open(s->dev, ends[1], frame, sizeof(frame), on_answer, NULL);
}

static void move_host(Side *s, unsigned i, FuzzInput *in) {
        static uint8_t data[KIB(64)];
        size_t n = fuzz_u8(in);

        if (n >= LARGE)
                n = KIB(n - LARGE + 1);
        else
                (void) fuzz_bytes(in, data, n);
        if (s->streams[i] < 0)
                return;
        (void) !send(s->streams[i], data, n, MSG_NOSIGNAL|MSG_DONTWAIT);
        (void) !recv(s->streams[i], data, sizeof(data), MSG_DONTWAIT);
}

/* Saved and loaded again: connections of streams are gone, the control stream stays. */
static void save_and_load(Side *s) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *data = NULL;
        SnapshotReader reader;
        SnapshotFile f;
        VsockLoad *l;
        size_t size;

        virtio_vsock_pause(s->dev);
        virtio_vsock_save(s->dev, 1, &w);
        FUZZ_CHECK(snapshot_writer_finish(&w, id, id, &data, &size) == 0);
        FUZZ_CHECK(snapshot_file_parse(data, size, &f, NULL) == 0);
        FUZZ_CHECK(snapshot_file_section(&f, SNAPSHOT_SECTION_VSOCK, 1, &reader, NULL) == 0);
        FUZZ_CHECK(virtio_vsock_parse(s->dev, virtio_vsock_pci(s->dev)->live, &reader, &l, NULL) == 0);
        virtio_vsock_apply(s->dev, l);
        virtio_vsock_resume(s->dev);
}

static void on_counter(void *userdata, const char *name, uint64_t value) {
}

static void half_close(Side *s, unsigned i) {
        if (s->streams[i] >= 0)
                (void) shutdown(s->streams[i], SHUT_WR);
}

static void step(Side *s, FuzzInput *in) {
        static uint8_t frame[FRAME_HEADER_SIZE + KIB(64)];
        uint8_t what = fuzz_u8(in);
        unsigned i = what >> 4 & (STREAMS - 1);
        bool other = what & 128;

        switch (what & 7) {

        case 0: open_stream(s, i); break;
        case 1: if (other) half_close(s, i); else move_host(s, i, in); break;
        case 2: s->streams[i] = safe_close(s->streams[i]); break;
        case 3: (void) virtio_vsock_control_send(s->dev, frame, FRAME_HEADER_SIZE + (other ? KIB(64) : 0)); break;
        case 4:
                if (other)
                        fuzz_clock_usec += USEC_PER_SEC << (what >> 3 & 15);
                else
                        virtio_vsock_control_hold(s->dev, what & 16);
                break;
        case 5: if (other) save_and_load(s); else take_packets(s); break;
        case 7: if (other) virtio_vsock_counters(s->dev, on_counter, NULL); else guest_packet(s, in); break;
        default: guest_packet(s, in);
        }
        stepper_run(&stepper, 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const VsockControlEvents events = { .on_frame = on_frame, .on_lost = on_lost };
        Side s = { .streams = { -EBADF, -EBADF, -EBADF, -EBADF } };
        FuzzInput in = { data, size };

        fuzz_clock_usec = 1000 * USEC_PER_SEC;
        FUZZ_CHECK(virtio_vsock_new(&vm, stepper.loop, 0xc0100000, CID, &events, on_device_error, NULL, &s.dev) == 0);
        driver_prepare(&s.driver, virtio_vsock_pci(s.dev), &vm.mem, 0x10000, 0);
        for (unsigned i = 0; i < RX_BUFFERS; i++)
                post_rx(&s, i);
        driver_ok(&s.driver);
        stepper_run(&stepper, 2);
        for (unsigned i = 0; i < STEPS_MAX && in.left > 0; i++)
                step(&s, &in);
        for (unsigned i = 0; i < STREAMS; i++)
                safe_close(s.streams[i]);
        virtio_vsock_free(s.dev);
        return 0;
}
