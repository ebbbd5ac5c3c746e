/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds one template: a row of child processes on the event loop, none of which may write
 * anything but the files it was handed.
 *
 *      probe      what the root file system is given as         cube-image probe
 *      kernel     bzImage or vmlinux -> vmlinux                 cube-image kernel
 *      initramfs  agent and modules                             cube-image initramfs
 *      root       tar or directory -> squashfs; images: copied  cube-image rootfs | mksquashfs
 *      disk       ext4                                          mkfs.ext4
 *      commit     hashes, fsync, template.json, rename, name    cube-image commit
 *
 * cubed itself never reads, stats or maps the descriptors that a caller gave: behind one may stand
 * a FUSE file system that never answers.
 *
 * A build that fails or is cancelled leaves nothing on disk but names in the dot namespace, which
 * it deletes too, and its callback gets the step and the end of what the tool printed. The caller
 * owns the TemplateBuild and frees it in or after done(). Freeing it earlier cancels silently. */

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"
#include "daemon/template.h"

typedef struct TemplateBuild TemplateBuild;

typedef struct TemplateBuildParams {
        const char *name;
        const char *tag;          /* NULL: TEMPLATE_TAG_DEFAULT */
        uid_t owner_uid;
        gid_t owner_gid;          /* a directory is read with the rights of these two; (gid_t) -1: the tools' group */

        int rootfs_fd;            /* tar (any compression, a pipe too), directory, squashfs or erofs */
        int kernel_fd;            /* -1: kernel_path */
        const char *kernel_path;  /* KernelPath=; NULL: the newest in /boot, cloud kernels first */
        int modules_fd;           /* /lib/modules/RELEASE; -1: the one of the kernel's release */
        bool no_modules;          /* all drivers are in the kernel */

        const char *cmdline;      /* behind what every guest gets; NULL: none */
        uint64_t mem_bytes;
        uint32_t cpus;
        uint64_t disk_bytes;      /* both multiples of 1 MiB */

        uint64_t root_max_bytes;  /* ceiling for the unpacked root file system and for root.img; 0: 32 GiB */
        uint64_t step_timeout_usec; /* 0: 30 minutes */
} TemplateBuildParams;

#define TEMPLATE_BUILD_PARAMS_INIT                      \
        ((TemplateBuildParams) {                        \
                .owner_gid = (gid_t) -1,                \
                .rootfs_fd = -EBADF,                    \
                .kernel_fd = -EBADF,                    \
                .modules_fd = -EBADF,                   \
        })

typedef struct TemplateBuildCallbacks {
        /* step: a few words, "making the root image". percent of the whole; called for each step and
         * while long ones go on. May be NULL. */
        void (*progress)(TemplateBuild *b, const char *step, unsigned percent, void *userdata);
        /* What tools print, as it comes; not terminated. May be NULL. */
        void (*log)(TemplateBuild *b, const char *text, size_t size, void *userdata);
        /* Exactly once, from the loop. r = 0 and the template, which the store owns; or a negative
         * errno (-ECANCELED after a cancel) and a message for people: "root: mksquashfs: ...". */
        void (*done)(TemplateBuild *b, int r, const char *message, Template *t, void *userdata);
} TemplateBuildCallbacks;

/* Checks params (-EINVAL and *ret_message when not NULL, to be freed), duplicates the descriptors
 * and starts the first step. The store must outlive the build. */
int template_build_start(
                sd_event *e,
                TemplateStore *s,
                const TemplateBuildParams *params,
                const TemplateBuildCallbacks *callbacks,
                void *userdata,
                TemplateBuild **ret,
                char **ret_message);
/* Kills what runs; done() follows with -ECANCELED. */
void template_build_cancel(TemplateBuild *b);
TemplateBuild *template_build_free(TemplateBuild *b);
DEFINE_CLEANUP(TemplateBuild *, template_build_free);

/* The newest kernel in boot_dir: vmlinuz-*-cloud-amd64, else vmlinuz-*. -ENOENT. */
int template_default_kernel(const char *boot_dir, char **ret_path);
