/* SPDX-License-Identifier: Apache-2.0 */

/* What steps came to, kept and taken again; and what templates share. */

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "daemon/image/hash-file.h"
#include "daemon/image/hash-tree.h"
#include "daemon/image/layers.h"
#include "daemon/image/objects.h"
#include "daemon/image/store.h"
#include "daemon/image/usage.h"
#include "daemon/json-strict.h"
#include "temp-dir.h"
#include "test.h"

#define DISK_BYTES MIB(1)
#define BLOCK 4096U
#define K0 "0000000000000000000000000000000000000000000000000000000000000000"
#define K1 "1111111111111111111111111111111111111111111111111111111111111111"
#define K2 "2222222222222222222222222222222222222222222222222222222222222222"
#define K3 "3333333333333333333333333333333333333333333333333333333333333333"
#define K4 "4444444444444444444444444444444444444444444444444444444444444444"
#define ID(c) c "aaaaaaaaaaaaaaa"

/* A store, and the guest's overlay of one build. */
typedef struct Lab {
        TempDir dir;
        int overlay;
        Fault fault;
        json_object *taken;
} Lab;

static void put_block(int fd, size_t at, char what) {
        char block[BLOCK];

        memset(block, what, sizeof(block));
        assert_eq(pwrite(fd, block, sizeof(block), (off_t) (at * BLOCK)), (ssize_t) sizeof(block));
}

static char get_block(int fd, size_t at) {
        char block[BLOCK];

        assert_eq(pread(fd, block, sizeof(block), (off_t) (at * BLOCK)), (ssize_t) sizeof(block));
        for (size_t i = 1; i < sizeof(block); i++)
                assert_eq(block[i], block[0]);
        return block[0];
}

static void new_overlay(Lab *lab) {
        safe_close(lab->overlay);
        (void) unlinkat(lab->dir.fd, "overlay", 0);
        lab->overlay = temp_dir_open(&lab->dir, "overlay", O_RDWR|O_CREAT);
        assert_ok(ftruncate(lab->overlay, DISK_BYTES));
}

/* A disk with 'a' in its first block and 'b' in its second, kept as K0. */
static void lab_init(Lab *lab) {
        char sum[SHA256_HEX_SIZE];

        *lab = (Lab) { .dir = temp_dir_make(), .overlay = -EBADF };
        assert_ok(mkdirat(lab->dir.fd, ".build-one", 0700));
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, ".build-one/disk.img", O_RDWR|O_CREAT);
        _cleanup_close_ int build = temp_dir_open(&lab->dir, ".build-one", O_RDONLY|O_DIRECTORY);
        assert_ok(ftruncate(fd, DISK_BYTES));
        put_block(fd, 0, 'a');
        put_block(fd, 1, 'b');
        assert_ok(hash_sparse_file(fd, sum));
        assert_ok(layer_put_disk(lab->dir.fd, build, K0, ID("a"), sum));
        new_overlay(lab);
}

static void lab_done(Lab *lab) {
        json_object_put(lab->taken);
        safe_close(lab->overlay);
        temp_dir_done(&lab->dir);
}
#define _cleanup_lab_ _cleanup_(lab_done)

static void put(Lab *lab, const char *build, const char *key, const char *id, const char *parent, const char *parent_id) {
        const LayerPlace place = { key, id, parent, parent_id };
        json_object *state = json_object_new_object();

        assert_ok(json_add_string(state, "user", id));
        if (layer_put(lab->dir.fd, build, &place, lab->overlay, state, &lab->fault) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab->fault.text);
}

/* Three steps: each writes a block of its own; the first over one of the disk, the second zeros over another, the third over what
 * the first wrote. */
static void put_three(Lab *lab) {
        put_block(lab->overlay, 0, '1');
        put(lab, ".build-one", K1, ID("b"), K0, ID("a"));
        put_block(lab->overlay, 1, 0);
        put_block(lab->overlay, 9, '2');
        put(lab, ".build-one", K2, ID("c"), K1, ID("b"));
        put_block(lab->overlay, 0, '3');
        put(lab, ".build-one", K3, ID("d"), K2, ID("c"));
}

