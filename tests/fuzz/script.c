/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "clock.h"
#include "script.h"
#include "vmm/snapshot-virtio.h"

#define STEPS_MAX 256U
#define SLOT 1U
#define CONFIG_STANDARD_BYTES 64U /* capabilities are behind */

Vm script_vm;
Stepper script_stepper;

/* What the script has put into the data, and where the device may write. */
static uint8_t expected[SCRIPT_DATA_BYTES];
static bool writable[SCRIPT_DATA_BYTES];

typedef struct Part {
        uint64_t gpa;
        uint32_t len;
        uint16_t flags;
        bool placed;              /* gpa is the script's */
} Part;

typedef struct Chain {
        Part parts[SCRIPT_PARTS_MAX];
        unsigned n;
        bool indirect;
        const uint8_t *payload;   /* of the first part */
        size_t n_payload;
} Chain;

typedef struct Script {
        VirtioPci *device;
        const ScriptHost *host;
        FuzzInput *in;
        Driver driver;
        bool up;                  /* rings have a place */
        bool honest;              /* nothing was written over the rings */
        uint16_t next_desc[VIRTIO_QUEUES_MAX];
        uint32_t next_data;
        /* Bytes that the device may write, and 1; 0: not the device's. */
        uint32_t offered[VIRTIO_QUEUES_MAX][VIRTQUEUE_SIZE_MAX];
        bool tame;                /* never anything else: the data is as the two below say */
        uint32_t data_end;        /* behind all of it that was in use */
        /* Of which head a descriptor is part, and 1; 0: the driver's. */
        uint16_t parts_of[VIRTIO_QUEUES_MAX][VIRTQUEUE_SIZE_MAX];
} Script;

void script_on_error(void *userdata, const char *name, const char *message) {
        FUZZ_CHECK(name && message && strlen(message) < 256);
}

void script_on_counter(void *userdata, const char *name, uint64_t value) {
        FUZZ_CHECK(name);
}

static unsigned queue_of(const Script *s, unsigned argument) {
        return argument % s->device->kind.n_queues;
}

static uint64_t read_value(FuzzInput *in, unsigned len) {
        uint64_t v = 0;

        (void) fuzz_bytes(in, &v, len);
        return v;
}

/* From here on there is no telling what the device makes of it. */
static void go_wild(Script *s) {
        s->honest = s->tame = false;
}

/* Data */

static void use_data(Script *s, uint64_t gpa, uint64_t size) {
        uint64_t end = gpa - SCRIPT_DATA_GPA + size;

        FUZZ_CHECK(gpa >= SCRIPT_DATA_GPA && end <= SCRIPT_DATA_BYTES);
        s->data_end = (uint32_t) MAX(s->data_end, end);
}

static void put_data(Script *s, uint64_t gpa, const void *data, size_t size) {
        use_data(s, gpa, size);
        if (size > 0)
                memcpy(expected + (gpa - SCRIPT_DATA_GPA), data, size);
        FUZZ_CHECK(guest_mem_write(&script_vm.mem, gpa, data, size) == 0);
}

/* A part that is longer than all the data goes over its end. */
static void open_data(Script *s, const Part *p) {
        uint64_t size = MIN((uint64_t) p->len, SCRIPT_DATA_GPA + SCRIPT_DATA_BYTES - p->gpa);

        if (size < p->len) {
                go_wild(s);
                return;
        }
        use_data(s, p->gpa, size);
        memset(writable + (p->gpa - SCRIPT_DATA_GPA), true, size);
}

/* A device writes nowhere but where it was let. */
static void check_data(const Script *s) {
        const uint8_t *there = guest_mem_ptr(&script_vm.mem, SCRIPT_DATA_GPA, SCRIPT_DATA_BYTES);

        for (uint32_t i = 0; i < s->data_end && s->tame && !s->host->takes_memory; i++)
                FUZZ_CHECK(writable[i] || there[i] == expected[i]);
        memset(expected, 0, s->data_end);
        memset(writable, 0, s->data_end);
}

/* Registers */

static void bar_access(Script *s, unsigned argument, bool write) {
        unsigned len = 1U << (argument & 3);
        uint64_t offset = fuzz_u16(s->in) % VIRTIO_BAR_BYTES / len * len;

        if (!write) {
                (void) bar_get(s->device, offset, len);
                return;
        }
        /* It may give the rings another place. */
        if (offset < VIRTIO_BAR_ISR)
                go_wild(s);
        bar_put(s->device, offset, len, read_value(s->in, len));
}

