/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <x86intrin.h>

#include "base/clock.h"
#include "vmm/machine-private.h"
#include "vmm/snapshot-state.h"
#include "vmm/vmgenid.h"

/* How long all vCPUs together may take to leave the guest: they do so at once, when they get a CPU. cubed waits for both this
 * and the disks. */
#define PAUSE_TIMEOUT_USEC (20 * USEC_PER_SEC)

/* Pause */

static void run_vcpus(Machine *m) {
        for (unsigned i = 0; i < m->n_vcpus; i++)
                vcpu_resume(m->vcpus[i]);
}

static int park_vcpus(Machine *m, ErrorText *e) {
        for (unsigned i = 0; i < m->n_vcpus; i++)
                vcpu_pause(m->vcpus[i]);
        uint64_t until = now_usec() + PAUSE_TIMEOUT_USEC;
        for (unsigned i = 0; i < m->n_vcpus; i++) {
                uint64_t now = now_usec();
                if (!vcpu_wait_parked(m->vcpus[i], until > now ? until - now : 0))
                        return error_set(e, -ETIMEDOUT, "vCPU %u does not stop", i);
        }
        return 0;
}

int machine_pause(Machine *m, ErrorText *e) {
        assert(m);

        if (m->state != VMM_STATE_RUNNING)
                return machine_wrong_state(m, "PAUSE", e);

        int r = park_vcpus(m, e);
        if (r >= 0) {
                r = devices_pause(m->devices);
                if (r < 0)
                        (void) error_set_errno(e, r, "a disk does not come to rest");
        }
        if (r < 0) {
                run_vcpus(m);
                return r;
        }
        m->state = VMM_STATE_PAUSED;
        return 0;
}

static int set_times(Machine *m, ErrorText *e) {
        uint64_t host_tsc = __rdtsc();
        int r = 0;

        for (unsigned i = 0; i < m->n_vcpus && r >= 0; i++)
                r = i < m->n_times ? snapshot_vcpu_set_time(vcpu_fd(m->vcpus[i]), i, &m->times[i], host_tsc, e) :
                                     snapshot_vcpu_set_tsc(vcpu_fd(m->vcpus[i]), i, m->times[0].tsc, host_tsc, e);
        if (r >= 0)
                r = vm_set_clock(&m->vm, m->clock_nsec, e);
        for (unsigned i = 0; i < m->n_times && r >= 0; i++)
                r = snapshot_vcpu_set_deadline(vcpu_fd(m->vcpus[i]), i, &m->times[i], e);
        return r;
}

static int tell_was_away(Machine *m, ErrorText *e) {
        int r = 0;

        for (unsigned i = 0; i < m->n_vcpus && r >= 0; i++)
                r = snapshot_vcpu_was_away(vcpu_fd(m->vcpus[i]), i, e);
        return r;
}

int machine_set_time(Machine *m, ErrorText *e) {
        assert(m);

        if (m->times) {
                int r = set_times(m, e);
                if (r < 0)
                        return r;
                free(TAKE_PTR(m->times));
                m->n_times = 0;
        }
        return tell_was_away(m, e);
}

/* Resume */

static void note_layers(Machine *m, const LayerStack *stack) {
        m->n_layers = stack->n;
        m->n_layer_runs = layer_stack_runs(stack);
        for (unsigned i = 0; i < stack->n; i++)
                memcpy(m->layer_ids[i], stack->layers[i].header.id, SNAPSHOT_ID_BYTES);
}

/* The uppermost one is what was saved last, on top of what is there: all that is private now is in it. */
static int check_saved(const Machine *m, const Layer *l, ErrorText *e) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        const uint8_t *top = m->n_layers > 0 ? m->layer_ids[m->n_layers - 1] : none;

        if (memcmp(l->header.id, m->saved_id, sizeof(m->saved_id)) != 0 || memcmp(m->saved_id, none, sizeof(none)) == 0)
                return error_set(e, -EBADMSG, "RESUME: the memory file is not of what was saved last");
        if (memcmp(l->header.parent, top, sizeof(none)) != 0)
                return error_set(e, -EBADMSG, "RESUME: the memory file stands on another one");
        return 0;
}

