/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/image/bzimage.h"
#include "daemon/image/kernel-image.h"
#include "daemon/image/payload.h"
#include "make-elf.h"
#include "test.h"

static Fault fault;

static int load(const void *data, size_t size) {
        KernelImage k = {};
        int r;

        fault = (Fault) {};
        r = kernel_image_load(data, size, &k, &fault);
        if (r < 0 && k.unpacked)
                return -ENOTRECOVERABLE; /* must not be touched on failure */
        kernel_image_done(&k);
        return r;
}

static int load_elf(const MadeElf *e) {
        return load(e, MADE_ELF_SIZE);
}

TEST(plain_vmlinux) {
        _cleanup_free_ MadeElf *e = make_elf();
        KernelImage k = {};

        assert_ok(kernel_image_load((uint8_t *) e, MADE_ELF_SIZE, &k, &fault));
        assert_streq(k.info.release, "6.1.0-test-amd64");
        assert_eq(k.info.entry, MADE_ELF_ENTRY);
        assert_eq(k.info.n_segments, 3);
        assert_eq(k.info.segments[0].gpa, 0x1000000);
        assert_eq(k.info.segments[1].gpa, 0x1001000);
        assert_eq(k.info.segments[1].file_offset, 8192);
        assert_eq(k.info.segments[1].mem_bytes, 8192);
        assert_eq(k.info.segments[2].gpa, 0x1003000);
        assert_eq(k.info.segments[2].file_bytes, 0);
        assert_true(k.elf == (uint8_t *) e && !k.unpacked);
        assert_eq(k.info.file_bytes, MADE_ELF_SIZE);
        assert_true(k.info.floor_bytes > 0x1013000 && k.info.floor_bytes < MIB(48));
        kernel_image_done(&k);
}

TEST(no_release_is_fine) {
        _cleanup_free_ MadeElf *e = make_elf();
        KernelImage k = {};

        /* Not terminated, too long, or not a release: "" */
        strcpy(e->banner, "Linux version ../../etc/passwd (x)");
        assert_ok(kernel_image_load((uint8_t *) e, MADE_ELF_SIZE, &k, &fault));
        assert_streq(k.info.release, "");
        kernel_image_done(&k);

        memset(e->rest, 'x', MADE_ELF_SIZE - sizeof(*e));
        memcpy((uint8_t *) e + MADE_ELF_SIZE - 20, "Linux version 6.1.0-", 20);
        assert_ok(kernel_image_load((uint8_t *) e, MADE_ELF_SIZE, &k, &fault));
        assert_streq(k.info.release, "6.1.0-");
        kernel_image_done(&k);
}

TEST(no_pvh_entry) {
        _cleanup_free_ MadeElf *e = make_elf();

        e->note_header.n_type = 17;
        assert_eq(load_elf(e), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "CONFIG_PVH"));

        e->note_header.n_type = 18;
        e->note_name[0] = 'x';
        assert_eq(load_elf(e), -EOPNOTSUPP);

        e->note_name[0] = 'X';
        e->note_header.n_descsz = 0x7fffffff;
        assert_eq(load_elf(e), -EOPNOTSUPP);

        e->note_header.n_descsz = 2;
        assert_eq(load_elf(e), -EOPNOTSUPP);

        e->note_header.n_descsz = 8;
        e->note.p_offset = MADE_ELF_SIZE - 4;
        assert_eq(load_elf(e), -EBADMSG);

        e->note.p_offset = UINT64_MAX - 4;
        assert_eq(load_elf(e), -EBADMSG);
}

static int with_segment(Elf64_Phdr p) {
        _cleanup_free_ MadeElf *e = make_elf();
        e->load[1] = p;
        return load_elf(e);
}

TEST(bad_segments) {
        /* below, above, wrapping, overlapping from both sides, outside the file, larger in it */
        assert_eq(with_segment(made_segment(0xfffff, 0, 1, 1)), -EBADMSG);
        assert_true(strstr(fault.text, "below"));
        assert_eq(with_segment(made_segment(GIB(3), 0, 1, 1)), -EBADMSG);
        assert_eq(with_segment(made_segment(MIB(64), 0, 1, GIB(3))), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1003000, 0, 1, UINT64_MAX)), -EBADMSG);
        assert_eq(with_segment(made_segment(UINT64_MAX - 1, 0, 1, 16)), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1002fff, 0, 1, 4096)), -EBADMSG);
        assert_true(strstr(fault.text, "overlap"));
        assert_eq(with_segment(made_segment(0xfff000, 0, 1, 4097)), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1003000, MADE_ELF_SIZE, 1, 1)), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1003000, UINT64_MAX, 16, 16)), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1003000, 4096, 2, 1)), -EBADMSG);
        assert_eq(with_segment(made_segment(0x1003000, 4096, 0, 0)), 0);
}