/* "": none. */
static const char *take(Lab *lab, const char *build) {
        static const char *const keys[] = { K3, K2, K1, K0 };
        uint64_t taken;

        assert_ok(mkdirat(lab->dir.fd, build, 0700));
        json_object_put(lab->taken);
        lab->taken = NULL;
        if (layer_take(lab->dir.fd, build, DISK_BYTES, (char *const *) keys, ELEMENTSOF(keys), &lab->taken, &lab->fault) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab->fault.text);
        if (!lab->taken)
                return "";
        assert_ok(json_get_u64(lab->taken, "taken", 0, ELEMENTSOF(keys) - 1, &taken));
        return keys[taken];
}

/* Blocks 0, 1 and 9; '.' for zeros. */
static const char *disk_of(const Lab *lab, const char *build, char ret[static 4]) {
        static const size_t blocks[] = { 0, 1, 9 };
        char path[64];

        (void) snprintf(path, sizeof(path), "%s/disk.img", build);
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, path, O_RDONLY);
        for (size_t i = 0; i < ELEMENTSOF(blocks); i++)
                ret[i] = get_block(fd, blocks[i]) ?: '.';
        ret[3] = 0;
        return ret;
}

static ino_t inode(const Lab *lab, const char *path) {
        struct stat st;

        assert_ok(fstatat(lab->dir.fd, path, &st, AT_SYMLINK_NOFOLLOW));
        return st.st_ino;
}

static bool is_there(const Lab *lab, const char *path) {
        return faccessat(lab->dir.fd, path, F_OK, AT_SYMLINK_NOFOLLOW) >= 0;
}

static off_t size_of(const Lab *lab, const char *path) {
        struct stat st;

        assert_ok(fstatat(lab->dir.fd, path, &st, AT_SYMLINK_NOFOLLOW));
        return st.st_size;
}

TEST(a_layer_has_what_its_step_wrote_and_a_disk_all_of_them) {
        _cleanup_lab_ Lab lab;
        json_object *state;
        const char *user;
        char disk[4];

        lab_init(&lab);
        put_three(&lab);
        /* one run of blocks each, but for the second's two, behind 16 bytes that say where */
        assert_eq(size_of(&lab, ".layers/" K1 ".delta"), 16 + BLOCK);
        assert_eq(size_of(&lab, ".layers/" K2 ".delta"), 2 * (16 + BLOCK));
        assert_eq(size_of(&lab, ".layers/" K3 ".delta"), 16 + BLOCK);

        assert_streq(take(&lab, ".build-two"), K3);
        assert_streq(disk_of(&lab, ".build-two", disk), "3.2");
        assert_ok(json_get(lab.taken, "state", json_type_object, &state));
        assert_ok(json_get_string(state, "user", 64, &user));
        assert_streq(user, ID("d"));
        /* what was put together once is one file for all who begin there */
        assert_streq(take(&lab, ".build-three"), K3);
        assert_eq(inode(&lab, ".build-two/disk.img"), inode(&lab, ".build-three/disk.img"));
}

TEST(a_step_that_writes_what_is_there_leaves_nothing) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        put_block(lab.overlay, 0, 'a');
        put_block(lab.overlay, 5, 0);
        put(&lab, ".build-one", K1, ID("b"), K0, ID("a"));
        assert_eq(size_of(&lab, ".layers/" K1 ".delta"), 0);
}

/* As on a disk that is full: a template would have what was written till then for good. */
TEST(a_layer_that_can_not_be_kept_leaves_nothing_in_the_build) {
        const LayerPlace place = { K2, ID("c"), K1, ID("b") };
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        put_block(lab.overlay, 0, '1');
        put(&lab, ".build-one", K1, ID("b"), K0, ID("a"));
        assert_true(is_there(&lab, ".build-one/layer-" K1) && is_there(&lab, ".build-one/.shadow"));
        _cleanup_close_ int unreadable = temp_dir_open(&lab.dir, "overlay", O_WRONLY);
        put_block(lab.overlay, 2, '2');
        assert_true(layer_put(lab.dir.fd, ".build-one", &place, unreadable, json_object_new_object(), &lab.fault) < 0);
        assert_true(!is_there(&lab, ".build-one/layer-" K2) && !is_there(&lab, ".build-one/.shadow"));
        /* what was kept before is */
        assert_true(is_there(&lab, ".build-one/layer-" K1));
        assert_streq(take(&lab, ".build-two"), K1);
}

