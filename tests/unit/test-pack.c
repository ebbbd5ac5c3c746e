/* SPDX-License-Identifier: Apache-2.0 */

/* A template as one file, by the real cube-image in a child: what goes in comes out, and nothing else gets in. */

#include <archive.h>
#include <archive_entry.h>
#include <json-c/json.h>
#include <sys/wait.h>

#include "daemon/image/pack.h"
#include "temp-dir.h"
#include "test.h"

#define DISK_BYTES GIB(4)

typedef struct Lab {
        TempDir dir;
        char message[512];
} Lab;

static void lab_init(Lab *lab) {
        if (access(TEST_CUBE_IMAGE, X_OK) < 0)
                test_skip("cube-image is missing");
        *lab = (Lab) { .dir = temp_dir_make() };
}

static void lab_done(Lab *lab) {
        temp_dir_done(&lab->dir);
}
#define _cleanup_lab_ _cleanup_(lab_done)

static int member_fd(const Lab *lab, const char *prefix, int i, int flags) {
        char name[32];

        (void) snprintf(name, sizeof(name), "%s%d", prefix, i);
        return temp_dir_open(&lab->dir, name, flags);
}

/* With data at the begin, amid and at the end of sparse ones; and zeros that are data. */
static void make_members(const Lab *lab) {
        for (int i = 0; i < _PACK_MEMBER_MAX; i++) {
                _cleanup_close_ int fd = member_fd(lab, "in", i, O_RDWR|O_CREAT|O_TRUNC);
                uint8_t block[8192];

                memset(block, 'a' + i, sizeof(block));
                assert_true(pwrite(fd, block, sizeof(block), 0) == sizeof(block));
                if (!pack_members[i].sparse)
                        continue;
                assert_true(ftruncate(fd, (off_t) DISK_BYTES) == 0);
                memset(block, 0, sizeof(block));
                assert_true(pwrite(fd, block, 4096, (off_t) GIB(1)) == 4096);
                block[4095] = 'z';
                assert_true(pwrite(fd, block, 4096, (off_t) (DISK_BYTES - 4096)) == 4096);
        }
}