TEST(bad_entry) {
        _cleanup_free_ MadeElf *e = make_elf();

        e->note_entry = 0x2000000;
        assert_eq(load_elf(e), -EBADMSG);
        /* in the part of a segment that is not in the file */
        e->note_entry = 0x1003000;
        assert_eq(load_elf(e), -EBADMSG);
}

TEST(too_many_headers) {
        _cleanup_free_ MadeElf *e = make_elf();

        e->header.e_phnum = 65535;
        assert_true(load_elf(e) < 0);
        e->header.e_phnum = 0;
        assert_true(load_elf(e) < 0);
        e->header.e_phnum = 60;
        assert_true(load_elf(e) < 0 || true);
        e->header.e_phnum = 4;
        e->header.e_phoff = UINT64_MAX - 8;
        assert_true(load_elf(e) < 0);
}

TEST(other_elf) {
        _cleanup_free_ MadeElf *e = make_elf();

        e->header.e_machine = EM_AARCH64;
        assert_eq(load_elf(e), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "another architecture"));
        e->header.e_machine = EM_X86_64;
        e->header.e_ident[EI_CLASS] = ELFCLASS32;
        assert_eq(load_elf(e), -EOPNOTSUPP);
        e->header.e_ident[EI_CLASS] = ELFCLASS64;
        e->header.e_type = ET_REL;
        assert_eq(load_elf(e), -EOPNOTSUPP);
}

TEST(not_a_kernel) {
        static uint8_t junk[4096];
        static const char deb[] = "!<arch>\ndebian-binary   1342943816  0     0     100644  4         `\n";
        unsigned x = 1;

        assert_eq(load("", 0), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "an empty file"));
        assert_eq(load(deb, sizeof(deb)), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "Debian package"));
        assert_eq(load("hello\n", 6), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "text"));
        for (size_t i = 0; i < sizeof(junk); i++)
                junk[i] = (uint8_t) ((x = x * 1103515245 + 12345) >> 16);
        assert_eq(load(junk, sizeof(junk)), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "unknown binary data"));
}

/* bzImage */

#define SETUP_SECTS 2U
#define SETUP_SIZE ((SETUP_SECTS + 1) * 512U)

static void put32(uint8_t *p, uint32_t v) {
        memcpy(p, &v, sizeof(v));
}

static uint8_t *make_bzimage(const void *payload, size_t payload_size, size_t *ret_size) {
        uint8_t *b = calloc(1, SETUP_SIZE + payload_size);

        assert(b);
        b[0x1f1] = SETUP_SECTS;
        b[0x1fe] = 0x55, b[0x1ff] = 0xaa;
        memcpy(b + 0x202, "HdrS", 4);
        b[0x206] = 0x0f, b[0x207] = 0x02;
        b[0x20e] = 0x00, b[0x20f] = 0x01;
        strcpy((char *) b + 0x300, "6.1.0-header (x@y) #1");
        put32(b + 0x248, 0);
        put32(b + 0x24c, (uint32_t) payload_size);
        memcpy(b + SETUP_SIZE, payload, payload_size);
        *ret_size = SETUP_SIZE + payload_size;
        return b;
}

/* As the kernel build does: compressed, and but for gzip the size behind it. */
static uint8_t *compress(int (*add_filter)(struct archive *), bool append_size, const void *data, size_t size,
                         uint32_t claimed, size_t *ret_size) {
        struct archive *a = archive_write_new();
        struct archive_entry *e = archive_entry_new();
        size_t max = size + MIB(1);
        uint8_t *p = malloc(max);

        assert(a && e && p);
        assert(add_filter(a) == ARCHIVE_OK && archive_write_set_format_raw(a) == ARCHIVE_OK);
        archive_write_set_bytes_per_block(a, 0);
        assert(archive_write_open_memory(a, p, max, ret_size) == ARCHIVE_OK);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_pathname(e, "x");
        assert(archive_write_header(a, e) == ARCHIVE_OK);
        assert(archive_write_data(a, data, size) == (la_ssize_t) size);
        assert(archive_write_close(a) == ARCHIVE_OK);
        archive_entry_free(e);
        archive_write_free(a);
        if (append_size) {
                put32(p + *ret_size, claimed);
                *ret_size += 4;
        } else
                put32(p + *ret_size - 4, claimed);
        return p;
}

