/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/if_tun.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>

#include "base/agent-proto.h"
#include "vmm/tap.h"
#include "vmm/virtio-net-rx.h"
#include "vmm/virtio-net-tx.h"
#include "vmm/virtio-net.h"

#define QUEUE_RX 0U
#define QUEUE_TX 1U
/* What the driver may post as one buffer, which is more than any frame needs. */
#define CHAIN_BYTES_MAX MIB(1)
/* Up to what virtio-net in this shape has: mac and status. */
#define CONFIG_BYTES offsetof(struct virtio_net_config, max_virtqueue_pairs)

#define FEATURE(name) (1ULL << VIRTIO_NET_F_##name)

static_assert(TAP_HEADER_BYTES == sizeof(struct virtio_net_hdr_v1), "as the tap has it");

struct VirtioNet {
        VirtioPci pci;
        int tap_fd;               /* -EBADF: the link is down */
        LoopSource *tap_source;
        bool tap_full;            /* a chain waits in the queue until the tap takes it */
        bool starving;            /* nothing is read before the driver posts more buffers */
        bool held_back;           /* nothing is read at all */
        NetRx rx;
        uint64_t rx_packets, rx_bytes, rx_dropped;
        uint64_t tx_packets, tx_bytes, tx_dropped;

        /* A frame for which there were not enough buffers, and how long it is; 0: none. Memory that is only taken by
         * a guest that is short of buffers. */
        size_t held_bytes;
        uint8_t held[NET_FRAME_MAX + 1];
};

/* The tap */

static bool running(const VirtioNet *n) {
        return n->pci.live && !n->pci.failed && !n->pci.paused;
}

static void watch_tap(VirtioNet *n) {
        uint32_t events = 0;

        if (!n->tap_source)
                return;
        if (running(n))
                events = (n->held_back || n->starving || n->held_bytes > 0 ? 0U : EPOLLIN) | (n->tap_full ? EPOLLOUT : 0U);
        (void) loop_set_events(n->tap_source, events);
}

static void set_link(VirtioNet *n, bool up) {
        uint16_t status = htole16(up ? VIRTIO_NET_S_LINK_UP : 0);

        virtio_pci_change_config(&n->pci, offsetof(struct virtio_net_config, status), &status, sizeof(status), true);
}

/* Its namespace went, for example. There is no way back: a tap is passed when a machine is made. */
static void lose_tap(VirtioNet *n, int error) {
        virtio_pci_error(&n->pci, "the tap is gone, the link is down: %s", strerror(-error));
        n->tap_source = loop_remove(n->tap_source);
        n->tap_fd = safe_close(n->tap_fd);
        n->tap_full = false;
        set_link(n, false);
}

/* What the driver said that it can take is all that may come out of the tap. */
static void set_offload(VirtioNet *n) {
        const VirtioRegs *regs = &n->pci.regs;
        unsigned offload = 0;

        if (n->tap_fd < 0)
                return;
        /* Nothing can be segmented later without a checksum that is made later, too (5.1.3.1). */
        if (n->pci.live && virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_CSUM))
                offload = TUN_F_CSUM |
                          (virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_TSO4) ? TUN_F_TSO4 : 0) |
                          (virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_TSO6) ? TUN_F_TSO6 : 0);
        int r = tap_set_offload(n->tap_fd, offload);
        if (r < 0)
                lose_tap(n, r);
}

/* Receiving */

static VirtQueue *rx_ring(VirtioNet *n) {
        return &n->pci.queues[QUEUE_RX].ring;
}

static void take_buffers(VirtioNet *n) {
        VirtChain chain;

        while (net_rx_wants(&n->rx) && virtio_pci_pop(&n->pci, QUEUE_RX, &chain)) {
                if (chain.writable_bytes < TAP_HEADER_BYTES) {
                        virtio_pci_fail(&n->pci, "receive buffer has no place for a header");
                        return;
                }
                net_rx_add(&n->rx, &chain, &n->pci.vm->mem);
        }
}