/* members: prefix of theirs, NULL for none. */
static int run(Lab *lab, const char *verb, const char *max, const char *in, const char *out, const char *members, int flags) {
        int fds[2];

        assert_true(pipe2(fds, O_CLOEXEC) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                int from[PACK_MEMBERS_FD + _PACK_MEMBER_MAX] = {};

                from[0] = temp_dir_open(&lab->dir, in, O_RDONLY);
                from[1] = temp_dir_open(&lab->dir, out, O_RDWR|O_CREAT|O_TRUNC);
                from[2] = fds[1];
                from[3] = temp_dir_open(&lab->dir, "progress", O_RDWR|O_CREAT|O_TRUNC);
                for (int i = 0; i < _PACK_MEMBER_MAX; i++)
                        from[PACK_MEMBERS_FD + i] = member_fd(lab, members, i, flags);
                for (size_t i = 0; i < ELEMENTSOF(from); i++)
                        from[i] = fcntl(from[i], F_DUPFD, 32);
                for (size_t i = 0; i < ELEMENTSOF(from); i++)
                        dup2(from[i], (int) i);
                execl(TEST_CUBE_IMAGE, TEST_CUBE_IMAGE, verb, max, NULL);
                _exit(99);
        }
        close(fds[1]);
        memset(lab->message, 0, sizeof(lab->message));
        size_t n = 0;
        for (ssize_t k; n < sizeof(lab->message) - 1 && (k = read(fds[0], lab->message + n, sizeof(lab->message) - 1 - n)) > 0;)
                n += (size_t) k;
        close(fds[0]);
        int status;
        assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void pack(Lab *lab, const char *description) {
        make_members(lab);
        temp_dir_write(&lab->dir, "description", description, strlen(description));
        if (run(lab, "pack", NULL, "description", "pack", "in", O_RDONLY) != 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab->message);
}

#define WARM "{\"format\":\"cubed-template\",\"version\":1,\"template\":{\"a\":1},\"guest\":{\"b\":2}}"
#define COLD "{\"format\":\"cubed-template\",\"version\":1,\"template\":{\"a\":1}}"

static int unpack(Lab *lab, const char *from, const char *max) {
        return run(lab, "unpack", max, from, "manifest", "out", O_RDWR|O_CREAT|O_TRUNC);
}

#define ENOUGH "1000000000"

static void assert_refused(Lab *lab, const char *from, const char *max, const char *words, int line) {
        if (unpack(lab, from, max) != 1)
                test_stop(TEST_FAILED, line, "it was taken: %s", lab->message);
        if (!strstr(lab->message, words))
                test_stop(TEST_FAILED, line, "it says: %s", lab->message);
}
#define REFUSED(from, words) assert_refused(&lab, from, ENOUGH, words, __LINE__)

/* Content and holes. */
static bool same_member(const Lab *lab, int i) {
        _cleanup_close_ int a = member_fd(lab, "in", i, O_RDONLY), b = member_fd(lab, "out", i, O_RDONLY);
        uint64_t x = 0, y = 0, n, k;
        struct stat s, t;
        int r, q;

        assert_true(fstat(a, &s) == 0 && fstat(b, &t) == 0);
        if (s.st_size != t.st_size)
                return false;
        while ((r = pack_next_run(a, &x, &n)) == (q = pack_next_run(b, &y, &k)) && r > 0) {
                uint8_t u[16384], v[16384];

                if (x != y || n != k || n > sizeof(u) || pread(a, u, n, (off_t) x) != (ssize_t) n ||
                    pread(b, v, n, (off_t) y) != (ssize_t) n || memcmp(u, v, n) != 0)
                        return false;
                x = y = x + n;
        }
        return r == 0 && q == 0;
}

TEST(what_goes_in_comes_out) {
        _cleanup_lab_ Lab lab;
        uint64_t progress[2];
        struct stat st;

        lab_init(&lab);
        pack(&lab, WARM);
        assert_true(fstatat(lab.dir.fd, "pack", &st, 0) == 0 && st.st_size < (off_t) MIB(1));
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, "progress", O_RDONLY);
        assert_eq(read(fd, progress, sizeof(progress)), sizeof(progress));
        assert_true(progress[0] == progress[1] && progress[0] == 7 * 8192 + 3 * 2 * 4096);
        if (unpack(&lab, "pack", ENOUGH) != 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        for (int i = 0; i < _PACK_MEMBER_MAX; i++)
                if (!same_member(&lab, i))
                        test_stop(TEST_FAILED, __LINE__, "%s came out as another", pack_members[i].name);
}

TEST(without_a_guest_there_are_four) {
        _cleanup_lab_ Lab lab;
        struct stat st;

        lab_init(&lab);
        pack(&lab, COLD);
        assert_eq(unpack(&lab, "pack", ENOUGH), 0);
        assert_true(same_member(&lab, PACK_KERNEL) && same_member(&lab, PACK_DISK));
        assert_true(fstatat(lab.dir.fd, "out4", &st, 0) == 0 && st.st_size == 0);
}

/* All of a pack, in memory. */
typedef struct Entry {
        char name[64];
        uint8_t *data;
        size_t size;
        mode_t type;
} Entry;

static size_t load(const Lab *lab, Entry *l, size_t max) {
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, "pack", O_RDONLY);
        struct archive *a = archive_read_new();
        struct archive_entry *e;
        size_t n = 0;

        assert(archive_read_support_filter_zstd(a) == ARCHIVE_OK && archive_read_support_format_tar(a) == ARCHIVE_OK);
        assert(archive_read_open_fd(a, fd, 65536) == ARCHIVE_OK);
        while (n < max && archive_read_next_header(a, &e) == ARCHIVE_OK) {
                Entry *x = &l[n++];

                *x = (Entry) { .size = (size_t) MIN(archive_entry_size(e), (la_int64_t) 8192), .type = AE_IFREG };
                (void) snprintf(x->name, sizeof(x->name), "%s", archive_entry_pathname(e));
                x->data = calloc(1, x->size + 4096);
                assert(archive_read_data(a, x->data, x->size) == (la_ssize_t) x->size);
        }
        archive_read_free(a);
        return n;
}

static void store(const Lab *lab, const Entry *l, size_t n) {
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, "changed", O_RDWR|O_CREAT|O_TRUNC);
        struct archive *a = archive_write_new();

        assert(archive_write_set_format_pax(a) == ARCHIVE_OK && archive_write_open_fd(a, fd) == ARCHIVE_OK);
        for (size_t i = 0; i < n; i++) {
                struct archive_entry *e = archive_entry_new();

                archive_entry_set_pathname(e, l[i].name);
                archive_entry_set_filetype(e, l[i].type);
                archive_entry_set_perm(e, 0400);
                archive_entry_set_size(e, l[i].type == AE_IFREG ? (la_int64_t) l[i].size : 0);
                if (l[i].type == AE_IFLNK)
                        archive_entry_set_symlink(e, "/etc/shadow");
                assert(archive_write_header(a, e) >= ARCHIVE_WARN);
                if (l[i].type == AE_IFREG)
                        assert(archive_write_data(a, l[i].data, l[i].size) == (la_ssize_t) l[i].size);
                archive_entry_free(e);
        }
        assert(archive_write_close(a) == ARCHIVE_OK);
        archive_write_free(a);
}

