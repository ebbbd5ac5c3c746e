/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_ids.h>

#include "base/agent-proto.h"
#include "base/clock.h"
#include "base/fd-util.h"
#include "vmm/virtio-vsock.h"

#define HOST_CID 2U
#define QUEUE_SIZE 128U
/* A stream's port on our side tells its slot in the table; the rest of it counts up, so that a port
 * isn't used again before 2^22 others were. */
#define HOST_PORT_BASE 0x40000000U
/* RSTs without a connection behind them. Above the limit the guest's packets wait; beyond it there is
 * room for those that the table itself can cause. */
#define RESETS_LIMIT 64U
#define RESETS_MAX (RESETS_LIMIT + 2 * VSOCK_CONNECTIONS_MAX)
#define TICK_USEC USEC_PER_SEC

enum {
        QUEUE_RX,                 /* to the guest */
        QUEUE_TX,                 /* from the guest */
        QUEUE_EVENT,              /* never used: the guest isn't migrated */
        N_QUEUES,
};

typedef struct Reset {
        uint32_t host_port;
        uint32_t guest_port;
} Reset;

struct VirtioVsock {
        VirtioPci pci;
        Loop *loop;
        LoopSource *timer;
        bool timer_set;
        uint64_t guest_cid;
        VsockControlEvents events;

        VsockConn *conns[VSOCK_CONNECTIONS_MAX];
        unsigned n_conns;
        VsockConn *control;       /* the one of conns[] that is it, while it is open */
        bool control_held;
        uint32_t port_round;
        TAILQ_HEAD(, VsockConn) ready;

        Reset resets[RESETS_MAX];
        unsigned resets_start;
        unsigned n_resets;
        bool tx_waits;            /* until there is room for RSTs */
        bool restored;            /* the agent has to hear of that before its streams break */
        uint64_t paused_usec;     /* when */

        /* Entry points nest, through callbacks. Only the outermost moves packets and frees. */
        unsigned depth;

        uint64_t to_guest_bytes;
        uint64_t from_guest_bytes;
        uint64_t packets_refused;
        uint64_t streams_opened;
};

/* The table */

static VsockConn *find_conn(const VirtioVsock *s, uint32_t host_port, uint32_t guest_port) {
        VsockConn *c = host_port == AGENT_CONTROL_PORT ? s->control : s->conns[host_port % VSOCK_CONNECTIONS_MAX];

        if (!c || c->host_port != host_port || c->guest_port != guest_port)
                return NULL;
        return c->state == VSOCK_REQUESTED || c->state == VSOCK_OPEN ? c : NULL;
}

static int find_slot(const VirtioVsock *s, unsigned *ret) {
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
                if (!s->conns[i]) {
                        *ret = i;
                        return 0;
                }
        return -EMFILE;
}

static void add_conn(VirtioVsock *s, unsigned slot, VsockConn *c) {
        c->owner = s;
        s->conns[slot] = c;
        s->n_conns++;
}

static void queue_reset(VirtioVsock *s, uint32_t host_port, uint32_t guest_port) {
        if (s->n_resets == RESETS_MAX) {
                s->packets_refused++;
                return;
        }
        s->resets[(s->resets_start + s->n_resets++) % RESETS_MAX] =
                (Reset) { .host_port = host_port, .guest_port = guest_port };
}

static void set_ready(VirtioVsock *s, VsockConn *c, bool ready) {
        if (ready == c->ready)
                return;
        if (ready)
                TAILQ_INSERT_TAIL(&s->ready, c, ready_entry);
        else
                TAILQ_REMOVE(&s->ready, c, ready_entry);
        c->ready = ready;
}

/* Draws the consequences of whatever was just done to a connection. */
static void conn_changed(VirtioVsock *s, VsockConn *c) {
        vsock_conn_update_events(c);

        if (c->reset_owed) {
                queue_reset(s, c->host_port, c->guest_port);
                c->reset_owed = false;
        }
        if (c == s->control && c->state != VSOCK_OPEN)
                s->control = NULL;
        set_ready(s, c, vsock_conn_has_output(c));
}