/* Bytes, or 0: there is no frame. */
static size_t read_frame(VirtioNet *n, const struct iovec *iov, unsigned n_iov) {
        ssize_t r = readv(n->tap_fd, iov, (int) n_iov);

        if (r > 0)
                return (size_t) r;
        if (r == 0 || (errno != EAGAIN && errno != EINTR))
                lose_tap(n, r == 0 ? -ENODEV : -errno);
        return 0;
}

/* The tap knows what the driver can take; but what has waited in it may be from the time of another driver. */
static bool driver_takes(const VirtioNet *n, const struct virtio_net_hdr_v1 *h) {
        const VirtioRegs *regs = &n->pci.regs;

        if ((h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && !virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_CSUM))
                return false;

        switch (h->gso_type) {
        case VIRTIO_NET_HDR_GSO_NONE:
                return true;
        case VIRTIO_NET_HDR_GSO_TCPV4:
                return virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_TSO4);
        case VIRTIO_NET_HDR_GSO_TCPV6:
                return virtio_regs_has_feature(regs, VIRTIO_NET_F_GUEST_TSO6);
        default:
                return false;
        }
}

static bool frame_ok(VirtioNet *n, size_t bytes, const struct virtio_net_hdr_v1 *h) {
        if (bytes >= NET_FRAME_MIN && bytes <= NET_FRAME_MAX && driver_takes(n, h))
                return true;
        n->rx_dropped++;
        return false;
}

static void give_frame(VirtioNet *n, size_t bytes) {
        static const uint8_t no_flags = 0;

        /* 5.1.6.4.1: nor that a checksum was found right. */
        if (!virtio_regs_has_feature(&n->pci.regs, VIRTIO_NET_F_GUEST_CSUM))
                net_rx_write(&n->rx, offsetof(struct virtio_net_hdr_v1, flags), &no_flags, sizeof(no_flags));
        net_rx_give(&n->rx, rx_ring(n), bytes);
        n->rx_packets++;
        n->rx_bytes += bytes - TAP_HEADER_BYTES;
}

/* The longest frame fits: straight into the guest's memory. Bytes that were read. */
static size_t receive_direct(VirtioNet *n) {
        struct virtio_net_hdr_v1 h = {};

        size_t bytes = read_frame(n, n->rx.iov, net_rx_room_iov(&n->rx));
        if (bytes > 0)
                net_rx_read(&n->rx, 0, &h, sizeof(h));
        if (bytes > 0 && frame_ok(n, bytes, &h))
                give_frame(n, bytes);
        return bytes;
}

static size_t read_held(VirtioNet *n) {
        struct iovec iov = { .iov_base = n->held, .iov_len = sizeof(n->held) };
        struct virtio_net_hdr_v1 h;

        size_t bytes = read_frame(n, &iov, 1);
        memcpy(&h, n->held, sizeof(h));
        n->held_bytes = bytes > 0 && frame_ok(n, bytes, &h) ? bytes : 0;
        return bytes;
}

/* False when more buffers are needed, and may come. */
static bool deliver_held(VirtioNet *n) {
        if (n->held_bytes <= net_rx_room(&n->rx)) {
                net_rx_write(&n->rx, 0, n->held, n->held_bytes);
                give_frame(n, n->held_bytes);
        } else if (!net_rx_wants(&n->rx) || n->rx.n_chains == rx_ring(n)->config.size)
                n->rx_dropped++;
        else
                return false;

        n->held_bytes = 0;
        return true;
}

/* One frame. Bytes that were moved, 0: there is none. -ENOBUFS: there is one, or may be, but no place for it. */
static ssize_t receive_one(VirtioNet *n) {
        size_t bytes = n->held_bytes;

        take_buffers(n);
        if (n->rx.n_chains == 0)
                return -ENOBUFS;
        if (bytes == 0 && net_rx_room(&n->rx) > NET_FRAME_MAX)
                return (ssize_t) receive_direct(n);
        if (bytes == 0)
                bytes = read_held(n);
        if (n->held_bytes > 0 && !deliver_held(n))
                return -ENOBUFS;
        return (ssize_t) bytes;
}

