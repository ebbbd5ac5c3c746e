/* SPDX-License-Identifier: Apache-2.0 */
#include <json-c/json.h>
#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "gateway/key-file.h"
#include "gateway/save-file.h"

#define FILE_MAX (4U * 1024U * 1024U)
#define FILE_VERSION 1
#define ID_LEN 12U

_Static_assert(ID_LEN < KEY_ID_MAX && ID_LEN < TENANT_MAX, "an id is a tenant's name, too");

bool tenant_valid(const char *s) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");

        return n > 0 && n < TENANT_MAX && s[n] == 0 && s[0] >= 'a';
}

bool key_name_valid(const char *s) {
        size_t left = strlen(s), n;

        if (left == 0 || left > KEY_NAME_MAX)
                return false;
        for (; left > 0; s += n, left -= n) {
                n = utf8_sequence((const uint8_t *) s, left);
                if (n == 0 || (unsigned char) *s < 0x20 || *s == 0x7f)
                        return false;
        }
        return true;
}

bool key_secret_valid(const char *s) {
        const char *hex = startswith(s, KEY_PREFIX);

        return hex && strspn(hex, "0123456789abcdef") == KEY_HEX && hex[KEY_HEX] == 0;
}

Key *key_free(Key *key) {
        if (key)
                free(key->name);
        free(key);
        return NULL;
}

DEFINE_CLEANUP(Key *, key_free)

Keys *keys_free(Keys *k) {
        if (!k)
                return NULL;

        for (size_t i = 0; i < k->n; i++)
                key_free(k->keys[i]);
        free(k->keys);
        free(k->path);
        free(k);
        return NULL;
}

/* Takes key. */
static int keys_add(Keys *k, Key *key) {
        Key **grown = realloc(k->keys, (k->n + 1) * sizeof(*grown));

        if (!grown) {
                key_free(key);
                return -ENOMEM;
        }
        k->keys = grown;
        k->keys[k->n++] = key;
        return 0;
}

/* The file. */

static const char *string_of(json_object *o, const char *name) {
        json_object *v;

        return json_object_object_get_ex(o, name, &v) && json_object_is_type(v, json_type_string)
                       ? json_object_get_string(v)
                       : "";
}

static int parse_hash(const char *hex, uint8_t ret[static KEY_HASH_SIZE]) {
        struct base16_decode_ctx c;
        size_t n = KEY_HASH_SIZE;

        if (strlen(hex) != 2 * KEY_HASH_SIZE)
                return -EBADMSG;
        base16_decode_init(&c);
        if (!base16_decode_update(&c, &n, ret, 2 * KEY_HASH_SIZE, hex) || !base16_decode_final(&c))
                return -EBADMSG;
        return n == KEY_HASH_SIZE ? 0 : -EBADMSG;
}

static int load_key(Keys *k, json_object *o) {
        _cleanup_(key_freep) Key *key = new0(Key, 1);
        const char *id = string_of(o, "id"), *tenant = string_of(o, "tenant"), *name = string_of(o, "name");
        json_object *created;

        if (!key)
                return -ENOMEM;
        if (!tenant_valid(id) || strlen(id) >= KEY_ID_MAX || !tenant_valid(tenant) || !key_name_valid(name))
                return -EBADMSG;
        if (!json_object_object_get_ex(o, "created", &created) || !json_object_is_type(created, json_type_int))
                return -EBADMSG;
        strcpy(key->id, id);
        strcpy(key->tenant, tenant);
        key->created_usec = json_object_get_uint64(created);
        int r = parse_hash(string_of(o, "sha256"), key->hash);
        if (r < 0)
                return r;
        key->name = strdup(name);
        return key->name ? keys_add(k, TAKE_PTR(key)) : -ENOMEM;
}

static int load_all(Keys *k, json_object *o) {
        json_object *version, *keys;

        if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, "version", &version) ||
            json_object_get_int(version) != FILE_VERSION || !json_object_object_get_ex(o, "keys", &keys) ||
            !json_object_is_type(keys, json_type_array) || json_object_array_length(keys) > KEYS_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < json_object_array_length(keys); i++) {
                int r = load_key(k, json_object_array_get_idx(keys, i));
                if (r < 0)
                        return r;
        }
        return 0;
}