/* The framing of lz4 -l with one block of literals only. */
static uint8_t *compress_lz4_legacy(const void *data, size_t size, size_t *ret_size) {
        uint8_t *p = malloc(size + size / 255 + 64), *q = p + 8;
        size_t rest = size - 15;

        assert(p);
        put32(p, 0x184c2102);
        *q++ = 0xf0;
        for (; rest >= 255; rest -= 255)
                *q++ = 255;
        *q++ = (uint8_t) rest;
        memcpy(q, data, size);
        q += size;
        put32(p + 4, (uint32_t) (q - p - 8));
        put32(q, (uint32_t) size);
        *ret_size = (size_t) (q + 4 - p);
        return p;
}

static void check_bzimage(const uint8_t *payload, size_t payload_size) {
        _cleanup_free_ MadeElf *e = make_elf();
        _cleanup_free_ uint8_t *b = NULL;
        KernelImage k = {};
        size_t size;

        b = make_bzimage(payload, payload_size, &size);
        fault = (Fault) {};
        assert_ok(kernel_image_load(b, size, &k, &fault));
        assert_eq(k.elf_size, MADE_ELF_SIZE);
        assert_true(memcmp(k.elf, e, MADE_ELF_SIZE) == 0);
        assert_streq(k.info.release, "6.1.0-header");
        assert_eq(k.info.entry, MADE_ELF_ENTRY);
        kernel_image_done(&k);
}

typedef struct Compression {
        const char *name;
        int (*add_filter)(struct archive *);
        bool append_size;
} Compression;

static const Compression compressions[] = {
        { "gzip", archive_write_add_filter_gzip, false },  { "bzip2", archive_write_add_filter_bzip2, true },
        { "xz", archive_write_add_filter_xz, true },       { "lzma", archive_write_add_filter_lzma, true },
        { "zstd", archive_write_add_filter_zstd, true },   { "lz4", archive_write_add_filter_lz4, true },
};

TEST(every_compression) {
        _cleanup_free_ MadeElf *e = make_elf();

        for (size_t i = 0; i < ELEMENTSOF(compressions); i++) {
                _cleanup_free_ uint8_t *p = NULL;
                size_t size;

                p = compress(compressions[i].add_filter, compressions[i].append_size, e, MADE_ELF_SIZE, MADE_ELF_SIZE,
                             &size);
                assert_streq(payload_format(p, size), compressions[i].name);
                check_bzimage(p, size);
        }
}

TEST(lz4_legacy) {
        _cleanup_free_ MadeElf *e = make_elf();
        _cleanup_free_ uint8_t *p = NULL;
        size_t size;

        p = compress_lz4_legacy(e, MADE_ELF_SIZE, &size);
        check_bzimage(p, size);
}

static int load_payload(const uint8_t *p, size_t n) {
        _cleanup_free_ uint8_t *b = NULL;
        size_t size;

        b = make_bzimage(p, n, &size);
        return load(b, size);
}

TEST(wrong_sizes) {
        _cleanup_free_ MadeElf *e = make_elf();

        for (size_t i = 0; i < ELEMENTSOF(compressions); i++) {
                const Compression *c = &compressions[i];
                const uint32_t claims[] = { 0, 1, MADE_ELF_SIZE - 1, MADE_ELF_SIZE + 1, MIB(512), UINT32_MAX };

                for (size_t j = 0; j < ELEMENTSOF(claims); j++) {
                        _cleanup_free_ uint8_t *p = NULL;
                        size_t size;

                        p = compress(c->add_filter, c->append_size, e, MADE_ELF_SIZE, claims[j], &size);
                        assert_true(load_payload(p, size) < 0);
                        assert_true(fault.text[0]);
                }
        }
}

