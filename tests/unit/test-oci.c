/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>

#include "daemon/image/oci-merge.h"
#include "make-oci.h"
#include "test.h"

#define MANIFEST_MAX 8192U

static Fault fault;

static int merge_named(MadeImage *m, const char *name, uint64_t max) {
        _cleanup_close_ int out = temp_dir_open(&m->dir, "out", O_RDWR|O_CREAT|O_TRUNC);
        _cleanup_(oci_image_done) OciImage image = {};
        OciBlob manifest;

        (void) setlocale(LC_CTYPE, "C.UTF-8");
        fault = (Fault) {};
        int r = oci_layout_find(m->dir.fd, name, &manifest, &fault);
        if (r >= 0)
                r = oci_layout_load(m->dir.fd, &manifest, &image, &fault);
        if (r >= 0)
                r = oci_layout_open_layers(m->dir.fd, &image, &fault);
        if (r >= 0)
                r = oci_merge(&image, out, -EBADF, max, &fault);
        assert_true(r >= 0 || *fault.text);
        return r;
}

static int merge(MadeImage *m) {
        return merge_named(m, "", MIB(1));
}

/* Each line: type, path, mode, owner and group, content or target, attributes; sorted. */
static const char *manifest(MadeImage *m) {
        static char text[MANIFEST_MAX];
        _cleanup_close_ int fd = temp_dir_open(&m->dir, "out", O_RDONLY);
        struct archive *a = archive_read_new();
        char lines[64][512], *sorted[64];
        struct archive_entry *e;
        size_t n = 0;

        assert(archive_read_support_format_tar(a) == ARCHIVE_OK && archive_read_open_fd(a, fd, 4096) == ARCHIVE_OK);
        while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
                char content[256] = "", attributes[128] = "";
                mode_t type = archive_entry_filetype(e);
                const char *name;
                const void *value;
                size_t size;

                assert(n < ELEMENTSOF(lines));
                (void) archive_read_data(a, content, sizeof(content) - 1);
                for (archive_entry_xattr_reset(e); archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK;)
                        (void) snprintf(attributes, sizeof(attributes), " %s=%.*s", name, (int) size, (const char *) value);
                (void) snprintf(lines[n], sizeof(lines[n]), "%c %s %04o %d:%d %s%s\n",
                                archive_entry_hardlink(e) ? 'h' : type == AE_IFREG ? 'f' : type == AE_IFDIR ? 'd' :
                                type == AE_IFLNK ? 'l' : type == AE_IFIFO ? 'p' : '?',
                                archive_entry_pathname(e), archive_entry_perm(e), (int) archive_entry_uid(e),
                                (int) archive_entry_gid(e), archive_entry_hardlink(e) ?: archive_entry_symlink(e) ?: content,
                                attributes);
                size_t at = n++;
                for (; at > 0 && strcmp(sorted[at - 1] + 2, lines[n - 1] + 2) > 0; at--)
                        sorted[at] = sorted[at - 1];
                sorted[at] = lines[n - 1];
        }
        archive_read_free(a);
        *text = 0;
        for (size_t i = 0; i < n; i++)
                strcat(text, sorted[i]);
        return text;
}

#define ADD_LAYER(m, pack, ...)                                                         \
        ({                                                                              \
                const MadeFile _files[] = { __VA_ARGS__ };                              \
                const MadeLayer _l = { _files, ELEMENTSOF(_files), .filter = (pack) };  \
                made_add_layer((m), &_l);                                               \
        })
#define MEMBER(t, p, c, ...) { .type = (t), .path = (p), .content = (c), ##__VA_ARGS__ }

