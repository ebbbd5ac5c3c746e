/* SPDX-License-Identifier: Apache-2.0 */
#include <asm/kvm_para.h>
#include <sys/ioctl.h>

#include "base/vmm-proto.h"
#include "vmm/cpuid.h"

#define BIT(n) (1U << (n))

/* Leaf 1. Names of bits as in the Intel SDM, volume 2, CPUID, and the AMD APM, volume 3. */
#define L1_ECX_HIDDEN                                                           \
        (BIT(2)   /* DTES64 */ | BIT(3)   /* MONITOR */ | BIT(4)  /* DS-CPL */ | \
         BIT(5)   /* VMX */    | BIT(6)   /* SMX */     | BIT(7)  /* EIST */ |   \
         BIT(8)   /* TM2 */    | BIT(11)  /* SDBG */    | BIT(14) /* xTPR */ |   \
         BIT(15)  /* PDCM */   | BIT(18)  /* DCA */)
#define L1_ECX_X2APIC BIT(21)
#define L1_ECX_TSC_DEADLINE BIT(24)
#define L1_ECX_HYPERVISOR BIT(31)
#define L1_ECX_XSAVE                                                            \
        (BIT(12) /* FMA */ | BIT(26) /* XSAVE */ | BIT(27) /* OSXSAVE */ |      \
         BIT(28) /* AVX */ | BIT(29) /* F16C */)
#define L1_EDX_HIDDEN (BIT(21) /* DS */ | BIT(22) /* ACPI thermal */ | BIT(29) /* TM */)
#define L1_EDX_HTT BIT(28)

/* Leaf 7, subleaf 0 */
#define L7_EBX_HIDDEN                                                           \
        (BIT(2)  /* SGX */   | BIT(4)  /* HLE */ | BIT(11) /* RTM */ |          \
         BIT(12) /* RDT-M */ | BIT(14) /* MPX */ | BIT(15) /* RDT-A */ |        \
         BIT(25) /* PT */)
#define L7_ECX_HIDDEN                                                           \
        (BIT(3)  /* PKU */ | BIT(4)  /* OSPKE */  | BIT(5)  /* WAITPKG */ |     \
         BIT(23) /* KL */  | BIT(29) /* ENQCMD */ | BIT(30) /* SGX_LC */ |      \
         BIT(31) /* PKS */)
#define L7_EDX_HIDDEN                                                           \
        (BIT(11) /* RTM_ALWAYS_ABORT */ | BIT(13) /* RTM_FORCE_ABORT */ |       \
         BIT(15) /* hybrid */           | BIT(16) /* TSXLDTRK */ |              \
         BIT(18) /* PCONFIG */          | BIT(19) /* arch LBR */ |              \
         BIT(22) /* AMX-BF16 */ | BIT(24) /* AMX-TILE */ | BIT(25) /* AMX-INT8 */)
#define L7_EBX_XSAVE                                                            \
        (BIT(5) /* AVX2 */ | BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) |  \
         BIT(28) | BIT(30) | BIT(31) /* AVX-512 */)
#define L7_ECX_XSAVE                                                            \
        (BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14) /* AVX-512 */ |          \
         BIT(7) /* SHSTK */ | BIT(9) /* VAES */ | BIT(10) /* VPCLMULQDQ */)
#define L7_EDX_XSAVE (BIT(2) | BIT(3) | BIT(8) | BIT(23) /* AVX-512 */ | BIT(20) /* IBT */)
/* Leaf 7, subleaf 1 */
#define L71_EAX_HIDDEN (BIT(21) /* AMX-FP16 */ | BIT(22) /* HRESET */)
#define L71_EDX_HIDDEN (BIT(8) /* AMX-COMPLEX */ | BIT(21) /* APX */)
#define L71_EAX_XSAVE                                                           \
        (BIT(0) /* SHA512 */   | BIT(1) /* SM3 */  | BIT(2) /* SM4 */ |         \
         BIT(4) /* AVX-VNNI */ | BIT(5) /* BF16 */ | BIT(23) /* IFMA */)
#define L71_EDX_XSAVE (BIT(4) | BIT(5) | BIT(10) | BIT(19) /* AVX-VNNI-INT, NE-CONVERT, AVX10 */)