static void free_dead(VirtioVsock *s) {
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX && s->n_conns > 0; i++) {
                VsockConn *c = s->conns[i];

                if (!c || c->state != VSOCK_DEAD)
                        continue;
                set_ready(s, c, false);
                s->conns[i] = vsock_conn_free(c);
                s->n_conns--;
        }
}

static void update_timer(VirtioVsock *s) {
        bool needed = false;

        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX && s->n_conns > 0 && !needed; i++)
                needed = s->conns[i] && s->conns[i]->deadline_usec != 0;
        if (needed && !s->timer_set)
                s->timer_set = loop_timer_set(s->timer, TICK_USEC) >= 0;
}

/* To the guest */

static void reset_header(const Reset *r, struct virtio_vsock_hdr *ret) {
        *ret = (struct virtio_vsock_hdr) {
                .src_port = htole32(r->host_port),
                .dst_port = htole32(r->guest_port),
                .type = htole16(VIRTIO_VSOCK_TYPE_STREAM),
                .op = htole16(VIRTIO_VSOCK_OP_RST),
        };
}

/* Behind a restore the first frame on the control stream goes out whole before any RST, as far as the guest
 * takes it: a stream that breaks is then known to have been another one's. */
static bool resets_due(VirtioVsock *s) {
        if (s->restored && (!s->control || STAILQ_EMPTY(&s->control->frames) || !s->control->ready))
                s->restored = false;
        return s->n_resets > 0 && !s->restored;
}

/* The next packet's header, its data already in chain. False: the one whose turn it was had none. */
static bool next_packet(VirtioVsock *s, const VirtChain *chain, struct virtio_vsock_hdr *ret) {
        const GuestMem *m = &s->pci.vm->mem;
        uint64_t room = chain->writable_bytes - VSOCK_HEADER_BYTES;

        if (resets_due(s)) {
                reset_header(&s->resets[s->resets_start], ret);
                s->resets_start = (s->resets_start + 1) % RESETS_MAX;
                s->n_resets--;
                return true;
        }

        VsockConn *c = s->restored ? s->control : TAILQ_FIRST(&s->ready);
        set_ready(s, c, false);
        bool filled = vsock_conn_fill(c, chain, m, room, ret) > 0;
        /* To the end of the list when there is more: everybody gets a turn. */
        conn_changed(s, c);
        return filled;
}

static void push_packet(VirtioVsock *s, const VirtChain *chain, struct virtio_vsock_hdr *h) {
        h->src_cid = htole64(HOST_CID);
        h->dst_cid = htole64(s->guest_cid);

        (void) virt_chain_write(chain, &s->pci.vm->mem, 0, h, sizeof(*h));
        virtqueue_push(&s->pci.queues[QUEUE_RX].ring, chain, VSOCK_HEADER_BYTES + le32toh(h->len));
        s->to_guest_bytes += le32toh(h->len);
}

static bool has_output(const VirtioVsock *s) {
        return s->n_resets > 0 || !TAILQ_EMPTY(&s->ready);
}

static void pump(VirtioVsock *s) {
        VirtQueue *ring = &s->pci.queues[QUEUE_RX].ring;
        uint64_t before = s->to_guest_bytes;
        struct virtio_vsock_hdr h;
        VirtChain chain;
        unsigned n = 0;

        while (has_output(s) && n < VIRTIO_VISIT_CHAINS && s->to_guest_bytes - before < VIRTIO_VISIT_BYTES) {
                if (!virtio_pci_pop(&s->pci, QUEUE_RX, &chain)) {
                        if (s->pci.failed || !virtqueue_rearm(ring))
                                break;
                        n++;
                        continue;
                }
                if (chain.writable_bytes <= VSOCK_HEADER_BYTES) {
                        virtio_pci_fail(&s->pci, "receive buffer has no room behind a packet's header");
                        return;
                }

                n++;
                if (next_packet(s, &chain, &h))
                        push_packet(s, &chain, &h);
                else
                        virtqueue_unpop(ring, &chain);
        }

        virtio_pci_signal(&s->pci, QUEUE_RX);
        if (n >= VIRTIO_VISIT_CHAINS || s->to_guest_bytes - before >= VIRTIO_VISIT_BYTES)
                virtio_pci_kick_again(&s->pci, QUEUE_RX);
        if (s->tx_waits && s->n_resets < RESETS_LIMIT) {
                s->tx_waits = false;
                virtio_pci_kick_again(&s->pci, QUEUE_TX);
        }
}

