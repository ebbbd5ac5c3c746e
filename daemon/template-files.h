/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names in a template's directory and in the store's, for cubed and cube-image alike. */

#include <stdbool.h>
#include <string.h>

#define TEMPLATE_JSON "template.json"
#define TEMPLATE_JSON_VERSION 1U

typedef enum TemplateFile {
        TEMPLATE_FILE_KERNEL,    /* ELF; like the next two a hard link to what others have, too */
        TEMPLATE_FILE_INITRAMFS,
        TEMPLATE_FILE_ROOT,      /* squashfs or erofs, a multiple of 4 KiB */
        TEMPLATE_FILE_DISK,      /* sparse ext4 of disk_bytes */
        _TEMPLATE_FILE_MAX,
} TemplateFile;

#define TEMPLATE_FILE_NAMES                                     \
        {                                                       \
                [TEMPLATE_FILE_KERNEL] = "vmlinux",             \
                [TEMPLATE_FILE_INITRAMFS] = "initramfs.cpio",   \
                [TEMPLATE_FILE_ROOT] = "root.img",              \
                [TEMPLATE_FILE_DISK] = "disk.img",              \
        }

/* Of what templates share, see image/objects.h. Disks are shared as layers. */
#define STORE_OBJECT_DIRECTORIES                                \
        {                                                       \
                [TEMPLATE_FILE_KERNEL] = STORE_KERNELS,         \
                [TEMPLATE_FILE_INITRAMFS] = STORE_INITRAMFS,    \
                [TEMPLATE_FILE_ROOT] = STORE_ROOTS,             \
        }

/* A SHA-256 in hexadecimal digits, with its NUL. */
#define SHA256_HEX_SIZE 65U

/* So is what is found by one: an object, a key. */
static inline bool sha256_hex_valid(const char *s) {
        return strlen(s) == SHA256_HEX_SIZE - 1 && strspn(s, "0123456789abcdef") == SHA256_HEX_SIZE - 1;
}

/* The key of a file's hash in template.json; see image/hash-file.h for what a disk's is. */
#define TEMPLATE_HASH_KEY(file) ((file) == TEMPLATE_FILE_DISK ? "blocks_sha256" : "sha256")

/* In the store's root, beside the templates. */
#define STORE_BUILD_PREFIX ".build-"
#define STORE_REMOVE_PREFIX ".remove-"
#define STORE_KERNELS ".kernels"
#define STORE_INITRAMFS ".initramfs"
#define STORE_ROOTS ".roots"
#define STORE_INPUTS ".inputs"
#define STORE_LAYERS ".layers"
#define STORE_NAMES "names"

/* Of a layer's state as JSON: it goes through a report. */
#define TEMPLATE_LAYER_STATE_MAX (48U * 1024U)

/* As many as a build can be given beside its name. */
#define TEMPLATE_ALIASES_MAX 16
