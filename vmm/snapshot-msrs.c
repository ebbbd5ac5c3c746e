/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>

#include "vmm/snapshot-vcpu.h"

/* Not in here, though KVM lists some of them: APIC base, EFER, FS and GS base (SREGS), TSC and its deadline
 * (time), the old numbers 0x11 and 0x12 of kvm-clock, and what guests are not given: PMU, last branch
 * records, AMX, SMM, VMX, SVM, Hyper-V. Names as in the Intel SDM, volume 4, and the AMD APM. */
static const struct {
        uint32_t first;
        uint32_t last;
        bool unlisted;            /* KVM does not list it, and has it all the same */
} known[] = {
        { 0x0000003a, 0x0000003b }, /* FEATURE_CONTROL, TSC_ADJUST */
        { 0x00000048, 0x00000048 }, /* SPEC_CTRL */
        { 0x0000008b, 0x0000008b }, /* BIOS_SIGN_ID, PATCH_LEVEL */
        { 0x000000ce, 0x000000ce }, /* PLATFORM_INFO */
        { 0x0000010a, 0x0000010a }, /* ARCH_CAPABILITIES */
        { 0x00000122, 0x00000122 }, /* TSX_CTRL */
        { 0x00000140, 0x00000140 }, /* MISC_FEATURES_ENABLES */
        { 0x00000174, 0x00000176 }, /* SYSENTER */
        { 0x0000017a, 0x0000017b }, /* MCG_STATUS, MCG_CTL */
        { 0x000001a0, 0x000001a0 }, /* MISC_ENABLE */
        { 0x00000200, 0x0000020f, true }, /* MTRRs: variable */
        { 0x00000250, 0x00000250, true }, /* fixed, 64 KiB */
        { 0x00000258, 0x00000259, true }, /* 16 KiB */
        { 0x00000268, 0x0000026f, true }, /* 4 KiB */
        { 0x00000277, 0x00000277 }, /* PAT */
        { 0x000002ff, 0x000002ff, true }, /* MTRR_DEF_TYPE */
        { 0x00000400, 0x0000047f, true }, /* machine check banks */
        { 0x000006a0, 0x000006a8 }, /* CET */
        { 0x00000da0, 0x00000da0 }, /* XSS */
        { 0x4b564d00, 0x4b564dff }, /* KVM's own, PVM's included */
        { 0xc0000081, 0xc0000084 }, /* STAR, LSTAR, CSTAR, SFMASK */
        { 0xc0000102, 0xc0000103 }, /* KERNEL_GS_BASE, TSC_AUX */
        { 0xc0010015, 0xc0010015 }, /* HWCR */
        { 0xc001011f, 0xc001011f }, /* VIRT_SSBD */
        { 0xc0010140, 0xc0010141 }, /* OSVW */
        { 0xc0011029, 0xc0011029 }, /* DE_CFG */
};

static int add(MsrList *list, uint32_t index, ErrorText *e) {
        for (unsigned i = 0; i < list->n; i++)
                if (list->index[i] == index)
                        return 0;
        if (list->n == MSRS_MAX)
                return error_set(e, -E2BIG, "KVM knows more than %u MSRs", MSRS_MAX);
        list->index[list->n++] = index;
        return 0;
}

static bool is_known(uint32_t index) {
        for (unsigned i = 0; i < ELEMENTSOF(known); i++)
                if (index >= known[i].first && index <= known[i].last)
                        return true;
        return false;
}

static int add_unlisted(MsrList *list, ErrorText *e) {
        for (unsigned i = 0; i < ELEMENTSOF(known); i++) {
                if (!known[i].unlisted)
                        continue;
                for (uint32_t index = known[i].first; index <= known[i].last; index++) {
                        int r = add(list, index, e);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

int msr_list_load(int kvm_fd, MsrList *ret, ErrorText *e) {
        static const unsigned host_max = 1024;

        assert(ret);

        _cleanup_free_ struct kvm_msr_list *host = malloc(sizeof(*host) + host_max * sizeof(uint32_t));
        if (!host)
                return error_set(e, -ENOMEM, "out of memory");
        host->nmsrs = host_max;
        if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, host) < 0)
                return error_set_errno(e, -errno, "KVM_GET_MSR_INDEX_LIST");

        *ret = (MsrList) {};
        for (unsigned i = 0; i < host->nmsrs && i < host_max; i++) {
                int r = is_known(host->indices[i]) ? add(ret, host->indices[i], e) : 0;
                if (r < 0)
                        return r;
        }
        return add_unlisted(ret, e);
}