static void receive(VirtioNet *n) {
        uint64_t bytes = 0;

        n->starving = false;
        for (unsigned i = 0; i < VIRTIO_VISIT_CHAINS && bytes < VIRTIO_VISIT_BYTES; i++) {
                if (!running(n) || n->held_back || n->tap_fd < 0)
                        break;
                ssize_t r = receive_one(n);
                if (r == -ENOBUFS && !n->pci.failed && !virtqueue_rearm(rx_ring(n))) {
                        n->starving = true;
                        break;
                }
                if (r == 0)
                        break;
                bytes += r > 0 ? (uint64_t) r : 0;
        }

        virtio_pci_signal(&n->pci, QUEUE_RX);
        if (n->held_bytes > 0 && !n->starving && !n->held_back)
                virtio_pci_kick_again(&n->pci, QUEUE_RX);
        watch_tap(n);
}

/* Sending */

/* False: not now. */
static bool send_one(VirtioNet *n, const VirtChain *chain) {
        const char *why = NULL;

        int r = -ENETDOWN;
        if (n->tap_fd >= 0)
                r = net_send(n->tap_fd, chain, &n->pci.vm->mem, n->pci.regs.driver_features, &why);
        if (r == -EAGAIN)
                return false;
        if (r >= 0) {
                n->tx_packets++;
                n->tx_bytes += chain->readable_bytes - TAP_HEADER_BYTES;
                return true;
        }

        n->tx_dropped++;
        if (r == -EBADMSG)
                virtio_pci_error(&n->pci, "a frame of the guest's was dropped: %s", why);
        else if (r == -EBADFD)
                lose_tap(n, r);
        else if (n->tap_fd >= 0)
                virtio_pci_error(&n->pci, "a frame was dropped by the tap: %s", strerror(-r));
        return true;
}

static void transmit(VirtioNet *n) {
        VirtQueue *ring = &n->pci.queues[QUEUE_TX].ring;
        uint64_t bytes = 0;
        VirtChain chain;
        bool more = true;

        for (unsigned i = 0; i < VIRTIO_VISIT_CHAINS && bytes < VIRTIO_VISIT_BYTES; i++) {
                if (!virtio_pci_pop(&n->pci, QUEUE_TX, &chain)) {
                        more = !n->pci.failed && virtqueue_rearm(ring);
                        if (!more)
                                break;
                        continue;
                }
                if (!send_one(n, &chain)) {
                        virtqueue_unpop(ring, &chain);
                        n->tap_full = true;
                        more = false;
                        break;
                }
                virtqueue_push(ring, &chain, 0);
                bytes += chain.readable_bytes;
        }

        virtio_pci_signal(&n->pci, QUEUE_TX);
        if (more)
                virtio_pci_kick_again(&n->pci, QUEUE_TX);
        watch_tap(n);
}

/* What moves it */

static int on_tap(LoopSource *s, int fd, uint32_t events, void *userdata) {
        VirtioNet *n = userdata;

        if (events & (EPOLLERR|EPOLLHUP)) {
                lose_tap(n, -ENODEV);
                return 0;
        }
        if (!running(n))
                return 0;

        if (events & EPOLLOUT) {
                n->tap_full = false;
                transmit(n);
        }
        if (events & EPOLLIN)
                receive(n);
        return 0;
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtioNet *n = v->owner;

        if (queue == QUEUE_TX && !n->tap_full)
                transmit(n);
        else if (queue == QUEUE_RX && (n->starving || n->held_bytes > 0))
                receive(n);
}

static void take_features(VirtioNet *n) {
        n->rx.mergeable = virtio_regs_has_feature(&n->pci.regs, VIRTIO_NET_F_MRG_RXBUF);
        set_offload(n);
}

static void on_start(VirtioPci *v) {
        VirtioNet *n = v->owner;

        take_features(n);
        transmit(n);
}

static void on_stop(VirtioPci *v) {
        virtio_net_forget(v->owner);
        set_offload(v->owner);
}

/* Life */

