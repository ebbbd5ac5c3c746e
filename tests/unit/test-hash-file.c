/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/image/hash-file.h"
#include "temp-dir.h"
#include "test.h"

TEST(holes_make_no_difference) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int sparse = temp_dir_open(&d, "sparse", O_RDWR|O_CREAT);
        _cleanup_close_ int full = temp_dir_open(&d, "full", O_RDWR|O_CREAT);
        char a[SHA256_HEX_SIZE], b[SHA256_HEX_SIZE], zero[4096] = "";

        assert_true(ftruncate(sparse, MIB(1)) == 0);
        for (size_t i = 0; i < MIB(1) / sizeof(zero); i++)
                assert_ok(write_full(full, zero, sizeof(zero)));
        assert_ok(hash_sparse_file(sparse, a));
        assert_ok(hash_sparse_file(full, b));
        assert_streq(a, b);

        /* across a block's border, and at the end */
        assert_eq(pwrite(sparse, "hello", 5, 8190), 5);
        assert_eq(pwrite(full, "hello", 5, 8190), 5);
        assert_eq(pwrite(sparse, "!", 1, MIB(1) - 1), 1);
        assert_eq(pwrite(full, "!", 1, MIB(1) - 1), 1);
        assert_ok(hash_sparse_file(sparse, a));
        assert_true(!streq(a, b));
        assert_ok(hash_sparse_file(full, b));
        assert_streq(a, b);

        /* the same bytes elsewhere are something else */
        assert_eq(pwrite(full, zero, 5, 8190), 5);
        assert_eq(pwrite(full, "hello", 5, 12286), 5);
        assert_ok(hash_sparse_file(full, b));
        assert_true(!streq(a, b));
}

/* FIPS 180-4 examples, and one of several reads. */
TEST(whole_file) {
        static const struct {
                const char *text, *sum;
        } known[] = {
                { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
                { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        };
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int fd = temp_dir_open(&d, "f", O_RDWR|O_CREAT);
        _cleanup_free_ char *million = malloc(1000000);
        char sum[SHA256_HEX_SIZE];

        for (size_t i = 0; i < ELEMENTSOF(known); i++) {
                assert_ok(write_full(fd, known[i].text, strlen(known[i].text)));
                assert_ok(hash_file(fd, sum));
                assert_streq(sum, known[i].sum);
        }

        memset(million, 'a', 1000000);
        assert_eq(pwrite(fd, million, 1000000, 0), 1000000);
        assert_ok(hash_file(fd, sum));
        assert_streq(sum, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
