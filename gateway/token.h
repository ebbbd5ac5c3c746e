/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tokens of sandboxes: derived from the id and a key of this host, so that they are the same after a pause, a restart or a
 * reboot, and are kept nowhere. HMAC-SHA256, as hex. */

#include <stddef.h>
#include <stdint.h>

#define HOST_KEY_SIZE 32U
#define TOKEN_SIZE 65U

typedef struct HostKey {
        uint8_t bytes[HOST_KEY_SIZE];
} HostKey;

/* -EINVAL: the file is no key. */
int host_key_load(const char *path, HostKey *ret);
/* A new one; -EEXIST when there is one already. */
int host_key_make(const char *path);
/* For what one is. */
#define TOKEN_ENVD "envd"
#define TOKEN_TRAFFIC "traffic"
void token_derive(const HostKey *key, const char *purpose, const char *id, char ret[static TOKEN_SIZE]);
