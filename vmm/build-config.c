/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/tlv.h"
#include "vmm/build-config.h"
#include "vmm/memmap.h"

#define SECTOR 512U

/* While records are read: what came, in the order in which it came. */
typedef struct Parse {
        VmmOp op;
        BuildConfig config;
        uint64_t seen;           /* bit per tag that may come once */
        uint32_t uid;
        VmmDisk disks[CONFIG_DISKS_MAX];
        unsigned n_disks;
        uint32_t roles[VMM_FDS_MAX];
        unsigned n_roles;
        ErrorText *e;
} Parse;

_printf_(3, 4)
static int refuse(Parse *p, int error, const char *format, ...) {
        char text[sizeof(((ErrorText *) NULL)->text)];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        return error_set(p->e, error, "%s: %s", p->op == VMM_OP_LOAD ? "LOAD" : "BUILD", text);
}

static bool seen(const Parse *p, VmmTag tag) {
        return p->seen & (uint64_t) 1 << tag;
}

static int once(Parse *p, const Tlv *t) {
        if (seen(p, t->tag))
                return refuse(p, -EINVAL, "tag %u given twice", t->tag);
        p->seen |= (uint64_t) 1 << t->tag;
        return 0;
}

static int malformed(Parse *p, const Tlv *t, int error) {
        return refuse(p, error, "tag %u, %u bytes: %s", t->tag, t->len, strerrordesc_np(-error) ?: "?");
}

static int take_u32(Parse *p, const Tlv *t, uint32_t *ret) {
        int r = once(p, t);
        if (r < 0)
                return r;
        r = tlv_get_u32(t, ret);
        return r < 0 ? malformed(p, t, r) : 0;
}

static int take_u64(Parse *p, const Tlv *t, uint64_t *ret) {
        int r = once(p, t);
        if (r < 0)
                return r;
        r = tlv_get_u64(t, ret);
        return r < 0 ? malformed(p, t, r) : 0;
}

static int take_str(Parse *p, const Tlv *t, char **ret) {
        int r = once(p, t);
        if (r < 0)
                return r;
        r = tlv_get_str(t, ret);
        return r < 0 ? malformed(p, t, r) : 0;
}

static int take_segment(Parse *p, const Tlv *t) {
        VmmSegment s;

        if (p->config.n_segments == CONFIG_SEGMENTS_MAX)
                return refuse(p, -E2BIG, "more than %u kernel segments", CONFIG_SEGMENTS_MAX);
        int r = tlv_get_struct(t, &s, sizeof(s));
        if (r < 0)
                return malformed(p, t, r);

        p->config.segments[p->config.n_segments++] = (VmmSegment) {
                .gpa = le64toh(s.gpa),
                .file_offset = le64toh(s.file_offset),
                .file_bytes = le64toh(s.file_bytes),
                .mem_bytes = le64toh(s.mem_bytes),
        };
        return 0;
}

static int take_disk(Parse *p, const Tlv *t) {
        VmmDisk d;

        if (p->n_disks == CONFIG_DISKS_MAX)
                return refuse(p, -E2BIG, "more than %u disks", CONFIG_DISKS_MAX);
        int r = tlv_get_struct(t, &d, sizeof(d));
        if (r < 0)
                return malformed(p, t, r);

        p->disks[p->n_disks++] = (VmmDisk) {
                .index = le32toh(d.index),
                .read_only = le32toh(d.read_only),
                .base_bytes = le64toh(d.base_bytes),
                .disk_bytes = le64toh(d.disk_bytes),
        };
        return 0;
}

static int take_role(Parse *p, const Tlv *t) {
        uint32_t role;

        if (p->n_roles == VMM_FDS_MAX)
                return refuse(p, -E2BIG, "more than %u file descriptors", VMM_FDS_MAX);
        int r = tlv_get_u32(t, &role);
        if (r < 0)
                return malformed(p, t, r);
        p->roles[p->n_roles++] = role;
        return 0;
}

/* What a snapshot brings with it, or has no use for. */
static bool is_for_boot(uint16_t tag) {
        return tag == VMM_TAG_SEGMENT || tag == VMM_TAG_MEM_BYTES || tag == VMM_TAG_PLUG_BYTES ||
               tag == VMM_TAG_MAX_CPUS || tag == VMM_TAG_CMDLINE || tag == VMM_TAG_ENTRY ||
               tag == VMM_TAG_INITRD_BYTES || tag == VMM_TAG_CPUID_HIDE;
}

