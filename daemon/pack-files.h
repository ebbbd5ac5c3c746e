/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a template as one file consists of, for cubed and cube-image alike; see image/pack.h. */

#define PACK_JSON "pack.json"
#define PACK_FORMAT "cubed-template"
#define PACK_VERSION 1U
#define PACK_JSON_MAX (1024U * 1024U)

typedef enum PackFile {
        /* those of TemplateFile */
        PACK_KERNEL,
        PACK_INITRAMFS,
        PACK_ROOT,
        PACK_DISK,
        /* those of SnapshotFileKind */
        PACK_GUEST_STATE,
        PACK_GUEST_MEMORY,
        PACK_GUEST_DISK,
        _PACK_MEMBER_MAX,
} PackFile;

#define PACK_PROGRESS_FD 3
#define PACK_MEMBERS_FD 4