/* 256 MiB of zeros in a few KiB that claim to be 1 MiB: unpacking ends at the claim. */
TEST(bomb) {
        _cleanup_free_ uint8_t *zeros = calloc(1, MIB(256)), *p = NULL;
        size_t size;

        assert_true(zeros);
        p = compress(archive_write_add_filter_zstd, true, zeros, MIB(256), MIB(1), &size);
        assert_true(size < MIB(1));
        assert_eq(load_payload(p, size), -EBADMSG);
        assert_true(strstr(fault.text, "more"));
}

TEST(unknown_compression) {
        assert_eq(load_payload((const uint8_t *) "\x89LZO\0\r\n\x1a\n\0\0\0\0", 13), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "unknown way"));
}

TEST(setup_header) {
        _cleanup_free_ MadeElf *e = make_elf();
        _cleanup_free_ uint8_t *p = NULL, *b = NULL;
        size_t n, size;

        p = compress(archive_write_add_filter_gzip, false, e, MADE_ELF_SIZE, MADE_ELF_SIZE, &n);
        b = make_bzimage(p, n, &size);
        assert_ok(load(b, size));

        put32(b + 0x24c, (uint32_t) n + 1);
        assert_eq(load(b, size), -EBADMSG);
        put32(b + 0x24c, UINT32_MAX);
        assert_eq(load(b, size), -EBADMSG);
        put32(b + 0x24c, 0);
        assert_eq(load(b, size), -EBADMSG);
        put32(b + 0x24c, (uint32_t) n);
        put32(b + 0x248, UINT32_MAX);
        assert_eq(load(b, size), -EBADMSG);
        put32(b + 0x248, 0);

        b[0x206] = 0x07;
        assert_eq(load(b, size), -EBADMSG);
        assert_true(strstr(fault.text, "2.07"));
        b[0x206] = 0x0f;

        b[0x1f1] = 255;
        assert_eq(load(b, size), -EBADMSG);
        b[0x1f1] = SETUP_SECTS;

        /* A release pointing outside the setup code is none; the banner then tells. */
        b[0x20e] = 0xff, b[0x20f] = 0xff;
        assert_ok(load(b, size));
}

TEST(every_truncation) {
        _cleanup_free_ MadeElf *e = make_elf();
        _cleanup_free_ uint8_t *p = NULL, *b = NULL;
        size_t n, size;

        p = compress(archive_write_add_filter_zstd, true, e, MADE_ELF_SIZE, MADE_ELF_SIZE, &n);
        b = make_bzimage(p, n, &size);
        for (size_t i = 0; i < size; i++) {
                /* A buffer of just that size, so that a sanitizer sees one byte too many. */
                _cleanup_free_ uint8_t *cut = malloc(i ?: 1);

                memcpy(cut, b, i);
                assert_true(load(cut, i) < 0);
                assert_true(fault.text[0]);
        }
        for (size_t i = 0; i < sizeof(MadeElf); i++) {
                _cleanup_free_ uint8_t *cut = malloc(i ?: 1);

                memcpy(cut, e, i);
                assert_true(load(cut, i) < 0);
        }
}

/* Anything may come of it, but nothing bad. */
TEST(mutations) {
        _cleanup_free_ MadeElf *e = make_elf();
        _cleanup_free_ uint8_t *p = NULL, *b = NULL;
        size_t n, size;
        unsigned x = 7;

        p = compress(archive_write_add_filter_xz, true, e, MADE_ELF_SIZE, MADE_ELF_SIZE, &n);
        b = make_bzimage(p, n, &size);
        for (unsigned i = 0; i < 20000; i++) {
                bool elf = i & 1;
                uint8_t *d = elf ? (uint8_t *) e : b;
                size_t limit = elf ? sizeof(MadeElf) : size, at;
                uint8_t old;

                x = x * 1103515245 + 12345;
                at = (x >> 8) % limit;
                old = d[at];
                d[at] = (uint8_t) (x >> 3);
                (void) load(d, elf ? MADE_ELF_SIZE : size);
                d[at] = old;
        }
}