static int open_one(const Machine *m, int fd, LayerStack *stack, ErrorText *e) {
        int r = layer_open(&stack->layers[0], fd, &m->vm.mem, e);
        if (r < 0)
                return r;
        stack->n = 1;

        r = check_saved(m, &stack->layers[0], e);
        if (r < 0)
                return r;
        if (m->n_layers == SNAPSHOT_LAYERS_MAX || m->n_layer_runs + layer_stack_runs(stack) > LAYER_RUNS_MAX)
                return error_set(e, -E2BIG, "RESUME: the memory has %u layers with %u runs, no more can be: give a "
                                 "shorter chain of the same content", m->n_layers, m->n_layer_runs);
        return 0;
}

/* One file for the top of what is there, or several for all of it. */
static int open_new_layers(const Machine *m, const SnapshotFds *files, LayerStack *stack, ErrorText *e) {
        if (files->n_layers == 0)
                return 0;
        if (files->n_layers == 1)
                return open_one(m, files->layer_fds[0], stack, e);

        int r = layer_stack_open(stack, files->layer_fds, files->n_layers, m->saved_id, &m->vm.mem, e);
        return r < 0 ? r : check_saved(m, &stack->layers[stack->n - 1], e);
}

static int prepare_disk(Machine *m, OverlayFds *fds, OverlayChange *ret, ErrorText *e) {
        Overlay *overlay = devices_overlay(m->devices);

        if (fds->overlay_fd < 0 && !fds->has_frozen && fds->n_layers == 0)
                return 0;
        if (!overlay)
                return error_set(e, -EINVAL, "RESUME: an overlay, but there is no disk that could be written");
        return overlay_prepare_next(overlay, fds, ret, e);
}

/* Their content is what the guest sees anyway; a mapping that fails may leave less than that. */
static int put_beneath(Machine *m, const LayerStack *stack, ErrorText *e) {
        bool touched = true;
        int r;

        if (stack->n == 0)
                return 0;
        r = stack->n == 1 ? layer_map(&stack->layers[0], &m->vm.mem, e) :
                            layer_stack_map(stack, &m->vm.mem, &touched, e);
        if (r < 0) {
                if (touched)
                        m->state = VMM_STATE_TORN;
                return r;
        }

        if (stack->n > 1)
                note_layers(m, stack);
        else {
                memcpy(m->layer_ids[m->n_layers++], stack->layers[0].header.id, SNAPSHOT_ID_BYTES);
                m->n_layer_runs += layer_stack_runs(stack);
        }
        return 0;
}

/* What can be refused is, before anything changes; then memory and disk change together. */
static int prepare_run(Machine *m, const uint8_t *frame, size_t size, SnapshotFds *files, ErrorText *e) {
        _cleanup_overlay_change_ OverlayChange disk = {};
        _cleanup_layer_stack_ LayerStack stack = {};

        int r = open_new_layers(m, files, &stack, e);
        if (r >= 0)
                r = prepare_disk(m, &files->disk, &disk, e);
        if (r >= 0 && frame)
                r = machine_keep_claim(m, "RESUME", frame, size, e);
        if (r >= 0)
                r = machine_set_time(m, e);
        if (r >= 0)
                r = put_beneath(m, &stack, e);
        if (r < 0)
                return r;

        if (devices_overlay(m->devices))
                overlay_change(devices_overlay(m->devices), &disk);
        r = frame ? vmgenid_renew(&m->vm.mem, e) : 0;
        if (r < 0)
                m->state = VMM_STATE_TORN;
        return r;
}