static void config_access(Script *s, unsigned argument, bool write) {
        unsigned len = 1U << argument % 3, offset = fuzz_u8(s->in) / len * len;
        PciFunction *f = &s->device->pci;

        pthread_mutex_lock(&f->lock);
        if (write) {
                if (offset >= CONFIG_STANDARD_BYTES)
                        go_wild(s);
                pci_config_write(f, offset, len, (uint32_t) read_value(s->in, len));
        } else
                (void) pci_config_read(f, offset, len);
        pthread_mutex_unlock(&f->lock);
}

/* Memory and rings */

static void write_memory(Script *s, unsigned argument) {
        uint64_t gpa = fuzz_u16(s->in);
        uint8_t data[UINT8_MAX];
        size_t n = fuzz_u8(s->in);

        (void) fuzz_bytes(s->in, data, n);
        if (argument) {
                put_data(s, SCRIPT_DATA_GPA + gpa, data, n);
                return;
        }
        go_wild(s);
        FUZZ_CHECK(guest_mem_write(&script_vm.mem, SCRIPT_RINGS_GPA + gpa, data, n) == 0);
}

/* Flags of a part: 1 to be written, 2 a u64 address follows, 4 a u32 length instead of a u16, 8 a u16 with flags of the
 * descriptor's own follows. */
static Part part_read(FuzzInput *in) {
        uint8_t flags = fuzz_u8(in);
        Part p = { .placed = flags & 2, .flags = flags & 1 ? VRING_DESC_F_WRITE : 0 };

        p.len = flags & 4 ? fuzz_u32(in) : fuzz_u16(in);
        if (flags & 2)
                p.gpa = read_value(in, sizeof(p.gpa));
        if (flags & 8)
                p.flags = fuzz_u16(in);
        return p;
}

/* A byte of flags: number of parts less one, 8 indirect, 16 a u8 follows: how often, 32 without a kick, 64 a u8 length
 * and bytes follow the parts: what the first begins with. */
static Chain chain_read(FuzzInput *in, uint8_t *ret_flags, unsigned *ret_times) {
        uint8_t flags = fuzz_u8(in);
        Chain c = { .n = (flags & 7U) + 1, .indirect = flags & 8 };

        *ret_flags = flags;
        *ret_times = flags & 16 ? fuzz_u8(in) + 1U : 1;
        for (unsigned i = 0; i < c.n; i++)
                c.parts[i] = part_read(in);
        if (flags & 64) {
                c.n_payload = MIN((size_t) fuzz_u8(in), in->left);
                c.payload = in->data;
                in->data += c.n_payload;
                in->left -= c.n_payload;
        }
        return c;
}

static uint64_t take_data(Script *s, uint32_t len) {
        if (len > SCRIPT_DATA_BYTES)
                len = SCRIPT_DATA_BYTES;
        if (len > SCRIPT_DATA_BYTES - s->next_data)
                s->next_data = 0;
        uint64_t gpa = SCRIPT_DATA_GPA + s->next_data;
        s->next_data += ALIGN_UP(len, 16U);
        s->next_data = MIN(s->next_data, SCRIPT_DATA_BYTES);
        return gpa;
}

static uint16_t next_desc(Script *s, unsigned queue) {
        uint16_t i = s->next_desc[queue];

        s->next_desc[queue] = (uint16_t) ((i + 1U) % s->driver.rings[queue].size);
        return i;
}

/* A driver that gives a descriptor away twice can't count on what comes back. */
static void give_desc(Script *s, unsigned queue, uint16_t i, uint16_t head) {
        if (s->parts_of[queue][i] != 0)
                go_wild(s);
        s->parts_of[queue][i] = (uint16_t) (head + 1);
}

static void get_back(Script *s, unsigned queue, uint32_t head) {
        for (unsigned i = 0; i < s->driver.rings[queue].size; i++)
                if (s->parts_of[queue][i] == head + 1)
                        s->parts_of[queue][i] = 0;
        s->offered[queue][head] = 0;
}

static struct vring_desc make_desc(const Part *p, unsigned next) {
        return (struct vring_desc) { .addr = p->gpa, .len = p->len, .flags = p->flags, .next = (uint16_t) next };
}

