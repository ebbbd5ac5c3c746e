/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Overlays of a disk (vmm/overlay.h) into fd, an empty file, which shows the same over the same base: what is data in
 * the file is the overlay's, zeros too; what is a hole is not. Lowest first; as long as the longest. */
int disk_merge(const int *layers, size_t n_layers, int fd);
