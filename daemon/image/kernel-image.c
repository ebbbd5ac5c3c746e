/* SPDX-License-Identifier: Apache-2.0 */
#include <gelf.h>
#include <libelf.h>

#include "daemon/image/bzimage.h"
#include "daemon/image/kernel-image.h"
#include "daemon/image/payload.h"

#ifndef XEN_ELFNOTE_PHYS32_ENTRY
#define XEN_ELFNOTE_PHYS32_ENTRY 18
#endif

static inline void elf_endp(Elf **e) {
        if (*e)
                (void) elf_end(*e);
}

/* What somebody gave in place of a kernel, for the error. */
static const char *describe(const uint8_t *data, size_t size) {
        static const struct {
                size_t offset;
                const char *magic;
                size_t magic_size;
                const char *what;
        } known[] = {
                { 0, "\x1f\x8b", 2, "a gzip file" },
                { 0, "\xfd" "7zXZ", 5, "an xz file" },
                { 0, "\x28\xb5\x2f\xfd", 4, "a zstd file" },
                { 0, "!<arch>\ndebian", 14, "a Debian package" },
                { 0, "hsqs", 4, "a squashfs image" },
                { 0, "070701", 6, "a cpio archive" },
                { 257, "ustar", 5, "a tar archive" },
                { 0, "MZ", 2, "a PE program without a Linux setup header" },
                { 56, "ARMd", 4, "a kernel for arm64" },
                { 0, "#!", 2, "a script" },
        };

        if (size == 0)
                return "an empty file";
        for (size_t i = 0; i < ELEMENTSOF(known); i++)
                if (size >= known[i].offset + known[i].magic_size &&
                    memcmp(data + known[i].offset, known[i].magic, known[i].magic_size) == 0)
                        return known[i].what;
        for (size_t i = 0; i < MIN(size, (size_t) 512); i++)
                if (data[i] < '\t' || data[i] >= 0x7f)
                        return "unknown binary data";
        return "text";
}

static int add_segment(KernelInfo *k, const GElf_Phdr *p, Fault *fault) {
        if (p->p_memsz == 0)
                return 0;
        if (k->n_segments == KERNEL_SEGMENTS_MAX)
                return fault_set(fault, -EBADMSG, "the kernel has more than %u loadable segments", KERNEL_SEGMENTS_MAX);
        k->segments[k->n_segments++] = (VmmSegment) {
                .gpa = p->p_paddr,
                .file_offset = p->p_offset,
                .file_bytes = p->p_filesz,
                .mem_bytes = p->p_memsz,
        };
        return 0;
}

