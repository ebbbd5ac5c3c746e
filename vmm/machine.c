/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/agent-proto.h"
#include "base/clock.h"
#include "base/fd-util.h"
#include "vmm/forbidden.h"
#include "vmm/jail.h"
#include "vmm/machine-private.h"
#include "vmm/memmap.h"
#include "vmm/pvh.h"
#include "vmm/seccomp.h"
#include "vmm/vmgenid.h"

/* Of our own request to power off; cubed's requests have smaller ids. Its answer is nobody's. */
#define POWEROFF_ID UINT32_MAX
/* What a VMM maps beside its guest's memory and its disk's map: itself, stacks, buffers, a snapshot that is read. */
#define ADDRESS_BYTES_OWN MIB(128)
/* How long the end waits for all vCPUs to leave the guest. */
#define PARK_TIMEOUT_USEC (100 * USEC_PER_MSEC)

int machine_wrong_state(const Machine *m, const char *what, ErrorText *e) {
        return error_set(e, -EPROTO, "%s is not for a machine in state %s", what,
                         vmm_state_to_string(m->state));
}

void machine_end(Machine *m, VmmExitReason reason, uint32_t status, const char *message) {
        assert(m);
        mailbox_post_end(&m->mailbox, reason, status, message);
}

static void on_vcpu_end(void *userdata, VmmExitReason reason, uint32_t status, const char *message) {
        Machine *m = userdata;

        if (reason == VMM_EXIT_RESET && !atomic_load(&m->agent_seen))
                machine_end(m, VMM_EXIT_RESET_EARLY, status,
                            "the guest asked for a reset before its agent was there");
        else
                machine_end(m, reason, status, message);
}

static void on_panic(void *userdata, uint8_t pvpanic_event) {
        machine_end(userdata, VMM_EXIT_PANIC, pvpanic_event, "the guest's kernel panicked");
}

static void on_failure(void *userdata, int error, const char *message) {
        machine_end(userdata, VMM_EXIT_VMM_ERROR, (uint32_t) -error, message);
}

static void on_device_error(void *userdata, const char *device, const char *message) {
        Machine *m = userdata;
        mailbox_post_notice(&m->mailbox, device, message);
}

static void write_exit_record(const Machine *m, const MachineEnd *end) {
        VmmExitRecord record = {
                .magic = VMM_EXIT_RECORD_MAGIC,
                .version = 1,
                .reason = end->reason,
                .status = end->status,
        };

        if (m->config.exit_fd < 0)
                return;

        record.realtime_usec = wall_usec();
        memcpy(record.message, end->message, sizeof(record.message));

        /* In one piece, so that there is a whole record or none. If it fails, cubed still sees the end. */
        (void) write_full(m->config.exit_fd, &record, sizeof(record));
}

static void park_vcpus(Machine *m) {
        for (unsigned i = 0; i < m->n_vcpus; i++)
                vcpu_pause(m->vcpus[i]);
        for (unsigned i = 0; i < m->n_vcpus; i++)
                if (!vcpu_wait_parked(m->vcpus[i], PARK_TIMEOUT_USEC))
                        return;
}

static void finish(Machine *m, const MachineEnd *end) {
        /* What the record says is final: nothing of the guest runs behind it. */
        park_vcpus(m);
        write_exit_record(m, end);
        m->events.on_exit(m->events.userdata, end->reason, end->status, end->message);
        loop_exit(m->loop, 0);
}

void machine_finish(Machine *m) {
        MailboxContent content;

        assert(m);

        mailbox_take(&m->mailbox, &content);
        finish(m, &content.end);
}

static int on_mail(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Machine *m = userdata;
        MailboxContent content;

        mailbox_take(&m->mailbox, &content);
        for (unsigned i = 0; i < content.n_notices; i++)
                m->events.on_device(m->events.userdata, content.notices[i].device,
                                    content.notices[i].message);
        if (content.end.reason != VMM_EXIT_NONE)
                finish(m, &content.end);
        return 0;
}

static int on_stop_timeout(LoopSource *s, int fd, uint32_t events, void *userdata) {
        machine_end(userdata, VMM_EXIT_STOP_TIMEOUT, 0,
                    "the guest was asked to power off and did not in time");
        return 0;
}

