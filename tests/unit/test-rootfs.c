/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <sys/xattr.h>

#include "daemon/image/clean-tar.h"
#include "daemon/image/rootfs.h"
#include "daemon/image/slurp.h"
#include "temp-dir.h"
#include "test.h"

static Fault fault;

/* What goes into a tar: type f, d, l (symbolic), h (hard) */
typedef struct Item {
        char type;
        const char *path;
        const char *content; /* of a link: its target */
} Item;

static const mode_t modes[] = { ['f'] = S_IFREG|0644, ['d'] = S_IFDIR|0755, ['l'] = S_IFLNK|0777, ['h'] = S_IFREG|0644 };

static void make_tar(const TempDir *d, int (*filter)(struct archive *), const Item *items, size_t n) {
        _cleanup_close_ int fd = temp_dir_open(d, "in", O_RDWR|O_CREAT|O_TRUNC);
        struct archive *a = archive_write_new();

        assert(archive_write_set_format_pax(a) == ARCHIVE_OK && filter(a) == ARCHIVE_OK);
        assert(archive_write_open_fd(a, fd) == ARCHIVE_OK);
        for (size_t i = 0; i < n; i++) {
                struct archive_entry *e = archive_entry_new();
                size_t size = items[i].type == 'f' ? strlen(items[i].content) : 0;

                archive_entry_set_pathname(e, items[i].path);
                archive_entry_set_mode(e, modes[(int) items[i].type]);
                archive_entry_set_size(e, (int64_t) size);
                archive_entry_set_uid(e, 1000);
                archive_entry_set_uname(e, "somebody");
                archive_entry_set_mtime(e, -5, 0);
                if (items[i].type == 'l')
                        archive_entry_set_symlink(e, items[i].content);
                if (items[i].type == 'h')
                        archive_entry_set_hardlink(e, items[i].content);
                if (items[i].type == 'f')
                        archive_entry_xattr_add_entry(e, "user.test", "v", 1);
                assert(archive_write_header(a, e) >= ARCHIVE_WARN);
                assert(archive_write_data(a, items[i].content, size) == (la_ssize_t) size);
                archive_entry_free(e);
        }
        assert(archive_write_close(a) == ARCHIVE_OK);
        archive_write_free(a);
}

static int convert(const TempDir *d, uint64_t max) {
        _cleanup_close_ int in = temp_dir_open(d, "in", O_RDONLY);
        _cleanup_close_ int out = temp_dir_open(d, "out", O_RDWR|O_CREAT|O_TRUNC);

        (void) setlocale(LC_CTYPE, "C.UTF-8");
        fault = (Fault) {};
        return rootfs_tar_to_tar(in, out, max, &fault);
}

/* "f path content uid mtime xattrs;..." */
static void list(const TempDir *d, char *ret, size_t size) {
        _cleanup_close_ int fd = temp_dir_open(d, "out", O_RDONLY);
        struct archive *a = archive_read_new();
        struct archive_entry *e;

        *ret = 0;
        assert(archive_read_support_format_tar(a) == ARCHIVE_OK && archive_read_open_fd(a, fd, 4096) == ARCHIVE_OK);
        while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
                char content[256] = "", line[1024];
                mode_t type = archive_entry_filetype(e);

                (void) archive_read_data(a, content, sizeof(content) - 1);
                (void) snprintf(line, sizeof(line), "%c %s %s %d %d %d;",
                                archive_entry_hardlink(e) ? 'h' : type == AE_IFREG ? 'f' : type == AE_IFDIR ? 'd' :
                                type == AE_IFLNK ? 'l' : '?',
                                archive_entry_pathname(e),
                                archive_entry_hardlink(e) ?: archive_entry_symlink(e) ?: content,
                                (int) archive_entry_uid(e), (int) archive_entry_mtime(e), archive_entry_xattr_count(e));
                strncat(ret, line, size - strlen(ret) - 1);
        }
        archive_read_free(a);
}

TEST(clean_paths) {
        assert_streq(clean_tar_path("./usr/bin"), "usr/bin");
        assert_streq(clean_tar_path("/usr//bin/"), "usr//bin/");
        assert_streq(clean_tar_path("././//./a"), "a");
        assert_streq(clean_tar_path("."), "");
        assert_streq(clean_tar_path("/"), "");
        assert_streq(clean_tar_path("a/..b/c.."), "a/..b/c..");
        assert_streq(clean_tar_path(".a"), ".a");
        assert_true(!clean_tar_path(".."));
        assert_true(!clean_tar_path("a/../b"));
        assert_true(!clean_tar_path("/.."));
        assert_true(!clean_tar_path("a/.."));
}

