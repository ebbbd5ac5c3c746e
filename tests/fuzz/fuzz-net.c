/* SPDX-License-Identifier: Apache-2.0 */

/* A network card (script.h), with a socket in place of its tap: the network sends frames with any header, does not read,
 * and goes away. Input: u8, 1: without a tap; then the script. */

#include <linux/virtio_net.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "script.h"
#include "tests/unit/fake-tap.h"
#include "vmm/virtio-net-tx.h"
#include "vmm/virtio-net.h"

enum {
        HOST_SEND,             /* u8 of a header's flags, u8 kind of segmentation, u16 length of the frame */
        HOST_READ,
        HOST_LEAVE,
        HOST_REFUSE,           /* the tap takes no offloads from here on */
        HOST_FILL,             /* from here on it takes no more than a few frames */
        HOST_COUNT,
        _HOST_MAX,
};

typedef struct Card {
        VirtioNet *net;
        int wire;
} Card;

static void send_frame(Card *c, FuzzInput *in) {
        static uint8_t frame[NET_FRAME_MAX + 2];
        struct virtio_net_hdr_v1 h = { .flags = fuzz_u8(in), .gso_type = fuzz_u8(in) };
        size_t n = MIN((size_t) fuzz_u16(in) * 2, sizeof(frame));

        memcpy(frame, &h, sizeof(h));
        if (c->wire >= 0 && n > 0)
                (void) !send(c->wire, frame, n, MSG_NOSIGNAL|MSG_DONTWAIT);
}

/* What was checked is what is sent: a header that the host's kernel would take. */
static void read_frame(Card *c) {
        static uint8_t frame[NET_FRAME_MAX + 2];
        struct virtio_net_hdr_v1 h, again;

        ssize_t n = c->wire >= 0 ? recv(c->wire, frame, sizeof(frame), MSG_DONTWAIT) : -1;
        if (n <= 0)
                return;
        FUZZ_CHECK(n >= (ssize_t) NET_FRAME_MIN && n <= (ssize_t) NET_FRAME_MAX);
        memcpy(&h, frame, sizeof(h));
        again = h;
        FUZZ_CHECK(!net_header_check(&again, (uint64_t) n - sizeof(h), UINT64_MAX) && memcmp(&h, &again, sizeof(h)) == 0);
}

static void act(void *userdata, unsigned what, FuzzInput *in) {
        static const int small = 4096;
        Card *c = userdata;

        switch (what % _HOST_MAX) {
        case HOST_SEND: send_frame(c, in); break;
        case HOST_READ: read_frame(c); break;
        case HOST_LEAVE: c->wire = safe_close(c->wire); break;
        case HOST_REFUSE: fake_tap_result = -EINVAL; break;
        case HOST_FILL:
                if (virtio_net_tap_fd(c->net) >= 0)
                        (void) setsockopt(virtio_net_tap_fd(c->net), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
                break;
        case HOST_COUNT: virtio_net_counters(c->net, script_on_counter, NULL); break;
        }
}

static void pause_card(void *userdata) {
        Card *c = userdata;
        virtio_net_pause(c->net);
}

static void resume_card(void *userdata) {
        Card *c = userdata;
        virtio_net_resume(c->net);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        script_init(0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        int ends[2] = { -EBADF, -EBADF };
        FuzzInput in = { data, size };
        Card c = {};
        const ScriptHost host = { .act = act, .pause = pause_card, .resume = resume_card, .userdata = &c };

        script_begin();
        fake_tap_result = 0;
        if (!(fuzz_u8(&in) & 1))
                FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, ends) == 0);
        c.wire = ends[1];
        FUZZ_CHECK(virtio_net_new(&script_vm, script_stepper.loop, 0xc0600000, ends[0], script_on_error, NULL, &c.net) == 0);
        script_run(virtio_net_pci(c.net), &host, &in);
        virtio_net_free(c.net);
        safe_close(c.wire);
        return 0;
}