/* Who wrote it was killed: it took too long. */
TEST(half_a_layer_does_not_become_part_of_a_template) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        put_three(&lab);
        temp_dir_write(&lab.dir, ".build-one/layer-" K4, "half", 4);
        assert_ok(store_commit(lab.dir.fd, ".build-one", ID("t"), "0", NULL, 0, &lab.fault));
        assert_true(!is_there(&lab, ID("t") "/layer-" K4) && !is_there(&lab, ID("t") "/.shadow"));
        assert_true(is_there(&lab, ID("t") "/layer-" K1) && is_there(&lab, ID("t") "/layer-" K3));
        assert_true(is_there(&lab, ID("t") "/disk.img"));
}

TEST(what_is_damaged_is_never_taken_and_goes) {
        _cleanup_lab_ Lab lab;
        char disk[4];

        lab_init(&lab);
        put_three(&lab);
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, ".layers/" K2 ".delta", O_RDWR);
        assert_eq(pwrite(fd, "!", 1, 100), 1);
        assert_streq(take(&lab, ".build-two"), K1);
        assert_streq(disk_of(&lab, ".build-two", disk), "1b.");
        assert_true(!is_there(&lab, ".layers/" K2 ".delta"));

        /* a description that is none, and a disk */
        temp_dir_write(&lab.dir, ".layers/" K1 ".json", "{", 1);
        assert_streq(take(&lab, ".build-three"), K0);
        _cleanup_close_ int whole = temp_dir_open(&lab.dir, ".layers/" K0 ".whole", O_RDWR);
        put_block(whole, 3, 'x');
        assert_streq(take(&lab, ".build-four"), "");
        assert_true(!is_there(&lab, ".build-four/disk.img"));
}

TEST(a_layer_stands_on_that_run_of_its_parent_alone) {
        _cleanup_lab_ Lab lab;
        char disk[4];

        lab_init(&lab);
        put_three(&lab);
        /* the first step is run again, and comes to something else */
        assert_ok(mkdirat(lab.dir.fd, ".build-two", 0700));
        assert_ok(linkat(lab.dir.fd, ".layers/" K0 ".whole", lab.dir.fd, ".build-two/disk.img", 0));
        new_overlay(&lab);
        put_block(lab.overlay, 0, 'X');
        put(&lab, ".build-two", K1, ID("e"), K0, ID("a"));
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, ".layers/" K3 ".delta", O_RDWR);
        assert_eq(pwrite(fd, "!", 1, 100), 1);
        assert_streq(take(&lab, ".build-three"), K1);
        assert_streq(disk_of(&lab, ".build-three", disk), "Xb.");
        /* and the bytes of what stands on none are not even read */
        assert_true(is_there(&lab, ".layers/" K3 ".delta"));
}

TEST(what_nobody_has_is_swept_and_what_is_in_use_stays) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        put_three(&lab);
        assert_ok(store_sweep_shared(lab.dir.fd));
        assert_true(is_there(&lab, ".layers/" K0 ".whole") && is_there(&lab, ".layers/" K3 ".json"));
        /* a build that fails leaves its layers to the next one */
        assert_ok(store_remove(lab.dir.fd, ".build-one", &lab.fault));
        assert_ok(store_remove(lab.dir.fd, ID("n"), &lab.fault));
        assert_streq(take(&lab, ".build-two"), K3);
        assert_ok(store_sweep_shared(lab.dir.fd));
        assert_true(is_there(&lab, ".layers/" K3 ".whole") && is_there(&lab, ".layers/" K1 ".delta"));
        assert_ok(store_remove(lab.dir.fd, ".build-two", &lab.fault));
        assert_ok(store_sweep_shared(lab.dir.fd));
        for (size_t i = 0; i < 4; i++) {
                static const char *const keys[] = { K0, K1, K2, K3 }, *const suffixes[] = { "whole", "delta", "json" };
                for (size_t j = 0; j < ELEMENTSOF(suffixes); j++) {
                        char path[128];
                        (void) snprintf(path, sizeof(path), ".layers/%s.%s", keys[i], suffixes[j]);
                        assert_true(!is_there(&lab, path));
                }
        }
}