/* Leaf 0xd: PKRU, AMX tile configuration, AMX tile data. */
#define XCR0_HIDDEN (BIT(9) | BIT(17) | BIT(18))
#define XSAVE_EAX_XFD BIT(4)
#define XSAVE_LEGACY_BYTES 576U

/* Leaf 0x80000001 */
#define X1_ECX_HIDDEN                                                           \
        (BIT(2)  /* SVM */ | BIT(10) /* IBS */ | BIT(12) /* SKINIT */ |         \
         BIT(13) /* WDT */ | BIT(15) /* LWP */ | BIT(19) /* node id */ |        \
         BIT(23) | BIT(24) | BIT(27) | BIT(28) /* PMU */ | BIT(29) /* MONITORX */)
#define X1_ECX_XSAVE (BIT(11) /* XOP */ | BIT(16) /* FMA4 */)

/* KVM's own leaf (Documentation/virt/kvm/x86/cpuid.rst): what a sandbox is given. No asynchronous
 * page faults and no steal time: state to save for nothing. PV IPIs only where there are others. */
#define KVM_FEATURES_ALLOWED (BIT(KVM_FEATURE_CLOCKSOURCE) | BIT(KVM_FEATURE_NOP_IO_DELAY) |          \
                              BIT(KVM_FEATURE_CLOCKSOURCE2) | BIT(KVM_FEATURE_PV_EOI) |               \
                              BIT(KVM_FEATURE_PV_UNHALT) | BIT(KVM_FEATURE_POLL_CONTROL) |            \
                              BIT(KVM_FEATURE_CLOCKSOURCE_STABLE_BIT))
#define KVM_FEATURES_SMP BIT(KVM_FEATURE_PV_SEND_IPI)

/* Topology levels of leaf 0xb */
#define LEVEL_SMT 1U
#define LEVEL_CORE 2U

typedef struct CpuTopology {
        unsigned index;
        unsigned n_cpus;
        unsigned core_bits; /* of an APIC id */
} CpuTopology;

static void entry_clear(struct kvm_cpuid_entry2 *e) {
        e->eax = e->ebx = e->ecx = e->edx = 0;
}

static void leaf_features(struct kvm_cpuid_entry2 *e, const CpuTopology *t, bool hide_xsave) {
        e->ebx = (e->ebx & 0xffffU) | t->n_cpus << 16 | t->index << 24;

        e->ecx &= ~L1_ECX_HIDDEN;
        /* KVM on 6.1 does not list the deadline timer as supported, though its local APIC has it. */
        e->ecx |= L1_ECX_X2APIC | L1_ECX_TSC_DEADLINE | L1_ECX_HYPERVISOR;
        if (hide_xsave)
                e->ecx &= ~L1_ECX_XSAVE;

        e->edx &= ~(L1_EDX_HIDDEN | L1_EDX_HTT);
        if (t->n_cpus > 1)
                e->edx |= L1_EDX_HTT;
}

/* Deterministic cache parameters, Intel 4 and AMD 0x8000001d: levels 1 and 2 belong to one CPU, what
 * is above to all. */
static void leaf_cache(struct kvm_cpuid_entry2 *e, const CpuTopology *t, bool has_cores) {
        unsigned level = e->eax >> 5 & 7;

        if ((e->eax & 0x1f) == 0)
                return;

        unsigned sharing = level >= 3 ? t->n_cpus : 1;
        e->eax = (e->eax & 0x3fffU) | (sharing - 1) << 14;
        if (has_cores)
                e->eax |= (t->n_cpus - 1) << 26;
}

static void leaf_extended_features(struct kvm_cpuid_entry2 *e, bool hide_xsave) {
        if (e->index == 0) {
                e->ebx &= ~(L7_EBX_HIDDEN | (hide_xsave ? L7_EBX_XSAVE : 0));
                e->ecx &= ~(L7_ECX_HIDDEN | (hide_xsave ? L7_ECX_XSAVE : 0));
                e->edx &= ~(L7_EDX_HIDDEN | (hide_xsave ? L7_EDX_XSAVE : 0));
        } else if (e->index == 1) {
                e->eax &= ~(L71_EAX_HIDDEN | (hide_xsave ? L71_EAX_XSAVE : 0));
                e->edx &= ~(L71_EDX_HIDDEN | (hide_xsave ? L71_EDX_XSAVE : 0));
        }
}