static void ask_poweroff(Machine *m) {
        const FrameHeader h = { .type = AGENT_POWEROFF, .id = POWEROFF_ID };
        uint8_t frame[FRAME_HEADER_SIZE];

        /* If that fails the time-out does the rest. */
        frame_header_put(&h, frame);
        (void) devices_control_send(m->devices, frame, sizeof(frame));
}

void machine_send_claim(Machine *m) {
        if (!m->ready_frame || m->claim_sent)
                return;

        FrameHeader h;

        frame_header_get(m->claim_frame, &h);
        int r = devices_control_send(m->devices, m->claim_frame, m->claim_size);
        if (r < 0) {
                on_device_error(m, "agent", "the claim could not be sent");
                return;
        }

        m->claim_sent = true;
        m->claim_id = h.id;
        /* It holds entropy for the guest alone. */
        explicit_bzero(m->claim_frame, m->claim_size);
        free(TAKE_PTR(m->claim_frame));
}

static void on_agent_ready(Machine *m, uint8_t *frame, size_t size) {
        m->ready_frame = frame;
        m->ready_size = size;
        atomic_store(&m->agent_seen, true);

        if (m->state == VMM_STATE_STOPPING)
                ask_poweroff(m);
        else
                machine_send_claim(m);
}

static void hear_again(Machine *m, const FrameHeader *h) {
        if (!m->claim_sent || h->id != m->claim_id || (h->type != AGENT_OK && h->type != AGENT_ERROR))
                return;
        m->claim_id = 0;
        devices_net_hold(m->devices, false);
}

static void on_control_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
        Machine *m = userdata;
        size_t size = FRAME_HEADER_SIZE + (size_t) h->len;

        /* Nothing counts before the agent has introduced itself. */
        if (!m->ready_frame && h->type != AGENT_READY)
                return;
        if (m->state == VMM_STATE_STOPPING && h->id == POWEROFF_ID)
                return;

        _cleanup_free_ uint8_t *frame = malloc(size);
        if (!frame) {
                on_device_error(m, "agent", "out of memory, a frame is lost");
                return;
        }
        frame_header_put(h, frame);
        memcpy(frame + FRAME_HEADER_SIZE, body, h->len);

        m->events.on_agent(m->events.userdata, frame, size);
        hear_again(m, h);
        if (!m->ready_frame)
                on_agent_ready(m, TAKE_PTR(frame), size);
}

static void on_control_lost(void *userdata) {
        Machine *m = userdata;

        free(TAKE_PTR(m->ready_frame));
        m->ready_size = 0;
        m->events.on_agent_lost(m->events.userdata);
}

static int check_frame(const uint8_t *frame, size_t size, FrameHeader *ret, ErrorText *e) {
        if (size < FRAME_HEADER_SIZE || size > FRAME_HEADER_SIZE + AGENT_FRAME_MAX)
                return error_set(e, -EINVAL, "a frame of %zu bytes", size);

        frame_header_get(frame, ret);
        if (ret->len != size - FRAME_HEADER_SIZE)
                return error_set(e, -EINVAL, "a frame of %zu bytes with a body of %u", size, ret->len);
        return 0;
}

int machine_agent_send(Machine *m, const uint8_t *frame, size_t size, ErrorText *e) {
        FrameHeader h;

        assert(m);

        if (m->state != VMM_STATE_RUNNING)
                return machine_wrong_state(m, "AGENT", e);
        int r = check_frame(frame, size, &h, e);
        if (r < 0)
                return r;
        if (!m->ready_frame)
                return error_set(e, -ENOTCONN, "the agent is not connected");

        r = devices_control_send(m->devices, frame, size);
        return r < 0 ? error_set_errno(e, r, "control stream") : 0;
}

void machine_agent_hold(Machine *m, bool hold) {
        assert(m);

        if (m->devices)
                devices_control_hold(m->devices, hold);
}

int machine_stream_open(Machine *m, int fd, const uint8_t *frame, size_t size,
                        StreamAnswer answer, void *userdata, ErrorText *e) {
        _cleanup_close_ int owned = fd;
        FrameHeader h;

        assert(m);
        assert(answer);

        if (m->state != VMM_STATE_RUNNING)
                return machine_wrong_state(m, "STREAM", e);
        int r = check_frame(frame, size, &h, e);
        if (r < 0)
                return r;
        if (h.type < AGENT_STREAM_PROCESS || h.type > AGENT_STREAM_TCP)
                return error_set(e, -EINVAL, "STREAM: a frame of type %u opens no stream", h.type);

        r = devices_stream_open(m->devices, TAKE_FD(owned), frame, size, answer, userdata);
        return r < 0 ? error_set_errno(e, r, "opening a stream into the guest") : 0;
}

