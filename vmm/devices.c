/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "vmm/devices-private.h"
#include "vmm/memmap.h"
#include "vmm/seccomp.h"
#include "vmm/tap.h"

#define ECAM_FUNCTION_BYTES 4096U
#define BAR_STRIDE MIB(1) /* each slot's BAR has a place of its own */
#define DISK_STACK_BYTES KIB(256)
/* How long a request to the host's file may take before a pause is given up: it may be a flush of all that the host has
 * not written yet. cubed waits longer for the pause. */
#define DISK_PARK_TIMEOUT_USEC (20 * USEC_PER_SEC)

static uint64_t bar_gpa(Slot slot) {
        return MEMMAP_PCI_MMIO + slot * BAR_STRIDE;
}

/* Where an access goes */

static PciFunction *slot_function(const Devices *d, uint64_t slot) {
        return slot < _SLOT_MAX ? d->slots[slot] : NULL;
}

static void ecam_access(const Devices *d, uint64_t offset, uint64_t *value, unsigned len, bool write) {
        uint64_t function = offset / ECAM_FUNCTION_BYTES;
        PciFunction *f = function % 8 == 0 ? slot_function(d, function / 8) : NULL;

        /* The configuration mechanism knows no 8-byte accesses. */
        if (!f || len > 4)
                return;

        pthread_mutex_lock(&f->lock);
        if (write)
                pci_config_write(f, offset % ECAM_FUNCTION_BYTES, len, (uint32_t) *value);
        else
                *value = pci_config_read(f, offset % ECAM_FUNCTION_BYTES, len);
        pthread_mutex_unlock(&f->lock);
}

static void bar_access(const Devices *d, uint64_t offset, uint64_t *value, unsigned len, bool write) {
        PciFunction *f = slot_function(d, offset / BAR_STRIDE);
        uint64_t in_bar = offset % BAR_STRIDE;

        if (!f || f->bar_bytes == 0 || in_bar >= f->bar_bytes)
                return;

        pthread_mutex_lock(&f->lock);
        if (pci_memory_enabled(f)) {
                if (write)
                        f->ops->bar_write(f, in_bar, len, *value);
                else
                        *value = f->ops->bar_read(f, in_bar, len);
        }
        pthread_mutex_unlock(&f->lock);
}

void devices_mmio(Devices *d, uint64_t gpa, uint8_t data[static 8], unsigned len, bool write) {
        uint64_t value = write ? 0 : UINT64_MAX;

        assert(d);

        /* P15. An aligned access of such a length lies in one function and one BAR. */
        bool valid = (len == 1 || len == 2 || len == 4 || len == 8) && gpa % len == 0;
        if (write)
                memcpy(&value, data, valid ? len : 0);

        if (!valid)
                ;
        else if (gpa >= MEMMAP_ECAM && gpa < MEMMAP_ECAM + MEMMAP_ECAM_SIZE)
                ecam_access(d, gpa - MEMMAP_ECAM, &value, len, write);
        else if (gpa >= MEMMAP_PCI_MMIO && gpa < MEMMAP_PCI_MMIO + MEMMAP_PCI_MMIO_SIZE)
                bar_access(d, gpa - MEMMAP_PCI_MMIO, &value, len, write);

        if (!write)
                memcpy(data, &value, 8);
}

/* What devices report */

static void on_device_error(void *userdata, const char *name, const char *message) {
        Devices *d = userdata;

        if (d->events.on_device_error)
                d->events.on_device_error(d->events.userdata, name, message);
}

static void on_panic(void *userdata, uint8_t event) {
        Devices *d = userdata;

        if (d->events.on_panic)
                d->events.on_panic(d->events.userdata, event);
}

static void on_control_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
        Devices *d = userdata;

        if (d->events.on_control_frame)
                d->events.on_control_frame(d->events.userdata, h, body);
}

static void on_control_lost(void *userdata) {
        Devices *d = userdata;

        if (d->events.on_control_lost)
                d->events.on_control_lost(d->events.userdata);
}

/* The disk thread */

static void *disk_thread(void *userdata) {
        Devices *d = userdata;

        (void) pthread_setname_np(pthread_self(), "disk");
        int r = seccomp_apply(SECCOMP_DISK);
        if (r >= 0)
                r = loop_run(d->disk_loop);
        if (r < 0 && d->events.on_failure)
                d->events.on_failure(d->events.userdata, r, "the disks' thread ended");
        return NULL;
}

static int on_disk_stop(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Devices *d = userdata;

        loop_exit(d->disk_loop, 0);
        return 0;
}

static void settle_disks(Devices *d) {
        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                if (d->disks[i])
                        virtio_pci_settle(virtio_blk_pci(d->disks[i]));
}

/* Parked: no request is half done, and the thread holds still until it is let go. What is in the rings by then waits: a
 * guest may have asked for more than a slow disk does in minutes. */
