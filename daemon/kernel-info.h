/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is known of a guest kernel once it has been looked at: where it is entered, which parts of
 * the ELF file go where in guest memory, and how much memory it needs.
 *
 * cube-image finds it out and reports it as JSON; cubed checks that report again (it comes from an
 * unprivileged process that has read hostile input), keeps it in template.json and hands entry and
 * segments to the VMM. */

#include <json-c/json.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/vmm-proto.h"

#define KERNEL_RELEASE_MAX 64U
#define KERNEL_SEGMENTS_MAX 16U

/* Segments lie in here. Below are start info, command line and ACPI tables, above is the PCI hole. */
#define KERNEL_GPA_MIN MIB(1)
#define KERNEL_GPA_MAX GIB(3)

typedef struct KernelInfo {
        char release[KERNEL_RELEASE_MAX + 1]; /* "" for something that is not Linux */
        uint64_t entry;                       /* gpa of the 32-bit PVH entry */
        VmmSegment segments[KERNEL_SEGMENTS_MAX]; /* by ascending gpa */
        size_t n_segments;
        uint64_t file_bytes;                  /* of the ELF file that file_offset points into */
        uint64_t floor_bytes;                 /* least guest memory, without the initramfs */
} KernelInfo;

/* Letters, digits and ".+~_-", beginning with a digit: safe as a file name. */
bool kernel_release_valid(const char *s);

/* Sorts the segments, then: at least one, no wrap, no overlap, inside the bounds above and the
 * file, the entry in one of them. -EBADMSG and a reason. */
int kernel_info_check(KernelInfo *k, const char **ret_reason);

/* Least memory for a guest with this kernel and an initramfs of that size. */
uint64_t kernel_info_floor(const KernelInfo *k, uint64_t initramfs_bytes);

json_object *kernel_info_to_json(const KernelInfo *k);
/* -EBADMSG for anything that kernel_info_to_json() would not have written or the check refuses. */
int kernel_info_from_json(json_object *o, KernelInfo *ret);