static void leaf_topology(struct kvm_cpuid_entry2 *e, const CpuTopology *t) {
        unsigned level = e->index;

        entry_clear(e);
        e->edx = t->index;
        e->ecx = level;
        if (level == 0) {
                e->ebx = 1;
                e->ecx |= LEVEL_SMT << 8;
        } else if (level == 1) {
                e->eax = t->core_bits;
                e->ebx = t->n_cpus;
                e->ecx |= LEVEL_CORE << 8;
        }
}

static void leaf_xsave(struct kvm_cpuid_entry2 *e, bool hide_xsave) {
        if (hide_xsave || (e->index >= 2 && e->index < 32 && (XCR0_HIDDEN & BIT(e->index))))
                entry_clear(e);
        else if (e->index == 0)
                e->eax &= ~XCR0_HIDDEN;
        else if (e->index == 1)
                e->eax &= ~XSAVE_EAX_XFD;
}

static void leaf_kvm_features(struct kvm_cpuid_entry2 *e, const CpuTopology *t) {
        e->eax &= KVM_FEATURES_ALLOWED | (t->n_cpus > 1 ? KVM_FEATURES_SMP : 0);
}

static void leaf_amd_topology(struct kvm_cpuid_entry2 *e, const CpuTopology *t) {
        e->eax = t->index;
        e->ebx = t->index & 0xff; /* core id, one thread each */
        e->ecx = 0;               /* one node */
}

static void leaf_normalise(struct kvm_cpuid_entry2 *e, const CpuTopology *t, bool hide_xsave) {
        switch (e->function) {

        case 0x1:
                leaf_features(e, t, hide_xsave);
                break;

        case 0x4:
                leaf_cache(e, t, true);
                break;

        case 0x7:
                leaf_extended_features(e, hide_xsave);
                break;

        case 0xb:
                leaf_topology(e, t);
                break;

        case 0xd:
                leaf_xsave(e, hide_xsave);
                break;

        case 0x5:        /* MONITOR */
        case 0xa:        /* PMU */
        case 0xf:        /* RDT monitoring */
        case 0x10:       /* RDT allocation */
        case 0x12:       /* SGX */
        case 0x14:       /* processor trace */
        case 0x19:       /* key locker */
        case 0x1b:       /* PCONFIG */
        case 0x1c:       /* last branch records */
        case 0x1d:       /* AMX tiles */
        case 0x1e:       /* AMX TMUL */
        case 0x1f:       /* topology with dies: leaf 0xb says it all */
        case 0x23:       /* PMU, extended */
        case 0x8000000a: /* SVM */
        case 0x8000001b: /* IBS */
        case 0x8000001c: /* LWP */
        case 0x8000001f: /* SEV */
        case 0x80000020: /* quality of service */
        case 0x80000022: /* PMU version 2 */
                entry_clear(e);
                break;

        case 0x40000001:
                leaf_kvm_features(e, t);
                break;

        case 0x80000001:
                e->ecx &= ~(X1_ECX_HIDDEN | (hide_xsave ? X1_ECX_XSAVE : 0));
                break;

        case 0x80000008:
                e->ecx = t->core_bits << 12 | (t->n_cpus - 1);
                break;

        case 0x8000001d:
                leaf_cache(e, t, false);
                break;

        case 0x8000001e:
                leaf_amd_topology(e, t);
                break;
        }
}

/* The size of a save area with everything in it is what its last component reaches to. */
static void fix_xsave_size(CpuidTable *t) {
        struct kvm_cpuid_entry2 *main_leaf = NULL;
        uint32_t size = XSAVE_LEGACY_BYTES;

        for (uint32_t i = 0; i < t->head.nent; i++) {
                struct kvm_cpuid_entry2 *e = &t->entries[i];

                if (e->function != 0xd)
                        continue;
                if (e->index == 0)
                        main_leaf = e;
                /* ECX bit 0: a supervisor component, which XSAVE does not store. */
                else if (e->index >= 2 && !(e->ecx & 1))
                        size = MAX(size, e->ebx + e->eax);
        }

        if (main_leaf && main_leaf->eax != 0)
                main_leaf->ecx = size;
}

