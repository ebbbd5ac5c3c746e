/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_ids.h>
#include <sys/random.h>

#include "vmm/virtio-rng.h"

#define QUEUE_SIZE 16U

struct VirtioRng {
        VirtioPci pci;
        LoopSource *timer;
        uint64_t allowance;
        uint64_t bytes;
};

/* How many random bytes went into the chain; fewer than asked for is allowed (5.4.6.1). */
static uint64_t fill(VirtioRng *g, const VirtChain *chain, uint64_t len) {
        struct iovec iov[VIRT_CHAIN_PARTS_MAX];
        size_t bytes, n = virt_chain_writable_iov(chain, &g->pci.vm->mem, 0, len, iov, &bytes);
        uint64_t done = 0;

        for (size_t i = 0; i < n; i++) {
                ssize_t got = getrandom(iov[i].iov_base, iov[i].iov_len, GRND_NONBLOCK);
                if (got < 0) {
                        virtio_pci_error(&g->pci, "getrandom: %m");
                        break;
                }
                done += got;
                if ((size_t) got < iov[i].iov_len)
                        break;
        }
        return done;
}

static void serve(VirtioRng *g) {
        VirtQueue *ring = &g->pci.queues[0].ring;
        VirtChain chain;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS && g->allowance > 0; n++) {
                if (!virtio_pci_pop(&g->pci, 0, &chain)) {
                        if (g->pci.failed || !virtqueue_rearm(ring))
                                return;
                        continue;
                }

                uint64_t len = MIN(MIN(chain.writable_bytes, RNG_REQUEST_BYTES_MAX), g->allowance);
                uint64_t done = fill(g, &chain, len);
                virtqueue_push(ring, &chain, done);
                g->allowance -= done;
                g->bytes += done;
        }

        if (g->allowance > 0)
                virtio_pci_kick_again(&g->pci, 0);
        else
                (void) loop_timer_set(g->timer, RNG_ALLOWANCE_USEC);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        serve(v->owner);
        virtio_pci_signal(v, 0);
}

static void on_start(VirtioPci *v) {
        on_kick(v, 0);
}

static void on_stop(VirtioPci *v) {
}

static int on_allowance(LoopSource *s, int fd, uint32_t events, void *userdata) {
        VirtioRng *g = userdata;

        g->allowance = RNG_ALLOWANCE_BYTES;
        if (g->pci.live && !g->pci.failed && !g->pci.paused)
                on_kick(&g->pci, 0);
        return 0;
}

VirtioPci *virtio_rng_pci(VirtioRng *g) {
        assert(g);
        return &g->pci;
}

void virtio_rng_counters(VirtioRng *g, CounterFn fn, void *userdata) {
        assert(g);
        assert(fn);

        fn(userdata, "rng-bytes", g->bytes);
}

int virtio_rng_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioRng **ret) {
        static const VirtioKind kind = {
                .name = "rng",
                .type = VIRTIO_ID_RNG,
                .class_code = 0x100000, /* encryption controller, network and computing */
                .n_queues = 1,
                .queue_size = QUEUE_SIZE,
                .chain_bytes_max = MIB(16),
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };

        assert(vm);
        assert(loop);
        assert(ret);

        VirtioRng *g = new0(VirtioRng, 1);
        if (!g)
                return -ENOMEM;
        g->allowance = RNG_ALLOWANCE_BYTES;

        int r = virtio_pci_init(&g->pci, &kind, vm, bar_gpa, g, on_error, on_error_userdata);
        if (r < 0) {
                free(g);
                return r;
        }
        virtio_pci_set_config(&g->pci, NULL, 0);

        r = loop_add_timer(loop, on_allowance, g, &g->timer);
        if (r >= 0)
                r = virtio_pci_attach(&g->pci, loop);
        if (r < 0) {
                virtio_rng_free(g);
                return r;
        }

        *ret = g;
        return 0;
}

VirtioRng *virtio_rng_free(VirtioRng *g) {
        if (!g)
                return NULL;

        loop_remove(g->timer);
        virtio_pci_done(&g->pci);
        free(g);
        return NULL;
}