TEST(layers_make_one_tree_with_all_that_files_have) {
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, archive_write_add_filter_gzip,
                  MEMBER('d', "./", NULL, .mode = 0700),
                  MEMBER('d', "etc/", NULL),
                  MEMBER('f', "etc/passwd", "root"),
                  MEMBER('f', "etc/old", "old"),
                  MEMBER('d', "var/cache/", NULL, .mode = 02775, .uid = 6, .gid = 12),
                  MEMBER('f', "var/cache/a", "a"),
                  MEMBER('f', "usr/bin/su", "su", .mode = 04755),
                  MEMBER('h', "usr/bin/su2", "usr/bin/su"),
                  MEMBER('l', "bin", "usr/bin"),
                  MEMBER('f', "usr/bin/ping", "ping", .xattr = "user.caps=raw"),
                  MEMBER('p', "run/fifo", NULL));
        ADD_LAYER(&m, archive_write_add_filter_zstd,
                  MEMBER('f', "etc/.wh.old", ""),
                  MEMBER('f', "var/cache/.wh..wh..opq", ""),
                  MEMBER('f', "var/cache/b", "b", .uid = 1000, .gid = 70000),
                  MEMBER('f', "etc/passwd", "root,app", .mode = 0600, .uid = 5));
        ADD_LAYER(&m, archive_write_add_filter_none,
                  MEMBER('f', "bin/new", "new"),
                  MEMBER('h', "etc/passwd-", "etc/passwd"),
                  MEMBER('d', "srv", NULL, .mode = 01777));
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m),
                     "l bin 0777 0:0 usr/bin\n"
                     "d etc/ 0755 0:0 \n"
                     "h etc/passwd 0000 0:0 etc/passwd-\n"
                     "f etc/passwd- 0600 5:0 root,app\n"
                     "d run/ 0755 0:0 \n"
                     "p run/fifo 0600 0:0 \n"
                     "d srv/ 1777 0:0 \n"
                     "d usr/ 0755 0:0 \n"
                     "d usr/bin/ 0755 0:0 \n"
                     "f usr/bin/new 0644 0:0 new\n"
                     "f usr/bin/ping 0644 0:0 ping user.caps=raw\n"
                     "h usr/bin/su 0000 0:0 usr/bin/su2\n"
                     "f usr/bin/su2 4755 0:0 su\n"
                     "d var/ 0755 0:0 \n"
                     "d var/cache/ 2775 6:12 \n"
                     "f var/cache/b 0644 1000:70000 b\n");
}

TEST(devices_are_left_out) {
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, NULL, MEMBER('d', "dev", NULL), MEMBER('c', "dev/null", NULL),
                  MEMBER('f', "dev/shm/x", "x"));
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m), "d dev/ 0755 0:0 \nd dev/shm/ 0755 0:0 \nf dev/shm/x 0644 0:0 x\n");
}

TEST(a_layer_without_files) {
        static const uint8_t nothing[1024];
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, NULL, MEMBER('f', "a", "a"));
        made_add_packed_layer(&m, nothing, sizeof(nothing), "application/vnd.oci.image.layer.v1.tar");
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m), "f a 0644 0:0 a\n");
}

/* An archive that the merge refuses: what it says. */
static const char *refused(int want, char type, const char *path, const char *content) {
        _cleanup_image_ MadeImage m = make_image();
        int r;

        ADD_LAYER(&m, NULL, MEMBER('f', "a", "a"));
        ADD_LAYER(&m, NULL, MEMBER(type, path, content));
        made_seal(&m);
        r = merge(&m);
        assert_eq(r, want);
        assert_true(startswith(fault.text, "layer 2 of 2: "));
        return fault.text;
}

TEST(hostile_layers) {
        assert_true(strstr(refused(-EBADMSG, 'f', "../x", "a"), "\"../x\" leads out of the root"));
        (void) refused(-EBADMSG, 'f', "/../x", "a");
        (void) refused(-EBADMSG, 'f', "a/../../x", "a");
        (void) refused(-EBADMSG, 'l', "..", "a");
        (void) refused(-EBADMSG, 'h', "b", "../../etc/shadow");
        (void) refused(-EBADMSG, 'h', "b", "not-there");
        (void) refused(-EBADMSG, 'f', ".wh...", "");
        (void) refused(-ENOTDIR, 'f', "a/b", "");
}

