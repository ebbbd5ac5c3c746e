/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "vmm/virtio-pci.h"

#define VIRTIO_VENDOR 0x1af4U
#define VIRTIO_DEVICE_BASE 0x1040U /* 4.1.2.1: plus the device ID */
#define PAGE 0x1000U
#define ISR_QUEUE 1U /* 4.1.4.5 */
#define ISR_CONFIG 2U
#define ERROR_INTERVAL_USEC (10 * USEC_PER_SEC)

#define COMMON_FEATURES                                                                     \
        ((1ULL << VIRTIO_F_VERSION_1) | (1ULL << VIRTIO_RING_F_EVENT_IDX) | (1ULL << VIRTIO_RING_F_INDIRECT_DESC))

static void ring_bell(int fd) {
        uint64_t one = 1;

        /* Fails only when the counter is full, and then the bell rings already. */
        (void) !write(fd, &one, sizeof(one));
}

/* Whether it rang. */
static bool silence_bell(int fd) {
        uint64_t count;

        return read(fd, &count, sizeof(count)) == sizeof(count);
}

/* Errors and their reports */

static bool error_allowed(VirtioPci *v, uint64_t *ret_hidden) {
        uint64_t now = now_usec();
        uint64_t last = atomic_load(&v->error_usec);

        if ((last != 0 && now - last < ERROR_INTERVAL_USEC) ||
            !atomic_compare_exchange_strong(&v->error_usec, &last, now)) {
                atomic_fetch_add(&v->errors_hidden, 1);
                return false;
        }

        *ret_hidden = atomic_exchange(&v->errors_hidden, 0);
        return true;
}

void virtio_pci_error(VirtioPci *v, const char *format, ...) {
        char message[160];
        uint64_t hidden;
        va_list ap;

        assert(v);

        if (!v->on_error || !error_allowed(v, &hidden))
                return;

        va_start(ap, format);
        int n = vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);
        if (hidden > 0 && n > 0 && (size_t) n < sizeof(message))
                (void) snprintf(message + n, sizeof(message) - n, " (%llu more not shown)",
                                (unsigned long long) hidden);

        v->on_error(v->on_error_userdata, v->kind.name, message);
}

static void signal_config(VirtioPci *v) {
        atomic_fetch_or(&v->isr, ISR_CONFIG);
        msix_signal(&v->msix, v->regs.config_vector);
}

void virtio_pci_fail(VirtioPci *v, const char *message) {
        assert(v);

        if (v->failed)
                return;
        v->failed = true;
        atomic_fetch_add(&v->n_faults, 1);

        pthread_mutex_lock(&v->pci.lock);
        if (virtio_regs_set_needs_reset(&v->regs))
                signal_config(v);
        pthread_mutex_unlock(&v->pci.lock);

        virtio_pci_error(v, "device stopped, the guest's driver broke the rules: %s", message);
        /* The device lets go of its work once it is out of the call that led here. */
        ring_bell(v->state_fd);
}

/* Register side: vCPU threads, the function's lock held */

static void on_action(VirtioPci *v, VirtioAction action) {
        switch (action) {
        case VIRTIO_ACTION_NONE:
                break;
        case VIRTIO_ACTION_START:
                v->start_requested = true;
                ring_bell(v->state_fd);
                break;
        case VIRTIO_ACTION_RESET:
                atomic_fetch_add(&v->n_resets, 1);
                /* Before DRIVER_OK the device's thread knows nothing that it would have to forget. */
                if (v->regs.status & VIRTIO_CONFIG_S_DRIVER_OK)
                        ring_bell(v->state_fd);
                else
                        virtio_regs_reset(&v->regs);
                break;
        case VIRTIO_ACTION_BAD_QUEUE:
                atomic_fetch_add(&v->n_faults, 1);
                virtio_pci_error(v, "queue %u has a bad size or place in memory, not enabled", v->regs.queue_select);
                break;
        }
}

static void notify(VirtioPci *v, uint64_t offset) {
        unsigned queue = offset / VIRTIO_NOTIFY_STRIDE;

        if (queue < v->kind.n_queues)
                ring_bell(v->queues[queue].kick_fd);
}

static uint64_t config_read(const VirtioPci *v, uint64_t offset, unsigned len) {
        uint64_t value = 0;

        if (offset >= v->config_bytes || len > v->config_bytes - offset)
                return UINT64_MAX;
        memcpy(&value, v->config + offset, len);
        return value;
}

