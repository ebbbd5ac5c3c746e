/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/key-file.h"
#include "gateway/save-file.h"
#include "gateway/token.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

typedef struct Fixture {
        TempDir dir;
        char path[96];
        Keys *keys;
} Fixture;

static Fixture setup(void) {
        Fixture f = { .dir = temp_dir_make() };

        snprintf(f.path, sizeof(f.path), "%s/keys.json", f.dir.path);
        assert_ok(keys_load(f.path, &f.keys));
        return f;
}

static void done(Fixture *f) {
        keys_free(f->keys);
        temp_dir_done(&f->dir);
}

static void load_again(Fixture *f) {
        f->keys = keys_free(f->keys);
        assert_ok(keys_load(f->path, &f->keys));
}

TEST(a_key_is_found_by_its_secret_alone) {
        _cleanup_(done) Fixture f = setup();
        char secret[KEY_SECRET_SIZE], other[KEY_SECRET_SIZE];
        const Key *key, *second;

        assert_ok(keys_create(f.keys, "a", NULL, secret, &key));
        assert_ok(keys_create(f.keys, "b", "team", other, &second));
        assert_true(!streq(secret, other) && !streq(key->id, second->id));
        assert_true(keys_find(f.keys, secret) == key && keys_find(f.keys, other) == second);
        assert_streq(key->tenant, key->id);
        assert_streq(second->tenant, "team");

        secret[KEY_SECRET_SIZE - 2] ^= 1;
        assert_true(!keys_find(f.keys, secret));
        assert_true(!keys_find(f.keys, "") && !keys_find(f.keys, KEY_PREFIX));
}

TEST(the_form_of_a_key) {
        assert_true(key_secret_valid("e2b_0123456789abcdef0123456789abcdef01234567"));
        assert_true(!key_secret_valid("e2b_0123456789abcdef0123456789abcdef0123456"));
        assert_true(!key_secret_valid("e2b_0123456789abcdef0123456789abcdef012345678"));
        assert_true(!key_secret_valid("e2b_0123456789ABCDEF0123456789abcdef01234567"));
        assert_true(!key_secret_valid("E2b_0123456789abcdef0123456789abcdef01234567"));
}

TEST(keys_are_the_same_after_a_restart) {
        _cleanup_(done) Fixture f = setup();
        char secret[KEY_SECRET_SIZE], id[KEY_ID_MAX];
        const Key *key;
        Key *revoked;

        assert_ok(keys_create(f.keys, "für den Roboter", "team", secret, &key));
        strcpy(id, key->id);
        uint64_t created = key->created_usec;
        load_again(&f);
        key = keys_find(f.keys, secret);
        assert_true(key);
        assert_streq(key->id, id);
        assert_streq(key->name, "für den Roboter");
        assert_streq(key->tenant, "team");
        assert_eq(key->created_usec, created);

        assert_ok(keys_revoke(f.keys, id, &revoked));
        key_free(revoked);
        assert_true(!keys_find(f.keys, secret));
        load_again(&f);
        assert_eq(f.keys->n, 0u);
        assert_eq(keys_revoke(f.keys, id, &revoked), -ENOENT);
}

TEST(what_can_not_be_written_changes_nothing) {
        _cleanup_(done) Fixture f = setup();
        char secret[KEY_SECRET_SIZE], gone[KEY_SECRET_SIZE];
        const Key *key;
        Key *revoked;
        char *path = f.keys->path;

        assert_ok(keys_create(f.keys, "a", NULL, secret, &key));
        f.keys->path = (char *) "/nonexistent/keys.json";
        assert_eq(keys_create(f.keys, "b", NULL, gone, &key), -ENOENT);
        assert_eq(f.keys->n, 1u);
        assert_true(!keys_find(f.keys, gone));
        assert_eq(keys_revoke(f.keys, f.keys->keys[0]->id, &revoked), -ENOENT);
        assert_true(keys_find(f.keys, secret));
        f.keys->path = path;
}

TEST(wrong_names_and_tenants) {
        _cleanup_(done) Fixture f = setup();
        char secret[KEY_SECRET_SIZE], longest[KEY_NAME_MAX + 2];
        const Key *key;

        memset(longest, 'x', sizeof(longest));
        longest[sizeof(longest) - 1] = 0;
        assert_eq(keys_create(f.keys, "", NULL, secret, &key), -EINVAL);
        assert_eq(keys_create(f.keys, "a\nb", NULL, secret, &key), -EINVAL);
        assert_eq(keys_create(f.keys, "a\xff", NULL, secret, &key), -EINVAL);
        assert_eq(keys_create(f.keys, longest, NULL, secret, &key), -EINVAL);
        longest[KEY_NAME_MAX] = 0;
        assert_ok(keys_create(f.keys, longest, NULL, secret, &key));
        static const char *const wrong[] = { "", "A", "a.b", "a/b", "7a", "aaaaaaaaaaaaaaaaaaaaa", "ü" };
        for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
                assert_eq(keys_create(f.keys, "a", wrong[i], secret, &key), -EINVAL);
}