static unsigned bits_for(unsigned n) {
        unsigned bits = 0;

        while (BIT(bits) < n)
                bits++;
        return bits;
}

void cpuid_normalise(CpuidTable *t, unsigned index, unsigned n_cpus, uint32_t hide) {
        assert(t);
        assert(t->head.nent <= CPUID_ENTRIES_MAX);
        assert(n_cpus >= 1 && index < n_cpus && n_cpus <= 64);

        CpuTopology topology = { .index = index, .n_cpus = n_cpus, .core_bits = bits_for(n_cpus) };
        for (uint32_t i = 0; i < t->head.nent; i++)
                leaf_normalise(&t->entries[i], &topology, hide & VMM_CPUID_HIDE_XSAVE);
        fix_xsave_size(t);
}

/* Snapshots */

#define LEAF_POWER 0x80000007U
#define POWER_EDX_INVARIANT_TSC BIT(8)

/* Leaves whose registers are bit masks of features. */
static const struct {
        uint32_t function;
        uint32_t index;
        uint32_t eax, ebx, ecx, edx;
} feature_leaves[] = {
        { 0x1, 0, .ecx = UINT32_MAX, .edx = UINT32_MAX },
        { 0x7, 0, .ebx = UINT32_MAX, .ecx = UINT32_MAX, .edx = UINT32_MAX },
        { 0x7, 1, .eax = UINT32_MAX, .edx = UINT32_MAX },
        { 0x7, 2, .edx = UINT32_MAX },
        { 0xd, 0, .eax = UINT32_MAX, .edx = UINT32_MAX },
        { 0xd, 1, .eax = UINT32_MAX, .ecx = UINT32_MAX },
        { 0x40000001, 0, .eax = UINT32_MAX },
        { 0x80000001, 0, .ecx = UINT32_MAX, .edx = UINT32_MAX },
        { 0x80000007, 0, .edx = UINT32_MAX },
        { 0x80000008, 0, .ebx = UINT32_MAX },
        { 0x80000021, 0, .eax = UINT32_MAX },
};

static const struct kvm_cpuid_entry2 *find_leaf(const CpuidTable *t, uint32_t function, uint32_t index) {
        for (uint32_t i = 0; i < t->head.nent; i++)
                if (t->entries[i].function == function &&
                    (t->entries[i].index == index || !(t->entries[i].flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX)))
                        return &t->entries[i];
        return NULL;
}

static const struct kvm_cpuid_entry2 *get_leaf(const CpuidTable *t, uint32_t function, uint32_t index) {
        static const struct kvm_cpuid_entry2 nothing;

        return find_leaf(t, function, index) ?: &nothing;
}

/* What a guest took for given when it booted, and no mask of features tells: which instructions it chose for system calls and
 * mitigations, how long an address may be, and where in a saved context the parts of it are. */
static int check_kind(const CpuidTable *host, const CpuidTable *t, ErrorText *e) {
        const struct kvm_cpuid_entry2 *want = get_leaf(t, 0, 0), *have = get_leaf(host, 0, 0);

        if (want->ebx != have->ebx || want->ecx != have->ecx || want->edx != have->edx)
                return error_set(e, -EOPNOTSUPP, "the snapshot needs a CPU of another vendor");

        uint32_t bits = get_leaf(t, 0x80000008, 0)->eax & 0xff, here = get_leaf(host, 0x80000008, 0)->eax & 0xff;
        if (bits > here)
                return error_set(e, -EOPNOTSUPP, "the snapshot needs physical addresses of %u bits, this CPU has %u", bits, here);

        uint32_t components = get_leaf(t, 0xd, 0)->eax;
        for (uint32_t i = 2; i < 32; i++) {
                want = get_leaf(t, 0xd, i);
                have = get_leaf(host, 0xd, i);
                if ((components & BIT(i)) && (want->eax != have->eax || want->ebx != have->ebx))
                        return error_set(e, -EOPNOTSUPP, "the snapshot needs another CPU: XSAVE component %u lies elsewhere here", i);
        }
        return 0;
}