static int take_record(Parse *p, const Tlv *t) {
        BuildConfig *c = &p->config;

        if (p->op == VMM_OP_LOAD && is_for_boot(t->tag))
                return refuse(p, -EINVAL, "tag %u is not for a snapshot", t->tag);

        switch (t->tag) {

        case VMM_TAG_FD:
                return take_role(p, t);

        case VMM_TAG_SEGMENT:
                return take_segment(p, t);

        case VMM_TAG_DISK:
                return take_disk(p, t);

        case VMM_TAG_MEM_BYTES:
                return take_u64(p, t, &c->mem_bytes);

        case VMM_TAG_PLUG_BYTES:
                return take_u64(p, t, &c->plug_bytes);

        case VMM_TAG_CPUS:
                return take_u32(p, t, &c->n_cpus);

        case VMM_TAG_MAX_CPUS:
                return take_u32(p, t, &c->max_cpus);

        case VMM_TAG_CMDLINE:
                return take_str(p, t, &c->cmdline);

        case VMM_TAG_ENTRY:
                return take_u64(p, t, &c->entry);

        case VMM_TAG_INITRD_BYTES:
                return take_u64(p, t, &c->initrd_bytes);

        case VMM_TAG_STOP_TIMEOUT_USEC:
                return take_u64(p, t, &c->stop_timeout_usec);

        case VMM_TAG_UID:
                return take_u32(p, t, &p->uid);

        case VMM_TAG_CPUID_HIDE:
                return take_u32(p, t, &c->cpuid_hide);

        default:
                return refuse(p, -EINVAL, "unknown tag %u", t->tag);
        }
}

static int read_records(Parse *p, const void *records, size_t size) {
        TlvReader reader = TLV_READER_INIT(records, size);
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                r = take_record(p, &t);
                if (r < 0)
                        return r;
        }
        return r < 0 ? refuse(p, r, "records are malformed at byte %zu", reader.offset) : 0;
}

static int check_boot(Parse *p) {
        BuildConfig *c = &p->config;

        if (c->mem_bytes < CONFIG_MEM_MIN || c->mem_bytes > CONFIG_MEM_MAX ||
            c->mem_bytes % CONFIG_MEM_ALIGN != 0)
                return refuse(p, -EINVAL, "memory of %" PRIu64 " bytes is not between 64 MiB "
                                 "and 32 GiB in steps of 2 MiB", c->mem_bytes);

        if (c->plug_bytes > CONFIG_MEM_MAX - c->mem_bytes || c->plug_bytes % MEMMAP_PLUG_ALIGN != 0)
                return refuse(p, -EINVAL, "%" PRIu64 " bytes to plug beside %" PRIu64 " of memory are "
                                 "not a multiple of 128 MiB, or more than 32 GiB together",
                                 c->plug_bytes, c->mem_bytes);

        if (!seen(p, VMM_TAG_MAX_CPUS))
                c->max_cpus = c->n_cpus;
        if (c->n_cpus < 1 || c->n_cpus > c->max_cpus || c->max_cpus > CONFIG_CPUS_MAX)
                return refuse(p, -EINVAL, "%u CPUs of %u possible ones; 1 to %u can be",
                                 c->n_cpus, c->max_cpus, CONFIG_CPUS_MAX);

        if (c->cpuid_hide & ~(uint32_t) VMM_CPUID_HIDE_XSAVE)
                return refuse(p, -EINVAL, "unknown CPUID bits to hide, 0x%x", c->cpuid_hide);

        if (c->n_segments == 0 || !seen(p, VMM_TAG_ENTRY))
                return refuse(p, -EINVAL, "a kernel needs segments and an entry");
        return 0;
}

