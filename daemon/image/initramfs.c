/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "daemon/image/archive-util.h"
#include "daemon/image/initramfs.h"
#include "daemon/image/modules-dep.h"
#include "daemon/image/slurp.h"

#define AGENT_BYTES_MAX MIB(64)
#define MODULE_BYTES_MAX MIB(32)
#define MODULES_DEP_MAX MIB(16)

static int add_entry(struct archive *a, const char *path, mode_t mode, dev_t rdev, const void *data, size_t size,
                     Fault *fault) {
        _cleanup_(archive_entry_freep) struct archive_entry *e = archive_entry_new();
        size_t done = 0;

        if (!e)
                return -ENOMEM;
        archive_entry_set_pathname(e, path[0] == '/' ? path + 1 : path);
        archive_entry_set_mode(e, mode);
        archive_entry_set_uid(e, 0);
        archive_entry_set_gid(e, 0);
        archive_entry_set_mtime(e, 0, 0);
        archive_entry_set_nlink(e, S_ISDIR(mode) ? 2 : 1);
        archive_entry_set_size(e, (int64_t) size);
        if (S_ISCHR(mode))
                archive_entry_set_rdev(e, rdev);

        if (archive_write_header(a, e) != ARCHIVE_OK)
                return fault_set(fault, -EIO, "writing the initramfs: %s", strempty(archive_error_string(a)));
        while (done < size) {
                la_ssize_t n = archive_write_data(a, (const uint8_t *) data + done, size - done);
                if (n <= 0)
                        return fault_set(fault, -EIO, "writing the initramfs: %s", strempty(archive_error_string(a)));
                done += (size_t) n;
        }
        return 0;
}

/* What every guest has before anything is mounted. Without /dev/console the kernel gives init no
 * standard streams. */
static int add_skeleton(struct archive *a, Fault *fault) {
        static const char *const dirs[] = { "dev", "modules", "newroot", "proc", "run", "sys", "tmp" };
        int r;

        for (size_t i = 0; i < ELEMENTSOF(dirs); i++) {
                r = add_entry(a, dirs[i], S_IFDIR|0755, 0, NULL, 0, fault);
                if (r < 0)
                        return r;
        }
        r = add_entry(a, "dev/console", S_IFCHR|0600, makedev(5, 1), NULL, 0, fault);
        if (r < 0)
                return r;
        return add_entry(a, "dev/kmsg", S_IFCHR|0600, makedev(1, 11), NULL, 0, fault);
}

/* A dynamic agent would leave the guest with "No working init found", late and without a hint. */
static int check_agent(const uint8_t *data, size_t size, Fault *fault) {
        Elf64_Ehdr h;
        Elf64_Phdr p;

        if (size < sizeof(h) || memcmp(data, ELFMAG, SELFMAG) != 0)
                return fault_set(fault, -ENOEXEC, "the agent is no ELF program");
        memcpy(&h, data, sizeof(h));
        if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != EM_X86_64 || h.e_phentsize != sizeof(p))
                return fault_set(fault, -ENOEXEC, "the agent is no program for x86-64");
        for (size_t i = 0; i < h.e_phnum; i++) {
                if (h.e_phoff > size || size - h.e_phoff < (i + 1) * sizeof(p))
                        return fault_set(fault, -ENOEXEC, "the agent's ELF file is cut off");
                memcpy(&p, data + h.e_phoff + i * sizeof(p), sizeof(p));
                if (p.p_type == PT_INTERP)
                        return fault_set(fault, -ENOEXEC, "the agent is linked dynamically; it has to be static");
        }
        return 0;
}

static int add_agent(struct archive *a, int agent_fd, Fault *fault) {
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;
        int r;

        r = slurp(agent_fd, AGENT_BYTES_MAX, &data, &size);
        if (r < 0)
                return fault_set(fault, r, "reading the agent: %s", strerror(-r));
        r = check_agent(data, size, fault);
        if (r < 0)
                return r;
        return add_entry(a, "init", S_IFREG|0755, 0, data, size, fault);
}

