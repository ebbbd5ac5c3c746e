/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a template is to be built from, as a caller asked for it, and what is wrong with that.
 *
 * TemplateBuildParams borrows everything for the time of a call. A TemplateWarmSpec that has to last
 * is a copy of its own. Nothing here waits or touches what the descriptors lead to. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "base/vmm-proto.h"
#include "daemon/sandbox-policy.h"
#include "daemon/template-steps.h"
#include "daemon/template.h"

typedef struct LoadedPolicy LoadedPolicy;

#define TEMPLATE_SETUP_MAX 64U
/* As many descriptors as a message of the bus has room for, beside those of the template itself. */
#define TEMPLATE_COPIES_MAX 12U
/* Of an image in a layout of several. */
#define TEMPLATE_IMAGE_NAME_MAX 1023U
/* Beside the disk of the template below. */
#define TEMPLATE_BASE_LAYERS_MAX (VMM_DISK_LAYERS_MAX - 1U)
#define TEMPLATE_READY_TIMEOUT_USEC (60 * USEC_PER_SEC)

/* A file or a directory that is put into the guest. */
typedef struct TemplateCopy {
        int fd;
        const char *path;         /* there: absolute, without a slash at its end */
} TemplateCopy;

/* So much of all that: the disk is as it was behind it. */
typedef struct TemplateWarmDone {
        bool copies;              /* but for those that steps unpack */
        size_t setup, steps;      /* how many of them */
        StepState state;          /* behind these steps */
} TemplateWarmDone;

/* What is done in the guest before it is saved. All commands are given to "sh -c"; behind steps start and ready are run as a
 * RUN of them would be. */
typedef struct TemplateWarmSpec {
        TemplateCopy *copies;     /* one after the other, before all commands */
        size_t n_copies;
        char **setup;             /* one after the other, each to its end; may be NULL */
        TemplateStep *steps;      /* behind these; see template-steps.h */
        size_t n_steps;
        char *start;              /* stays running, in the saved state; NULL: none, or what the image starts */
        bool no_start;            /* not even that */
        char **image_command;     /* started without a shell in place of start; of copies alone: a build finds it out */
        char *ready;              /* tried until its exit status is 0; NULL: no wait */
        uint64_t ready_timeout_usec; /* 0: TEMPLATE_READY_TIMEOUT_USEC */
        char *user;               /* of all of them; NULL: root */
        char *cwd;                /* NULL: the home of user */
        char **env;               /* NAME=VALUE; may be NULL, may be secret */
        TemplateWarmDone done;    /* of copies of it alone: what an earlier build has done already */
} TemplateWarmSpec;

typedef struct TemplateBuildParams {
        const char *name;
        const char *tag;          /* NULL: TEMPLATE_TAG_DEFAULT */
        char **aliases;           /* "NAME:TAG", TEMPLATE_ALIASES_MAX at most; NULL: none */
        uid_t owner_uid;
        const char *tenant;       /* of his; NULL: he himself */
        gid_t owner_gid;          /* a directory is read with the rights of these two; (gid_t) -1: the tools' group */

        int rootfs_fd;            /* tar (any compression, a pipe too), directory, squashfs or erofs */
        Template *base;           /* in place of a root file system: kernel, root image, disk and defaults of this one */
        int base_layer_fds[TEMPLATE_BASE_LAYERS_MAX]; /* what its saved guest wrote to the disk, lowest first; borrowed */
        size_t n_base_layers;
        const char *image;        /* rootfs_fd is an OCI image layout: of this name, or "" for the only one; NULL: it is not */
        int kernel_fd;            /* -1: by name */
        const char *kernel_name;  /* see guest-kernel.h; NULL: kernel_path */
        const char *kernel_path;  /* KernelPath=; NULL: the newest in /boot, cloud kernels first */
        int modules_fd;           /* /lib/modules/RELEASE; -1: the one of the kernel's release */
        bool no_modules;          /* all drivers are in the kernel */

        const char *cmdline;      /* behind what every guest gets; NULL: none */
        uint64_t mem_bytes;
        uint32_t cpus;
        uint64_t disk_bytes;      /* both multiples of 1 MiB */

        bool public;              /* all may use it */
        LoadedPolicy *build_policy; /* while it is made: its sandboxes don't inherit it; NULL: nobody */
        const SandboxPolicy *build_rules; /* the same */
        const char *kernel_command_line; /* that all guests of this host get; NULL: none */
        const SandboxPolicy *policy; /* of sandboxes that are given none; NULL: as DefaultPolicy= says */

        bool no_cache;            /* nothing is taken from earlier builds */
        uint32_t force_step;      /* the steps from this one on are run, whatever there is of them, from 1 on; 0: as no_cache says */

        const TemplateWarmSpec *warm; /* NULL: sandboxes boot, nothing is run in it before */

        uint64_t root_max_bytes;  /* ceiling for the unpacked root file system and for root.img; 0: 32 GiB */
        uint64_t step_timeout_usec; /* of each tool; 0: 30 minutes */
        uint64_t timeout_usec;    /* of the whole build; 0 and UINT64_MAX: none */
} TemplateBuildParams;

#define TEMPLATE_BUILD_PARAMS_INIT                      \
        ((TemplateBuildParams) {                        \
                .owner_gid = (gid_t) -1,                \
                .rootfs_fd = -EBADF,                    \
                .kernel_fd = -EBADF,                    \
                .modules_fd = -EBADF,                   \
        })

/* What is wrong with numbers and words, for people; NULL when nothing is. */
const char *template_build_params_fault(const TemplateBuildParams *p);
/* A template in the making, with an id of its own; its files are still to come. */
int template_from_params(const TemplateBuildParams *p, Template **ret);
/* The newest kernel in boot_dir: vmlinuz-*-cloud-amd64, else vmlinuz-*. -ENOENT. */
int template_default_kernel(const char *boot_dir, char **ret_path);

int template_warm_spec_copy(const TemplateWarmSpec *s, TemplateWarmSpec **ret);
/* Overwrites what may be secret, and closes the descriptors. Of copies alone. */
TemplateWarmSpec *template_warm_spec_free(TemplateWarmSpec *s);
DEFINE_CLEANUP(TemplateWarmSpec *, template_warm_spec_free);