static void enter(VirtioVsock *s) {
        s->depth++;
}

static void leave(VirtioVsock *s) {
        assert(s->depth > 0);

        if (s->depth == 1) {
                if (s->pci.live && !s->pci.failed && !s->pci.paused)
                        pump(s);
                free_dead(s);
                update_timer(s);
        }
        s->depth--;
}

/* From the guest */

static void control_request(VirtioVsock *s, const struct virtio_vsock_hdr *h) {
        uint32_t guest_port = le32toh(h->src_port);
        unsigned slot;

        /* While held: one that comes, is heard and goes, again and again, is heard through none. The agent tries
         * again by itself. */
        VsockConn *c = NULL;
        if (guest_port <= AGENT_CONTROL_GUEST_PORT_MAX && !s->control && !s->control_held && find_slot(s, &slot) >= 0)
                c = vsock_conn_new_control(guest_port, &s->events);
        if (!c) {
                s->packets_refused++;
                queue_reset(s, AGENT_CONTROL_PORT, guest_port);
                return;
        }

        c->peer_buf_alloc = le32toh(h->buf_alloc);
        c->peer_fwd_cnt = le32toh(h->fwd_cnt);
        add_conn(s, slot, c);
        s->control = c;
        conn_changed(s, c);
}

static void stray_packet(VirtioVsock *s, const struct virtio_vsock_hdr *h) {
        uint16_t op = le16toh(h->op);

        if (op == VIRTIO_VSOCK_OP_REQUEST && le32toh(h->dst_port) == AGENT_CONTROL_PORT &&
            le16toh(h->type) == VIRTIO_VSOCK_TYPE_STREAM) {
                control_request(s, h);
                return;
        }

        s->packets_refused++;
        if (op != VIRTIO_VSOCK_OP_RST)
                queue_reset(s, le32toh(h->dst_port), le32toh(h->src_port));
}

static void packet(VirtioVsock *s, const VirtChain *chain) {
        struct virtio_vsock_hdr h;

        if (virt_chain_read(chain, &s->pci.vm->mem, 0, &h, sizeof(h)) < sizeof(h)) {
                virtio_pci_fail(&s->pci, "packet is shorter than its header");
                return;
        }

        uint32_t len = le32toh(h.len);
        if (len > VSOCK_PACKET_BYTES_MAX || len > chain->readable_bytes - sizeof(h)) {
                virtio_pci_fail(&s->pci, "packet is longer than its buffer");
                return;
        }

        /* Not from this guest, or not to this host: nobody to answer to (5.10.6.4.1). */
        if (le64toh(h.src_cid) != s->guest_cid || le64toh(h.dst_cid) != HOST_CID) {
                s->packets_refused++;
                return;
        }

        s->from_guest_bytes += len;
        VsockConn *c = find_conn(s, le32toh(h.dst_port), le32toh(h.src_port));
        if (!c || le16toh(h.type) != VIRTIO_VSOCK_TYPE_STREAM) {
                stray_packet(s, &h);
                return;
        }

        vsock_conn_packet(c, &h, chain, &s->pci.vm->mem);
        conn_changed(s, c);
}