/* On the way to a name they lead to where they would in the root. */
TEST(files_below_links_stay_inside) {
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, NULL, MEMBER('l', "a", "/etc"), MEMBER('l', "b", "../../../../tmp"), MEMBER('f', "a/passwd", "x"),
                  MEMBER('f', "b/y", "y"), MEMBER('f', "/abs/z", "z"));
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m), "l a 0777 0:0 /etc\nd abs/ 0755 0:0 \nf abs/z 0644 0:0 z\nl b 0777 0:0 ../../../../tmp\n"
                     "d etc/ 0755 0:0 \nf etc/passwd 0644 0:0 x\nd tmp/ 0755 0:0 \nf tmp/y 0644 0:0 y\n");
}

static void one_layer(MadeImage *m) {
        ADD_LAYER(m, NULL, MEMBER('f', "a", "a file of some size"));
        made_seal(m);
}

TEST(wrong_checksums) {
        _cleanup_image_ MadeImage m = make_image();
        _cleanup_free_ char *data = NULL;
        char path[128];
        size_t size;

        one_layer(&m);
        made_blob_path(m.digests[0], path);
        assert_ok(read_file(m.dir.fd, path, MIB(1), &data, &size));
        /* Its time of packing: it still unpacks to the same. */
        data[4] ^= 1;
        temp_dir_write(&m.dir, path, data, size);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "layer 1 of 1: wrong checksum: ") && strstr(fault.text, m.digests[0]));
        /* Nothing was passed on. */
        assert_streq(manifest(&m), "");
        data[4] ^= 1;
        data[size / 2] ^= 0x55;
        temp_dir_write(&m.dir, path, data, size);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "wrong checksum"));
        data[size / 2] ^= 0x55;
        temp_dir_write(&m.dir, path, data, size - 20);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "wrong checksum"));
        temp_dir_write(&m.dir, path, data, size);
        assert_ok(merge(&m));
        assert_ok(unlinkat(m.dir.fd, path, 0));
        assert_eq(merge(&m), -ENOENT);
        assert_true(strstr(fault.text, path));
        /* Nothing outside the directory is opened, whatever a name in it is a link to. */
        assert_ok(symlinkat("/etc/passwd", m.dir.fd, path));
        assert_eq(merge(&m), -ELOOP);
}

/* Each blob is what it is called, but the layers are not those that the configuration speaks of. */
TEST(wrong_checksums_of_what_layers_unpack_to) {
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, archive_write_add_filter_zstd, MEMBER('f', "a", "a"));
        ADD_LAYER(&m, NULL, MEMBER('f', "b", "b"));
        char own[72];
        strcpy(own, m.diff_ids[1]);
        strcpy(m.diff_ids[1], m.diff_ids[0]);
        made_seal(&m);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "layer 2 of 2: wrong checksum: ") && strstr(fault.text, own) && strstr(fault.text, m.diff_ids[0]));
        assert_streq(manifest(&m), "");
        /* Of the layer as it is packed. */
        strcpy(m.diff_ids[1], m.digests[1]);
        made_seal(&m);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "layer 2 of 2: wrong checksum: "));
        strcpy(m.diff_ids[1], own);
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m), "f a 0644 0:0 a\nf b 0644 0:0 b\n");
}