TEST(an_archive_of_nothing_but_the_root_holds_no_files) {
        static const Item root = { 'd', "./", "" };
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        make_tar(&d, archive_write_add_filter_none, &root, 1);
        assert_eq(convert(&d, MIB(1)), -ENODATA);
        make_tar(&d, archive_write_add_filter_none, &root, 0);
        assert_eq(convert(&d, MIB(1)), -ENODATA);
}

TEST(tar) {
        static const Item items[] = {
                { 'd', "./", "" }, { 'd', "./etc/", "" }, { 'f', "./etc/a", "hello" }, { 'l', "bin", "usr/bin" },
                { 'h', "./etc/b", "./etc/a" }, { 'f', "/etc/F\xc5\x91tan\xc3\xbas.crt", "x" },
        };
        int (*const filters[])(struct archive *) = {
                archive_write_add_filter_none, archive_write_add_filter_gzip, archive_write_add_filter_xz,
                archive_write_add_filter_zstd, archive_write_add_filter_bzip2, archive_write_add_filter_lz4,
        };
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char text[4096];

        for (size_t i = 0; i < ELEMENTSOF(filters); i++) {
                make_tar(&d, filters[i], items, ELEMENTSOF(items));
                assert_ok(convert(&d, MIB(1)));
                list(&d, text, sizeof(text));
                assert_streq(text, "d etc/  1000 0 0;f etc/a hello 1000 0 1;l bin usr/bin 1000 0 0;h etc/b etc/a 1000 0 0;"
                             "f etc/F\xc5\x91tan\xc3\xbas.crt x 1000 0 1;");
        }
}

static int convert_item(char type, const char *path, const char *content) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        const Item item = { type, path, content };

        make_tar(&d, archive_write_add_filter_none, &item, 1);
        return convert(&d, 100);
}

TEST(bad_tars) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char big[200];

        assert_eq(convert_item('f', "../x", "a"), -EBADMSG);
        assert_true(strstr(fault.text, "../x"));
        assert_eq(convert_item('f', "a/../../x", "a"), -EBADMSG);
        assert_eq(convert_item('h', "a", "../../etc/shadow"), -EBADMSG);
        assert_ok(convert_item('l', "a", "../../etc/shadow"));
        assert_eq(convert_item('f', "manifest.json", "[]"), -EINVAL);
        assert_true(strstr(fault.text, "docker-archive:FILE"));

        memset(big, 'x', sizeof(big) - 1);
        big[sizeof(big) - 1] = 0;
        assert_eq(convert_item('f', "big", big), -EFBIG);

        temp_dir_write(&d, "in", "this is no tar at all, but some text", 36);
        assert_true(convert(&d, 100) < 0);
        temp_dir_write(&d, "in", "", 0);
        assert_true(convert(&d, 100) < 0);
}

TEST(every_truncation) {
        static const Item items[] = { { 'f', "./etc/a", "hello" }, { 'f', "usr/b", "world" } };
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_free_ uint8_t *p = NULL;
        size_t size;

        make_tar(&d, archive_write_add_filter_none, items, 2);
        assert_ok(slurp_at(d.fd, "in", MIB(1), &p, &size));
        for (size_t n = 0; n < size; n += 100) {
                temp_dir_write(&d, "in", p, n);
                (void) convert(&d, 100);
        }
        for (size_t at = 0; at < 2560; at += 7) {
                uint8_t old = p[at];

                p[at] ^= 0x5a;
                temp_dir_write(&d, "in", p, size);
                (void) convert(&d, 100);
                p[at] = old;
        }
}

/* A file of the size that the header says, in no bytes of tar. */
TEST(announced_size_is_checked_first) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int fd = temp_dir_open(&d, "in", O_RDWR|O_CREAT);
        uint8_t header[512] = "big";

        memcpy(header + 100, "0000644\0000000000\0000000000\00077777777777\00000000000000\0        0", 57);
        memcpy(header + 257, "ustar\00000", 8);
        unsigned sum = 0;
        for (size_t i = 0; i < sizeof(header); i++)
                sum += header[i];
        (void) snprintf((char *) header + 148, 8, "%06o", sum);
        assert_ok(write_full(fd, header, sizeof(header)));
        assert_eq(convert(&d, MIB(1)), -EFBIG);
}