static void put_desc(const Script *s, unsigned queue, uint16_t i, struct vring_desc d) {
        FUZZ_CHECK(guest_mem_write(&script_vm.mem, s->driver.rings[queue].desc_gpa + i * 16U, &d, sizeof(d)) == 0);
}

/* The part of the ring that names the table. */
static uint16_t offer_indirect(Script *s, unsigned queue, const Chain *c) {
        Part table = { .len = c->n * 16U, .flags = VRING_DESC_F_INDIRECT };
        uint16_t head = next_desc(s, queue);

        table.gpa = take_data(s, table.len);
        for (unsigned i = 0; i < c->n; i++) {
                struct vring_desc d = make_desc(&c->parts[i], i + 1);
                put_data(s, table.gpa + i * 16U, &d, sizeof(d));
        }
        put_desc(s, queue, head, make_desc(&table, 0));
        give_desc(s, queue, head, head);
        return head;
}

static uint16_t offer_direct(Script *s, unsigned queue, const Chain *c) {
        uint16_t head = next_desc(s, queue), at = head;

        for (unsigned i = 0; i < c->n; i++) {
                uint16_t next = i + 1 < c->n ? next_desc(s, queue) : 0;
                put_desc(s, queue, at, make_desc(&c->parts[i], next));
                give_desc(s, queue, at, head);
                at = next;
        }
        return head;
}

static void offer(Script *s, unsigned queue, Chain c) {
        uint64_t room = 0;

        for (unsigned i = 0; i < c.n; i++) {
                Part *p = &c.parts[i];

                if (!p->placed)
                        p->gpa = take_data(s, p->len);
                /* Where it likes, it may be over a ring. */
                else if (p->flags & VRING_DESC_F_WRITE)
                        go_wild(s);
                if (i + 1 < c.n)
                        p->flags |= VRING_DESC_F_NEXT;
                /* It goes on in parts of others. */
                else if (p->flags & VRING_DESC_F_NEXT)
                        go_wild(s);
                if (p->flags & VRING_DESC_F_WRITE)
                        room += p->len;
                if ((p->flags & VRING_DESC_F_WRITE) && s->tame)
                        open_data(s, p);
                if (p->flags & VRING_DESC_F_INDIRECT)
                        go_wild(s);
        }
        if (c.n_payload > 0 && !c.parts[0].placed)
                put_data(s, c.parts[0].gpa, c.payload, MIN(c.n_payload, (size_t) c.parts[0].len));
        else if (c.n_payload > 0) {
                go_wild(s);
                (void) guest_mem_write(&script_vm.mem, c.parts[0].gpa, c.payload, MIN(c.n_payload, (size_t) c.parts[0].len));
        }

        uint16_t head = c.indirect ? offer_indirect(s, queue, &c) : offer_direct(s, queue, &c);
        s->offered[queue][head] = (uint32_t) MIN(room, UINT32_MAX - 1ULL) + 1;
        ring_offer(&s->driver.rings[queue], &script_vm.mem, head);
}

static void chain(Script *s, unsigned argument) {
        unsigned queue = queue_of(s, argument), times;
        uint8_t flags;

        Chain c = chain_read(s->in, &flags, &times);
        if (!s->up)
                return;
        for (unsigned i = 0; i < times; i++)
                offer(s, queue, c);
        if (!(flags & 32))
                driver_kick(&s->driver, queue);
}

static void take(Script *s) {
        for (unsigned q = 0; s->up && q < s->device->kind.n_queues; q++) {
                Ring *r = &s->driver.rings[q];
                uint32_t head, written;

                for (unsigned i = 0; i < r->size && ring_take_used(r, &script_vm.mem, &head, &written); i++) {
                        /* A ring that was in what was taken is zeros. */
                        if (!s->honest || s->host->takes_memory)
                                continue;
                        FUZZ_CHECK(head < r->size && s->offered[q][head] > 0);
                        FUZZ_CHECK(written < s->offered[q][head]);
                        get_back(s, q, head);
                }
        }
}

/* The driver's life */

static void driver_up(Script *s, unsigned argument) {
        uint64_t features = read_value(s->in, sizeof(features));

        if (argument & 1)
                features &= s->device->regs.device_features;
        driver_reset(&s->driver);
        stepper_run(&script_stepper, 2);
        driver_prepare(&s->driver, s->device, &script_vm.mem, SCRIPT_RINGS_GPA, features);
        if (!(argument & 2))
                driver_ok(&s->driver);
        memset(s->offered, 0, sizeof(s->offered));
        memset(s->parts_of, 0, sizeof(s->parts_of));
        memset(s->next_desc, 0, sizeof(s->next_desc));
        s->up = s->honest = true;
}