/* An image can't do without, nor have more or fewer of them than layers. */
TEST(layers_without_checksums_of_what_they_unpack_to) {
        _cleanup_image_ MadeImage m = make_image();
        char two[256];

        one_layer(&m);
        (void) snprintf(two, sizeof(two), "{\"diff_ids\":[\"%s\",\"%s\"]}", m.diff_ids[0], m.diff_ids[0]);
        const struct { const char *rootfs; int r; const char *says; } cases[] = {
                { "null", -EBADMSG, "has no checksums of its layers" },
                { "{\"diff_ids\":{}}", -EBADMSG, "has no checksums of its layers" },
                { "{\"diff_ids\":[]}", -EBADMSG, "has 0 checksums of layers (diff_ids), but there are 1" },
                { two, -EBADMSG, "has 2 checksums of layers (diff_ids), but there are 1" },
                { "{\"diff_ids\":[\"sha512:0\"]}", -EOPNOTSUPP, "layer 1 of 1: its diff_id is no sha256" },
                { "{\"diff_ids\":[null]}", -EOPNOTSUPP, "layer 1 of 1: its diff_id is no sha256" },
        };
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                m.rootfs = cases[i].rootfs;
                made_seal(&m);
                assert_eq(merge(&m), cases[i].r);
                assert_true(strstr(fault.text, cases[i].says));
        }
}

/* The sum is of all, also of what stands behind the end of an archive; but no end may stand far behind it. */
TEST(what_stands_behind_the_end_of_a_layer) {
        static const char plain[] = "application/vnd.oci.image.layer.v1.tar";
        static uint8_t data[MIB(17)];
        static const MadeFile file = { .type = 'f', .path = "a", .content = "a" };
        const MadeLayer l = { &file, 1 };
        _cleanup_image_ MadeImage some = make_image(), much = make_image();

        (void) made_pack(&l, archive_write_add_filter_none, data, MIB(1));
        data[MIB(1)] = 1;
        made_add_packed_layer(&some, data, MIB(2), plain);
        made_seal(&some);
        assert_ok(merge(&some));
        data[MIB(1)] = 2;
        made_digest(data, MIB(2), some.diff_ids[0]);
        made_seal(&some);
        assert_eq(merge(&some), -EBADMSG);
        assert_true(strstr(fault.text, "layer 1 of 1: wrong checksum: "));

        made_add_packed_layer(&much, data, sizeof(data), plain);
        made_seal(&much);
        assert_eq(merge(&much), -EBADMSG);
        assert_true(strstr(fault.text, "goes on behind its end"));
}

TEST(a_manifest_that_was_changed) {
        _cleanup_image_ MadeImage m = make_image();
        char descriptor[1024], path[128];

        one_layer(&m);
        made_describe(&m, descriptor, sizeof(descriptor));
        made_blob_path(strstr(descriptor, "sha256:"), path);
        temp_dir_write(&m.dir, path, "{}", 2);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, path) && strstr(fault.text, "wrong checksum"));
}

/* What it says it is, but no archive, or only the beginning of one. */
TEST(broken_layers) {
        static const char gzip[] = "application/vnd.oci.image.layer.v1.tar+gzip";
        _cleanup_image_ MadeImage whole = make_image(), m = make_image(), text = make_image();
        _cleanup_free_ char *data = NULL;
        char path[128];
        size_t size;

        one_layer(&whole);
        made_blob_path(whole.digests[0], path);
        assert_ok(read_file(whole.dir.fd, path, MIB(1), &data, &size));
        made_add_packed_layer(&m, data, size / 2, gzip);
        made_seal(&m);
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "layer 1 of 1 (sha256:") && strstr(fault.text, "is broken"));

        made_add_packed_layer(&text, "this is no archive", 18, gzip);
        made_seal(&text);
        assert_eq(merge(&text), -EBADMSG);
        assert_true(strstr(fault.text, "is broken"));
}

TEST(limits) {
        _cleanup_image_ MadeImage m = make_image();

        ADD_LAYER(&m, NULL, MEMBER('f', "a", "0123456789"));
        ADD_LAYER(&m, NULL, MEMBER('f', "a", "0123456789"));
        made_seal(&m);
        assert_ok(merge_named(&m, "", 20));
        assert_eq(merge_named(&m, "", 19), -EFBIG);
        assert_true(strstr(fault.text, "unpacks to more than 19 bytes"));
}