/* What spikes of ours and readelf say of Debian's kernels, computed in another way. */
static void check_real(const uint8_t *elf, size_t size, const KernelInfo *k) {
        const Elf64_Ehdr *h = (const Elf64_Ehdr *) elf;
        const Elf64_Phdr *p = (const Elf64_Phdr *) (elf + h->e_phoff);
        size_t n = 0;

        for (size_t i = 0; i < h->e_phnum; i++) {
                if (p[i].p_type != PT_LOAD)
                        continue;
                assert_true(n < k->n_segments);
                assert_eq(k->segments[n].gpa, p[i].p_paddr);
                assert_eq(k->segments[n].file_offset, p[i].p_offset);
                assert_eq(k->segments[n].file_bytes, p[i].p_filesz);
                assert_eq(k->segments[n].mem_bytes, p[i].p_memsz);
                n++;
        }
        assert_eq(n, k->n_segments);
        assert_true(k->entry >= k->segments[0].gpa);
        assert_true(k->floor_bytes > MIB(16) && k->floor_bytes < MIB(256));
        /* 32-bit code of the PVH entry begins with cld, and lgdt soon after */
        assert_eq(elf[k->segments[0].file_offset + k->entry - k->segments[0].gpa], 0xfc);
}

TEST(real_kernels) {
        const char *cache = getenv("CUBE_CACHE"), *home = getenv("HOME");
        char pattern[512];
        glob_t found = {};

        (void) glob("/boot/vmlinuz-*", 0, NULL, &found);
        if (cache)
                (void) snprintf(pattern, sizeof(pattern), "%s/kernel/*/vmlinuz", cache);
        else
                (void) snprintf(pattern, sizeof(pattern), "%s/.cache/cubed/kernel/*/vmlinuz", home ? home : "");
        (void) glob(pattern, GLOB_APPEND, NULL, &found);
        if (found.gl_pathc == 0)
                test_skip("there is no kernel in /boot or in the cache");

        for (size_t i = 0; i < found.gl_pathc; i++) {
                _cleanup_close_ int fd = open(found.gl_pathv[i], O_RDONLY|O_CLOEXEC);
                KernelImage k = {};
                struct stat st;
                uint8_t *p;

                assert_true(fd >= 0 && fstat(fd, &st) == 0);
                p = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
                assert_true(p != MAP_FAILED);
                fault = (Fault) {};
                assert_ok(kernel_image_load(p, (size_t) st.st_size, &k, &fault));
                printf("# %s: release %s, entry 0x%llx, %zu segments, floor %llu MiB\n", found.gl_pathv[i],
                       k.info.release, (unsigned long long) k.info.entry, k.info.n_segments,
                       (unsigned long long) (k.info.floor_bytes >> 20));
                assert_true(kernel_release_valid(k.info.release));
                check_real(k.elf, k.elf_size, &k.info);
                kernel_image_done(&k);
                munmap(p, (size_t) st.st_size);
        }
        globfree(&found);
}

TEST(info_json) {
        _cleanup_free_ MadeElf *e = make_elf();
        KernelImage k = {};
        KernelInfo copy;
        json_object *o;

        assert_ok(kernel_image_load((uint8_t *) e, MADE_ELF_SIZE, &k, &fault));
        o = kernel_info_to_json(&k.info);
        assert_true(o);
        assert_ok(kernel_info_from_json(o, &copy));
        assert_eq(copy.n_segments, 3);
        assert_true(memcmp(&copy, &k.info, sizeof(copy)) == 0);

        /* a helper that was taken over may say anything */
        json_object_object_add(o, "release", json_object_new_string("../../../etc"));
        assert_eq(kernel_info_from_json(o, &copy), -EBADMSG);
        json_object_object_add(o, "release", json_object_new_string(""));
        assert_ok(kernel_info_from_json(o, &copy));
        json_object_object_add(o, "entry", json_object_new_int64(-1));
        assert_eq(kernel_info_from_json(o, &copy), -EBADMSG);
        json_object_object_add(o, "entry", json_object_new_uint64(MADE_ELF_ENTRY));
        json_object_object_add(o, "extra", json_object_new_int(1));
        assert_eq(kernel_info_from_json(o, &copy), -EBADMSG);
        json_object_object_del(o, "extra");
        json_object_object_add(o, "segments", json_object_new_array());
        assert_eq(kernel_info_from_json(o, &copy), -EBADMSG);
        json_object_object_del(o, "segments");
        assert_eq(kernel_info_from_json(o, &copy), -EBADMSG);
        json_object_put(o);
}