static void config_write(VirtioPci *v, uint64_t offset, unsigned len, uint64_t value) {
        unsigned first = v->kind.config_writable_offset, bytes = v->kind.config_writable_bytes;

        if (offset >= first && offset - first < bytes && len <= bytes - (offset - first))
                memcpy(v->config + offset, &value, len);
}

static uint64_t bar_read(PciFunction *f, uint64_t offset, unsigned len) {
        VirtioPci *v = f->owner;
        uint64_t in_page = offset % PAGE;

        switch (offset - in_page) {
        case VIRTIO_BAR_COMMON:
                return virtio_regs_read(&v->regs, in_page, len);
        case VIRTIO_BAR_ISR:
                /* 4.1.4.5: reading clears. */
                return offset == VIRTIO_BAR_ISR && len == 1 ? atomic_exchange(&v->isr, 0) : UINT64_MAX;
        case VIRTIO_BAR_DEVICE:
                return config_read(v, in_page, len);
        case VIRTIO_BAR_MSIX_TABLE:
                return msix_table_read(&v->msix, in_page, len);
        case VIRTIO_BAR_MSIX_PENDING:
                return msix_pending_read(&v->msix, in_page, len);
        default:
                return UINT64_MAX;
        }
}

static void bar_write(PciFunction *f, uint64_t offset, unsigned len, uint64_t value) {
        VirtioPci *v = f->owner;
        uint64_t in_page = offset % PAGE;

        switch (offset - in_page) {
        case VIRTIO_BAR_COMMON:
                on_action(v, virtio_regs_write(&v->regs, &v->vm->mem, in_page, len, value));
                break;
        case VIRTIO_BAR_DEVICE:
                config_write(v, in_page, len, value);
                break;
        case VIRTIO_BAR_NOTIFY:
                notify(v, in_page);
                break;
        case VIRTIO_BAR_MSIX_TABLE:
                msix_table_write(&v->msix, in_page, len, value);
                break;
        }
}

/* The window of 4.1.4.9: {bar, offset, length} are the driver's, pci_cfg_data stands for that place in
 * the BAR. True when they name an access that a BAR would take. */
static bool window_target(VirtioPci *v, uint64_t *ret_offset, unsigned *ret_len) {
        unsigned bar = pci_get(&v->pci, v->window + offsetof(struct virtio_pci_cap, bar), 1);
        uint32_t offset = pci_get(&v->pci, v->window + offsetof(struct virtio_pci_cap, offset), 4);
        uint32_t len = pci_get(&v->pci, v->window + offsetof(struct virtio_pci_cap, length), 4);

        if (bar != 0 || (len != 1 && len != 2 && len != 4) || offset % len != 0 ||
            offset >= VIRTIO_BAR_BYTES || len > VIRTIO_BAR_BYTES - offset)
                return false;

        *ret_offset = offset;
        *ret_len = len;
        return true;
}

static unsigned window_data(const VirtioPci *v) {
        return v->window + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);
}

static void capability_read(PciFunction *f, unsigned offset, unsigned len) {
        VirtioPci *v = f->owner;
        uint64_t target;
        unsigned width;

        if (offset == window_data(v) && window_target(v, &target, &width) && width == len)
                pci_put(f, offset, len, (uint32_t) bar_read(f, target, len));
}

static void capability_written(PciFunction *f, unsigned offset, unsigned len) {
        VirtioPci *v = f->owner;
        uint64_t target;
        unsigned width;

        if (offset == window_data(v)) {
                if (window_target(v, &target, &width) && width == len)
                        bar_write(f, target, len, pci_get(f, offset, len));
                return;
        }

        if (ALIGN_DOWN(offset, 4U) == v->msix_capability) {
                uint16_t control = pci_get(f, v->msix_capability + PCI_MSIX_FLAGS, 2);
                msix_set_control(&v->msix, control & PCI_MSIX_FLAGS_ENABLE, control & PCI_MSIX_FLAGS_MASKALL);
        }
}

static const PciOps virtio_pci_ops = {
        .bar_read = bar_read,
        .bar_write = bar_write,
        .capability_read = capability_read,
        .capability_written = capability_written,
};

/* Capabilities */