static void drain_tx(VirtioVsock *s) {
        VirtQueue *ring = &s->pci.queues[QUEUE_TX].ring;
        uint64_t bytes = 0;
        VirtChain chain;

        for (unsigned n = 0; n < VIRTIO_VISIT_CHAINS && bytes < VIRTIO_VISIT_BYTES; n++) {
                if (s->n_resets >= RESETS_LIMIT) {
                        s->tx_waits = true;
                        return;
                }
                if (!virtio_pci_pop(&s->pci, QUEUE_TX, &chain)) {
                        if (s->pci.failed || !virtqueue_rearm(ring))
                                return;
                        continue;
                }

                packet(s, &chain);
                if (s->pci.failed)
                        return;
                bytes += chain.readable_bytes;
                virtqueue_push(ring, &chain, 0);
        }

        virtio_pci_kick_again(&s->pci, QUEUE_TX);
}

static void on_kick(VirtioPci *v, unsigned queue) {
        VirtioVsock *s = v->owner;

        enter(s);
        if (queue == QUEUE_TX) {
                drain_tx(s);
                virtio_pci_signal(v, QUEUE_TX);
        }
        leave(s);
}

static void on_start(VirtioPci *v) {
        on_kick(v, QUEUE_TX);
}

static void on_stop(VirtioPci *v) {
        VirtioVsock *s = v->owner;

        enter(s);
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
                if (s->conns[i]) {
                        vsock_conn_guest_gone(s->conns[i], -ECONNRESET);
                        conn_changed(s, s->conns[i]);
                }
        s->n_resets = 0;
        s->tx_waits = false;
        leave(s);
}

/* Host's side */

static int on_fd(LoopSource *source, int fd, uint32_t events, void *userdata) {
        VsockConn *c = userdata;
        VirtioVsock *s = c->owner;

        enter(s);
        vsock_conn_on_fd(c, events);
        conn_changed(s, c);
        leave(s);
        return 0;
}

static int on_tick(LoopSource *source, int fd, uint32_t events, void *userdata) {
        VirtioVsock *s = userdata;
        uint64_t now = now_usec();

        s->timer_set = false;
        if (s->pci.paused)
                return 0;

        enter(s);
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
                VsockConn *c = s->conns[i];

                if (!c || c->deadline_usec == 0 || c->deadline_usec > now)
                        continue;
                vsock_conn_on_deadline(c);
                conn_changed(s, c);
        }
        leave(s);
        return 0;
}

int virtio_vsock_control_send(VirtioVsock *s, const uint8_t *frame, size_t size) {
        assert(s);

        if (!s->control || s->control->state != VSOCK_OPEN)
                return -ENOTCONN;

        enter(s);
        int r = vsock_conn_queue_frame(s->control, frame, size);
        conn_changed(s, s->control);
        leave(s);
        return r;
}

void virtio_vsock_control_hold(VirtioVsock *s, bool hold) {
        assert(s);

        s->control_held = hold;
        if (!s->control)
                return;

        enter(s);
        vsock_conn_hold(s->control, hold);
        conn_changed(s, s->control);
        leave(s);
}

int virtio_vsock_stream_open(VirtioVsock *s, int fd, const uint8_t *frame, size_t size, StreamAnswer answer,
                             void *userdata) {
        _cleanup_close_ int owned = fd;
        unsigned slot;

        assert(s);
        assert(answer);

        if (!s->pci.live || s->pci.failed)
                return -ENOTCONN;
        int r = find_slot(s, &slot);
        if (r < 0)
                return r;
        r = fd_set_nonblock(owned, true);
        if (r < 0)
                return r;

        uint32_t port = HOST_PORT_BASE + (s->port_round++ % (1U << 22)) * VSOCK_CONNECTIONS_MAX + slot;
        VsockConn *c = vsock_conn_new_stream(s->loop, on_fd, TAKE_FD(owned), port, AGENT_STREAM_PORT, answer, userdata);
        if (!c)
                return -ENOMEM;
        r = vsock_conn_queue_frame(c, frame, size);
        if (r < 0) {
                vsock_conn_free(c);
                return r;
        }

        enter(s);
        add_conn(s, slot, c);
        s->streams_opened++;
        conn_changed(s, c);
        leave(s);
        return 0;
}