static int resume(Machine *m, const uint8_t *frame, size_t size, SnapshotFds *files, ErrorText *e) {
        if (m->state != VMM_STATE_PAUSED)
                return machine_wrong_state(m, "RESUME", e);
        if (!frame != !m->needs_claim)
                return error_set(e, -EINVAL, m->needs_claim ? "RESUME: a guest that was rolled back needs a claim" :
                                                              "RESUME: a claim, but the guest was not rolled back");
        int r = prepare_run(m, frame, size, files, e);
        if (r < 0)
                return r;

        if (frame) {
                devices_net_hold(m->devices, true);
                machine_send_claim(m);
        }
        memset(m->saved_id, 0, sizeof(m->saved_id));
        m->needs_claim = false;
        m->state = VMM_STATE_RUNNING;
        devices_resume(m->devices);
        run_vcpus(m);
        return 0;
}

int machine_resume(Machine *m, const uint8_t *frame, size_t size, SnapshotFds *files, ErrorText *e) {
        assert(m);
        assert(files);

        int r = resume(m, frame, size, files, e);
        overlay_fds_done(&files->disk);
        return r;
}

/* Save */

static int save_config(const Machine *m, SnapshotWriter *w, ErrorText *e) {
        ConfigState s = {
                .mem_bytes = m->config.mem_bytes,
                .n_cpus = m->n_vcpus,
                .max_cpus = m->config.max_cpus,
                .cpuid_hide = m->config.cpuid_hide,
                .plug_bytes = m->config.plug_bytes,
        };

        int khz = ioctl(vcpu_fd(m->vcpus[0]), KVM_GET_TSC_KHZ, 0);
        if (khz < 0)
                return error_set_errno(e, -errno, "KVM_GET_TSC_KHZ");
        s.tsc_khz = (uint32_t) khz;
        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++)
                s.disks[i] = (DiskShape) {
                        .present = m->config.disks[i].present,
                        .read_only = m->config.disks[i].read_only,
                        .disk_bytes = m->config.disks[i].disk_bytes,
                };
        snapshot_writer_begin(w, SNAPSHOT_SECTION_CONFIG, 0);
        snapshot_writer_put(w, &s, sizeof(s));
        return 0;
}

static void save_memmap(const Machine *m, SnapshotWriter *w) {
        MemmapState s = { .n_regions = m->vm.mem.n_regions };

        for (unsigned i = 0; i < s.n_regions; i++) {
                s.regions[i].gpa = m->vm.mem.regions[i].gpa;
                s.regions[i].bytes = m->vm.mem.regions[i].size;
        }
        snapshot_writer_begin(w, SNAPSHOT_SECTION_MEMMAP, 0);
        snapshot_writer_put(w, &s, sizeof(s));
}

/* vCPUs and clock, of one instant. */
static int save_cpus(Machine *m, SnapshotWriter *w, ErrorText *e) {
        uint64_t clock_nsec = m->clock_nsec, host_tsc = __rdtsc();
        int r = 0;

        if (!m->times)
                r = vm_get_clock(&m->vm, &clock_nsec, e);
        for (unsigned i = 0; i < m->n_vcpus && r >= 0; i++)
                r = snapshot_vcpu_save(vcpu_fd(m->vcpus[i]), i, &m->msrs, m->xsave_bytes, host_tsc,
                                       i < m->n_times ? &m->times[i] : NULL, w, e);
        snapshot_writer_begin(w, SNAPSHOT_SECTION_CLOCK, 0);
        snapshot_writer_put(w, &clock_nsec, sizeof(clock_nsec));
        return r;
}

static int save_all(Machine *m, SnapshotWriter *w, ErrorText *e) {
        int r = save_config(m, w, e);
        if (r < 0)
                return r;
        save_memmap(m, w);
        cpuid_save(m->cpuid, m->config.max_cpus, m->config.cpuid_hide, w);
        r = save_cpus(m, w, e);
        if (r < 0)
                return r;
        devices_save(m->devices, w);
        serial_save(&m->serial, w);
        snapshot_writer_begin(w, SNAPSHOT_SECTION_AGENT, 0);
        snapshot_writer_put(w, m->ready_frame, m->ready_size);
        return 0;
}