static void add_structure(VirtioPci *v, uint8_t type, uint32_t offset, uint32_t length) {
        struct virtio_pci_notify_cap cap = {
                .cap.cap_len = type == VIRTIO_PCI_CAP_NOTIFY_CFG ? sizeof(cap) : sizeof(cap.cap),
                .cap.cfg_type = type,
                .cap.offset = offset,
                .cap.length = length,
                .notify_off_multiplier = VIRTIO_NOTIFY_STRIDE,
        };

        (void) pci_add_capability(&v->pci, PCI_CAP_ID_VNDR, (uint8_t *) &cap + 2, cap.cap.cap_len - 2);
}

static void add_window(VirtioPci *v) {
        struct virtio_pci_cfg_cap cap = {
                .cap.cap_len = sizeof(cap),
                .cap.cfg_type = VIRTIO_PCI_CAP_PCI_CFG,
        };
        struct virtio_pci_cfg_cap writable = {
                .cap.bar = 0xff,
                .cap.offset = UINT32_MAX,
                .cap.length = UINT32_MAX,
                .pci_cfg_data = { 0xff, 0xff, 0xff, 0xff },
        };

        v->window = pci_add_capability(&v->pci, PCI_CAP_ID_VNDR, (uint8_t *) &cap + 2, sizeof(cap) - 2);
        pci_set_writable(&v->pci, v->window, &writable, sizeof(writable));
}

static void add_msix(VirtioPci *v) {
        struct {
                uint16_t control;
                uint32_t table;
                uint32_t pending;
        } _packed_ cap = {
                .control = v->msix.n_vectors - 1,
                .table = VIRTIO_BAR_MSIX_TABLE,
                .pending = VIRTIO_BAR_MSIX_PENDING,
        };
        uint16_t writable = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;

        v->msix_capability = pci_add_capability(&v->pci, PCI_CAP_ID_MSIX, &cap, sizeof(cap));
        pci_set_writable(&v->pci, v->msix_capability + PCI_MSIX_FLAGS, &writable, sizeof(writable));
}

static void add_capabilities(VirtioPci *v) {
        add_structure(v, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_BAR_COMMON, VIRTIO_REGS_BYTES);
        add_structure(v, VIRTIO_PCI_CAP_ISR_CFG, VIRTIO_BAR_ISR, 1);
        if (v->config_bytes > 0)
                add_structure(v, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_BAR_DEVICE, v->config_bytes);
        add_structure(v, VIRTIO_PCI_CAP_NOTIFY_CFG, VIRTIO_BAR_NOTIFY, v->kind.n_queues * VIRTIO_NOTIFY_STRIDE);
        add_window(v);
        add_msix(v);
}

/* Device's side */

void virtio_pci_start_queue(VirtioPci *v, unsigned queue) {
        VirtQueueOptions options = {
                .event_idx = virtio_regs_has_feature(&v->regs, VIRTIO_RING_F_EVENT_IDX),
                .indirect = virtio_regs_has_feature(&v->regs, VIRTIO_RING_F_INDIRECT_DESC),
                .chain_bytes_max = v->kind.chain_bytes_max,
        };
        const VirtioQueueRegs *q = &v->regs.queues[queue];

        assert(q->enabled);

        v->queues[queue].vector = q->vector;
        virtqueue_start(&v->queues[queue].ring, &v->vm->mem, &q->config, &options);
}

static void start_queues(VirtioPci *v) {
        for (unsigned i = 0; i < v->kind.n_queues; i++)
                if (v->regs.queues[i].enabled)
                        virtio_pci_start_queue(v, i);
}

static void stop_queues(VirtioPci *v) {
        for (unsigned i = 0; i < v->kind.n_queues; i++)
                virtqueue_stop(&v->queues[i].ring);
}

static void do_start(VirtioPci *v) {
        v->live = true;
        v->kind.ops.start(v);
}

static void do_stop(VirtioPci *v) {
        if (!v->live)
                return;
        v->live = false;
        v->kind.ops.stop(v);
        stop_queues(v);
}

static void handle_state(VirtioPci *v) {
        pthread_mutex_lock(&v->pci.lock);
        bool reset = v->regs.resetting, start = v->start_requested && !reset;
        v->start_requested = false;
        if (start)
                start_queues(v);
        pthread_mutex_unlock(&v->pci.lock);

        if (start)
                do_start(v);
        if (v->failed || reset)
                do_stop(v);
        if (!reset)
                return;

        v->failed = false;
        atomic_store(&v->isr, 0);
        /* Only now does the driver see 0 and may use its rings' memory for something else. */
        pthread_mutex_lock(&v->pci.lock);
        virtio_regs_reset(&v->regs);
        pthread_mutex_unlock(&v->pci.lock);
}

