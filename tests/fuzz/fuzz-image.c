/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-image reads of others: an archive that becomes a root file system, modules.dep, and what cubed reads of
 * cube-image's report. What comes out of an archive goes in again, and out as the same.
 *
 * Input: u8, then by its low two bits: 0 a tar; 1 modules.dep, behind a line of "-" modules.builtin; 2 a report as JSON;
 * 3 an image of a file system. */

#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/modules-dep.h"
#include "daemon/image/rootfs.h"
#include "daemon/json-strict.h"
#include "daemon/kernel-info.h"
#include "fuzz.h"

#define UNPACKED_MAX MIB(1)

static int new_file(const void *data, size_t size) {
        int fd = memfd_create("file", MFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && (size == 0 || pwrite(fd, data, size, 0) == (ssize_t) size));
        return fd;
}

static off_t size_of(int fd) {
        struct stat st;

        FUZZ_CHECK(fstat(fd, &st) == 0);
        return st.st_size;
}

static bool same(int a, int b) {
        uint8_t x[512], y[512];
        ssize_t n;

        for (off_t at = 0; (n = pread(a, x, sizeof(x), at)) > 0; at += n)
                if (pread(b, y, sizeof(y), at) != n || memcmp(x, y, (size_t) n) != 0)
                        return false;
        return size_of(a) == size_of(b);
}

static void archive(const void *data, size_t size) {
        _cleanup_close_ int in = new_file(data, size), first = new_file(NULL, 0), second = new_file(NULL, 0);
        Fault fault = {};

        int r = rootfs_tar_to_tar(in, first, UNPACKED_MAX, &fault);
        FUZZ_CHECK(r >= 0 || *fault.text);
        if (r < 0)
                return;
        FUZZ_CHECK(lseek(first, 0, SEEK_SET) == 0);
        r = rootfs_tar_to_tar(first, second, UNPACKED_MAX, &fault);
        if (r < 0)
                fprintf(stderr, "%s\n", fault.text);
        FUZZ_CHECK(r >= 0 && same(first, second));
}

/* Or is absolute. */
static bool leads_up(const char *path) {
        for (; path; path = strchr(path, '/') ? strchr(path, '/') + 1 : NULL)
                if (*path == '/' || *path == 0 || streq(path, "..") || startswith(path, "../"))
                        return true;
        return false;
}

static void modules(const uint8_t *data, size_t size) {
        _cleanup_free_ char *dep = strndup((const char *) data, size);
        Fault fault = {};
        ModulesPlan p;

        FUZZ_CHECK(dep);
        char *builtin = strstr(dep, "\n-\n");
        if (builtin)
                builtin[1] = 0;
        int r = modules_plan_make(dep, builtin ? builtin + 3 : "", module_wishes, n_module_wishes, &p, &fault);
        FUZZ_CHECK(r >= 0 || *fault.text);
        if (r < 0)
                return;
        for (size_t i = 0; i < p.n_modules; i++) {
                FUZZ_CHECK(!leads_up(p.modules[i].path));
                for (size_t k = 0; k < i; k++)
                        FUZZ_CHECK(!streq(p.modules[i].path, p.modules[k].path));
        }
        modules_plan_done(&p);
}

static void report(const char *text, size_t size) {
        _cleanup_json_ json_object *o = NULL, *again = NULL;
        const char *reason;
        KernelInfo k;

        if (json_parse_strict(text, size, &o) < 0 || kernel_info_from_json(o, &k) < 0)
                return;
        FUZZ_CHECK(kernel_info_check(&k, &reason) == 0);
        again = kernel_info_to_json(&k);
        FUZZ_CHECK(again && kernel_info_from_json(again, &k) == 0);
}

static void ready_image(const void *data, size_t size) {
        _cleanup_close_ int in = new_file(data, size), out = new_file(NULL, 0);
        Fault fault = {};
        RootfsType type;
        uint64_t bytes;

        FUZZ_CHECK(rootfs_probe(in, &type, &bytes, &fault) >= 0 || *fault.text);
        FUZZ_CHECK(lseek(in, 0, SEEK_SET) == 0);
        if (rootfs_copy_image(in, out, UNPACKED_MAX, &fault) >= 0)
                FUZZ_CHECK(size_of(out) % 4096 == 0 && (size_t) size_of(out) >= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        switch (fuzz_u8(&in) & 3) {
        case 0: archive(in.data, in.left); break;
        case 1: modules(in.data, in.left); break;
        case 2: report((const char *) in.data, in.left); break;
        case 3: ready_image(in.data, in.left); break;
        }
        return 0;
}