static void load(VirtioPci *v, const uint8_t *data, size_t size) {
        SnapshotReader reader;
        VirtioLoad virtio;
        SnapshotFile f;
        PciState pci;

        FUZZ_CHECK(snapshot_file_parse(data, size, &f, NULL) == 0);
        FUZZ_CHECK(snapshot_file_section(&f, SNAPSHOT_SECTION_PCI, SLOT, &reader, NULL) == 0);
        FUZZ_CHECK(snapshot_pci_parse(&v->pci, &reader, &pci, NULL) == 0);
        FUZZ_CHECK(snapshot_file_section(&f, SNAPSHOT_SECTION_VIRTIO, SLOT, &reader, NULL) == 0);
        FUZZ_CHECK(snapshot_virtio_parse(v, &reader, &virtio, NULL) == 0);
        snapshot_pci_apply(&v->pci, &pci);
        snapshot_virtio_apply(v, &virtio);
}

static void save(VirtioPci *v, bool back) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        snapshot_pci_save(&v->pci, SLOT, &w);
        snapshot_virtio_save(v, SLOT, &w);
        FUZZ_CHECK(snapshot_writer_finish(&w, id, id, &data, &size) == 0);
        if (back)
                load(v, data, size);
}

static void pause_and_save(Script *s, bool back) {
        if (s->host->pause)
                s->host->pause(s->host->userdata);
        else {
                virtio_pci_drain(s->device);
                virtio_pci_pause(s->device);
        }
        save(s->device, back);
        if (s->host->resume)
                s->host->resume(s->host->userdata);
        else
                virtio_pci_resume(s->device);
}

static void step(Script *s) {
        uint8_t what = fuzz_u8(s->in);
        unsigned argument = what >> 4;

        switch ((ScriptStep) (what & 15)) {

        case SCRIPT_BAR_WRITE: bar_access(s, argument, true); break;
        case SCRIPT_BAR_READ: bar_access(s, argument, false); break;
        case SCRIPT_CONFIG_WRITE: config_access(s, argument, true); break;
        case SCRIPT_CONFIG_READ: config_access(s, argument, false); break;
        case SCRIPT_MEMORY: write_memory(s, argument); break;
        case SCRIPT_DRIVER: driver_up(s, argument); break;
        case SCRIPT_CHAIN: chain(s, argument); break;
        case SCRIPT_KICK: driver_kick(&s->driver, queue_of(s, argument)); break;
        case SCRIPT_ROUNDS: stepper_run(&script_stepper, argument + 1); break;
        case SCRIPT_HOST: if (s->host->act) s->host->act(s->host->userdata, argument, s->in); break;
        case SCRIPT_TAKE: take(s); break;
        case SCRIPT_RESET: driver_reset(&s->driver); s->honest = false; break;
        case SCRIPT_PAUSE: pause_and_save(s, argument & 1); break;
        case SCRIPT_OFFER:
                go_wild(s);
                if (s->up)
                        ring_set_avail_idx(&s->driver.rings[queue_of(s, argument)], &script_vm.mem, fuzz_u16(s->in));
                break;
        case SCRIPT_MSI: fake_msi_result = argument ? -EINVAL : 0; break;
        case SCRIPT_TIME: fuzz_clock_usec += USEC_PER_MSEC << argument; break;
        }
}

void script_init(uint64_t plug_bytes) {
        fake_vm_init(&script_vm, SCRIPT_RAM_BYTES);
        if (plug_bytes > 0)
                fake_vm_add_plug(&script_vm, plug_bytes);
        stepper_init(&script_stepper);
}

void script_begin(void) {
        FUZZ_CHECK(guest_mem_drop_private(&script_vm.mem) == 0);
        fake_msi_result = 0;
        fuzz_clock_usec = 1000 * USEC_PER_SEC;
}

void script_run(VirtioPci *device, const ScriptHost *host, FuzzInput *in) {
        static Script s;

        s = (Script) { .device = device, .host = host, .in = in, .driver.device = device, .tame = true };
        for (unsigned i = 0; i < STEPS_MAX && in->left > 0; i++)
                step(&s);
        stepper_run(&script_stepper, 2);
        take(&s);
        pause_and_save(&s, true);
        stepper_run(&script_stepper, 2);
        check_data(&s);
}