static const char *basename_of(const char *path) {
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

static int add_module(struct archive *a, int modules_fd, const PlannedModule *m, Fault *fault) {
        _cleanup_free_ uint8_t *data = NULL;
        char name[512];
        size_t size;
        int r;

        r = slurp_at(modules_fd, m->path, MODULE_BYTES_MAX, &data, &size);
        if (r < 0)
                return fault_set(fault, r, "reading the module %s: %s", m->path, strerror(-r));
        if (snprintf(name, sizeof(name), "%s/%s", INITRAMFS_MODULES_DIR, basename_of(m->path)) >= (int) sizeof(name))
                return -ENAMETOOLONG;
        return add_entry(a, name, S_IFREG|0644, 0, data, size, fault);
}

static int add_modules_list(struct archive *a, const ModulesPlan *plan, Fault *fault) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return -errno;
        for (size_t i = 0; i < plan->n_modules; i++)
                fprintf(f, "%s/%s%s%s\n", INITRAMFS_MODULES_DIR, basename_of(plan->modules[i].path),
                        plan->modules[i].params ? " " : "", strempty(plan->modules[i].params));
        if (fclose(f) != 0)
                return -errno;
        return add_entry(a, INITRAMFS_MODULES_LIST, S_IFREG|0644, 0, text, size, fault);
}

static int read_index(int modules_fd, const char *name, bool needed, char **ret, Fault *fault) {
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;
        int r;

        r = slurp_at(modules_fd, name, MODULES_DEP_MAX, &data, &size);
        if (r == -ENOENT && !needed) {
                *ret = strdup("");
                return *ret ? 0 : -ENOMEM;
        }
        if (r < 0)
                return fault_set(fault, r, "reading %s of the kernel's modules: %s%s", name, strerror(-r),
                                 r == -ENOENT ? " (depmod makes it)" : "");
        if (strlen((char *) data) != size)
                return fault_set(fault, -EBADMSG, "%s of the kernel's modules is no text", name);
        *ret = (char *) TAKE_PTR(data);
        return 0;
}

static int plan_modules(int modules_fd, ModulesPlan *ret, Fault *fault) {
        _cleanup_free_ char *dep = NULL, *builtin = NULL;
        int r;

        r = read_index(modules_fd, "modules.dep", true, &dep, fault);
        if (r < 0)
                return r;
        r = read_index(modules_fd, "modules.builtin", false, &builtin, fault);
        if (r < 0)
                return r;
        return modules_plan_make(dep, builtin, module_wishes, n_module_wishes, ret, fault);
}

static int open_archive(int out_fd, struct archive **ret, Fault *fault) {
        _cleanup_(archive_write_freep) struct archive *a = archive_write_new();

        if (!a)
                return -ENOMEM;
        if (archive_write_set_format_cpio_newc(a) != ARCHIVE_OK ||
            archive_write_set_bytes_per_block(a, (int) MIB(1)) != ARCHIVE_OK ||
            archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK || archive_write_open_fd(a, out_fd) != ARCHIVE_OK)
                return fault_set(fault, -EIO, "writing the initramfs: %s", strempty(archive_error_string(a)));
        *ret = TAKE_PTR(a);
        return 0;
}

int initramfs_write(int agent_fd, int modules_fd, int out_fd, Fault *fault) {
        _cleanup_(modules_plan_done) ModulesPlan plan = {};
        _cleanup_(archive_write_freep) struct archive *a = NULL;
        int r;

        if (modules_fd >= 0) {
                r = plan_modules(modules_fd, &plan, fault);
                if (r < 0)
                        return r;
        }
        r = open_archive(out_fd, &a, fault);
        if (r >= 0)
                r = add_skeleton(a, fault);
        if (r >= 0)
                r = add_agent(a, agent_fd, fault);
        for (size_t i = 0; r >= 0 && i < plan.n_modules; i++)
                r = add_module(a, modules_fd, &plan.modules[i], fault);
        if (r >= 0)
                r = add_modules_list(a, &plan, fault);
        if (r < 0)
                return r;

        if (archive_write_close(a) != ARCHIVE_OK)
                return fault_set(fault, -EIO, "writing the initramfs: %s", strempty(archive_error_string(a)));
        return 0;
}
