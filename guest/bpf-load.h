/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* BPF by bare system calls, for the little that the agent has of it: it has no library to do this. Maps, programs and
 * links are file descriptors of the caller's, and last as long as these. */

#include <linux/bpf.h>

#include "base/macros.h"

/* This instruction takes the descriptor of that map. */
typedef struct BpfMapUse {
        uint32_t insn;
        uint32_t map;
} BpfMapUse;

typedef struct BpfProgram {
        const struct bpf_insn *insns;
        size_t n_insns;
        const BpfMapUse *maps;
        size_t n_maps;
        enum bpf_prog_type type;
        enum bpf_attach_type attach;
} BpfProgram;

int bpf_map_new(enum bpf_map_type type, uint32_t value_size, uint32_t n, int *ret_fd);
int bpf_map_set(int fd, uint32_t key, const void *value);
/* maps: the descriptors, by the numbers in p->maps. target_fd: what it goes on. */
int bpf_program_attach(const BpfProgram *p, const int *maps, int target_fd, int *ret_link_fd);
