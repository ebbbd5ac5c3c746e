/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base16.h>
#include <nettle/hmac.h>
#include <sys/random.h>

#include "base/macros.h"
#include "gateway/save-file.h"
#include "gateway/token.h"

int host_key_load(const char *path, HostKey *ret) {
        _cleanup_free_ char *data = NULL;
        size_t size;

        int r = load_file(path, HOST_KEY_SIZE, &data, &size);
        if (r < 0)
                return r == -EFBIG ? -EINVAL : r;
        if (size == HOST_KEY_SIZE)
                memcpy(ret->bytes, data, size);
        explicit_bzero(data, size);
        return size == HOST_KEY_SIZE ? 0 : -EINVAL;
}

int host_key_make(const char *path) {
        HostKey key;

        if (access(path, F_OK) == 0)
                return -EEXIST;
        if (getrandom(key.bytes, sizeof(key.bytes), 0) != sizeof(key.bytes))
                return -EIO;
        int r = save_file(path, key.bytes, sizeof(key.bytes));
        explicit_bzero(&key, sizeof(key));
        return r;
}

void token_derive(const HostKey *key, const char *purpose, const char *id, char ret[static TOKEN_SIZE]) {
        struct hmac_sha256_ctx c;
        uint8_t digest[SHA256_DIGEST_SIZE];

        hmac_sha256_set_key(&c, HOST_KEY_SIZE, key->bytes);
        hmac_sha256_update(&c, strlen(purpose), (const uint8_t *) purpose);
        hmac_sha256_update(&c, 1, (const uint8_t *) ":");
        hmac_sha256_update(&c, strlen(id), (const uint8_t *) id);
        hmac_sha256_digest(&c, sizeof(digest), digest);
        base16_encode_update(ret, sizeof(digest), digest);
        ret[TOKEN_SIZE - 1] = 0;
        explicit_bzero(&c, sizeof(c));
}