static int check_shape(Parse *p) {
        BuildConfig *c = &p->config;

        /* 0 in a LOAD: as many as the snapshot has. */
        if (p->op == VMM_OP_LOAD && c->n_cpus > CONFIG_CPUS_MAX)
                return refuse(p, -EINVAL, "%u CPUs; %u can be", c->n_cpus, CONFIG_CPUS_MAX);
        int r = p->op == VMM_OP_LOAD ? 0 : check_boot(p);
        if (r < 0)
                return r;

        if (!seen(p, VMM_TAG_STOP_TIMEOUT_USEC))
                c->stop_timeout_usec = CONFIG_STOP_TIMEOUT_USEC;

        /* The uid was taken on before this message was read. It can only be compared. */
        if (seen(p, VMM_TAG_UID) && p->uid != getuid())
                return refuse(p, -EPERM, "asks for uid %u, the VMM runs as %u", p->uid,
                                 getuid());
        return 0;
}

static int check_cmdline(Parse *p) {
        BuildConfig *c = &p->config;

        if (!c->cmdline)
                c->cmdline = strdup("");
        if (!c->cmdline)
                return error_set(p->e, -ENOMEM, "out of memory");

        size_t n = strlen(c->cmdline);
        if (n >= MEMMAP_CMDLINE_MAX)
                return refuse(p, -EINVAL, "a command line of %zu bytes; %u is most", n,
                                 MEMMAP_CMDLINE_MAX - 1);
        return 0;
}

static DiskConfig *writable_disk(Parse *p) {
        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++)
                if (p->config.disks[i].present && !p->config.disks[i].read_only)
                        return &p->config.disks[i];
        return NULL;
}

static int check_disk(Parse *p, const VmmDisk *d) {
        if (d->index >= CONFIG_DISKS_MAX)
                return refuse(p, -EINVAL, "disk index %u", d->index);
        if (p->config.disks[d->index].present)
                return refuse(p, -EINVAL, "disk %u given twice", d->index);
        if (d->read_only > 1)
                return refuse(p, -EINVAL, "disk %u: read_only is %u", d->index, d->read_only);
        if (d->disk_bytes == 0 || d->disk_bytes > INT64_MAX || d->base_bytes > d->disk_bytes ||
            d->disk_bytes % SECTOR != 0 || d->base_bytes % SECTOR != 0)
                return refuse(p, -EINVAL, "disk %u: %" PRIu64 " bytes over a base of %" PRIu64
                                 ", in sectors of %u",
                                 d->index, d->disk_bytes, d->base_bytes, SECTOR);

        if (!d->read_only && writable_disk(p))
                return refuse(p, -EINVAL, "disk %u: one disk can be written, and another one is", d->index);

        p->config.disks[d->index] = (DiskConfig) {
                .present = true,
                .read_only = d->read_only,
                .base_fd = -EBADF,
                .over = OVERLAY_FDS_NONE,
                .base_bytes = d->base_bytes,
                .disk_bytes = d->disk_bytes,
        };
        return 0;
}

