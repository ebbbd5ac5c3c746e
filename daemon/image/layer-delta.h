/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What differs between two states of a disk, as a stream: { le64 offset, le64 bytes, data }..., ascending, in blocks of 4 KiB. */

#include "base/macros.h"

/* What overlay (data hides, holes do not) shows beyond shadow over disk; and shadow shows it as well from then on. */
int delta_write(int disk_fd, int shadow_fd, int overlay_fd, uint64_t disk_bytes, int delta_fd);
/* Into a disk of that size. -EBADMSG. */
int delta_apply(int delta_fd, uint64_t disk_bytes, int disk_fd);