TEST(machines_that_it_is_not_for) {
        _cleanup_image_ MadeImage m = make_image(), list = make_image();
        char descriptor[1024], index[4096], digest[72];

        m.architecture = "arm64";
        one_layer(&m);
        assert_eq(merge(&m), -ENOEXEC);
        assert_true(strstr(fault.text, "not for linux/amd64, but for linux/arm64"));

        /* An index of many: ours is taken, whatever stands around it. */
        one_layer(&list);
        made_describe(&list, descriptor, sizeof(descriptor));
        int n = snprintf(index, sizeof(index), "{\"manifests\":["
                         "{\"mediaType\":\"x\",\"digest\":\"x\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}},"
                         "%.*s,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}]}",
                         (int) strlen(descriptor) - 1, descriptor);
        made_add_blob(&list, index, (size_t) n, digest);
        (void) snprintf(descriptor, sizeof(descriptor), "{\"manifests\":[{\"mediaType\":"
                        "\"application/vnd.oci.image.index.v1+json\",\"digest\":\"%s\",\"size\":%d}]}", digest, n);
        made_write_index(&list, descriptor);
        assert_ok(merge(&list));

        made_write_index(&list, "{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"x\",\"size\":1,"
                         "\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}}]}");
        assert_eq(merge(&list), -ENOEXEC);
        assert_true(strstr(fault.text, "but for linux/s390x"));
}

TEST(images_by_name) {
        _cleanup_image_ MadeImage m = make_image();
        char one[1024], two[1024], index[4096];

        m.annotations = "{\"org.opencontainers.image.ref.name\":\"one\"}";
        ADD_LAYER(&m, NULL, MEMBER('f', "one", ""));
        made_describe(&m, one, sizeof(one));
        m.annotations = "{\"org.opencontainers.image.ref.name\":\"two\"}";
        ADD_LAYER(&m, NULL, MEMBER('f', "two", ""));
        made_describe(&m, two, sizeof(two));
        (void) snprintf(index, sizeof(index), "{\"manifests\":[%s,%s]}", one, two);
        made_write_index(&m, index);

        assert_ok(merge_named(&m, "one", MIB(1)));
        assert_streq(manifest(&m), "f one 0644 0:0 \n");
        assert_ok(merge_named(&m, "two", MIB(1)));
        assert_streq(manifest(&m), "f one 0644 0:0 \nf two 0644 0:0 \n");
        assert_eq(merge(&m), -ENOTUNIQ);
        assert_eq(merge_named(&m, "three", MIB(1)), -ENOENT);
        assert_true(strstr(fault.text, "\"three\" in it, but: one, two"));
        made_write_index(&m, "{\"manifests\":[]}");
        assert_eq(merge(&m), -ENOENT);
}

TEST(what_is_not_known_is_refused) {
        _cleanup_image_ MadeImage m = make_image();
        static const MadeFile file = { .type = 'f', .path = "a" };
        const MadeLayer l = { &file, 1, .type = "application/vnd.oci.image.layer.v1.tar+encrypted" };

        made_add_layer(&m, &l);
        made_seal(&m);
        assert_eq(merge(&m), -EOPNOTSUPP);
        assert_true(strstr(fault.text, "layer 1 of 1 is of the type application/vnd.oci.image.layer.v1.tar+encrypted"));
        made_write_index(&m, "{\"manifests\":[{\"mediaType\":\"x\",\"size\":1,\"digest\":\"sha512:../../../etc/passwd\"}]}");
        assert_eq(merge(&m), -EOPNOTSUPP);
        made_write_index(&m, "not JSON");
        assert_eq(merge(&m), -EBADMSG);
        assert_true(strstr(fault.text, "index.json"));
}

static int load(MadeImage *m, const char *config, OciImage *ret) {
        OciBlob blob;

        fault = (Fault) {};
        oci_image_done(ret);
        m->config = config;
        made_seal(m);
        assert_ok(oci_layout_find(m->dir.fd, "", &blob, &fault));
        return oci_layout_load(m->dir.fd, &blob, ret, &fault);
}