/* Objects. */

static const char *make_root(const Lab *lab, const char *build, const char *text, char *ret_sum) {
        char path[64];

        (void) snprintf(path, sizeof(path), "%s/root.img", build);
        (void) mkdirat(lab->dir.fd, build, 0700);
        temp_dir_write(&lab->dir, path, text, strlen(text));
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, path, O_RDONLY);
        assert_ok(hash_file(fd, ret_sum));
        return ret_sum;
}

static int share(const Lab *lab, const char *build, const char *sum) {
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, build, O_RDONLY|O_DIRECTORY);
        return object_share(lab->dir.fd, fd, TEMPLATE_FILE_ROOT, sum);
}

TEST(of_builds_that_failed_what_the_last_one_had_is_kept) {
        _cleanup_lab_ Lab lab;
        char sum[SHA256_HEX_SIZE], path[128];

        lab_init(&lab);
        put_three(&lab);
        assert_ok(store_remove(lab.dir.fd, ".build-one", &lab.fault));
        assert_streq(take(&lab, ".build-two"), K3);
        assert_ok(share(&lab, ".build-two", make_root(&lab, ".build-two", "root", sum)));
        (void) snprintf(path, sizeof(path), ".roots/%s", sum);
        /* what it took of the one before as well */
        assert_ok(store_remove(lab.dir.fd, ".build-two", &lab.fault));
        assert_ok(store_remove(lab.dir.fd, ID("n"), &lab.fault));
        assert_true(is_there(&lab, path) && is_there(&lab, ".layers/" K3 ".whole") && is_there(&lab, ".layers/" K1 ".delta"));
        /* one that has nothing of that leaves nothing of it */
        assert_ok(mkdirat(lab.dir.fd, ".build-three", 0700));
        assert_ok(store_remove(lab.dir.fd, ".build-three", &lab.fault));
        assert_true(!is_there(&lab, path) && !is_there(&lab, ".layers/" K3 ".json") && !is_there(&lab, ".layers/" K1 ".delta"));
}

static int take_object(const Lab *lab, const char *build, const char *sum) {
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, build, O_RDONLY|O_DIRECTORY);
        return object_take(lab->dir.fd, fd, TEMPLATE_FILE_ROOT, sum);
}

TEST(equal_root_images_are_one_file_and_a_damaged_one_is_nobodys) {
        _cleanup_lab_ Lab lab;
        char sum[SHA256_HEX_SIZE], path[128];

        lab_init(&lab);
        assert_ok(share(&lab, ".build-one", make_root(&lab, ".build-one", "root", sum)));
        assert_ok(share(&lab, ".build-two", make_root(&lab, ".build-two", "root", sum)));
        assert_eq(inode(&lab, ".build-one/root.img"), inode(&lab, ".build-two/root.img"));
        (void) snprintf(path, sizeof(path), ".roots/%s", sum);
        assert_eq(inode(&lab, path), inode(&lab, ".build-two/root.img"));
        assert_ok(input_set(lab.dir.fd, K1, sum));
        assert_true(is_there(&lab, ".inputs/" K1));

        temp_dir_write(&lab.dir, ".build-one/root.img", "ROOT", 4);
        assert_ok(mkdirat(lab.dir.fd, ".build-three", 0700));
        assert_eq(take_object(&lab, ".build-three", sum), -ENOENT);
        assert_true(!is_there(&lab, path) && !is_there(&lab, ".build-three/root.img"));
        /* the next one that is right takes its place */
        assert_ok(share(&lab, ".build-three", make_root(&lab, ".build-three", "root", sum)));
        assert_eq(inode(&lab, path), inode(&lab, ".build-three/root.img"));

        /* as it does of what is no file, and can't be read at all */
        assert_ok(unlinkat(lab.dir.fd, path, 0));
        assert_ok(mkfifoat(lab.dir.fd, path, 0600));
        assert_eq(take_object(&lab, ".build-one", sum), -ENOENT);
        assert_ok(mkfifoat(lab.dir.fd, path, 0600));
        assert_ok(share(&lab, ".build-three", sum));
        assert_eq(inode(&lab, path), inode(&lab, ".build-three/root.img"));

        /* and goes with the last that has it, and what led to it */
        assert_ok(store_sweep_shared(lab.dir.fd));
        assert_true(is_there(&lab, path) && is_there(&lab, ".inputs/" K1));
        assert_ok(store_remove(lab.dir.fd, ".build-three", &lab.fault));
        assert_ok(store_sweep_shared(lab.dir.fd));
        assert_true(!is_there(&lab, path) && !is_there(&lab, ".inputs/" K1));
}