static int write_state(int fd, const uint8_t *data, size_t size, ErrorText *e) {
        struct stat st;
        size_t done = 0;

        if (fstat(fd, &st) < 0)
                return error_set_errno(e, -errno, "state file");
        if (!S_ISREG(st.st_mode) || st.st_size != 0)
                return error_set(e, -EINVAL, "the state file is not an empty regular file");
        while (done < size) {
                ssize_t n = pwrite(fd, data + done, size - done, (off_t) done);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set_errno(e, -errno, "writing the state file");
                done += (size_t) n;
        }
        return 0;
}

static int save_state(Machine *m, int fd, const uint8_t id[static SNAPSHOT_ID_BYTES], ErrorText *e) {
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        int r = save_all(m, &w, e);
        if (r < 0)
                return r;
        r = snapshot_writer_finish(&w, id, m->n_layers > 0 ? m->layer_ids[m->n_layers - 1] : none, &data, &size);
        if (r < 0)
                return error_set_errno(e, r, "state file");
        return write_state(fd, data, size, e);
}

int machine_save(Machine *m, int state_fd, int pagemap_fd, uint8_t ret_id[static SNAPSHOT_ID_BYTES],
                 VmmRun ret_runs[static PAGEMAP_RUNS_MAX], size_t *ret_n_runs, ErrorText *e) {
        uint8_t id[SNAPSHOT_ID_BYTES];

        assert(m);

        if (m->state != VMM_STATE_PAUSED && !(m->state == VMM_STATE_BUILT && m->loaded))
                return machine_wrong_state(m, "SAVE", e);
        if (getrandom(id, sizeof(id), 0) != sizeof(id))
                return error_set_errno(e, -errno, "getrandom");

        int r = save_state(m, state_fd, id, e);
        if (r >= 0)
                r = pagemap_private_runs(pagemap_fd, &m->vm.mem, ret_runs, ret_n_runs, e);
        if (r < 0)
                return r;
        memcpy(m->saved_id, id, sizeof(id));
        memcpy(ret_id, id, sizeof(id));
        return 0;
}

/* Load and rollback */

static int check_disks(const Machine *m, const ConfigState *c, ErrorText *e) {
        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++) {
                const DiskConfig *d = &m->config.disks[i];

                if (c->disks[i].present != d->present || c->disks[i].read_only != d->read_only)
                        return error_set(e, -EXDEV, "disk %u is not as the snapshot had it", i);
                if (c->disks[i].disk_bytes > d->disk_bytes)
                        return error_set(e, -EXDEV, "disk %u has %llu bytes, the snapshot had %llu", i,
                                         (unsigned long long) d->disk_bytes,
                                         (unsigned long long) c->disks[i].disk_bytes);
        }
        return 0;
}

static int parse_vcpus(const Machine *m, const SnapshotFile *f, unsigned n, VcpuState *ret, ErrorText *e) {
        SnapshotReader reader;
        int r = 0;

        for (unsigned i = 0; i < n && r >= 0; i++) {
                r = snapshot_file_section(f, SNAPSHOT_SECTION_VCPU, i, &reader, e);
                if (r >= 0)
                        r = snapshot_vcpu_parse(&reader, &m->msrs, m->xsave_bytes, &ret[i], e);
        }
        return r;
}

static int load_vcpus(Machine *m, const VcpuState *states, unsigned n, ErrorText *e) {
        int r = 0;

        for (unsigned i = 0; i < n && r >= 0; i++)
                r = snapshot_vcpu_load(vcpu_fd(m->vcpus[i]), i, &states[i], e);
        return r;
}

/* All that a state needs memory for, so that putting it in place can't fail. */
typedef struct Pieces {
        VcpuState *vcpus;
        unsigned n_vcpus;
        VcpuTime *times;
        DevicesLoad *devices;
        uint8_t *agent;
} Pieces;

static void pieces_done(Pieces *p) {
        free(p->vcpus);
        free(p->times);
        devices_load_free(p->devices);
        free(p->agent);
        *p = (Pieces) {};
}
#define _cleanup_pieces_ _cleanup_(pieces_done)