/* 1 when the segment has the note that names the PVH entry. */
static int find_pvh_entry(Elf *e, const GElf_Phdr *p, uint64_t file_size, uint64_t *ret) {
        size_t offset = 0, name, desc;
        GElf_Nhdr note;
        Elf_Data *d;

        if (p->p_offset > file_size || p->p_filesz > file_size - p->p_offset)
                return -EBADMSG;
        d = elf_getdata_rawchunk(e, (int64_t) p->p_offset, p->p_filesz, p->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
        if (!d)
                return -EBADMSG;

        /* gelf_getnote() checks name and descriptor against the chunk; it returns 0 at the end. */
        while ((offset = gelf_getnote(d, offset, &note, &name, &desc)) > 0) {
                uint32_t entry;

                if (note.n_type != XEN_ELFNOTE_PHYS32_ENTRY || note.n_namesz != 4 || note.n_descsz < sizeof(entry) ||
                    memcmp((const uint8_t *) d->d_buf + name, "Xen", 4) != 0)
                        continue;
                memcpy(&entry, (const uint8_t *) d->d_buf + desc, sizeof(entry));
                *ret = entry;
                return 1;
        }
        return 0;
}

static int examine_headers(Elf *e, size_t size, KernelInfo *k, Fault *fault) {
        bool found = false;
        size_t n;
        int r;

        if (elf_getphdrnum(e, &n) < 0 || n == 0)
                return fault_set(fault, -EBADMSG, "the kernel's ELF file has no program headers");
        if (n > 64)
                return fault_set(fault, -EBADMSG, "the kernel's ELF file has %zu program headers", n);

        for (size_t i = 0; i < n; i++) {
                GElf_Phdr p;

                if (!gelf_getphdr(e, (int) i, &p))
                        return fault_set(fault, -EBADMSG, "the kernel's ELF program headers are damaged");
                if (p.p_type == PT_LOAD) {
                        r = add_segment(k, &p, fault);
                        if (r < 0)
                                return r;
                } else if (p.p_type == PT_NOTE && !found) {
                        r = find_pvh_entry(e, &p, size, &k->entry);
                        if (r < 0)
                                return fault_set(fault, r, "the kernel's ELF notes lie outside the file");
                        found = r > 0;
                }
        }
        if (!found)
                return fault_set(fault, -EOPNOTSUPP,
                                 "the kernel has no PVH entry: one built with CONFIG_PVH=y is needed");
        return 0;
}

static int examine_elf(const uint8_t *data, size_t size, KernelInfo *k, Fault *fault) {
        _cleanup_(elf_endp) Elf *e = NULL;
        const char *reason = NULL;
        GElf_Ehdr header;
        int r;

        if (elf_version(EV_CURRENT) == EV_NONE)
                return -EOPNOTSUPP;
        /* Not written to: the file has the machine's byte order or is refused before any conversion. */
        if (size < sizeof(Elf64_Ehdr) || data[EI_CLASS] != ELFCLASS64 || data[EI_DATA] != ELFDATA2LSB)
                return fault_set(fault, -EOPNOTSUPP, "the kernel is no 64-bit little-endian ELF file");
        e = elf_memory((char *) data, size);
        if (!e || !gelf_getehdr(e, &header))
                return fault_set(fault, -EBADMSG, "the kernel's ELF header is damaged: %s", elf_errmsg(-1));
        if (header.e_machine != EM_X86_64)
                return fault_set(fault, -EOPNOTSUPP, "the kernel is for another architecture (ELF machine %u), not x86-64",
                                 header.e_machine);
        if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
                return fault_set(fault, -EOPNOTSUPP, "the ELF file is no executable, so it is no vmlinux");

        k->file_bytes = size;
        r = examine_headers(e, size, k, fault);
        if (r < 0)
                return r;
        r = kernel_info_check(k, &reason);
        if (r < 0)
                return fault_set(fault, r, "the kernel can't be loaded: %s", reason);
        k->floor_bytes = kernel_info_floor(k, 0);
        return 0;
}

/* "Linux version 6.1.0-57-cloud-amd64 (debian..." as /proc/version has it. */
static void find_release(const uint8_t *data, size_t size, char *ret) {
        static const char banner[] = "Linux version ";
        const uint8_t *end = data + size, *p = data;

        while ((p = memmem(p, (size_t) (end - p), banner, sizeof(banner) - 1))) {
                size_t n = 0;

                p += sizeof(banner) - 1;
                while (n <= KERNEL_RELEASE_MAX && p + n < end && p[n] != ' ' && p[n] != 0)
                        n++;
                if (n == 0 || n > KERNEL_RELEASE_MAX)
                        continue;
                memcpy(ret, p, n);
                ret[n] = 0;
                if (kernel_release_valid(ret))
                        return;
        }
        ret[0] = 0;
}

void kernel_image_done(KernelImage *k) {
        free(k->unpacked);
        *k = (KernelImage) {};
}

static int load_bzimage(const uint8_t *data, size_t size, KernelImage *k, Fault *fault) {
        BzImage b;
        int r;

        r = bzimage_parse(data, size, &b, fault);
        if (r < 0)
                return r;
        r = payload_unpack(b.payload, b.payload_size, &k->unpacked, &k->elf_size, fault);
        if (r < 0)
                return r;
        k->elf = k->unpacked;
        memcpy(k->info.release, b.release, sizeof(b.release));
        return 0;
}

int kernel_image_load(const uint8_t *data, size_t size, KernelImage *ret, Fault *fault) {
        _cleanup_(kernel_image_done) KernelImage k = { .elf = data, .elf_size = size };
        int r;

        if (bzimage_is(data, size)) {
                r = load_bzimage(data, size, &k, fault);
                if (r < 0)
                        return r;
                if (k.elf_size < SELFMAG || memcmp(k.elf, ELFMAG, SELFMAG) != 0)
                        return fault_set(fault, -EBADMSG, "what was compressed in the bzImage is no ELF file but %s",
                                         describe(k.elf, k.elf_size));
        } else if (size < SELFMAG || memcmp(data, ELFMAG, SELFMAG) != 0)
                return fault_set(fault, -EOPNOTSUPP, "not a kernel: a bzImage or an ELF vmlinux is needed, this is %s",
                                 describe(data, size));

        r = examine_elf(k.elf, k.elf_size, &k.info, fault);
        if (r < 0)
                return r;
        if (!k.info.release[0])
                find_release(k.elf, k.elf_size, k.info.release);

        *ret = k;
        k = (KernelImage) {};
        return 0;
}