static int check_features(const CpuidTable *host, const CpuidTable *t, ErrorText *e) {
        for (unsigned i = 0; i < ELEMENTSOF(feature_leaves); i++) {
                uint32_t function = feature_leaves[i].function, index = feature_leaves[i].index;
                const struct kvm_cpuid_entry2 *want = get_leaf(t, function, index), *have = get_leaf(host, function, index);

                uint32_t eax = want->eax & ~have->eax & feature_leaves[i].eax;
                uint32_t ebx = want->ebx & ~have->ebx & feature_leaves[i].ebx;
                uint32_t ecx = want->ecx & ~have->ecx & feature_leaves[i].ecx;
                uint32_t edx = want->edx & ~have->edx & feature_leaves[i].edx;
                if ((eax | ebx | ecx | edx) != 0)
                        return error_set(e, -EOPNOTSUPP, "the snapshot needs features of another CPU: leaf 0x%x.%u, "
                                         "eax 0x%x ebx 0x%x ecx 0x%x edx 0x%x", function, index, eax, ebx, ecx, edx);
        }
        return 0;
}

void cpuid_save(const CpuidTable *host, unsigned n_cpus, uint32_t hide, SnapshotWriter *w) {
        CpuidTable table = *host;

        cpuid_normalise(&table, 0, n_cpus, hide);
        snapshot_writer_begin(w, SNAPSHOT_SECTION_CPUID, 0);
        snapshot_writer_put(w, table.entries, table.head.nent * sizeof(table.entries[0]));
}

static int check_hidden(const SnapshotReader *r, const CpuidTable *t, unsigned n_cpus, uint32_t hide, ErrorText *e) {
        CpuidTable table = *t;

        cpuid_normalise(&table, 0, n_cpus, hide);
        for (uint32_t i = 0; i < t->head.nent; i++)
                if (memcmp(&table.entries[i], &t->entries[i], sizeof(table.entries[i])) != 0)
                        return snapshot_bad(r, e, "leaf 0x%x.%u shows what no guest is given", t->entries[i].function,
                                            t->entries[i].index);
        return 0;
}

int cpuid_parse(SnapshotReader *r, const CpuidTable *host, unsigned n_cpus, uint32_t hide, CpuidTable *ret,
                ErrorText *e) {
        assert(host);
        assert(ret);

        memset(ret, 0, sizeof(*ret));
        size_t n = r->left / sizeof(ret->entries[0]);
        if (n > CPUID_ENTRIES_MAX)
                return snapshot_bad(r, e, "%zu leaves", n);
        ret->head.nent = (uint32_t) n;
        int k = snapshot_read(r, ret->entries, n * sizeof(ret->entries[0]), e);
        if (k >= 0)
                k = snapshot_read_end(r, e);
        if (k >= 0)
                k = check_hidden(r, ret, n_cpus, hide, e);
        if (k < 0)
                return k;

        CpuidTable here = *host;
        cpuid_normalise(&here, 0, n_cpus, hide);
        k = check_features(&here, ret, e);
        return k < 0 ? k : check_kind(&here, ret, e);
}

bool cpuid_has_invariant_tsc(const CpuidTable *t) {
        assert(t);

        const struct kvm_cpuid_entry2 *leaf = find_leaf(t, LEAF_POWER, 0);
        return leaf && (leaf->edx & POWER_EDX_INVARIANT_TSC);
}

int cpuid_load(int kvm_fd, CpuidTable *ret, ErrorText *e) {
        assert(ret);

        memset(ret, 0, sizeof(*ret));
        ret->head.nent = CPUID_ENTRIES_MAX;
        if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, &ret->head) < 0)
                return error_set_errno(e, -errno, "KVM_GET_SUPPORTED_CPUID");
        return 0;
}

int cpuid_set(int vcpu_fd, const CpuidTable *host, unsigned index, unsigned n_cpus, uint32_t hide,
              ErrorText *e) {
        assert(host);

        CpuidTable table = *host;
        cpuid_normalise(&table, index, n_cpus, hide);
        if (ioctl(vcpu_fd, KVM_SET_CPUID2, &table.head) < 0)
                return error_set_errno(e, -errno, "KVM_SET_CPUID2 for vCPU %u", index);
        return 0;
}
