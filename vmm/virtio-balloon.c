/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_ids.h>

#include "base/clock.h"
#include "vmm/memmap.h"
#include "vmm/virtio-balloon.h"

#define QUEUE_SIZE 128U
#define PAGE GUEST_PAGE_BYTES
#define STAT_BYTES sizeof(struct virtio_balloon_stat)
#define STATS_MAX 32U /* in one report; more are not read */
#define PFNS_AT_ONCE 256U
/* How much one visit gives back before the other devices have their turn. */
#define VISIT_BYTES MIB(256)

static_assert(STAT_BYTES == 10, "5.5.6.3: packed");

/* 5.5.2. Without free page hints Linux counts the queues that are there, and reports on number 3;
 * by the text it would be 4. Whichever a driver sets up is served. */
enum {
        QUEUE_INFLATE,
        QUEUE_DEFLATE,
        QUEUE_STATS,
        QUEUE_REPORTING,
        QUEUE_REPORTING_BY_TEXT,
        N_QUEUES,
};

/* What is told on, by tag. */
static const char *const stat_names[] = {
        [VIRTIO_BALLOON_S_SWAP_IN] = "guest-swap-in-bytes",
        [VIRTIO_BALLOON_S_SWAP_OUT] = "guest-swap-out-bytes",
        [VIRTIO_BALLOON_S_MAJFLT] = "guest-major-faults",
        [VIRTIO_BALLOON_S_MINFLT] = "guest-minor-faults",
        [VIRTIO_BALLOON_S_MEMFREE] = "guest-free-bytes",
        [VIRTIO_BALLOON_S_MEMTOT] = "guest-total-bytes",
        [VIRTIO_BALLOON_S_AVAIL] = "guest-available-bytes",
        [VIRTIO_BALLOON_S_CACHES] = "guest-caches-bytes",
};

struct VirtioBalloon {
        VirtioPci pci;
        uint32_t n_requested;     /* pages */
        uint64_t taken_bytes;     /* by inflating, ever */
        uint64_t reported_bytes;  /* free ones, ever */

        VirtChain stats_chain;    /* kept until new figures are wanted (5.5.6.3) */
        bool stats_held;
        bool stats_known;
        uint64_t stats_usec;      /* when they came */
        uint64_t stats[ELEMENTSOF(stat_names)];
        uint32_t stats_seen;      /* a bit a tag */
};

/* Pages that follow each other, to be given back by one call. */
typedef struct Run {
        VirtioBalloon *balloon;
        uint64_t gpa;
        uint64_t bytes;
} Run;

static int stop(VirtioBalloon *b, const char *message) {
        virtio_pci_fail(&b->pci, message);
        return -EBADMSG;
}

/* What the memory map calls RAM: not the firmware's tables below 1 MiB. */
static bool is_ram(const VirtioBalloon *b, uint64_t gpa, uint64_t bytes) {
        if (gpa < MEMMAP_HIGH && (gpa >= MEMMAP_LOW_END || bytes > MEMMAP_LOW_END - gpa))
                return false;
        return guest_mem_ptr(&b->pci.vm->mem, gpa, bytes);
}

static int give_back(VirtioBalloon *b, uint64_t gpa, uint64_t bytes) {
        int r = guest_mem_discard(&b->pci.vm->mem, gpa, bytes);
        if (r >= 0)
                return 0;
        virtio_pci_error(&b->pci, "memory could not be given back to the host: %s", strerror(-r));
        return stop(b, "no memory can be taken");
}

static int run_flush(Run *run) {
        int r = run->bytes > 0 ? give_back(run->balloon, run->gpa, run->bytes) : 0;

        run->bytes = 0;
        return r;
}

/* Linux hands out pages in either direction. */
static int run_add(Run *run, uint64_t gpa) {
        if (run->bytes > 0 && gpa == run->gpa + run->bytes && is_ram(run->balloon, run->gpa, run->bytes + PAGE)) {
                run->bytes += PAGE;
                return 0;
        }
        if (run->bytes > 0 && gpa + PAGE == run->gpa && is_ram(run->balloon, gpa, run->bytes + PAGE)) {
                run->gpa = gpa;
                run->bytes += PAGE;
                return 0;
        }

        int r = run_flush(run);
        run->gpa = gpa;
        run->bytes = PAGE;
        return r;
}

/* A list of page numbers; with a run they are given back. */
static int walk_pages(VirtioBalloon *b, const VirtChain *c, Run *run) {
        uint32_t pfns[PFNS_AT_ONCE];

        if (c->readable_bytes % sizeof(pfns[0]) != 0 || c->readable_bytes / sizeof(pfns[0]) > BALLOON_PAGES_MAX)
                return stop(b, "list of pages of a bad length");

        for (uint64_t at = 0; at < c->readable_bytes;) {
                size_t n = virt_chain_read(c, &b->pci.vm->mem, at, pfns, sizeof(pfns)) / sizeof(pfns[0]);
                if (n == 0)
                        break;
                at += n * sizeof(pfns[0]);

                for (size_t i = 0; i < n; i++) {
                        uint64_t gpa = (uint64_t) le32toh(pfns[i]) << VIRTIO_BALLOON_PFN_SHIFT;

                        if (!is_ram(b, gpa, PAGE))
                                return stop(b, "page in the balloon is no RAM");
                        int r = run ? run_add(run, gpa) : 0;
                        if (r < 0)
                                return r;
                }
        }
        return run ? run_flush(run) : 0;
}

