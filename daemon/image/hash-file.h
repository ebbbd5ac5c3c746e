/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Hashes of a template's files. */

#include <nettle/sha2.h>

#include "daemon/template-files.h"

/* The end of a sum. */
void hash_finish(struct sha256_ctx *s, char ret[static SHA256_HEX_SIZE]);
/* What sha256sum prints. */
int hash_file(int fd, char ret[static SHA256_HEX_SIZE]);

/* For disks that are mostly empty: SHA-256 over each 4 KiB block that is not all zeros, with its
 * number as 8 bytes little-endian in front. Independent of where the file has holes. */
int hash_sparse_file(int fd, char ret[static SHA256_HEX_SIZE]);
