/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>

#include "vmm/snapshot-vcpu.h"

#define MSR_TSC_DEADLINE 0x6e0U
/* Registers of the local APIC's page (Intel SDM, volume 3, 11.4.1). */
#define APIC_LVT_TIMER 0x320U
#define APIC_TIMER_COUNT 0x380U
#define APIC_LVT_MASKED (1U << 16)

/* What KVM says in the flags of its events, and what we give back: there is no SMM. */
#define EVENTS_GIVEN                                                                          \
        (KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_PAYLOAD | \
         KVM_VCPUEVENT_VALID_TRIPLE_FAULT)
#define EVENTS_KNOWN (EVENTS_GIVEN | KVM_VCPUEVENT_VALID_SIPI_VECTOR | KVM_VCPUEVENT_VALID_SMM)

typedef struct MsrBlock {
        struct kvm_msrs head;
        struct kvm_msr_entry entries[MSRS_MAX];
} MsrBlock;

/* An ioctl of a vCPU by its name, which is what the error says. */
#define VCPU_IOCTL(request, argument)                                                         \
        ({                                                                                    \
                int _r = ioctl(fd, request, argument);                                        \
                _r < 0 ? error_set_errno(e, -errno, #request " of vCPU %u", index) : 0;       \
        })

static uint64_t *offset_address(struct kvm_device_attr *attr, uint64_t *offset) {
        *attr = (struct kvm_device_attr) {
                .group = KVM_VCPU_TSC_CTRL,
                .attr = KVM_VCPU_TSC_OFFSET,
                .addr = (uintptr_t) offset,
        };
        return offset;
}

/* Getting */

static int get_msrs(int fd, unsigned index, const MsrList *list, MsrBlock *ret, ErrorText *e) {
        ret->head = (struct kvm_msrs) { .nmsrs = list->n };
        for (unsigned i = 0; i < list->n; i++)
                ret->entries[i] = (struct kvm_msr_entry) { .index = list->index[i] };

        int n = ioctl(fd, KVM_GET_MSRS, &ret->head);
        if (n < 0)
                return error_set_errno(e, -errno, "KVM_GET_MSRS of vCPU %u", index);
        if ((unsigned) n < list->n)
                return error_set(e, -EIO, "KVM does not give MSR 0x%x of vCPU %u", list->index[n], index);
        return 0;
}

static int get_tsc(int fd, unsigned index, uint64_t host_tsc, uint64_t *ret, ErrorText *e) {
        struct kvm_device_attr attr;
        uint64_t offset;

        (void) offset_address(&attr, &offset);
        int r = VCPU_IOCTL(KVM_GET_DEVICE_ATTR, &attr);
        if (r < 0)
                return r;
        *ret = host_tsc + offset;
        return 0;
}

static int get_time(int fd, unsigned index, uint64_t host_tsc, VcpuTime *ret, ErrorText *e) {
        static const MsrList deadline = { .n = 1, .index = { MSR_TSC_DEADLINE } };
        MsrBlock msrs;

        int r = get_tsc(fd, index, host_tsc, &ret->tsc, e);
        if (r >= 0)
                r = get_msrs(fd, index, &deadline, &msrs, e);
        if (r < 0)
                return r;
        ret->deadline = msrs.entries[0].data;
        return 0;
}

/* MP state first, since that processes a pending INIT or SIPI; events last, since other getters may change
 * them. */
static int get_fixed(int fd, unsigned index, VcpuFixed *f, uint8_t *xsave, ErrorText *e) {
        int r = VCPU_IOCTL(KVM_GET_MP_STATE, &f->mp);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_REGS, &f->regs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_SREGS2, &f->sregs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_XSAVE2, xsave);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_XCRS, &f->xcrs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_DEBUGREGS, &f->debugregs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_LAPIC, &f->time.lapic);
        return r;
}