/* Each returns how many bytes it moved, to bound a visit. */

static int64_t inflate(VirtioBalloon *b, const VirtChain *c) {
        Run run = { .balloon = b };

        int r = walk_pages(b, c, &run);
        if (r < 0)
                return r;
        uint64_t bytes = c->readable_bytes / sizeof(uint32_t) * PAGE;
        b->taken_bytes += bytes;
        return (int64_t) bytes;
}

/* The memory never went away: to be told is all that is needed. */
static int64_t deflate(VirtioBalloon *b, const VirtChain *c) {
        int r = walk_pages(b, c, NULL);
        return r < 0 ? r : (int64_t) c->readable_bytes;
}

/* 5.5.6.6: the free pages are the chain's own parts. */
static int64_t report(VirtioBalloon *b, const VirtChain *c) {
        for (unsigned i = 0; i < c->n_writable; i++) {
                const VirtPart *p = &c->parts[c->n_readable + i];
                uint64_t first = ALIGN_UP(p->gpa, (uint64_t) PAGE), end = ALIGN_DOWN(p->gpa + p->len, (uint64_t) PAGE);

                if (first >= end)
                        continue;
                if (!is_ram(b, first, end - first))
                        return stop(b, "free page is no RAM");
                int r = give_back(b, first, end - first);
                if (r < 0)
                        return r;
                b->reported_bytes += end - first;
        }
        return (int64_t) c->writable_bytes;
}

static void serve_pages(VirtioBalloon *b, unsigned queue, int64_t (*serve)(VirtioBalloon *b, const VirtChain *c)) {
        VirtQueue *ring = &b->pci.queues[queue].ring;
        uint64_t done = 0;
        VirtChain chain;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS && done < VISIT_BYTES; n++) {
                if (!virtio_pci_pop(&b->pci, queue, &chain)) {
                        if (b->pci.failed || !virtqueue_rearm(ring))
                                return;
                        continue;
                }
                int64_t bytes = serve(b, &chain);
                if (bytes < 0)
                        return;
                virtqueue_push(ring, &chain, 0);
                done += (uint64_t) bytes;
        }
        virtio_pci_kick_again(&b->pci, queue);
}

/* Statistics. The driver offers one buffer, filled; it fills it again when it gets it back. */

static void read_stats(VirtioBalloon *b, const VirtChain *c) {
        struct virtio_balloon_stat raw[STATS_MAX];
        size_t n = virt_chain_read(c, &b->pci.vm->mem, 0, raw, sizeof(raw)) / STAT_BYTES;

        b->stats_seen = 0;
        for (size_t i = 0; i < n; i++) {
                uint16_t tag = le16toh(raw[i].tag);

                /* 5.5.6.3.2: a tag that isn't known is skipped. */
                if (tag >= ELEMENTSOF(b->stats))
                        continue;
                b->stats[tag] = le64toh(raw[i].val);
                b->stats_seen |= 1U << tag;
        }
        b->stats_known = true;
        b->stats_usec = now_usec();
}

static void release_stats(VirtioBalloon *b) {
        if (!b->stats_held)
                return;
        b->stats_held = false;
        virtqueue_push(&b->pci.queues[QUEUE_STATS].ring, &b->stats_chain, 0);
        virtio_pci_signal(&b->pci, QUEUE_STATS);
}

static void serve_stats(VirtioBalloon *b) {
        VirtQueue *ring = &b->pci.queues[QUEUE_STATS].ring;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS; n++) {
                VirtChain chain;

                if (!virtio_pci_pop(&b->pci, QUEUE_STATS, &chain)) {
                        if (b->pci.failed || !virtqueue_rearm(ring))
                                return;
                        continue;
                }
                read_stats(b, &chain);
                /* One that offers several gets the older ones back. */
                release_stats(b);
                b->stats_chain = chain;
                b->stats_held = true;
        }
        virtio_pci_kick_again(&b->pci, QUEUE_STATS);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtioBalloon *b = v->owner;

        switch (queue) {

        case QUEUE_INFLATE:
                serve_pages(b, queue, inflate);
                break;

        case QUEUE_DEFLATE:
                serve_pages(b, queue, deflate);
                break;

        case QUEUE_STATS:
                serve_stats(b);
                return;

        default:
                serve_pages(b, queue, report);
                break;
        }
        virtio_pci_signal(v, queue);
}