static int on_state(LoopSource *s, int fd, uint32_t events, void *userdata) {
        (void) silence_bell(fd);
        handle_state(userdata);
        return 0;
}

static int on_kick(LoopSource *s, int fd, uint32_t events, void *userdata) {
        VirtioQueue *q = userdata;
        VirtioPci *v = q->device;

        (void) silence_bell(fd);
        if (v->live && !v->failed)
                v->kind.ops.kick(v, q - v->queues);
        return 0;
}

bool virtio_pci_pop(VirtioPci *v, unsigned queue, VirtChain *ret) {
        assert(v);
        assert(queue < v->kind.n_queues);

        VirtQueue *ring = &v->queues[queue].ring;
        if (v->failed)
                return false;

        int r = virtqueue_pop(ring, ret);
        if (r < 0)
                virtio_pci_fail(v, ring->fault);
        else if (r > 0)
                atomic_fetch_add_explicit(&v->n_chains, 1, memory_order_relaxed);
        return r > 0;
}

void virtio_pci_change_config(VirtioPci *v, size_t offset, const void *data, size_t size, bool tell) {
        assert(v);
        assert(offset <= v->config_bytes && size <= v->config_bytes - offset);

        pthread_mutex_lock(&v->pci.lock);
        memcpy(v->config + offset, data, size);
        /* 4.1.4.3.1: so that a driver that has read one half before and one behind notices. */
        v->regs.config_generation++;
        /* A guest that is being saved is told when it goes on, and so is its copy. */
        if (tell && v->paused)
                v->config_changed = true;
        else if (tell && virtio_regs_running(&v->regs))
                signal_config(v);
        pthread_mutex_unlock(&v->pci.lock);
}

void virtio_pci_get_config(VirtioPci *v, size_t offset, void *ret, size_t size) {
        assert(v);
        assert(offset <= v->config_bytes && size <= v->config_bytes - offset);

        pthread_mutex_lock(&v->pci.lock);
        memcpy(ret, v->config + offset, size);
        pthread_mutex_unlock(&v->pci.lock);
}

void virtio_pci_signal(VirtioPci *v, unsigned queue) {
        assert(v);
        assert(queue < v->kind.n_queues);

        if (v->failed || !virtqueue_should_signal(&v->queues[queue].ring))
                return;

        if (msix_enabled(&v->msix))
                msix_signal(&v->msix, v->queues[queue].vector);
        else
                atomic_fetch_or(&v->isr, ISR_QUEUE);
}

void virtio_pci_kick_again(VirtioPci *v, unsigned queue) {
        assert(v);
        assert(queue < v->kind.n_queues);

        ring_bell(v->queues[queue].kick_fd);
}

/* Pause */

static bool drain_once(VirtioPci *v) {
        bool rang = silence_bell(v->state_fd);

        if (rang)
                handle_state(v);
        for (unsigned i = 0; i < v->kind.n_queues; i++) {
                if (!silence_bell(v->queues[i].kick_fd))
                        continue;
                rang = true;
                if (v->live && !v->failed)
                        v->kind.ops.kick(v, i);
        }
        return rang;
}

void virtio_pci_settle(VirtioPci *v) {
        assert(v);

        if (silence_bell(v->state_fd))
                handle_state(v);
}

void virtio_pci_drain(VirtioPci *v) {
        assert(v);

        /* With the vCPUs stopped there are no more chains than all rings hold, unless the guest has a device write
         * into its own rings: a disk can go on by itself like that. What is left then is asked for again at resume. */
        uint64_t end = atomic_load(&v->n_chains) + (uint64_t) v->kind.n_queues * v->kind.queue_size;
        for (unsigned n = 0; n < VIRTIO_QUEUES_MAX * VIRTQUEUE_SIZE_MAX && drain_once(v); n++)
                if (atomic_load(&v->n_chains) >= end)
                        break;
        /* It may have failed by then: that is seen through. */
        virtio_pci_settle(v);
}

static void watch_bells(VirtioPci *v, uint32_t events) {
        if (v->state_source)
                (void) loop_set_events(v->state_source, events);
        for (unsigned i = 0; i < v->kind.n_queues; i++)
                if (v->queues[i].kick_source)
                        (void) loop_set_events(v->queues[i].kick_source, events);
}

