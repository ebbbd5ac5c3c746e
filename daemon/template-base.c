/* SPDX-License-Identifier: Apache-2.0 */

/* A build on another template: its kernel, initramfs and root image are shared with it, its disk is what its saved guest left. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/template-build-private.h"

#define LAYERS_FD 4

/* Not its disk: that becomes another one. */
static const TemplateFile shared[] = { TEMPLATE_FILE_KERNEL, TEMPLATE_FILE_INITRAMFS, TEMPLATE_FILE_ROOT };

int build_base_prepare(TemplateBuild *b, const TemplateBuildParams *p) {
        const Template *t = p->base;
        int r = template_open_file(t, TEMPLATE_FILE_DISK, &b->base_disk_fds[0]);

        if (r >= 0)
                b->n_base_disks = 1;
        for (size_t i = 0; i < p->n_base_layers && r >= 0; i++) {
                int fd = fcntl(p->base_layer_fds[i], F_DUPFD_CLOEXEC, 3);
                if (fd < 0)
                        r = -errno;
                else
                        b->base_disk_fds[b->n_base_disks++] = fd;
        }
        if (r < 0)
                return build_fail(b, r, "the disk of template %s: %s", t->id, strerror(-r));

        b->template->kernel = t->kernel;
        b->template->root_type = strdup(t->root_type);
        r = exec_defaults_copy(&t->defaults, &b->template->defaults);
        return r < 0 || !b->template->root_type ? build_fail(b, -ENOMEM, "out of memory") : 0;
}

int build_base_link(TemplateBuild *b, const Template *t) {
        _cleanup_close_ int dir_fd = openat(b->store->root_fd, t->id, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (dir_fd < 0)
                return build_fail(b, -errno, "template %s: %s", t->id, strerror(errno));
        for (size_t i = 0; i < ELEMENTSOF(shared); i++) {
                const char *name = template_file_name(shared[i]);
                if (linkat(dir_fd, name, b->dir_fd, name, 0) < 0)
                        return build_fail(b, -errno, "sharing %s of template %s: %s", name, t->id, strerror(errno));
                b->template->file_bytes[shared[i]] = t->file_bytes[shared[i]];
        }
        return 0;
}

void build_base_unlink(TemplateBuild *b) {
        for (size_t i = 0; i < ELEMENTSOF(shared); i++)
                (void) unlinkat(b->dir_fd, template_file_name(shared[i]), 0);
}

int build_base_disk_start(TemplateBuild *b) {
        char n[16];
        const char *const argv[] = { b->store->tools.cube_image, "merge-disk", n, NULL };
        ToolSpec spec = build_tool_spec(b, argv);

        int r = build_output_create(b, TEMPLATE_FILE_DISK);
        if (r < 0)
                return r;
        (void) snprintf(n, sizeof(n), "%zu", b->n_base_disks);
        spec.fds[1] = b->output_fd;
        for (size_t i = 0; i < b->n_base_disks; i++)
                spec.fds[LAYERS_FD + i] = b->base_disk_fds[i];
        spec.file_bytes_max = b->template->disk_bytes;
        return build_run(b, &spec);
}

void build_base_done(TemplateBuild *b) {
        for (size_t i = 0; i < b->n_base_disks; i++)
                safe_close(b->base_disk_fds[i]);
}