static void on_start(VirtioPci *v) {
        for (unsigned i = 0; i < N_QUEUES && !v->failed; i++)
                on_kick(v, i);
}

/* The next driver starts with an empty balloon. */
static void on_stop(VirtioPci *v) {
        VirtioBalloon *b = v->owner;
        uint32_t actual = 0;

        b->stats_held = b->stats_known = false;
        virtio_pci_change_config(v, offsetof(struct virtio_balloon_config, actual), &actual, sizeof(actual), false);
}

VirtioPci *virtio_balloon_pci(VirtioBalloon *b) {
        assert(b);
        return &b->pci;
}

int virtio_balloon_request(VirtioBalloon *b, uint64_t bytes) {
        assert(b);

        if (bytes % PAGE != 0 || bytes / PAGE > UINT32_MAX)
                return -EINVAL;

        b->n_requested = (uint32_t) (bytes / PAGE);
        uint32_t pages = htole32(b->n_requested);
        virtio_pci_change_config(&b->pci, offsetof(struct virtio_balloon_config, num_pages), &pages, sizeof(pages), true);
        return 0;
}

void virtio_balloon_counters(VirtioBalloon *b, CounterFn fn, void *userdata) {
        uint32_t actual;

        assert(b);
        assert(fn);

        virtio_pci_get_config(&b->pci, offsetof(struct virtio_balloon_config, actual), &actual, sizeof(actual));
        fn(userdata, "balloon-requested-bytes", (uint64_t) b->n_requested * PAGE);
        fn(userdata, "balloon-bytes", (uint64_t) le32toh(actual) * PAGE);
        fn(userdata, "balloon-taken-bytes", b->taken_bytes);
        fn(userdata, "balloon-reported-bytes", b->reported_bytes);

        if (!b->stats_known)
                return;
        for (unsigned i = 0; i < ELEMENTSOF(stat_names); i++)
                if (b->stats_seen & 1U << i)
                        fn(userdata, stat_names[i], b->stats[i]);
        fn(userdata, "guest-age-msec", (now_usec() - b->stats_usec) / USEC_PER_MSEC);
        release_stats(b);
}

/* Snapshots */

void virtio_balloon_settle(VirtioBalloon *b) {
        assert(b);
        release_stats(b);
}

static uint32_t config_requested(const VirtioState *transport) {
        uint32_t pages;

        memcpy(&pages, transport->config + offsetof(struct virtio_balloon_config, num_pages), sizeof(pages));
        return le32toh(pages);
}

int virtio_balloon_check(const VirtioBalloon *b, const VirtioState *transport, ErrorText *e) {
        assert(b);
        assert(transport);

        /* Its actual size is whatever the driver wrote. */
        if ((uint64_t) config_requested(transport) * PAGE >= guest_mem_bytes(&b->pci.vm->mem))
                return error_set(e, -EBADMSG, "state file: a balloon as large as the guest");
        return 0;
}

void virtio_balloon_apply(VirtioBalloon *b, const VirtioState *transport) {
        assert(b);
        assert(transport);

        b->stats_held = b->stats_known = false;
        b->n_requested = config_requested(transport);
        virtio_pci_change_config(&b->pci, 0, transport->config, b->pci.config_bytes, false);
}

int virtio_balloon_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                       VirtioBalloon **ret) {
        static const VirtioKind kind = {
                .name = "balloon",
                .type = VIRTIO_ID_BALLOON,
                .class_code = 0xff0000, /* none of the others */
                .features = 1ULL << VIRTIO_BALLOON_F_STATS_VQ | 1ULL << VIRTIO_BALLOON_F_REPORTING,
                .n_queues = N_QUEUES,
                .queue_size = QUEUE_SIZE,
                /* Reported pages are the chain: 32 parts of up to 4 MiB by Linux. */
                .chain_bytes_max = GIB(1),
                .config_writable_offset = offsetof(struct virtio_balloon_config, actual),
                .config_writable_bytes = sizeof(uint32_t),
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };
        /* Without hints and poison their fields are not there. */
        static const uint8_t config[offsetof(struct virtio_balloon_config, free_page_hint_cmd_id)];

        assert(vm);
        assert(loop);
        assert(ret);

        VirtioBalloon *b = new0(VirtioBalloon, 1);
        if (!b)
                return -ENOMEM;

        int r = virtio_pci_init(&b->pci, &kind, vm, bar_gpa, b, on_error, on_error_userdata);
        if (r < 0) {
                free(b);
                return r;
        }
        virtio_pci_set_config(&b->pci, config, sizeof(config));

        r = virtio_pci_attach(&b->pci, loop);
        if (r < 0) {
                virtio_balloon_free(b);
                return r;
        }

        *ret = b;
        return 0;
}

VirtioBalloon *virtio_balloon_free(VirtioBalloon *b) {
        if (!b)
                return NULL;

        virtio_pci_done(&b->pci);
        free(b);
        return NULL;
}