int machine_add_devices(Machine *m, ErrorText *e) {
        const DeviceEvents events = {
                .on_panic = on_panic,
                .on_failure = on_failure,
                .on_device_error = on_device_error,
                .on_control_frame = on_control_frame,
                .on_control_lost = on_control_lost,
                .userdata = m,
        };
        DevicesConfig config = { .guest_cid = AGENT_GUEST_CID, .tap_fd = TAKE_FD(m->config.tap_fd) };

        static_assert(ELEMENTSOF(config.disks) == CONFIG_DISKS_MAX, "as many as there are slots");
        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++) {
                config.disks[i] = m->config.disks[i];
                /* The devices' own from here on. */
                m->config.disks[i].base_fd = -EBADF;
                m->config.disks[i].over = OVERLAY_FDS_NONE;
        }
        return devices_new(&m->vm, m->loop, &config, &events, &m->devices, e);
}

int machine_add_vcpus(Machine *m, const CpuidTable *cpuid, ErrorText *e) {
        m->cpuid = new0(CpuidTable, 1);
        if (!m->cpuid)
                return error_set(e, -ENOMEM, "out of memory");
        *m->cpuid = *cpuid;

        int r = msr_list_load(m->config.kvm_fd, &m->msrs, e);
        if (r >= 0)
                r = vm_xsave_bytes(&m->vm, &m->xsave_bytes, e);
        if (r < 0)
                return r;

        VcpuConfig config = {
                .vm = &m->vm,
                .devices = m->devices,
                .serial = &m->serial,
                .cpuid = m->cpuid,
                .n_possible = m->config.max_cpus,
                .cpuid_hide = m->config.cpuid_hide,
                .on_end = on_vcpu_end,
                .userdata = m,
        };
        for (; m->n_vcpus < m->config.n_cpus; m->n_vcpus++) {
                config.index = m->n_vcpus;
                r = vcpu_new(&config, &m->vcpus[m->n_vcpus], e);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* In the order that keeps KVM fast: memory before all else, vCPUs before ioeventfds, which come with
 * devices_start(). */
static int build(Machine *m, ErrorText *e) {
        int r = 0;

        if (m->config.console_fd >= 0)
                r = serial_attach(&m->serial, m->config.console_fd, e);
        if (r < 0)
                return r;
        r = vm_init(&m->vm, m->config.kvm_fd, m->config.mem_bytes, m->config.plug_bytes, e);
        if (r < 0)
                return r;
        r = pvh_load(&m->vm.mem, &m->config, e);
        if (r < 0)
                return r;
        r = vmgenid_renew(&m->vm.mem, e);
        if (r < 0)
                return r;
        m->config.kernel_fd = safe_close(m->config.kernel_fd);
        m->config.initrd_fd = safe_close(m->config.initrd_fd);

        r = machine_add_devices(m, e);
        if (r < 0)
                return r;

        CpuidTable cpuid;
        r = cpuid_load(m->config.kvm_fd, &cpuid, e);
        if (r >= 0)
                r = machine_add_vcpus(m, &cpuid, e);
        return r < 0 ? r : vcpu_set_entry(m->vcpus[0], m->config.entry, MEMMAP_PVH_INFO, e);
}

void machine_unbuild(Machine *m) {
        while (m->n_vcpus > 0) {
                m->n_vcpus--;
                m->vcpus[m->n_vcpus] = vcpu_free(m->vcpus[m->n_vcpus]);
        }
        m->devices = devices_free(m->devices);
        vm_done(&m->vm);
        serial_done(&m->serial);
        serial_init(&m->serial);
        build_config_done(&m->config);

        free(TAKE_PTR(m->cpuid));
        free(TAKE_PTR(m->times));
        m->n_times = m->n_layers = m->n_layer_runs = 0;
        free(TAKE_PTR(m->ready_frame));
        m->ready_size = 0;
}

int machine_build(Machine *m, BuildConfig *config, ErrorText *e) {
        assert(m);
        assert(config);

        if (m->state != VMM_STATE_NEW) {
                build_config_done(config);
                return machine_wrong_state(m, "BUILD", e);
        }

        m->config = *config;
        *config = BUILD_CONFIG_INIT;

        int r = build(m, e);
        if (r < 0) {
                machine_unbuild(m);
                return r;
        }

        m->state = VMM_STATE_BUILT;
        return 0;
}

/* The largest file it writes is the disk's, or the state of a snapshot. A rollback makes the disk's map anew beside the
 * one there is. */
static int limit_sizes(const Machine *m, ErrorText *e) {
        const Overlay *overlay = devices_overlay(m->devices);
        uint64_t map_bytes = overlay ? overlay->n_blocks / 2 : 0, disk_bytes = overlay ? overlay->disk_bytes : 0;

        return jail_limit_sizes(guest_mem_bytes(&m->vm.mem) + 2 * map_bytes + ADDRESS_BYTES_OWN,
                                MAX(disk_bytes, (uint64_t) SNAPSHOT_STATE_BYTES_MAX), e);
}

static int start(Machine *m, ErrorText *e) {
        int r = devices_start(m->devices);
        if (r < 0)
                return error_set_errno(e, r, "starting the devices");

        forbidden_calls_report_to(m->config.exit_fd);
        r = limit_sizes(m, e);
        if (r < 0)
                return r;
        r = seccomp_apply(SECCOMP_RUN);
        if (r < 0)
                return error_set_errno(e, r, "narrowing the system call filter");

        /* Before its devices move: the first that a copy hears. */
        machine_send_claim(m);
        r = machine_set_time(m, e);
        if (r < 0)
                return r;

        devices_net_hold(m->devices, true);
        if (m->loaded)
                devices_resume(m->devices);
        for (unsigned i = 0; i < m->n_vcpus; i++)
                vcpu_resume(m->vcpus[i]);
        return 0;
}

int machine_keep_claim(Machine *m, const char *what, const uint8_t *frame, size_t size, ErrorText *e) {
        FrameHeader h;

        int r = check_frame(frame, size, &h, e);
        if (r < 0)
                return r;
        if (h.type != AGENT_CLAIM)
                return error_set(e, -EINVAL, "%s: a frame of type %u is no claim", what, h.type);

        uint8_t *copy = malloc(size);
        if (!copy)
                return error_set(e, -ENOMEM, "out of memory");
        memcpy(copy, frame, size);
        free(m->claim_frame);
        m->claim_frame = copy;
        m->claim_size = size;
        m->claim_sent = false;
        return 0;
}

int machine_claim(Machine *m, const uint8_t *frame, size_t size, ErrorText *e) {
        assert(m);

        if (m->state != VMM_STATE_BUILT)
                return machine_wrong_state(m, "CLAIM", e);
        int r = machine_keep_claim(m, "CLAIM", frame, size, e);
        if (r < 0)
                return r;
        m->state = VMM_STATE_RUNNING;

        ErrorText why = {};
        r = start(m, &why);
        if (r < 0) {
                machine_end(m, VMM_EXIT_VMM_ERROR, (uint32_t) -r, why.text);
                return error_set(e, r, "%s", why.text);
        }
        m->needs_claim = false;
        memset(m->saved_id, 0, sizeof(m->saved_id));
        return 0;
}

int machine_stop(Machine *m, uint64_t timeout_usec, ErrorText *e) {
        assert(m);

        if (m->state != VMM_STATE_RUNNING)
                return machine_wrong_state(m, "STOP", e);

        m->state = VMM_STATE_STOPPING;
        (void) loop_timer_set(m->stop_timer, MAX(timeout_usec, (uint64_t) 1));
        if (m->ready_frame)
                ask_poweroff(m);
        return 0;
}

void machine_terminate(Machine *m) {
        assert(m);

        /* Nobody else may be there to let it go on. */
        if (m->state == VMM_STATE_PAUSED && !m->needs_claim)
                (void) machine_resume(m, NULL, 0, &SNAPSHOT_FDS_NONE, NULL);

        if (m->state == VMM_STATE_RUNNING)
                (void) machine_stop(m, m->config.stop_timeout_usec, NULL);
        else if (m->state == VMM_STATE_PAUSED || m->state == VMM_STATE_TORN)
                machine_end(m, VMM_EXIT_KILLED, 0, "told to end while the guest was paused");
        else if (m->state != VMM_STATE_STOPPING)
                machine_end(m, VMM_EXIT_KILLED, 0, "told to end before the guest ran");
}

static int check_memory_request(const Machine *m, const char *what, ErrorText *e) {
        if (m->state != VMM_STATE_BUILT && m->state != VMM_STATE_RUNNING)
                return machine_wrong_state(m, what, e);
        return 0;
}

int machine_resize(Machine *m, uint64_t plugged_bytes, ErrorText *e) {
        assert(m);

        int r = check_memory_request(m, "RESIZE", e);
        if (r < 0)
                return r;
        r = devices_request_plugged(m->devices, plugged_bytes);
        return r < 0 ? error_set_errno(e, r, "plugging %" PRIu64 " bytes of %" PRIu64, plugged_bytes,
                                       m->config.plug_bytes) : 0;
}

int machine_balloon(Machine *m, uint64_t balloon_bytes, ErrorText *e) {
        assert(m);

        int r = check_memory_request(m, "BALLOON", e);
        if (r < 0)
                return r;
        r = balloon_bytes < m->config.mem_bytes + m->config.plug_bytes
                    ? devices_request_balloon(m->devices, balloon_bytes) : -EINVAL;
        return r < 0 ? error_set_errno(e, r, "a balloon of %" PRIu64 " bytes", balloon_bytes) : 0;
}

VmmState machine_state(const Machine *m) {
        assert(m);
        return m->state;
}

bool machine_agent_ready(const Machine *m, const uint8_t **ret_frame, size_t *ret_size) {
        assert(m);

        *ret_frame = m->ready_frame;
        *ret_size = m->ready_size;
        return m->ready_frame;
}

int machine_overlay_fd(const Machine *m) {
        assert(m);

        Overlay *overlay = m->devices ? devices_overlay(m->devices) : NULL;
        return overlay ? overlay_top_fd(overlay) : -EBADF;
}

int machine_tap_fd(const Machine *m) {
        assert(m);
        return m->devices ? devices_tap_fd(m->devices) : -EBADF;
}

const uint8_t *machine_layer_id(const Machine *m) {
        assert(m);
        return m->n_layers > 0 ? m->layer_ids[m->n_layers - 1] : NULL;
}

int machine_console_fd(const Machine *m) {
        assert(m);
        return m->config.console_fd;
}

int machine_counters(Machine *m, CounterFn fn, void *userdata, ErrorText *e) {
        VcpuCounters sum = {};

        assert(m);
        assert(fn);

        if (m->state == VMM_STATE_NEW)
                return machine_wrong_state(m, "STATISTICS", e);

        for (unsigned i = 0; i < m->n_vcpus; i++) {
                VcpuCounters c;

                vcpu_counters(m->vcpus[i], &c);
                sum.exits += c.exits;
                sum.mmio += c.mmio;
                sum.pio += c.pio;
        }
        fn(userdata, "vcpu-exits", sum.exits);
        fn(userdata, "vcpu-mmio", sum.mmio);
        fn(userdata, "vcpu-pio", sum.pio);
        devices_counters(m->devices, fn, userdata);
        return 0;
}

void machine_set_events(Machine *m, const MachineEvents *events) {
        assert(m);
        assert(events);
        m->events = *events;
}

int machine_new(Loop *loop, Machine **ret) {
        assert(loop);
        assert(ret);

        _cleanup_free_ Machine *m = new0(Machine, 1);
        if (!m)
                return -ENOMEM;

        m->loop = loop;
        m->config = BUILD_CONFIG_INIT;
        m->vm = (Vm) { .kvm_fd = -EBADF, .fd = -EBADF };
        serial_init(&m->serial);

        int r = loop_add_timer(loop, on_stop_timeout, m, &m->stop_timer);
        if (r < 0)
                return r;
        r = mailbox_init(&m->mailbox, loop, on_mail, m);
        if (r < 0) {
                loop_remove(m->stop_timer);
                return r;
        }

        *ret = TAKE_PTR(m);
        return 0;
}