static int on_disk_park(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Devices *d = userdata;
        eventfd_t count;

        (void) eventfd_read(fd, &count);
        pthread_mutex_lock(&d->park_lock);
        while (d->park_wanted) {
                uint64_t round = d->park_round;

                pthread_mutex_unlock(&d->park_lock);
                settle_disks(d);
                pthread_mutex_lock(&d->park_lock);

                d->parked_round = round;
                pthread_cond_broadcast(&d->park_changed);
                while (d->park_wanted && d->park_round == round)
                        pthread_cond_wait(&d->park_changed, &d->park_lock);
        }
        pthread_mutex_unlock(&d->park_lock);
        return 0;
}

static void hold_disks(Devices *d, bool hold) {
        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                if (d->disks[i])
                        virtio_blk_hold(d->disks[i], hold);
}

static void unpark_disks(Devices *d) {
        hold_disks(d, false);
        pthread_mutex_lock(&d->park_lock);
        d->park_wanted = false;
        pthread_cond_broadcast(&d->park_changed);
        pthread_mutex_unlock(&d->park_lock);
}

static int park_disks(Devices *d) {
        struct timespec until;
        int r = 0;

        if (!d->disk_thread_started)
                return 0;

        (void) clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += DISK_PARK_TIMEOUT_USEC / USEC_PER_SEC;

        hold_disks(d, true);
        pthread_mutex_lock(&d->park_lock);
        d->park_wanted = true;
        d->park_round++;
        pthread_cond_broadcast(&d->park_changed);
        (void) eventfd_write(d->disk_park_fd, 1);
        while (d->parked_round != d->park_round && r == 0)
                r = pthread_cond_clockwait(&d->park_changed, &d->park_lock, CLOCK_MONOTONIC, &until);
        bool parked = d->parked_round == d->park_round;
        pthread_mutex_unlock(&d->park_lock);

        if (parked)
                return 0;
        unpark_disks(d);
        return -ETIMEDOUT;
}

static int start_disk_thread(Devices *d) {
        pthread_attr_t attr;
        sigset_t all, before;

        int r = pthread_attr_init(&attr);
        if (r != 0)
                return -r;

        /* Signals are the main thread's, but for that of its own filter. */
        sigfillset(&all);
        sigdelset(&all, SIGSYS);
        (void) pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_attr_setstacksize(&attr, DISK_STACK_BYTES);
        if (r == 0)
                r = pthread_create(&d->disk_thread, &attr, disk_thread, d);
        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attr);

        d->disk_thread_started = r == 0;
        return -r;
}

static void stop_disk_thread(Devices *d) {
        uint64_t one = 1;

        if (!d->disk_thread_started)
                return;
        unpark_disks(d);
        (void) !write(d->disk_stop_fd, &one, sizeof(one));
        (void) pthread_join(d->disk_thread, NULL);
        d->disk_thread_started = false;
}

static int make_disk_loop(Devices *d) {
        if (!d->disks[0] && !d->disks[1])
                return 0;

        int r = loop_new(&d->disk_loop);
        if (r < 0)
                return r;

        d->disk_stop_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
        d->disk_park_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
        if (d->disk_stop_fd < 0 || d->disk_park_fd < 0)
                return -errno;
        r = loop_add_fd(d->disk_loop, d->disk_stop_fd, EPOLLIN, on_disk_stop, d, &d->disk_stop_source);
        if (r >= 0)
                r = loop_add_fd(d->disk_loop, d->disk_park_fd, EPOLLIN, on_disk_park, d, &d->disk_park_source);

        for (unsigned i = 0; i < ELEMENTSOF(d->disks) && r >= 0; i++)
                if (d->disks[i])
                        r = virtio_pci_attach(virtio_blk_pci(d->disks[i]), d->disk_loop);
        return r;
}

/* Life */

static void make_host_bridge(Devices *d) {
        static const PciIdentity id = {
                .vendor = 0x8086,
                .device = 0x0d57, /* a host bridge without a driver or a quirk */
                .class_code = 0x060000,
                .subsystem_vendor = 0x1af4,
                .subsystem = 0x1100,
        };

        pci_function_init(&d->host_bridge, &id, NULL, NULL);
        d->slots[SLOT_HOST_BRIDGE] = &d->host_bridge;
}

static void make_pvpanic(Devices *d) {
        pvpanic_init(&d->pvpanic, bar_gpa(SLOT_PVPANIC), on_panic, d);
        d->slots[SLOT_PVPANIC] = &d->pvpanic.pci;
}

void disk_config_done(DiskConfig *c) {
        assert(c);

        c->base_fd = safe_close(c->base_fd);
        overlay_fds_done(&c->over);
}

