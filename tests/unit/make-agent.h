/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What passes for a static program: an ELF header and one loadable segment. */

#include <elf.h>

#include "base/macros.h"

typedef struct MadeAgent {
        Elf64_Ehdr header;
        Elf64_Phdr segment;
        uint8_t code[256];
} MadeAgent;

static inline MadeAgent make_agent(void) {
        return (MadeAgent) {
                .header = {
                        .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
                        .e_type = ET_EXEC,
                        .e_machine = EM_X86_64,
                        .e_phoff = offsetof(MadeAgent, segment),
                        .e_ehsize = sizeof(Elf64_Ehdr),
                        .e_phentsize = sizeof(Elf64_Phdr),
                        .e_phnum = 1,
                },
                .segment = { .p_type = PT_LOAD, .p_filesz = sizeof(MadeAgent), .p_memsz = sizeof(MadeAgent) },
        };
}