int snapshot_vcpu_save(int fd, unsigned index, const MsrList *msrs, uint32_t xsave_bytes, uint64_t host_tsc,
                       const VcpuTime *pending, SnapshotWriter *w, ErrorText *e) {
        VcpuFixed f = { .n_msrs = msrs->n, .xsave_bytes = xsave_bytes };
        MsrBlock block;

        assert(w);

        _cleanup_free_ uint8_t *xsave = new0(uint8_t, xsave_bytes);
        if (!xsave)
                return error_set(e, -ENOMEM, "out of memory");

        int r = get_fixed(fd, index, &f, xsave, e);
        if (r >= 0)
                r = get_msrs(fd, index, msrs, &block, e);
        if (r >= 0)
                r = get_time(fd, index, host_tsc, &f.time, e);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_GET_VCPU_EVENTS, &f.events);
        if (r < 0)
                return r;

        if (pending)
                f.time = *pending;
        snapshot_writer_begin(w, SNAPSHOT_SECTION_VCPU, index);
        snapshot_writer_put(w, &f, sizeof(f));
        snapshot_writer_put(w, block.entries, msrs->n * sizeof(struct kvm_msr_entry));
        snapshot_writer_put(w, xsave, xsave_bytes);
        return 0;
}

/* Checking */

static bool in_list(const MsrList *list, uint32_t index) {
        for (unsigned i = 0; i < list->n; i++)
                if (list->index[i] == index)
                        return true;
        return false;
}

static struct kvm_msr_entry msr_entry(const uint8_t *entries, unsigned i) {
        struct kvm_msr_entry entry;

        memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
        return entry;
}

static int check_msrs(const SnapshotReader *r, const MsrList *list, const VcpuState *s, ErrorText *e) {
        for (unsigned i = 0; i < s->fixed.n_msrs; i++) {
                uint32_t index = msr_entry(s->msrs, i).index;

                if (!in_list(list, index))
                        return snapshot_bad(r, e, "MSR 0x%x, which this host does not restore", index);
                for (unsigned k = 0; k < i; k++)
                        if (msr_entry(s->msrs, k).index == index)
                                return snapshot_bad(r, e, "MSR 0x%x twice", index);
        }
        return 0;
}

static int check_fixed(const SnapshotReader *r, uint32_t xsave_bytes, const VcpuFixed *f, ErrorText *e) {
        static const typeof(f->events.smi) no_smi;

        if (f->n_msrs > MSRS_MAX)
                return snapshot_bad(r, e, "%u MSRs", f->n_msrs);
        if (f->xsave_bytes != xsave_bytes)
                return snapshot_bad(r, e, "an XSAVE area of %u bytes, this host has %u", f->xsave_bytes, xsave_bytes);
        if ((f->events.flags & ~EVENTS_KNOWN) || memcmp(&f->events.smi, &no_smi, sizeof(no_smi)) != 0)
                return snapshot_bad(r, e, "unknown events");
        return 0;
}

int snapshot_vcpu_parse(SnapshotReader *r, const MsrList *msrs, uint32_t xsave_bytes, VcpuState *ret,
                        ErrorText *e) {
        assert(ret);

        int k = snapshot_read(r, &ret->fixed, sizeof(ret->fixed), e);
        if (k >= 0)
                k = check_fixed(r, xsave_bytes, &ret->fixed, e);
        if (k >= 0)
                k = snapshot_read_view(r, ret->fixed.n_msrs * sizeof(struct kvm_msr_entry), &ret->msrs, e);
        if (k >= 0)
                k = snapshot_read_view(r, xsave_bytes, &ret->xsave, e);
        if (k >= 0)
                k = snapshot_read_end(r, e);
        return k < 0 ? k : check_msrs(r, msrs, ret, e);
}

/* Setting */

static int set_msrs(int fd, unsigned index, MsrBlock *block, ErrorText *e) {
        int n = ioctl(fd, KVM_SET_MSRS, &block->head);
        if (n < 0)
                return error_set_errno(e, -errno, "KVM_SET_MSRS of vCPU %u", index);
        if ((unsigned) n < block->head.nmsrs)
                return error_set(e, -EIO, "KVM refuses 0x%llx for MSR 0x%x of vCPU %u", block->entries[n].data,
                                 block->entries[n].index, index);
        return 0;
}

static int load_msrs(int fd, unsigned index, const VcpuState *s, ErrorText *e) {
        MsrBlock block = { .head.nmsrs = s->fixed.n_msrs };

        memcpy(block.entries, s->msrs, s->fixed.n_msrs * sizeof(struct kvm_msr_entry));
        return set_msrs(fd, index, &block, e);
}

