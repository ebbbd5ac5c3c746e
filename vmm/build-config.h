/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a BUILD or LOAD request asks for: the machine's shape, and the descriptors it is made of. LOAD has
 * descriptors of a snapshot's files in place of a kernel; the shape is then, but for CPUs and disks, the file's.
 *
 * Parsed from records that another process wrote; what is in here is complete and consistent, and
 * the descriptors are its own until somebody takes them. Whether the files behind them fit is for
 * those who use them to say. */

#include "base/snapshot-format.h"
#include "base/vmm-proto.h"
#include "vmm/devices.h"
#include "vmm/error.h"

#define CONFIG_SEGMENTS_MAX 16U
#define CONFIG_DISKS_MAX 2U
#define CONFIG_CPUS_MAX 16U
#define CONFIG_LAYERS_MAX SNAPSHOT_LAYERS_MAX
#define CONFIG_MEM_MIN MIB(64)
#define CONFIG_MEM_MAX GIB(32)
#define CONFIG_MEM_ALIGN MIB(2)
/* How long SIGTERM waits for the guest when BUILD does not say. */
#define CONFIG_STOP_TIMEOUT_USEC (10 * USEC_PER_SEC)

typedef struct BuildConfig {
        uint64_t mem_bytes;
        uint64_t plug_bytes;    /* 0 = nothing can be plugged */
        uint32_t n_cpus;
        uint32_t max_cpus;      /* >= n_cpus */
        uint32_t cpuid_hide;    /* VmmCpuidHide bits */
        uint64_t entry;
        VmmSegment segments[CONFIG_SEGMENTS_MAX];
        unsigned n_segments;    /* >= 1 */
        char *cmdline;          /* never NULL */
        uint64_t initrd_bytes;  /* 0 = none */
        uint64_t stop_timeout_usec;
        DiskConfig disks[CONFIG_DISKS_MAX];

        int kvm_fd;
        int exit_fd;
        int state_fd;           /* LOAD only: -EBADF otherwise */
        int layer_fds[CONFIG_LAYERS_MAX]; /* the lowest first */
        unsigned n_layers;
        int kernel_fd;          /* BUILD only: -EBADF otherwise */
        int initrd_fd;          /* -EBADF without initrd_bytes */
        int console_fd;         /* -EBADF: no console */
        int tap_fd;             /* -EBADF: the link is down */
} BuildConfig;

#define BUILD_CONFIG_INIT                                                                       \
        ((BuildConfig) {                                                                        \
                .disks = { { .base_fd = -EBADF, .over = { .overlay_fd = -EBADF } },             \
                           { .base_fd = -EBADF, .over = { .overlay_fd = -EBADF } } },           \
                .kvm_fd = -EBADF,                                                               \
                .state_fd = -EBADF,                                                             \
                .layer_fds = { [0 ... CONFIG_LAYERS_MAX - 1] = -EBADF },                        \
                .kernel_fd = -EBADF,                                                            \
                .exit_fd = -EBADF,                                                              \
                .initrd_fd = -EBADF,                                                            \
                .console_fd = -EBADF,                                                           \
                .tap_fd = -EBADF,                                                               \
        })

/* op: BUILD or LOAD. Takes out of fds, in which it puts -EBADF, those it keeps: none on error.
 *
 * A descriptor of role DISK_BASE belongs to the disk record at the same place among the disk
 * records, those of roles DISK_LAYER and DISK_OVERLAY to the one that can be written. */
int build_config_parse(VmmOp op, const void *records, size_t size, int *fds, size_t n_fds, BuildConfig *ret,
                       ErrorText *e);
void build_config_done(BuildConfig *c);
#define _cleanup_build_config_ _cleanup_(build_config_done)