/* Who takes and who sweeps at the same time: what was taken is whole, whoever was first. */
TEST(taking_and_sweeping_do_not_meet) {
        _cleanup_lab_ Lab lab;
        char sum[SHA256_HEX_SIZE];
        int status;

        lab_init(&lab);
        (void) make_root(&lab, ".build-one", "root", sum);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;) {
                        if (store_sweep_shared(lab.dir.fd) < 0)
                                _exit(1);
                        /* The lock is not given in turn. */
                        (void) usleep(200);
                }
        }
        for (int i = 0; i < 50; i++) {
                char build[32];
                (void) snprintf(build, sizeof(build), ".build-%d", i);
                (void) make_root(&lab, build, "root", sum);
                assert_ok(share(&lab, build, sum));
                assert_ok(mkdirat(lab.dir.fd, "taker", 0700));
                int r = take_object(&lab, "taker", sum);
                /* It has two names at least: the sweeper must not have taken it away. */
                assert_ok(r);
                assert_eq(size_of(&lab, "taker/root.img"), 4);
                assert_ok(unlinkat(lab.dir.fd, "taker/root.img", 0));
                assert_ok(unlinkat(lab.dir.fd, "taker", AT_REMOVEDIR));
                assert_ok(store_remove(lab.dir.fd, build, &lab.fault));
        }
        assert_eq(waitpid(pid, &status, WNOHANG), 0);
        assert_ok(kill(pid, SIGKILL));
        assert_eq(waitpid(pid, &status, 0), pid);
}

TEST(names_that_were_being_given_are_removed_at_the_start) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        assert_ok(mkdirat(lab.dir.fd, "names", 0755));
        assert_ok(mkdirat(lab.dir.fd, "names/0", 0755));
        assert_ok(symlinkat("../../" ID("t"), lab.dir.fd, "names/0/python:latest"));
        assert_ok(symlinkat("../../" ID("u"), lab.dir.fd, "names/0/." ID("t") ".python:latest"));
        char *entries[] = { (char *) ".build-one" };
        assert_ok(store_clean(lab.dir.fd, entries, 1, &lab.fault));
        assert_true(is_there(&lab, "names/0/python:latest") && !is_there(&lab, "names/0/." ID("t") ".python:latest"));
        assert_true(!is_there(&lab, ".build-one"));
}

/* Trees. */

static const char *sum_of(const Lab *lab, const char *path, HashUse use, char *ret) {
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, path, O_RDONLY);

        assert_ok(hash_tree(fd, use, ret));
        /* It can be read again by whoever shares it. */
        assert_eq(lseek(fd, 0, SEEK_CUR), 0);
        return ret;
}

static const char *tree_of(const Lab *lab, char *ret) {
        return sum_of(lab, "tree", HASH_COPY, ret);
}