void virtio_vsock_pause(VirtioVsock *s) {
        assert(s);

        if (s->pci.paused)
                return;
        virtio_pci_drain(&s->pci);
        virtio_pci_pause(&s->pci);
        s->paused_usec = now_usec();
}

void virtio_vsock_resume(VirtioVsock *s) {
        assert(s);

        /* The guest could not answer meanwhile. */
        uint64_t away = s->pci.paused ? now_usec() - s->paused_usec : 0;
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
                if (s->conns[i] && s->conns[i]->deadline_usec != 0)
                        s->conns[i]->deadline_usec += away;
        virtio_pci_resume(&s->pci);
        update_timer(s);
}

/* Snapshots */

typedef struct StoredVsock {
        uint32_t port_round;
        uint32_t n_resets;
        uint32_t has_control;
        uint32_t reserved;
} StoredVsock;

struct VsockLoad {
        uint32_t port_round;
        uint32_t n_resets;
        Reset resets[RESETS_MAX];
        VsockConn *control;
};

static bool is_open_stream(const VsockConn *c) {
        return c && !c->control && (c->state == VSOCK_REQUESTED || c->state == VSOCK_OPEN);
}

/* What the guest of the copy is to be told: RSTs that are due anyway, and one for each stream. */
static unsigned collect_resets(const VirtioVsock *s, Reset ret[static RESETS_MAX]) {
        unsigned n = 0;

        for (; n < s->n_resets; n++)
                ret[n] = s->resets[(s->resets_start + n) % RESETS_MAX];
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX && n < RESETS_MAX; i++)
                if (is_open_stream(s->conns[i]))
                        ret[n++] = (Reset) { s->conns[i]->host_port, s->conns[i]->guest_port };
        return n;
}

void virtio_vsock_save(const VirtioVsock *s, unsigned slot, SnapshotWriter *w) {
        Reset resets[RESETS_MAX];

        assert(s);

        StoredVsock stored = {
                .port_round = s->port_round,
                .n_resets = collect_resets(s, resets),
                .has_control = s->control && s->control->state == VSOCK_OPEN,
        };
        snapshot_writer_begin(w, SNAPSHOT_SECTION_VSOCK, slot);
        snapshot_writer_put(w, &stored, sizeof(stored));
        snapshot_writer_put(w, resets, stored.n_resets * sizeof(Reset));
        if (stored.has_control)
                vsock_conn_save_control(s->control, w);
}

static int parse_load(const VirtioVsock *s, bool live, SnapshotReader *r, VsockLoad *l, ErrorText *e) {
        StoredVsock stored;

        int k = snapshot_read(r, &stored, sizeof(stored), e);
        if (k < 0)
                return k;
        if (stored.n_resets > RESETS_MAX || stored.has_control > 1)
                return snapshot_bad(r, e, "malformed");
        if (!live && (stored.n_resets > 0 || stored.has_control))
                return snapshot_bad(r, e, "connections of a device that isn't up");

        l->port_round = stored.port_round;
        l->n_resets = stored.n_resets;
        k = snapshot_read(r, l->resets, l->n_resets * sizeof(Reset), e);
        if (k >= 0 && stored.has_control)
                k = vsock_conn_load_control(r, &s->events, &l->control, e);
        return k < 0 ? k : snapshot_read_end(r, e);
}

int virtio_vsock_parse(const VirtioVsock *s, bool live, SnapshotReader *r, VsockLoad **ret, ErrorText *e) {
        assert(s);
        assert(ret);

        VsockLoad *l = new0(VsockLoad, 1);
        if (!l)
                return error_set(e, -ENOMEM, "out of memory");
        int k = parse_load(s, live, r, l, e);
        if (k < 0) {
                virtio_vsock_load_free(l);
                return k;
        }
        *ret = l;
        return 0;
}

VsockLoad *virtio_vsock_load_free(VsockLoad *l) {
        if (!l)
                return NULL;

        vsock_conn_free(l->control);
        free(l);
        return NULL;
}