TEST(a_damaged_file_is_not_an_empty_one) {
        static const char *const damaged[] = {
                "", "{", "null", "{}", "{\"version\":1}", "{\"version\":1,\"keys\":{}}", "{\"version\":3,\"keys\":[]}",
                "{\"version\":1,\"keys\":[1]}",
                "{\"version\":1,\"keys\":[{\"id\":\"k\",\"tenant\":\"k\",\"name\":\"n\",\"created\":1,\"sha256\":\"00\"}]}",
                "{\"version\":1,\"keys\":[{\"id\":\"../x\",\"tenant\":\"k\",\"name\":\"n\",\"created\":1,\"sha256\":"
                "\"0000000000000000000000000000000000000000000000000000000000000000\"}]}",
        };
        _cleanup_(done) Fixture f = setup();
        Keys *k;

        for (size_t i = 0; i < ELEMENTSOF(damaged); i++) {
                temp_dir_write(&f.dir, "keys.json", damaged[i], strlen(damaged[i]));
                assert_eq(keys_load(f.path, &k), -EBADMSG);
        }
        static const char good[] = "{\"version\":1,\"keys\":[{\"id\":\"k\",\"tenant\":\"k\",\"name\":\"n\",\"created\":1,\"sha256\":"
                                   "\"0000000000000000000000000000000000000000000000000000000000000000\"}]}";
        temp_dir_write(&f.dir, "keys.json", good, strlen(good));
        load_again(&f);
        assert_eq(f.keys->n, 1u);
}

/* The hash is that of sha256sum, over the key as it stands. */
TEST(what_is_kept_is_its_sha256) {
        static const char text[] = "{\"version\":1,\"keys\":[{\"id\":\"kaaa\",\"tenant\":\"kaaa\",\"name\":\"n\",\"created\":7,\"sha256\":"
                                   "\"6aa1fc737ae695d4574acd499f9ec1cc63a1d245f89b676451e5db329ce22c0c\"}]}";
        _cleanup_(done) Fixture f = setup();

        temp_dir_write(&f.dir, "keys.json", text, strlen(text));
        load_again(&f);
        assert_true(keys_find(f.keys, "e2b_0000000000000000000000000000000000000000") == f.keys->keys[0]);
        assert_eq(f.keys->keys[0]->created_usec, 7u);
}

TEST(a_rate_lets_a_burst_through_and_then_so_many_a_second) {
        const RateLimit limit = { .per_second = 2, .burst = 3 };
        uint64_t now = 1000 * USEC_PER_SEC, wait;
        uint32_t left;
        Rate r = {};

        for (uint32_t i = 0; i < 3; i++) {
                assert_true(rate_take(&r, &limit, now, &left, &wait));
                assert_eq(left, 2 - i);
        }
        assert_true(!rate_take(&r, &limit, now, &left, &wait));
        assert_eq(left, 0u);
        assert_eq(wait, USEC_PER_SEC / 2);
        assert_true(!rate_take(&r, &limit, now + wait - 1, &left, &wait));
        assert_eq(wait, 1u);
        assert_true(rate_take(&r, &limit, now + USEC_PER_SEC / 2, &left, &wait));
        assert_true(!rate_take(&r, &limit, now + USEC_PER_SEC / 2, &left, &wait));

        /* A long rest is worth no more than the burst. */
        now += 3600 * USEC_PER_SEC;
        for (unsigned i = 0; i < 3; i++)
                assert_true(rate_take(&r, &limit, now, &left, &wait));
        assert_true(!rate_take(&r, &limit, now, &left, &wait));
}

TEST(tokens_hang_on_the_key_the_purpose_and_the_sandbox) {
        HostKey key = { { 1 } }, other = { { 2 } };
        char a[TOKEN_SIZE], b[TOKEN_SIZE];

        token_derive(&key, "envd", "abcdefghijkl", a);
        assert_eq(strlen(a), 64u);
        token_derive(&key, "envd", "abcdefghijkl", b);
        assert_streq(a, b);
        token_derive(&other, "envd", "abcdefghijkl", b);
        assert_true(!streq(a, b));
        token_derive(&key, "envd", "abcdefghijkm", b);
        assert_true(!streq(a, b));
        token_derive(&key, "traffic", "abcdefghijkl", b);
        assert_true(!streq(a, b));
}

TEST(a_host_key_is_made_once) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        HostKey first, second;
        char path[96];

        snprintf(path, sizeof(path), "%s/key", d.path);
        assert_eq(host_key_load(path, &first), -ENOENT);
        assert_ok(host_key_make(path));
        assert_ok(host_key_load(path, &first));
        assert_eq(host_key_make(path), -EEXIST);
        assert_ok(host_key_load(path, &second));
        assert_true(memcmp(&first, &second, sizeof(first)) == 0);

        temp_dir_write(&d, "key", "short", 5);
        assert_eq(host_key_load(path, &first), -EINVAL);
        temp_dir_write(&d, "key", "0123456789abcdef0123456789abcdefX", 33);
        assert_eq(host_key_load(path, &first), -EINVAL);
}

TEST(a_file_is_replaced_as_a_whole) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_free_ char *text = NULL;
        char path[96];
        size_t size;

        snprintf(path, sizeof(path), "%s/file", d.path);
        assert_ok(save_file(path, "first", 5));
        assert_ok(save_file(path, "2nd", 3));
        assert_ok(load_file(path, 3, &text, &size));
        assert_streq(text, "2nd");
        char *other = NULL;
        assert_eq(load_file(path, 2, &other, &size), -EFBIG);
        assert_eq(save_file("/nonexistent/file", "x", 1), -ENOENT);
}
