/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The API keys: who may use the gateway, and as which tenant.
 *
 * A key is "e2b_" and 40 hex digits, 160 random bits, told once to whoever makes it. Kept is its SHA-256, which for a
 * random key of that length is as good as any slower hash, in one file that is replaced as a whole: after a crash it is
 * the old one or the new one. Owned by the Gateway; silent. */

#include <stdint.h>

#include "base/macros.h"
#include "gateway/rate.h"

#define KEY_PREFIX "e2b_"
#define KEY_HEX 40U
#define KEY_SECRET_SIZE (sizeof(KEY_PREFIX) + KEY_HEX)
#define KEY_HASH_SIZE 32U
#define KEY_ID_MAX 17U
#define TENANT_MAX 21U
#define KEY_NAME_MAX 64U
#define KEYS_MAX 4096U

typedef struct Key {
        char id[KEY_ID_MAX];
        char tenant[TENANT_MAX];      /* its id unless another one was named: keys of one tenant see the same */
        char *name;                   /* for people */
        uint64_t created_usec;
        uint8_t hash[KEY_HASH_SIZE];
        Rate rate;                    /* not kept */
} Key;

typedef struct Keys {
        char *path;
        Key **keys;
        size_t n;
} Keys;

/* A file that is not there is no keys. -EBADMSG: it is damaged. */
int keys_load(const char *path, Keys **ret);
Keys *keys_free(Keys *k);
DEFINE_CLEANUP(Keys *, keys_free)

/* In a time that tells nothing about the hashes. NULL: none, or no key at all by its form. */
Key *keys_find(const Keys *k, const char *secret);
/* NULL: it was revoked. */
Key *keys_find_id(const Keys *k, const char *id);
/* They are on disk when it returns 0. tenant may be NULL. -EINVAL: a wrong name or tenant; -E2BIG: too many keys. */
int keys_create(Keys *k, const char *name, const char *tenant, char ret_secret[static KEY_SECRET_SIZE], const Key **ret);
/* -ENOENT. ret_revoked is the caller's to free with key_free(). */
int keys_revoke(Keys *k, const char *id, Key **ret_revoked);
Key *key_free(Key *key);

/* [a-z][a-z0-9]{0,19}: what a tenant may be called. */
bool tenant_valid(const char *s);
bool key_name_valid(const char *s);
/* Has the form of a key: for a client that has none. */
bool key_secret_valid(const char *s);
