/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A small vmlinux, right in every way until a test breaks it. */

#include <elf.h>

#include "base/macros.h"

#define MADE_ELF_SIZE 16384U
#define MADE_ELF_SEGMENTS 3U
#define MADE_ELF_ENTRY 0x1000010U

typedef struct MadeElf {
        Elf64_Ehdr header;
        Elf64_Phdr load[MADE_ELF_SEGMENTS];
        Elf64_Phdr note;
        Elf64_Nhdr note_header;
        char note_name[4];
        uint64_t note_entry;
        char banner[64];
        uint8_t rest[];
} MadeElf;

static inline Elf64_Phdr made_segment(uint64_t gpa, uint64_t offset, uint64_t file_bytes, uint64_t mem_bytes) {
        return (Elf64_Phdr) {
                .p_type = PT_LOAD,
                .p_flags = PF_R|PF_W|PF_X,
                .p_offset = offset,
                .p_vaddr = 0xffffffff80000000ULL + gpa,
                .p_paddr = gpa,
                .p_filesz = file_bytes,
                .p_memsz = mem_bytes,
                .p_align = 4096,
        };
}

/* The segments are out of order, as a kernel's may be. */
static inline MadeElf *make_elf(void) {
        MadeElf *e = calloc(1, MADE_ELF_SIZE);

        assert(e);
        e->header = (Elf64_Ehdr) {
                .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
                .e_type = ET_EXEC,
                .e_machine = EM_X86_64,
                .e_version = EV_CURRENT,
                .e_phoff = offsetof(MadeElf, load),
                .e_ehsize = sizeof(Elf64_Ehdr),
                .e_phentsize = sizeof(Elf64_Phdr),
                .e_phnum = MADE_ELF_SEGMENTS + 1,
        };
        e->load[0] = made_segment(0x1000000, 4096, 4096, 4096);
        e->load[1] = made_segment(0x1003000, 12288, 0, 65536);
        e->load[2] = made_segment(0x1001000, 8192, 4096, 8192);
        e->note = (Elf64_Phdr) {
                .p_type = PT_NOTE,
                .p_offset = offsetof(MadeElf, note_header),
                .p_filesz = sizeof(Elf64_Nhdr) + 4 + 8,
                .p_align = 4,
        };
        e->note_header = (Elf64_Nhdr) { .n_namesz = 4, .n_descsz = 8, .n_type = 18 };
        memcpy(e->note_name, "Xen", 4);
        e->note_entry = MADE_ELF_ENTRY;
        strcpy(e->banner, "Linux version 6.1.0-test-amd64 (somebody@somewhere) #1");
        return e;
}