static void free_entries(Entry *l, size_t n) {
        for (size_t i = 0; i < n; i++)
                free(l[i].data);
}

/* this in place of that, in pack.json */
static void change_manifest(Entry *e, const char *that, const char *this) {
        char *at = memmem(e->data, e->size, that, strlen(that)), *text = NULL;

        assert(at);
        assert(asprintf(&text, "%.*s%s%.*s", (int) (at - (char *) e->data), (char *) e->data, this,
                        (int) ((char *) e->data + e->size - at - strlen(that)), at + strlen(that)) >= 0);
        free(e->data);
        e->data = (uint8_t *) text;
        e->size = strlen(text);
}

TEST(a_hostile_file_is_refused_with_a_reason) {
        static const struct {
                const char *that, *this, *words;
        } manifests[] = {
                { "\"version\":1", "\"version\":2", "version 2 of the format" },
                { "\"version\":1", "\"versio\":1", "no version" },
                { "cubed-template", "cubed-sandbox", "not that of a template" },
                { "\"template\":", "\"extra\":1,\"template\":", "unknown, missing" },
                { "\"vmlinux\":{", "\"../vmlinux\":{", "nothing right of vmlinux" },
                { "\"vmlinux\":{\n      \"bytes\":8192", "\"vmlinux\":{\n      \"bytes\":-1", "nothing right of vmlinux" },
                { "\"vmlinux\":{\n      \"bytes\":8192", "\"vmlinux\":{\n      \"bytes\":99999999999", "nothing right of vmlinux" },
                { "\"vmlinux\":{\n      \"bytes\":8192", "\"vmlinux\":{\n      \"bytes\":4096", "vmlinux has 8192 bytes, pack.json says 4096" },
                { "\"members\":{", "\"members\":{\"x\":{},", "other members" },
                { "{\n", "[\n", "no JSON object" },
        };
        _cleanup_lab_ Lab lab;
        Entry l[16];

        lab_init(&lab);
        pack(&lab, COLD);
        for (size_t i = 0; i < ELEMENTSOF(manifests); i++) {
                size_t n = load(&lab, l, ELEMENTSOF(l));
                change_manifest(&l[0], manifests[i].that, manifests[i].this);
                store(&lab, l, n);
                REFUSED("changed", manifests[i].words);
                free_entries(l, n);
        }

        size_t n = load(&lab, l, ELEMENTSOF(l));
        l[1].data[17] ^= 1;
        store(&lab, l, n);
        REFUSED("changed", "the checksum of vmlinux is not the one");
        l[1].data[17] ^= 1;

        strcpy(l[2].name, "../../etc/passwd");
        store(&lab, l, n);
        REFUSED("changed", "it has \"../../etc/passwd\" where initramfs.cpio should be");
        strcpy(l[2].name, "initramfs.cpio");

        l[2].type = AE_IFLNK;
        store(&lab, l, n);
        REFUSED("changed", "initramfs.cpio is not a plain file");
        l[2].type = AE_IFREG;

        store(&lab, l, 3);
        REFUSED("changed", "the file ends before root.img");
        store(&lab, l + 1, n - 1);
        REFUSED("changed", "it has \"vmlinux\" where pack.json should be");
        free_entries(l, n);
}

TEST(what_is_damaged_or_cut_or_nothing_of_the_kind_is_refused) {
        _cleanup_lab_ Lab lab;
        char data[65536];

        lab_init(&lab);
        pack(&lab, WARM);
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, "pack", O_RDONLY);
        ssize_t n = read(fd, data, sizeof(data));
        assert_true(n > 500 && n < (ssize_t) sizeof(data));
        for (ssize_t k = 0; k < n; k += n / 7) {
                temp_dir_write(&lab.dir, "changed", data, (size_t) k);
                assert_eq(unpack(&lab, "changed", ENOUGH), 1);
        }
        for (ssize_t k = 20; k < n; k += n / 7) {
                data[k] ^= 0x55;
                temp_dir_write(&lab.dir, "changed", data, (size_t) n);
                assert_eq(unpack(&lab, "changed", ENOUGH), 1);
                data[k] ^= 0x55;
        }
        temp_dir_write(&lab.dir, "changed", "#!/bin/sh\n", 10);
        REFUSED("changed", "no template that was exported");
}

/* 7 members of 8 KiB and three times two blocks. */
TEST(no_more_is_written_than_may_be) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        pack(&lab, WARM);
        assert_eq(unpack(&lab, "pack", "81920"), 0);
        assert_refused(&lab, "pack", "81919", "it unpacks to more than 81919 bytes", __LINE__);
}