void virtio_pci_pause(VirtioPci *v) {
        assert(v);

        v->paused = true;
        watch_bells(v, 0);
}

void virtio_pci_resume(VirtioPci *v) {
        assert(v);

        v->paused = false;
        watch_bells(v, EPOLLIN);
        for (unsigned i = 0; i < v->kind.n_queues; i++)
                ring_bell(v->queues[i].kick_fd);

        pthread_mutex_lock(&v->pci.lock);
        if (v->config_changed && virtio_regs_running(&v->regs))
                signal_config(v);
        v->config_changed = false;
        pthread_mutex_unlock(&v->pci.lock);
}

/* Life */

static int open_bell(int *ret) {
        int fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
        if (fd < 0)
                return -errno;
        *ret = fd;
        return 0;
}

static int open_bells(VirtioPci *v) {
        int r = open_bell(&v->state_fd);

        for (unsigned i = 0; i < v->kind.n_queues && r >= 0; i++)
                r = open_bell(&v->queues[i].kick_fd);
        return r;
}

int virtio_pci_init(VirtioPci *v, const VirtioKind *kind, Vm *vm, uint64_t bar_gpa, void *owner,
                    VirtioErrorFn on_error, void *on_error_userdata) {
        assert(v);
        assert(kind);
        assert(vm);
        /* What a used element can say was written. */
        assert(kind->chain_bytes_max <= UINT32_MAX);

        *v = (VirtioPci) {
                .kind = *kind,
                .vm = vm,
                .owner = owner,
                .on_error = on_error,
                .on_error_userdata = on_error_userdata,
                .state_fd = -EBADF,
        };
        for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
                v->queues[i] = (VirtioQueue) { .device = v, .kick_fd = -EBADF };

        PciIdentity id = {
                .vendor = VIRTIO_VENDOR,
                .device = VIRTIO_DEVICE_BASE + kind->type,
                .revision = 1,
                .class_code = kind->class_code,
                .subsystem_vendor = VIRTIO_VENDOR,
                .subsystem = 0x40 + kind->type,
        };
        pci_function_init(&v->pci, &id, &virtio_pci_ops, v);
        pci_set_bar(&v->pci, bar_gpa, VIRTIO_BAR_BYTES);

        /* One for each queue, one for changes of the configuration. */
        msix_init(&v->msix, vm, kind->n_queues + 1);
        virtio_regs_init(&v->regs, kind->features | COMMON_FEATURES, kind->n_queues, kind->queue_size,
                         kind->n_queues + 1);

        int r = open_bells(v);
        if (r < 0)
                virtio_pci_done(v);
        return r;
}

void virtio_pci_done(VirtioPci *v) {
        assert(v);

        v->state_source = loop_remove(v->state_source);
        v->state_fd = safe_close(v->state_fd);
        for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
                v->queues[i].kick_source = loop_remove(v->queues[i].kick_source);
                v->queues[i].kick_fd = safe_close(v->queues[i].kick_fd);
        }
        msix_done(&v->msix);
        pci_function_done(&v->pci);
}

void virtio_pci_set_config(VirtioPci *v, const void *config, size_t size) {
        assert(v);
        assert(size <= sizeof(v->config));
        assert(v->kind.config_writable_offset + v->kind.config_writable_bytes <= size);

        if (size > 0)
                memcpy(v->config, config, size);
        v->config_bytes = size;
        add_capabilities(v);
}

int virtio_pci_attach(VirtioPci *v, Loop *loop) {
        assert(v);
        assert(loop);

        int r = loop_add_fd(loop, v->state_fd, EPOLLIN, on_state, v, &v->state_source);
        for (unsigned i = 0; i < v->kind.n_queues && r >= 0; i++) {
                VirtioQueue *q = &v->queues[i];
                r = loop_add_fd(loop, q->kick_fd, EPOLLIN, on_kick, q, &q->kick_source);
        }
        return r;
}

int virtio_pci_add_ioeventfds(VirtioPci *v) {
        assert(v);

        uint64_t gpa = v->pci.bar_gpa + VIRTIO_BAR_NOTIFY;
        for (unsigned i = 0; i < v->kind.n_queues; i++) {
                int r = vm_add_ioeventfd(v->vm, gpa + i * VIRTIO_NOTIFY_STRIDE, 0, v->queues[i].kick_fd);
                if (r < 0)
                        return r;
        }
        return 0;
}