TEST(how_its_programs_are_run) {
        _cleanup_image_ MadeImage m = make_image();
        _cleanup_(oci_image_done) OciImage i = {};

        assert_ok(load(&m, "null", &i));
        assert_true(!i.defaults.env[0] && !i.command[0] && !i.defaults.user && !i.defaults.cwd && !i.has_ports);
        assert_ok(load(&m, "{\"Env\":[\"PATH=/opt/bin\",\"nonsense\",\"A=b=c\\nd\"],\"User\":\"app:web\",\"WorkingDir\":\"srv/app\","
                       "\"Entrypoint\":[\"/start\"],\"Cmd\":[\"-v\",\"\"],\"ExposedPorts\":{\"80/tcp\":{}}}", &i));
        assert_streq(i.defaults.env[0], "PATH=/opt/bin");
        assert_streq(i.defaults.env[1], "A=b=c\nd");
        assert_true(!i.defaults.env[2] && i.has_ports);
        assert_streq(i.defaults.user, "app:web");
        assert_streq(i.defaults.cwd, "/srv/app");
        assert_streq(i.command[0], "/start");
        assert_streq(i.command[1], "-v");
        assert_streq(i.command[2], "");
        assert_true(!i.command[3]);
        assert_ok(load(&m, "{\"Env\":null,\"Cmd\":null,\"WorkingDir\":\"\"}", &i));

        assert_eq(load(&m, "{\"User\":0}", &i), -EBADMSG);
        assert_eq(load(&m, "{\"WorkingDir\":\"/a\\u0001\"}", &i), -EBADMSG);
        /* They are told on the bus, which has no noncharacters. */
        assert_eq(load(&m, "{\"WorkingDir\":\"/a\\ufffe\"}", &i), -EILSEQ);
        assert_eq(load(&m, "{\"User\":\"\\ufdd0\"}", &i), -EILSEQ);
        assert_ok(load(&m, "{\"User\":\"\\ufdcf\",\"WorkingDir\":\"/\\ufffd\"}", &i));
        assert_eq(load(&m, "{\"Env\":\"A=b\"}", &i), -EBADMSG);
        assert_eq(load(&m, "{\"Env\":[\"A=b\\u0000c\"]}", &i), -EBADMSG);
}

/* Programs are started there, so it is there. */
TEST(the_working_directory_is_made) {
        _cleanup_image_ MadeImage m = make_image();

        m.config = "{\"WorkingDir\":\"/srv/app\"}";
        ADD_LAYER(&m, NULL, MEMBER('l', "srv", "var/srv"));
        made_seal(&m);
        assert_ok(merge(&m));
        assert_streq(manifest(&m), "l srv 0777 0:0 var/srv\nd var/ 0755 0:0 \nd var/srv/ 0755 0:0 \nd var/srv/app/ 0755 0:0 \n");
}

TEST(progress_is_the_position_of_a_file) {
        _cleanup_image_ MadeImage m = make_image();
        _cleanup_close_ int out = temp_dir_open(&m.dir, "out", O_RDWR|O_CREAT), at = temp_dir_open(&m.dir, "at", O_RDWR|O_CREAT);
        _cleanup_(oci_image_done) OciImage i = {};

        ADD_LAYER(&m, NULL, MEMBER('f', "a", "a"));
        ADD_LAYER(&m, NULL, MEMBER('f', "b", "b"));
        assert_ok(load(&m, "{}", &i));
        assert_eq(i.bytes, m.sizes[0] + m.sizes[1]);
        assert_ok(oci_layout_open_layers(m.dir.fd, &i, &fault));
        assert_ok(oci_merge(&i, out, at, MIB(1), &fault));
        assert_eq(lseek(at, 0, SEEK_CUR), 2 * i.bytes);
}