static int prepare(Machine *m, const SnapshotState *s, OverlayFds *disk, Pieces *p, ErrorText *e) {
        p->n_vcpus = s->config.n_cpus;
        p->vcpus = new0(VcpuState, p->n_vcpus);
        p->times = new0(VcpuTime, p->n_vcpus);
        p->agent = malloc(s->agent_bytes + 1);
        if (!p->vcpus || !p->times || !p->agent)
                return error_set(e, -ENOMEM, "out of memory");

        int r = parse_vcpus(m, &s->file, p->n_vcpus, p->vcpus, e);
        if (r >= 0)
                r = devices_prepare(m->devices, &s->file, disk, &p->devices, e);
        if (r >= 0 && s->agent && !devices_load_has_control(p->devices))
                r = error_set(e, -EBADMSG, "state file: an agent without a connection");
        for (unsigned i = 0; i < p->n_vcpus && r >= 0; i++)
                p->times[i] = p->vcpus[i].fixed.time;
        if (r >= 0 && s->agent)
                memcpy(p->agent, s->agent, s->agent_bytes);
        return r;
}

static void put_times(Machine *m, VcpuTime *times, unsigned n, uint64_t clock_nsec) {
        free(m->times);
        m->times = times;
        m->n_times = n;
        m->clock_nsec = clock_nsec;
}

static void put_in_place(Machine *m, const SnapshotState *s, Pieces *p) {
        devices_apply(m->devices, TAKE_PTR(p->devices));
        serial_apply(&m->serial, &s->serial);
        put_times(m, TAKE_PTR(p->times), p->n_vcpus, s->clock_nsec);
        free(TAKE_PTR(m->ready_frame));
        m->ready_size = 0;
        if (s->agent) {
                m->ready_frame = TAKE_PTR(p->agent);
                m->ready_size = s->agent_bytes;
                atomic_store(&m->agent_seen, true);
        }
        m->needs_claim = true;
        memset(m->saved_id, 0, sizeof(m->saved_id));
}

static int check_tsc(const Machine *m, const SnapshotState *s, ErrorText *e) {
        int khz = ioctl(vcpu_fd(m->vcpus[0]), KVM_GET_TSC_KHZ, 0);
        if (khz <= 0)
                return error_set_errno(e, khz < 0 ? -errno : -EOPNOTSUPP, "KVM_GET_TSC_KHZ");

        return snapshot_state_check_tsc(s, m->cpuid, (uint32_t) khz, e);
}

static int add_cpus(Machine *m, const SnapshotState *s, ErrorText *e) {
        CpuidTable host, cpuid;
        SnapshotReader reader;

        int r = cpuid_load(m->config.kvm_fd, &host, e);
        if (r >= 0)
                r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_CPUID, 0, &reader, e);
        if (r >= 0)
                r = cpuid_parse(&reader, &host, m->config.max_cpus, m->config.cpuid_hide, &cpuid, e);
        if (r >= 0)
                r = machine_add_vcpus(m, &cpuid, e);
        return r < 0 ? r : check_tsc(m, s, e);
}

static int take_shape(Machine *m, const SnapshotState *s, ErrorText *e) {
        BuildConfig *c = &m->config;

        c->mem_bytes = s->config.mem_bytes;
        c->plug_bytes = s->config.plug_bytes;
        c->max_cpus = s->config.max_cpus;
        c->cpuid_hide = s->config.cpuid_hide;
        if (c->n_cpus == 0)
                c->n_cpus = s->config.n_cpus;
        /* More than the snapshot has wait for INIT, as after a boot. */
        if (c->n_cpus < s->config.n_cpus || c->n_cpus > c->max_cpus)
                return error_set(e, -EXDEV, "LOAD: %u CPUs; the snapshot has %u, and %u are possible", c->n_cpus,
                                 s->config.n_cpus, c->max_cpus);
        return check_disks(m, &s->config, e);
}

static int load_memory(Machine *m, const SnapshotState *s, ErrorText *e) {
        _cleanup_layer_stack_ LayerStack stack = {};
        bool touched;

        int r = layer_stack_open(&stack, m->config.layer_fds, m->config.n_layers, s->file.header.id, &m->vm.mem, e);
        if (r >= 0)
                r = layer_stack_map(&stack, &m->vm.mem, &touched, e);
        if (r >= 0)
                note_layers(m, &stack);
        return r;
}