bool virtio_vsock_load_has_control(const VsockLoad *l) {
        assert(l);
        return l->control;
}

/* Whoever holds the other end of a stream sees it end; what the guest had sent before still comes. */
static void drop_conns(VirtioVsock *s) {
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
                VsockConn *c = s->conns[i];

                if (!c)
                        continue;
                if (c->control) {
                        set_ready(s, c, false);
                        s->conns[i] = vsock_conn_free(c);
                        s->n_conns--;
                        continue;
                }
                vsock_conn_guest_gone(c, -ECONNRESET);
                c->reset_owed = false;
                conn_changed(s, c);
        }
        s->control = NULL;
}

void virtio_vsock_apply(VirtioVsock *s, VsockLoad *l) {
        unsigned slot;

        assert(s);
        assert(l);

        enter(s);
        drop_conns(s);
        free_dead(s);

        s->port_round = l->port_round;
        s->resets_start = 0;
        s->n_resets = l->n_resets;
        memcpy(s->resets, l->resets, sizeof(s->resets));
        s->tx_waits = false;
        s->restored = true;
        /* The table can only be full of orphans, and then the agent has to connect anew. */
        if (l->control && find_slot(s, &slot) >= 0) {
                s->control = TAKE_PTR(l->control);
                vsock_conn_hold(s->control, s->control_held);
                add_conn(s, slot, s->control);
                conn_changed(s, s->control);
        }
        leave(s);
        virtio_vsock_load_free(l);
}

void virtio_vsock_counters(VirtioVsock *s, CounterFn fn, void *userdata) {
        assert(s);
        assert(fn);

        fn(userdata, "vsock-connections", s->n_conns);
        fn(userdata, "vsock-streams", s->streams_opened);
        fn(userdata, "vsock-to-guest-bytes", s->to_guest_bytes);
        fn(userdata, "vsock-from-guest-bytes", s->from_guest_bytes);
        fn(userdata, "vsock-refused", s->packets_refused);
}

VirtioPci *virtio_vsock_pci(VirtioVsock *s) {
        assert(s);
        return &s->pci;
}

int virtio_vsock_new(Vm *vm, Loop *loop, uint64_t bar_gpa, uint32_t guest_cid, const VsockControlEvents *events,
                     VirtioErrorFn on_error, void *on_error_userdata, VirtioVsock **ret) {
        static const VirtioKind kind = {
                .name = "vsock",
                .type = VIRTIO_ID_VSOCK,
                .class_code = 0x078000, /* communication controller, other */
                .n_queues = N_QUEUES,
                .queue_size = QUEUE_SIZE,
                .chain_bytes_max = VSOCK_HEADER_BYTES + MIB(1),
                .ops = { .start = on_start, .stop = on_stop, .kick = on_kick },
        };
        struct virtio_vsock_config config = { .guest_cid = htole64(guest_cid) };

        assert(vm);
        assert(loop);
        assert(events);
        assert(ret);

        VirtioVsock *s = new0(VirtioVsock, 1);
        if (!s)
                return -ENOMEM;

        s->loop = loop;
        s->guest_cid = guest_cid;
        s->events = *events;
        TAILQ_INIT(&s->ready);

        int r = virtio_pci_init(&s->pci, &kind, vm, bar_gpa, s, on_error, on_error_userdata);
        if (r < 0) {
                free(s);
                return r;
        }
        virtio_pci_set_config(&s->pci, &config, sizeof(config));

        r = loop_add_timer(loop, on_tick, s, &s->timer);
        if (r >= 0)
                r = virtio_pci_attach(&s->pci, loop);
        if (r < 0) {
                virtio_vsock_free(s);
                return r;
        }

        *ret = s;
        return 0;
}

VirtioVsock *virtio_vsock_free(VirtioVsock *s) {
        if (!s)
                return NULL;

        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
                vsock_conn_free(s->conns[i]);
        loop_remove(s->timer);
        virtio_pci_done(&s->pci);
        free(s);
        return NULL;
}