int keys_load(const char *path, Keys **ret) {
        _cleanup_(keys_freep) Keys *k = new0(Keys, 1);
        _cleanup_free_ char *text = NULL;
        size_t size;

        if (!k)
                return -ENOMEM;
        k->path = strdup(path);
        if (!k->path)
                return -ENOMEM;

        int r = load_file(path, FILE_MAX, &text, &size);
        if (r < 0 && r != -ENOENT)
                return r;
        if (r >= 0) {
                json_object *o = strlen(text) == size ? json_tokener_parse(text) : NULL;
                r = load_all(k, o);
                json_object_put(o);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(k);
        return 0;
}

static json_object *key_to_json(const Key *key) {
        char hex[BASE16_ENCODE_LENGTH(KEY_HASH_SIZE) + 1] = "";
        json_object *o = json_object_new_object();

        base16_encode_update(hex, KEY_HASH_SIZE, key->hash);
        if (o && json_object_object_add(o, "id", json_object_new_string(key->id)) == 0 &&
            json_object_object_add(o, "tenant", json_object_new_string(key->tenant)) == 0 &&
            json_object_object_add(o, "name", json_object_new_string(key->name)) == 0 &&
            json_object_object_add(o, "created", json_object_new_uint64(key->created_usec)) == 0 &&
            json_object_object_add(o, "sha256", json_object_new_string(hex)) == 0)
                return o;
        json_object_put(o);
        return NULL;
}

static int save(const Keys *k) {
        json_object *o = json_object_new_object(), *keys = json_object_new_array();
        int r = o && keys ? 0 : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < k->n; i++) {
                json_object *key = key_to_json(k->keys[i]);
                r = key && json_object_array_add(keys, key) == 0 ? 0 : -ENOMEM;
        }
        if (r >= 0 && json_object_object_add(o, "version", json_object_new_int(FILE_VERSION)) < 0)
                r = -ENOMEM;
        if (r < 0 || json_object_object_add(o, "keys", keys) < 0) {
                json_object_put(keys);
                json_object_put(o);
                return -ENOMEM;
        }
        const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY);
        r = text ? save_file(k->path, text, strlen(text)) : -ENOMEM;
        json_object_put(o);
        return r;
}

/* Keys. */

static void hash_secret(const char *secret, uint8_t ret[static KEY_HASH_SIZE]) {
        struct sha256_ctx c;

        sha256_init(&c);
        sha256_update(&c, strlen(secret), (const uint8_t *) secret);
        sha256_digest(&c, KEY_HASH_SIZE, ret);
}

Key *keys_find(const Keys *k, const char *secret) {
        uint8_t hash[KEY_HASH_SIZE];
        Key *found = NULL;

        if (!key_secret_valid(secret))
                return NULL;
        hash_secret(secret, hash);
        /* All of them, so that its place tells nothing either. */
        for (size_t i = 0; i < k->n; i++)
                if (memeql_sec(k->keys[i]->hash, hash, KEY_HASH_SIZE))
                        found = k->keys[i];
        return found;
}

Key *keys_find_id(const Keys *k, const char *id) {
        for (size_t i = 0; i < k->n; i++)
                if (streq(k->keys[i]->id, id))
                        return k->keys[i];
        return NULL;
}

static int make_id(const Keys *k, char ret[static KEY_ID_MAX]) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyz012345";
        uint8_t bytes[ID_LEN];

        do {
                if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
                        return -EIO;
                for (size_t i = 0; i < ID_LEN; i++)
                        ret[i] = set[bytes[i] % (sizeof(set) - 1)];
                ret[0] = 'k';
                ret[ID_LEN] = 0;
        } while (keys_find_id(k, ret));
        return 0;
}

static int make_secret(char ret[static KEY_SECRET_SIZE]) {
        uint8_t bytes[KEY_HEX / 2];

        if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
                return -EIO;
        strcpy(ret, KEY_PREFIX);
        base16_encode_update(ret + strlen(KEY_PREFIX), sizeof(bytes), bytes);
        ret[KEY_SECRET_SIZE - 1] = 0;
        explicit_bzero(bytes, sizeof(bytes));
        return 0;
}

int keys_create(Keys *k, const char *name, const char *tenant, char ret_secret[static KEY_SECRET_SIZE], const Key **ret) {
        _cleanup_(key_freep) Key *key = new0(Key, 1);

        if (!key)
                return -ENOMEM;
        if (!key_name_valid(name) || (tenant && !tenant_valid(tenant)))
                return -EINVAL;
        if (k->n >= KEYS_MAX)
                return -E2BIG;
        int r = make_id(k, key->id);
        if (r >= 0)
                r = make_secret(ret_secret);
        if (r < 0)
                return r;
        strcpy(key->tenant, tenant ?: key->id);
        key->created_usec = wall_usec();
        hash_secret(ret_secret, key->hash);
        key->name = strdup(name);
        if (!key->name)
                return -ENOMEM;

        *ret = key;
        r = keys_add(k, TAKE_PTR(key));
        if (r >= 0)
                r = save(k);
        if (r < 0 && k->n > 0 && k->keys[k->n - 1] == *ret)
                key_free(k->keys[--k->n]);
        return r;
}

int keys_revoke(Keys *k, const char *id, Key **ret_revoked) {
        for (size_t i = 0; i < k->n; i++) {
                Key *key = k->keys[i];
                if (!streq(key->id, id))
                        continue;
                memmove(&k->keys[i], &k->keys[i + 1], (k->n - i - 1) * sizeof(key));
                k->n--;
                int r = save(k);
                if (r >= 0) {
                        *ret_revoked = key;
                        return 0;
                }
                /* It holds until it is off the disk. */
                memmove(&k->keys[i + 1], &k->keys[i], (k->n - i) * sizeof(key));
                k->keys[i] = key;
                k->n++;
                return r;
        }
        return -ENOENT;
}