static int make_disks(Devices *d, DevicesConfig *config, ErrorText *e) {
        static const char *const names[] = { "vda", "vdb" };
        int r = 0;

        static_assert(ELEMENTSOF(names) == ELEMENTSOF(config->disks), "a name for each disk");

        for (unsigned i = 0; i < ELEMENTSOF(config->disks) && r >= 0; i++) {
                if (!config->disks[i].present)
                        continue;
                r = virtio_blk_new(d->vm, bar_gpa(SLOT_VDA + i), names[i], &config->disks[i], on_device_error, d,
                                   &d->disks[i], e);
                if (r >= 0)
                        d->slots[SLOT_VDA + i] = &virtio_blk_pci(d->disks[i])->pci;
        }
        return r;
}

static int make_loop_devices(Devices *d, Loop *loop, uint32_t guest_cid) {
        VsockControlEvents control = { .on_frame = on_control_frame, .on_lost = on_control_lost, .userdata = d };

        int r = virtio_vsock_new(d->vm, loop, bar_gpa(SLOT_VSOCK), guest_cid, &control, on_device_error, d, &d->vsock);
        if (r < 0)
                return r;
        d->slots[SLOT_VSOCK] = &virtio_vsock_pci(d->vsock)->pci;

        r = virtio_rng_new(d->vm, loop, bar_gpa(SLOT_RNG), on_device_error, d, &d->rng);
        if (r < 0)
                return r;
        d->slots[SLOT_RNG] = &virtio_rng_pci(d->rng)->pci;
        return 0;
}

static int make_net(Devices *d, Loop *loop, int fd, ErrorText *e) {
        _cleanup_close_ int tap_fd = fd;

        int r = tap_fd >= 0 ? tap_prepare(tap_fd, e) : 0;
        if (r < 0)
                return r;
        r = virtio_net_new(d->vm, loop, bar_gpa(SLOT_NET), TAKE_FD(tap_fd), on_device_error, d, &d->net);
        if (r < 0)
                return error_set_errno(e, r, "net");
        d->slots[SLOT_NET] = &virtio_net_pci(d->net)->pci;
        return 0;
}

static int make_memory_devices(Devices *d, Loop *loop) {
        int r = virtio_balloon_new(d->vm, loop, bar_gpa(SLOT_BALLOON), on_device_error, d, &d->balloon);
        if (r < 0)
                return r;
        d->slots[SLOT_BALLOON] = &virtio_balloon_pci(d->balloon)->pci;

        if (d->vm->plug_bytes == 0)
                return 0;
        r = virtio_mem_new(d->vm, loop, bar_gpa(SLOT_MEM), on_device_error, d, &d->mem);
        if (r < 0)
                return r;
        d->slots[SLOT_MEM] = &virtio_mem_pci(d->mem)->pci;
        return 0;
}

static int make_all(Devices *d, Loop *loop, DevicesConfig *config, ErrorText *e) {
        make_host_bridge(d);
        make_pvpanic(d);

        int r = make_disks(d, config, e);
        if (r >= 0)
                r = make_net(d, loop, TAKE_FD(config->tap_fd), e);
        if (r < 0)
                return r;
        r = make_loop_devices(d, loop, config->guest_cid);
        if (r >= 0)
                r = make_memory_devices(d, loop);
        if (r >= 0)
                r = make_disk_loop(d);
        return r < 0 ? error_set_errno(e, r, "making the devices") : 0;
}

static void devices_config_done(DevicesConfig *config) {
        for (unsigned i = 0; i < ELEMENTSOF(config->disks); i++)
                if (config->disks[i].present)
                        disk_config_done(&config->disks[i]);
        config->tap_fd = safe_close(config->tap_fd);
}

int devices_new(Vm *vm, Loop *loop, DevicesConfig *config, const DeviceEvents *events, Devices **ret, ErrorText *e) {
        assert(vm);
        assert(loop);
        assert(config);
        assert(events);
        assert(ret);

        Devices *d = new0(Devices, 1);
        if (!d) {
                devices_config_done(config);
                return error_set(e, -ENOMEM, "out of memory");
        }

        d->vm = vm;
        d->events = *events;
        d->disk_stop_fd = d->disk_park_fd = -EBADF;
        (void) pthread_mutex_init(&d->park_lock, NULL);
        (void) pthread_cond_init(&d->park_changed, NULL);

        int r = make_all(d, loop, config, e);
        /* Of what was not made. */
        devices_config_done(config);
        if (r < 0) {
                devices_free(d);
                return r;
        }

        *ret = d;
        return 0;
}