TEST(a_tree_is_another_one_when_anything_but_a_time_is) {
        _cleanup_lab_ Lab lab;
        char first[SHA256_HEX_SIZE], now[SHA256_HEX_SIZE];
        const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

        lab_init(&lab);
        assert_ok(mkdirat(lab.dir.fd, "tree", 0755));
        assert_ok(mkdirat(lab.dir.fd, "tree/dir", 0755));
        temp_dir_write(&lab.dir, "tree/dir/file", "text", 4);
        assert_ok(symlinkat("dir/file", lab.dir.fd, "tree/link"));
        (void) tree_of(&lab, first);
        assert_ok(utimensat(lab.dir.fd, "tree/dir/file", times, 0));
        assert_streq(tree_of(&lab, now), first);

        temp_dir_write(&lab.dir, "tree/dir/file", "Text", 4);
        assert_true(!streq(tree_of(&lab, now), first));
        temp_dir_write(&lab.dir, "tree/dir/file", "text", 4);
        assert_streq(tree_of(&lab, now), first);
        /* nor where it has holes, which are not read: this one would take hours */
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, "tree/dir/file", O_RDWR);
        assert_ok(ftruncate(fd, (off_t) GIB(1024)));
        assert_true(!streq(tree_of(&lab, now), first));
        assert_ok(ftruncate(fd, 4));
        assert_streq(tree_of(&lab, now), first);
        assert_ok(fchmodat(lab.dir.fd, "tree/dir/file", 0600, 0));
        assert_true(!streq(tree_of(&lab, now), first));
        assert_ok(fchmodat(lab.dir.fd, "tree/dir/file", 0644, 0));
        assert_ok(renameat(lab.dir.fd, "tree/dir/file", lab.dir.fd, "tree/file"));
        assert_true(!streq(tree_of(&lab, now), first));
        assert_ok(renameat(lab.dir.fd, "tree/file", lab.dir.fd, "tree/dir/file"));
        assert_ok(unlinkat(lab.dir.fd, "tree/link", 0));
        assert_ok(symlinkat("dir/other", lab.dir.fd, "tree/link"));
        assert_true(!streq(tree_of(&lab, now), first));
}

/* It is copied with its mode; a tar that becomes a root file system has that of its files inside. */
TEST(a_file_that_is_copied_has_a_mode_and_one_that_is_unpacked_has_none) {
        _cleanup_lab_ Lab lab;
        char first[SHA256_HEX_SIZE], now[SHA256_HEX_SIZE];

        lab_init(&lab);
        temp_dir_write(&lab.dir, "file", "#!/bin/sh\n", 10);
        (void) sum_of(&lab, "file", HASH_COPY, first);
        assert_streq(sum_of(&lab, "file", HASH_COPY, now), first);
        assert_ok(fchmodat(lab.dir.fd, "file", 0755, 0));
        assert_true(!streq(sum_of(&lab, "file", HASH_COPY, now), first));
        (void) sum_of(&lab, "file", HASH_ROOT, first);
        assert_ok(fchmodat(lab.dir.fd, "file", 0644, 0));
        assert_streq(sum_of(&lab, "file", HASH_ROOT, now), first);
}

/* /proc and /dev of a directory that somebody has run a system in: what is mounted there is no part of the root image, but what
 * is copied. */
TEST(what_is_mounted_in_a_root_file_system_is_not_looked_at) {
        _cleanup_lab_ Lab lab;
        char empty[SHA256_HEX_SIZE], root[SHA256_HEX_SIZE], copy[SHA256_HEX_SIZE], now[SHA256_HEX_SIZE], path[128];

        lab_init(&lab);
        assert_ok(mkdirat(lab.dir.fd, "tree", 0755));
        assert_ok(mkdirat(lab.dir.fd, "tree/mnt", 0755));
        (void) sum_of(&lab, "tree", HASH_ROOT, empty);
        (void) snprintf(path, sizeof(path), "%s/tree/mnt", lab.dir.path);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", path, "tmpfs", 0, "mode=0755") < 0)
                test_skip("nothing can be mounted here");
        /* A descriptor of before leads where nothing is mounted. */
        safe_close(lab.dir.fd);
        lab.dir.fd = open(lab.dir.path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        (void) sum_of(&lab, "tree", HASH_ROOT, root);
        (void) sum_of(&lab, "tree", HASH_COPY, copy);
        temp_dir_write(&lab.dir, "tree/mnt/file", "text", 4);
        assert_streq(sum_of(&lab, "tree", HASH_ROOT, now), root);
        assert_streq(now, empty);
        assert_true(!streq(sum_of(&lab, "tree", HASH_COPY, now), copy));
        assert_ok(umount(path));
}

TEST(what_can_be_read_but_once_has_no_hash) {
        char sum[SHA256_HEX_SIZE] = "x";
        int fds[2];

        assert_ok(pipe2(fds, O_CLOEXEC));
        assert_ok(hash_tree(fds[0], HASH_COPY, sum));
        assert_streq(sum, "");
        close(fds[0]);
        close(fds[1]);
}