static void close_snapshot(BuildConfig *c) {
        c->state_fd = safe_close(c->state_fd);
        for (unsigned i = 0; i < c->n_layers; i++)
                c->layer_fds[i] = safe_close(c->layer_fds[i]);
}

static int load(Machine *m, ErrorText *e) {
        OverlayFds same = OVERLAY_FDS_NONE;
        _cleanup_snapshot_state_ SnapshotState s = {};
        _cleanup_pieces_ Pieces p = {};

        int r = snapshot_state_read(m->config.state_fd, &s, e);
        if (r >= 0)
                r = take_shape(m, &s, e);
        if (r >= 0 && m->config.console_fd >= 0)
                r = serial_attach(&m->serial, m->config.console_fd, e);
        if (r >= 0)
                r = vm_init(&m->vm, m->config.kvm_fd, m->config.mem_bytes, m->config.plug_bytes, e);
        if (r >= 0)
                r = snapshot_state_check_memmap(&s, &m->vm.mem, e);
        if (r >= 0)
                r = load_memory(m, &s, e);
        if (r >= 0)
                r = vmgenid_renew(&m->vm.mem, e);
        if (r >= 0)
                r = machine_add_devices(m, e);
        if (r >= 0)
                r = add_cpus(m, &s, e);
        if (r >= 0)
                r = prepare(m, &s, &same, &p, e);
        if (r >= 0)
                r = load_vcpus(m, p.vcpus, p.n_vcpus, e);
        if (r < 0)
                return r;

        put_in_place(m, &s, &p);
        close_snapshot(&m->config);
        return 0;
}

int machine_load(Machine *m, BuildConfig *config, ErrorText *e) {
        assert(m);
        assert(config);

        if (m->state != VMM_STATE_NEW) {
                build_config_done(config);
                return machine_wrong_state(m, "LOAD", e);
        }

        m->config = *config;
        *config = BUILD_CONFIG_INIT;

        int r = load(m, e);
        if (r < 0) {
                machine_unbuild(m);
                return r;
        }

        m->loaded = true;
        m->state = VMM_STATE_BUILT;
        return 0;
}

/* vCPUs that have run keep their CPUID: nothing may be missing there that the guest had seen. */
static int check_same_cpu(const Machine *m, const SnapshotState *s, ErrorText *e) {
        SnapshotReader reader;
        CpuidTable cpuid;

        int r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_CPUID, 0, &reader, e);
        return r < 0 ? r : cpuid_parse(&reader, m->cpuid, m->config.max_cpus, m->config.cpuid_hide, &cpuid, e);
}

static int check_same_shape(const Machine *m, const SnapshotState *s, ErrorText *e) {
        const ConfigState *c = &s->config;

        if (c->mem_bytes != m->config.mem_bytes || c->plug_bytes != m->config.plug_bytes ||
            c->max_cpus != m->config.max_cpus || c->n_cpus != m->n_vcpus || c->cpuid_hide != m->config.cpuid_hide)
                return error_set(e, -EXDEV, "ROLLBACK: the snapshot is of a machine of another shape");
        int r = snapshot_state_check_memmap(s, &m->vm.mem, e);
        if (r >= 0)
                r = check_same_cpu(m, s, e);
        return r < 0 ? r : check_disks(m, c, e);
}

static bool same_layers(const Machine *m, const LayerStack *stack) {
        if (m->n_layers != stack->n)
                return false;
        for (unsigned i = 0; i < stack->n; i++)
                if (memcmp(m->layer_ids[i], stack->layers[i].header.id, SNAPSHOT_ID_BYTES) != 0)
                        return false;
        return true;
}