int devices_start(Devices *d) {
        assert(d);

        int r = virtio_pci_add_ioeventfds(virtio_vsock_pci(d->vsock));
        if (r >= 0)
                r = virtio_pci_add_ioeventfds(virtio_rng_pci(d->rng));
        if (r >= 0)
                r = virtio_pci_add_ioeventfds(virtio_net_pci(d->net));
        if (r >= 0)
                r = virtio_pci_add_ioeventfds(virtio_balloon_pci(d->balloon));
        if (r >= 0 && d->mem)
                r = virtio_pci_add_ioeventfds(virtio_mem_pci(d->mem));
        for (unsigned i = 0; i < ELEMENTSOF(d->disks) && r >= 0; i++)
                if (d->disks[i])
                        r = virtio_pci_add_ioeventfds(virtio_blk_pci(d->disks[i]));
        if (r >= 0 && d->disk_loop)
                r = start_disk_thread(d);
        return r;
}

Devices *devices_free(Devices *d) {
        if (!d)
                return NULL;

        stop_disk_thread(d);
        loop_remove(d->disk_stop_source);
        loop_remove(d->disk_park_source);
        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                virtio_blk_free(d->disks[i]);
        loop_free(d->disk_loop);
        safe_close(d->disk_stop_fd);
        safe_close(d->disk_park_fd);
        (void) pthread_cond_destroy(&d->park_changed);
        (void) pthread_mutex_destroy(&d->park_lock);

        virtio_mem_free(d->mem);
        virtio_balloon_free(d->balloon);
        virtio_net_free(d->net);
        virtio_rng_free(d->rng);
        virtio_vsock_free(d->vsock);
        pvpanic_done(&d->pvpanic);
        pci_function_done(&d->host_bridge);
        free(d);
        return NULL;
}

/* Loop thread */

int devices_pause(Devices *d) {
        assert(d);

        int r = park_disks(d);
        if (r < 0)
                return r;
        virtio_vsock_pause(d->vsock);
        virtio_pci_drain(virtio_rng_pci(d->rng));
        virtio_pci_pause(virtio_rng_pci(d->rng));
        virtio_net_pause(d->net);
        virtio_pci_drain(virtio_balloon_pci(d->balloon));
        virtio_balloon_settle(d->balloon);
        virtio_pci_pause(virtio_balloon_pci(d->balloon));
        if (d->mem) {
                virtio_pci_drain(virtio_mem_pci(d->mem));
                virtio_pci_pause(virtio_mem_pci(d->mem));
        }
        return 0;
}

void devices_resume(Devices *d) {
        assert(d);

        virtio_vsock_resume(d->vsock);
        virtio_pci_resume(virtio_rng_pci(d->rng));
        virtio_net_resume(d->net);
        virtio_pci_resume(virtio_balloon_pci(d->balloon));
        if (d->mem)
                virtio_pci_resume(virtio_mem_pci(d->mem));
        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                if (d->disks[i])
                        virtio_pci_resume(virtio_blk_pci(d->disks[i]));
        unpark_disks(d);
}

Overlay *devices_overlay(Devices *d) {
        assert(d);

        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                if (d->disks[i] && overlay_top_fd(virtio_blk_overlay(d->disks[i])) >= 0)
                        return virtio_blk_overlay(d->disks[i]);
        return NULL;
}

int devices_control_send(Devices *d, const uint8_t *frame, size_t size) {
        assert(d);
        assert(frame);

        return virtio_vsock_control_send(d->vsock, frame, size);
}

void devices_control_hold(Devices *d, bool hold) {
        assert(d);

        virtio_vsock_control_hold(d->vsock, hold);
}

int devices_stream_open(Devices *d, int fd, const uint8_t *frame, size_t size, StreamAnswer answer, void *userdata) {
        assert(d);
        assert(frame);

        return virtio_vsock_stream_open(d->vsock, fd, frame, size, answer, userdata);
}

void devices_net_hold(Devices *d, bool hold) {
        assert(d);

        virtio_net_hold(d->net, hold);
}

int devices_tap_fd(const Devices *d) {
        assert(d);

        return virtio_net_tap_fd(d->net);
}

int devices_request_plugged(Devices *d, uint64_t bytes) {
        assert(d);

        return d->mem ? virtio_mem_request(d->mem, bytes) : -ENODEV;
}

int devices_request_balloon(Devices *d, uint64_t bytes) {
        assert(d);

        return virtio_balloon_request(d->balloon, bytes);
}

void devices_counters(Devices *d, CounterFn fn, void *userdata) {
        assert(d);
        assert(fn);

        virtio_vsock_counters(d->vsock, fn, userdata);
        virtio_rng_counters(d->rng, fn, userdata);
        virtio_net_counters(d->net, fn, userdata);
        virtio_balloon_counters(d->balloon, fn, userdata);
        if (d->mem)
                virtio_mem_counters(d->mem, fn, userdata);
        for (unsigned i = 0; i < ELEMENTSOF(d->disks); i++)
                if (d->disks[i])
                        virtio_blk_counters(d->disks[i], fn, userdata);
}