void virtio_net_pause(VirtioNet *n) {
        assert(n);

        virtio_pci_drain(&n->pci);
        net_rx_return(&n->rx, rx_ring(n));
        virtio_pci_pause(&n->pci);
        watch_tap(n);
}

void virtio_net_forget(VirtioNet *n) {
        assert(n);

        net_rx_forget(&n->rx);
        n->held_bytes = 0;
        n->tap_full = n->starving = false;
        watch_tap(n);
}

void virtio_net_resume(VirtioNet *n) {
        assert(n);

        n->tap_full = n->starving = false;
        take_features(n);
        virtio_pci_resume(&n->pci);
        watch_tap(n);
}

void virtio_net_hold(VirtioNet *n, bool hold) {
        assert(n);

        n->held_back = hold;
        watch_tap(n);
        if (!hold && running(n) && n->held_bytes > 0)
                receive(n);
}

VirtioPci *virtio_net_pci(VirtioNet *n) {
        assert(n);
        return &n->pci;
}

int virtio_net_tap_fd(const VirtioNet *n) {
        assert(n);
        return n->tap_fd;
}

void virtio_net_counters(VirtioNet *n, CounterFn fn, void *userdata) {
        assert(n);
        assert(fn);

        fn(userdata, "net-rx-packets", n->rx_packets);
        fn(userdata, "net-rx-bytes", n->rx_bytes);
        fn(userdata, "net-rx-dropped", n->rx_dropped);
        fn(userdata, "net-tx-packets", n->tx_packets);
        fn(userdata, "net-tx-bytes", n->tx_bytes);
        fn(userdata, "net-tx-dropped", n->tx_dropped);
}

static int net_init(VirtioNet *n, Vm *vm, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata) {
        static const VirtioKind kind = {
                .name = "net",
                .type = VIRTIO_ID_NET,
                .class_code = 0x020000, /* Ethernet controller */
                .features = FEATURE(MAC) | FEATURE(STATUS) | FEATURE(MRG_RXBUF) | FEATURE(CSUM) | FEATURE(GUEST_CSUM) |
                            FEATURE(HOST_TSO4) | FEATURE(HOST_TSO6) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_TSO6),
                .n_queues = 2,
                .queue_size = NET_RX_QUEUE_SIZE,
                .chain_bytes_max = CHAIN_BYTES_MAX,
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };
        const struct virtio_net_config config = {
                .mac = AGENT_GUEST_MAC,
                .status = htole16(n->tap_fd >= 0 ? VIRTIO_NET_S_LINK_UP : 0),
        };

        int r = virtio_pci_init(&n->pci, &kind, vm, bar_gpa, n, on_error, on_error_userdata);
        if (r >= 0)
                virtio_pci_set_config(&n->pci, &config, CONFIG_BYTES);
        return r;
}

int virtio_net_new(Vm *vm, Loop *loop, uint64_t bar_gpa, int tap_fd, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioNet **ret) {
        _cleanup_close_ int owned = tap_fd;

        assert(vm);
        assert(loop);
        assert(ret);

        VirtioNet *n = new0(VirtioNet, 1);
        if (!n)
                return -ENOMEM;
        n->tap_fd = TAKE_FD(owned);

        int r = net_init(n, vm, bar_gpa, on_error, on_error_userdata);
        if (r < 0) {
                safe_close(n->tap_fd);
                free(n);
                return r;
        }

        r = virtio_pci_attach(&n->pci, loop);
        /* Nothing is waited for before there is a driver. */
        if (r >= 0 && n->tap_fd >= 0)
                r = loop_add_fd(loop, n->tap_fd, 0, on_tap, n, &n->tap_source);
        if (r < 0) {
                virtio_net_free(n);
                return r;
        }

        *ret = n;
        return 0;
}

VirtioNet *virtio_net_free(VirtioNet *n) {
        if (!n)
                return NULL;

        loop_remove(n->tap_source);
        safe_close(n->tap_fd);
        virtio_pci_done(&n->pci);
        free(n);
        return NULL;
}