/* mksquashfs keeps them all in memory. */
TEST(extended_attributes_have_an_end) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int fd = temp_dir_open(&d, "in", O_RDWR|O_CREAT|O_TRUNC);
        static char value[KIB(64)], name[16];
        struct archive *a = archive_write_new();

        assert(archive_write_set_format_pax(a) == ARCHIVE_OK && archive_write_add_filter_zstd(a) == ARCHIVE_OK);
        assert(archive_write_open_fd(a, fd) == ARCHIVE_OK);
        for (unsigned i = 0; i < 1025; i++) {
                struct archive_entry *e = archive_entry_new();

                (void) snprintf(name, sizeof(name), "d%u", i);
                memcpy(value, &i, sizeof(i));
                archive_entry_set_pathname(e, name);
                archive_entry_set_mode(e, S_IFDIR|0755);
                archive_entry_xattr_add_entry(e, "user.test", value, sizeof(value));
                assert(archive_write_header(a, e) >= ARCHIVE_WARN);
                archive_entry_free(e);
        }
        assert(archive_write_close(a) == ARCHIVE_OK);
        archive_write_free(a);
        assert_eq(convert(&d, GIB(1)), -EFBIG);
        assert_true(strstr(fault.text, "extended attributes"));
}

TEST(directory) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int out = temp_dir_open(&d, "out", O_RDWR|O_CREAT);
        _cleanup_close_ int dir = -EBADF, here = open(".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        uid_t uid = getuid();
        char text[4096];

        assert_true(mkdirat(d.fd, "root", 0755) == 0 && mkdirat(d.fd, "root/etc", 0755) == 0);
        temp_dir_write(&d, "root/etc/a", "hello", 5);
        assert_true(symlinkat("/etc/passwd", d.fd, "root/link") == 0);
        assert_true(linkat(d.fd, "root/etc/a", d.fd, "root/etc/b", 0) == 0);
        dir = temp_dir_open(&d, "root", O_RDONLY|O_DIRECTORY);
        fault = (Fault) {};
        assert_ok(rootfs_directory_to_tar(dir, out, MIB(1), &uid, &fault));
        assert_true(fchdir(here) == 0);
        list(&d, text, sizeof(text));
        assert_true(strstr(text, "d etc"));
        assert_true(strstr(text, "hello 0 "));
        assert_true(strstr(text, "h etc/"));
        assert_true(strstr(text, "l link /etc/passwd 0 "));
}

TEST(probe) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        uint8_t erofs[4096] = {};
        RootfsType type;
        uint64_t bytes;
        int fd, fds[2];

        erofs[1024] = 0xe2, erofs[1025] = 0xe1, erofs[1026] = 0xf5, erofs[1027] = 0xe0;
        temp_dir_write(&d, "squashfs", "hsqs....", 8);
        temp_dir_write(&d, "erofs", erofs, sizeof(erofs));
        temp_dir_write(&d, "tar", "x", 1);
        temp_dir_write(&d, "empty", "", 0);

        fd = temp_dir_open(&d, "squashfs", O_RDONLY);
        assert_ok(rootfs_probe(fd, &type, &bytes, &fault));
        assert_eq(type, ROOTFS_SQUASHFS);
        assert_eq(bytes, 8);
        close(fd);
        fd = temp_dir_open(&d, "erofs", O_RDONLY);
        assert_ok(rootfs_probe(fd, &type, &bytes, &fault));
        assert_eq(type, ROOTFS_EROFS);
        close(fd);
        fd = temp_dir_open(&d, "tar", O_RDONLY);
        assert_ok(rootfs_probe(fd, &type, &bytes, &fault));
        assert_eq(type, ROOTFS_TAR);
        close(fd);
        fd = temp_dir_open(&d, "empty", O_RDONLY);
        assert_eq(rootfs_probe(fd, &type, &bytes, &fault), -ENODATA);
        close(fd);
        assert_ok(rootfs_probe(d.fd, &type, &bytes, &fault));
        assert_eq(type, ROOTFS_DIRECTORY);
        assert_true(pipe(fds) == 0);
        assert_ok(rootfs_probe(fds[0], &type, &bytes, &fault));
        assert_eq(type, ROOTFS_TAR);
        close_many(fds, 2);
        assert_streq(rootfs_type_to_string(ROOTFS_EROFS), "erofs");
        assert_eq(rootfs_type_from_string("directory"), ROOTFS_DIRECTORY);
        assert_eq(rootfs_type_from_string("zip"), -EINVAL);
}

TEST(copied_image_is_padded) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int in = temp_dir_open(&d, "in", O_RDWR|O_CREAT), out = temp_dir_open(&d, "out", O_RDWR|O_CREAT);
        struct stat st;

        assert_ok(write_full(in, "hsqs1", 5));
        assert_true(lseek(in, 0, SEEK_SET) == 0);
        assert_ok(rootfs_copy_image(in, out, 5, &fault));
        assert_true(fstat(out, &st) == 0);
        assert_eq(st.st_size, 4096);
        assert_true(lseek(in, 0, SEEK_SET) == 0);
        fault = (Fault) {};
        assert_eq(rootfs_copy_image(in, out, 4, &fault), -EFBIG);
}