static int check_disks(Parse *p) {
        for (unsigned i = 0; i < p->n_disks; i++) {
                int r = check_disk(p, &p->disks[i]);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int *disk_layer_slot(Parse *p, unsigned n) {
        DiskConfig *d = writable_disk(p);

        if (!d || n >= VMM_DISK_LAYERS_MAX)
                return NULL;
        d->over.n_layers = n + 1;
        return &d->over.layer_fds[n];
}

/* The slot that the n-th descriptor with this role fills, or NULL. */

static int *slot_for_role(Parse *p, uint32_t role, unsigned n) {
        BuildConfig *c = &p->config;
        int *single;

        switch (role) {

        case VMM_FD_DISK_BASE:
                return n < p->n_disks ? &c->disks[p->disks[n].index].base_fd : NULL;

        case VMM_FD_DISK_LAYER:
                return disk_layer_slot(p, n);

        case VMM_FD_DISK_OVERLAY:
                single = writable_disk(p) ? &writable_disk(p)->over.overlay_fd : NULL;
                break;

        case VMM_FD_KVM:
                single = &c->kvm_fd;
                break;

        case VMM_FD_LAYER:
                if (p->op != VMM_OP_LOAD || n >= CONFIG_LAYERS_MAX)
                        return NULL;
                c->n_layers = n + 1;
                return &c->layer_fds[n];

        case VMM_FD_STATE:
                single = p->op == VMM_OP_LOAD ? &c->state_fd : NULL;
                break;

        case VMM_FD_KERNEL:
                single = p->op == VMM_OP_BUILD ? &c->kernel_fd : NULL;
                break;

        case VMM_FD_INITRD:
                single = p->op == VMM_OP_BUILD ? &c->initrd_fd : NULL;
                break;

        case VMM_FD_EXIT:
                single = &c->exit_fd;
                break;

        case VMM_FD_CONSOLE:
                single = &c->console_fd;
                break;

        case VMM_FD_TAP:
                single = &c->tap_fd;
                break;

        default:
                return NULL;
        }

        return n == 0 ? single : NULL;
}

/* Notes the descriptors without taking them: the caller keeps them should a later check fail. */
static int assign_fds(Parse *p, const int *fds, size_t n_fds) {
        unsigned count[_VMM_FD_ROLE_MAX] = {};

        if (p->n_roles != n_fds)
                return refuse(p, -EINVAL, "%zu file descriptors for %u roles", n_fds,
                                 p->n_roles);

        for (size_t i = 0; i < n_fds; i++) {
                uint32_t role = p->roles[i];
                int *slot = NULL;

                if (role < _VMM_FD_ROLE_MAX)
                        slot = slot_for_role(p, role, count[role]++);
                if (!slot)
                        return refuse(p, -EINVAL,
                                         "no use for file descriptor %zu with role %u", i, role);
                *slot = fds[i];
        }
        return 0;
}

static int check_fds(Parse *p) {
        const BuildConfig *c = &p->config;

        if (c->kvm_fd < 0)
                return refuse(p, -EINVAL, "no file descriptor of KVM");
        if (p->op == VMM_OP_LOAD && c->state_fd < 0)
                return refuse(p, -EINVAL, "no file descriptor of the state");
        if (p->op == VMM_OP_BUILD && c->kernel_fd < 0)
                return refuse(p, -EINVAL, "no file descriptor of the kernel");
        if (c->exit_fd < 0)
                return refuse(p, -EINVAL, "no file descriptor of the exit record");
        if ((c->initrd_fd >= 0) != (c->initrd_bytes > 0))
                return refuse(p, -EINVAL, "an initrd needs both its file and its size");

        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++) {
                const DiskConfig *d = &c->disks[i];

                if (d->present && (d->base_fd < 0 || (d->over.overlay_fd < 0) != d->read_only))
                        return refuse(p, -EINVAL, "disk %u lacks a file descriptor", i);
        }
        return 0;
}

static int parse(Parse *p, const void *records, size_t size, const int *fds, size_t n_fds) {
        int r = read_records(p, records, size);
        if (r < 0)
                return r;
        r = check_shape(p);
        if (r < 0)
                return r;
        r = check_cmdline(p);
        if (r < 0)
                return r;
        r = check_disks(p);
        if (r < 0)
                return r;
        r = assign_fds(p, fds, n_fds);
        if (r < 0)
                return r;
        return check_fds(p);
}

int build_config_parse(VmmOp op, const void *records, size_t size, int *fds, size_t n_fds, BuildConfig *ret,
                       ErrorText *e) {
        Parse p = { .op = op, .config = BUILD_CONFIG_INIT, .e = e };

        assert(op == VMM_OP_BUILD || op == VMM_OP_LOAD);
        assert(records || size == 0);
        assert(fds || n_fds == 0);
        assert(ret);

        int r = parse(&p, records, size, fds, n_fds);
        if (r < 0) {
                free(p.config.cmdline);
                return r;
        }

        for (size_t i = 0; i < n_fds; i++)
                fds[i] = -EBADF;
        *ret = p.config;
        return 0;
}

void build_config_done(BuildConfig *c) {
        assert(c);

        safe_close(c->kvm_fd);
        safe_close(c->state_fd);
        for (unsigned i = 0; i < CONFIG_LAYERS_MAX; i++)
                safe_close(c->layer_fds[i]);
        safe_close(c->kernel_fd);
        safe_close(c->exit_fd);
        safe_close(c->initrd_fd);
        safe_close(c->console_fd);
        safe_close(c->tap_fd);
        for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++)
                disk_config_done(&c->disks[i]);
        free(c->cmdline);
        *c = BUILD_CONFIG_INIT;
}
