/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What in the template store nothing refers to, and what it takes on disk.
 *
 * Runs in a child of cubed that may wait for the disk; only reads, but for store_sweep(). cubed says which
 * templates are to go, for it alone knows who uses them, and which leftovers are works in progress. */

#include "daemon/image/fault.h"
#include "daemon/kernel-info.h"

/* More of a kind are left for another time, and "more" is true. */
#define USAGE_TEMPLATES_MAX 256
#define USAGE_OTHERS_MAX 100

/* *ret: {"templates": {ID: bytes}, "kernels": {SHA256: bytes}, "initramfs": the same, "roots": the same, "layers": {KEY: bytes},
 * "leftovers": {ENTRY: bytes}, "names": {"UID/NAME:TAG": 0}, "more": bool}. What is shared is among these when the templates to
 * go are all that have it, with its bytes; else those are nobody's. */
int store_usage(int store_fd, char *const *ids, size_t n_ids, json_object **ret, Fault *fault);

/* Removes what is shared and nobody has, and names that stand for nothing. */
int store_sweep(int store_fd, Fault *fault);