static int roll_memory_back(Machine *m, const LayerStack *stack, bool *ret_touched, ErrorText *e) {
        int r;

        /* After a half-done one nothing is known about what is mapped. */
        if (m->state != VMM_STATE_TORN && same_layers(m, stack)) {
                *ret_touched = true;
                r = guest_mem_drop_private(&m->vm.mem);
                if (r < 0)
                        return error_set_errno(e, r, "dropping private pages");
        } else {
                r = layer_stack_map(stack, &m->vm.mem, ret_touched, e);
                if (r < 0)
                        return r;
        }
        r = vm_memory_changed(&m->vm, e);
        if (r >= 0)
                note_layers(m, stack);
        return r;
}

/* What the vCPUs are now, as a state file of its own, to put back. */
static int keep_vcpus(Machine *m, SnapshotWriter *w, uint8_t **ret, SnapshotFile *ret_file, ErrorText *e) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        size_t size;

        int r = save_cpus(m, w, e);
        if (r < 0)
                return r;
        r = snapshot_writer_finish(w, none, none, ret, &size);
        if (r < 0)
                return error_set_errno(e, r, "keeping the present state");
        return snapshot_file_parse(*ret, size, ret_file, e);
}

/* The vCPUs' old state and their memory are still there; only their time has stood still. */
static int put_back(Machine *m, const SnapshotFile *old) {
        _cleanup_free_ VcpuState *states = new0(VcpuState, m->n_vcpus);
        _cleanup_free_ VcpuTime *times = new0(VcpuTime, m->n_vcpus);
        uint64_t clock_nsec;

        if (!states || !times)
                return -ENOMEM;
        int r = parse_vcpus(m, old, m->n_vcpus, states, NULL);
        if (r >= 0)
                r = snapshot_file_read(old, SNAPSHOT_SECTION_CLOCK, &clock_nsec, sizeof(clock_nsec), NULL);
        if (r >= 0)
                r = load_vcpus(m, states, m->n_vcpus, NULL);
        if (r < 0)
                return r;
        for (unsigned i = 0; i < m->n_vcpus; i++)
                times[i] = states[i].fixed.time;
        put_times(m, TAKE_PTR(times), m->n_vcpus, clock_nsec);
        return 0;
}

/* vCPUs first: what KVM refuses, it refuses while the memory is still the old one. */
static int roll_back(Machine *m, const SnapshotState *s, const LayerStack *stack, Pieces *p, ErrorText *e) {
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        _cleanup_free_ uint8_t *old_data = NULL;
        SnapshotFile old = {};
        bool touched = false;

        int r = keep_vcpus(m, &w, &old_data, &old, e);
        if (r < 0)
                return r;

        r = load_vcpus(m, p->vcpus, p->n_vcpus, e);
        if (r >= 0)
                r = roll_memory_back(m, stack, &touched, e);
        if (r < 0) {
                if (touched || m->state == VMM_STATE_TORN || put_back(m, &old) < 0)
                        m->state = VMM_STATE_TORN;
                return r;
        }

        put_in_place(m, s, p);
        m->state = VMM_STATE_PAUSED;
        return 0;
}

static int rollback(Machine *m, SnapshotFds *files, ErrorText *e) {
        _cleanup_layer_stack_ LayerStack stack = {};
        _cleanup_snapshot_state_ SnapshotState s = {};
        _cleanup_pieces_ Pieces p = {};

        if (m->state != VMM_STATE_PAUSED && m->state != VMM_STATE_TORN)
                return machine_wrong_state(m, "ROLLBACK", e);

        int r = snapshot_state_read(files->state_fd, &s, e);
        if (r >= 0)
                r = check_same_shape(m, &s, e);
        if (r >= 0)
                r = layer_stack_open(&stack, files->layer_fds, files->n_layers, s.file.header.id, &m->vm.mem, e);
        if (r >= 0)
                r = prepare(m, &s, &files->disk, &p, e);
        return r < 0 ? r : roll_back(m, &s, &stack, &p, e);
}

int machine_rollback(Machine *m, SnapshotFds *files, ErrorText *e) {
        assert(m);
        assert(files);

        int r = rollback(m, files, e);
        overlay_fds_done(&files->disk);
        return r;
}