/* Without a timer, which would run, and fire, before the guest does. */
static int load_quiet_lapic(int fd, unsigned index, const struct kvm_lapic_state *saved, ErrorText *e) {
        struct kvm_lapic_state lapic = *saved;
        uint32_t timer, none = 0;

        memcpy(&timer, lapic.regs + APIC_LVT_TIMER, sizeof(timer));
        timer |= APIC_LVT_MASKED;
        memcpy(lapic.regs + APIC_LVT_TIMER, &timer, sizeof(timer));
        memcpy(lapic.regs + APIC_TIMER_COUNT, &none, sizeof(none));
        return VCPU_IOCTL(KVM_SET_LAPIC, &lapic);
}

/* SREGS bring the APIC base that the local APIC's layout depends on, the local APIC has to be there before
 * MSRs that arm something in it; REGS clear pending exceptions, so events come last. */
int snapshot_vcpu_load(int fd, unsigned index, const VcpuState *s, ErrorText *e) {
        struct kvm_mp_state mp = s->fixed.mp;
        struct kvm_regs regs = s->fixed.regs;
        struct kvm_sregs2 sregs = s->fixed.sregs;
        struct kvm_xcrs xcrs = s->fixed.xcrs;
        struct kvm_debugregs debugregs = s->fixed.debugregs;
        struct kvm_vcpu_events events = s->fixed.events;

        events.flags &= EVENTS_GIVEN;

        int r = VCPU_IOCTL(KVM_SET_MP_STATE, &mp);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_SREGS2, &sregs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_XCRS, &xcrs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_XSAVE, s->xsave);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_DEBUGREGS, &debugregs);
        if (r >= 0)
                r = load_quiet_lapic(fd, index, &s->fixed.time.lapic, e);
        if (r >= 0)
                r = load_msrs(fd, index, s, e);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_REGS, &regs);
        if (r >= 0)
                r = VCPU_IOCTL(KVM_SET_VCPU_EVENTS, &events);
        return r;
}

int snapshot_vcpu_set_tsc(int fd, unsigned index, uint64_t tsc, uint64_t host_tsc, ErrorText *e) {
        struct kvm_device_attr attr;
        uint64_t offset;

        *offset_address(&attr, &offset) = tsc - host_tsc;
        return VCPU_IOCTL(KVM_SET_DEVICE_ATTR, &attr);
}

/* PVM takes an offset of the TSC and ignores it: the guest sees the host's. Its deadline is moved along, else it would
 * come early, or after a reboot of the host in days. */
static int follow_tsc(int fd, unsigned index, VcpuTime *time, uint64_t host_tsc, ErrorText *e) {
        uint64_t there;

        int r = get_tsc(fd, index, host_tsc, &there, e);
        if (r < 0 || there == time->tsc)
                return r;
        if (time->deadline > time->tsc)
                time->deadline = there + (time->deadline - time->tsc);
        else if (time->deadline > 0)
                time->deadline = there;
        time->tsc = there;
        return 0;
}

int snapshot_vcpu_set_time(int fd, unsigned index, VcpuTime *time, uint64_t host_tsc, ErrorText *e) {
        struct kvm_lapic_state lapic = time->lapic;

        int r = snapshot_vcpu_set_tsc(fd, index, time->tsc, host_tsc, e);
        if (r >= 0)
                r = follow_tsc(fd, index, time, host_tsc, e);
        return r < 0 ? r : VCPU_IOCTL(KVM_SET_LAPIC, &lapic);
}

/* Also when it is 0: another state's timer may still be armed. KVM drops it when the timer is not in deadline
 * mode, so that the local APIC has to be in place. */
int snapshot_vcpu_set_deadline(int fd, unsigned index, const VcpuTime *time, ErrorText *e) {
        MsrBlock block = {
                .head.nmsrs = 1,
                .entries = { { .index = MSR_TSC_DEADLINE, .data = time->deadline } },
        };
        return set_msrs(fd, index, &block, e);
}

int snapshot_vcpu_was_away(int fd, unsigned index, ErrorText *e) {
        /* Of no use to a guest without kvm-clock: EINVAL. */
        if (ioctl(fd, KVM_KVMCLOCK_CTRL, 0) < 0 && errno != EINVAL)
                return error_set_errno(e, -errno, "KVM_KVMCLOCK_CTRL of vCPU %u", index);
        return 0;
}
