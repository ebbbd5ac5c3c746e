/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/syscall.h>

#include "guest/bpf-load.h"

#define INSNS_MAX 512U

static int bpf_call(enum bpf_cmd command, union bpf_attr *attr) {
        long r = syscall(SYS_bpf, command, attr, sizeof(*attr));
        return r < 0 ? -errno : (int) r;
}

int bpf_map_new(enum bpf_map_type type, uint32_t value_size, uint32_t n, int *ret_fd) {
        union bpf_attr attr = {};

        attr.map_type = type;
        attr.key_size = sizeof(uint32_t);
        attr.value_size = value_size;
        attr.max_entries = n;
        int r = bpf_call(BPF_MAP_CREATE, &attr);
        if (r < 0)
                return r;
        *ret_fd = r;
        return 0;
}

int bpf_map_set(int fd, uint32_t key, const void *value) {
        union bpf_attr attr = {};

        attr.map_fd = (uint32_t) fd;
        attr.key = (uintptr_t) &key;
        attr.value = (uintptr_t) value;
        return bpf_call(BPF_MAP_UPDATE_ELEM, &attr);
}

static int program_load(const BpfProgram *p, const int *maps, int *ret_fd) {
        struct bpf_insn insns[INSNS_MAX];
        union bpf_attr attr = {};

        if (p->n_insns > INSNS_MAX)
                return -E2BIG;
        memcpy(insns, p->insns, p->n_insns * sizeof(insns[0]));
        for (size_t i = 0; i < p->n_maps; i++) {
                insns[p->maps[i].insn].src_reg = BPF_PSEUDO_MAP_FD;
                insns[p->maps[i].insn].imm = maps[p->maps[i].map];
        }

        attr.prog_type = p->type;
        attr.expected_attach_type = p->attach;
        attr.insns = (uintptr_t) insns;
        attr.insn_cnt = (uint32_t) p->n_insns;
        attr.license = (uintptr_t) "GPL";
        int r = bpf_call(BPF_PROG_LOAD, &attr);
        if (r < 0)
                return r;
        *ret_fd = r;
        return 0;
}

int bpf_program_attach(const BpfProgram *p, const int *maps, int target_fd, int *ret_link_fd) {
        _cleanup_close_ int fd = -EBADF;
        union bpf_attr attr = {};

        int r = program_load(p, maps, &fd);
        if (r < 0)
                return r;
        attr.link_create.prog_fd = (uint32_t) fd;
        attr.link_create.target_fd = (uint32_t) target_fd;
        attr.link_create.attach_type = p->attach;
        r = bpf_call(BPF_LINK_CREATE, &attr);
        if (r < 0)
                return r;
        *ret_link_fd = r;
        return 0;
}
