/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>
#include <sys/xattr.h>

#include "build-lab.h"
#include "make-oci.h"

TEST(tar) {
        _cleanup_lab_ Lab lab;
        struct stat a, b;
        char path[256];
        uint8_t magic[4];
        int fd;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.cmdline = "debug";
        if (build_tar(&lab, &p, "root.tar") < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        Template *t = lab.template;
        assert_streq(t->name, "python");
        assert_streq(t->tag, "latest");
        assert_true(t->named);
        assert_streq(t->kernel.release, "6.1.0-test-amd64");
        assert_streq(t->cmdline, "debug");
        assert_streq(t->root_type, "squashfs");
        assert_true(lab.n_progress >= 6);
        assert_true(template_store_find(lab.store, 0, NULL, "python") == t);
        assert_eq(count_entries(&lab), 1);

        assert_ok(template_open_file(t, TEMPLATE_FILE_ROOT, &fd));
        assert_eq(pread(fd, magic, 4, 0), 4);
        close(fd);
        assert_true(memcmp(magic, "hsqs", 4) == 0);
        assert_ok(template_open_file(t, TEMPLATE_FILE_DISK, &fd));
        assert_eq(pread(fd, magic, 2, 1024 + 56), 2);
        assert_true(fstat(fd, &a) == 0);
        close(fd);
        assert_true(magic[0] == 0x53 && magic[1] == 0xef);
        assert_true((uint64_t) a.st_blocks * 512 < MIB(8));
        assert_eq(a.st_mode & 07777, 0400);
        assert_eq(a.st_uid, geteuid());

        /* The same again, by itself: another template with the same content, the same kernel file, and the name. */
        _cleanup_free_ char *first = strdup(t->id);
        p.no_cache = true;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *old = template_store_find(lab.store, 0, NULL, first);
        t = lab.template;
        assert_true(old != t && !old->named && t->named);
        /* But for the root image: mksquashfs 4.5 ignores -root-time= when it reads a tar. */
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++)
                assert_true(i == TEMPLATE_FILE_ROOT || streq(t->file_sha256[i], old->file_sha256[i]));
        (void) snprintf(path, sizeof(path), "store/%s/vmlinux", first);
        assert_true(fstatat(lab.dir.fd, path, &a, 0) == 0);
        (void) snprintf(path, sizeof(path), "store/%s/vmlinux", t->id);
        assert_true(fstatat(lab.dir.fd, path, &b, 0) == 0);
        assert_eq(a.st_ino, b.st_ino);
        assert_eq(a.st_nlink, 3);

        /* A new cubed finds both. */
        lab.store = template_store_free(lab.store);
        lab_load(&lab);
        assert_eq(lab.store->n_templates, 2);
        assert_eq(lab.store->n_warnings, 0);
        assert_true(!streq(template_store_find(lab.store, 0, NULL, "python")->id, first));
}

TEST(what_has_not_changed_is_not_built_again) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        const Template *first = lab.template;
        /* nor are tools run for it that make anything */
        lab.store->tools.mksquashfs = lab.store->tools.mkfs = "/bin/false";

        p.aliases = (char *[]) { (char *) "more:1", NULL };
        assert_ok(build_tar(&lab, &p, "root.tar"));
        assert_true(lab.template == first && lab.store->n_templates == 1);
        assert_true(template_store_find(lab.store, 0, NULL, "more:1") == first);
        assert_true(template_store_find(lab.store, 0, NULL, "python") == first && first->n_users == 0);
        assert_eq(count_entries(&lab), 1);

        /* under another name it is another template, of the same files, and neither goes with the other */
        p.aliases = NULL;
        p.name = "other";
        if (build_tar(&lab, &p, "root.tar") < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        assert_true(lab.template != first && lab.store->n_templates == 2);
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                struct stat a, b;
                char path[256];

                (void) snprintf(path, sizeof(path), "store/%s/%s", first->id, template_file_name((TemplateFile) i));
                assert_ok(fstatat(lab.dir.fd, path, &a, 0));
                (void) snprintf(path, sizeof(path), "store/%s/%s", lab.template->id, template_file_name((TemplateFile) i));
                assert_ok(fstatat(lab.dir.fd, path, &b, 0));
                assert_eq(a.st_ino, b.st_ino);
        }

        /* but for who wants it anew, or is somebody else */
        p.no_cache = true;
        assert_true(build_tar(&lab, &p, "root.tar") < 0 && strstr(lab.message, "root: false"));
        p.no_cache = false;
        p.tenant = "acme";
        assert_true(build_tar(&lab, &p, "root.tar") < 0 && strstr(lab.message, "root: false"));
}

/* What only looking for earlier builds can't do is no reason to fail. */
TEST(a_directory_that_has_no_hash_is_built_each_time) {
        _cleanup_lab_ Lab lab;
        char command[256];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        (void) snprintf(command, sizeof(command), "mkdir -p %s/r/$(printf 'd/%%.0s' $(seq 300))", lab.dir.path);
        FILE *f = popen(command, "re");
        assert_true(f && pclose(f) == 0);
        TemplateBuildParams p = lab_params(&lab);
        if (build_tar(&lab, &p, "r") < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        const Template *first = lab.template;
        assert_ok(build_tar(&lab, &p, "r"));
        assert_true(lab.template != first);
}

/* Else gc would take a template for one that has none. */
TEST(names_that_were_given_before_a_build_failed_are_known) {
        static const char script[] = "#!/bin/sh\n\"$(dirname \"$0\")/cube-image\" \"$@\" && [ \"$1\" != reuse ]\n";
        _cleanup_lab_ Lab lab;
        char path[128];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        const Template *first = lab.template;
        temp_dir_write(&lab.dir, "fails-late", script, strlen(script));
        (void) snprintf(path, sizeof(path), "%s/fails-late", lab.dir.path);
        assert_ok(chmod(path, 0755));
        lab.store->tools.cube_image = path;
        p.aliases = (char *[]) { (char *) "more:1", NULL };
        assert_true(build_tar(&lab, &p, "root.tar") < 0 && strstr(lab.message, "reuse: "));
        assert_true(template_store_find(lab.store, 0, NULL, "more:1") == first);
        assert_true(template_store_find(lab.store, 0, NULL, "python") == first);
}

static void check_failure(Lab *lab, TemplateBuildParams *p, const char *tar, const char *what) {
        int r = build_tar(lab, p, tar);

        printf("# %s\n", lab->message);
        assert_true(r < 0);
        assert_true(strstr(lab->message, what));
        assert_eq(count_entries(lab), 0);
        assert_eq(lab->store->n_templates, 0);
}

/* Nobody would see it, and nobody could take it away. */
TEST(what_can_not_be_loaded_once_it_is_committed_is_taken_away_with_its_names) {
        static const char script[] = "#!/bin/sh\nd=$(dirname \"$0\")\n\"$d/cube-image\" \"$@\" || exit\n"
                "if [ \"$1\" = commit ]; then rm -f \"$d/store/$3/template.json\" && echo no >\"$d/store/$3/template.json\"; fi\n";
        _cleanup_lab_ Lab lab;
        char path[128];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        temp_dir_write(&lab.dir, "damages", script, strlen(script));
        (void) snprintf(path, sizeof(path), "%s/damages", lab.dir.path);
        assert_ok(chmod(path, 0755));
        lab.store->tools.cube_image = path;
        p.aliases = (char *[]) { (char *) "more:1", NULL };
        check_failure(&lab, &p, "root.tar", "commit: loading the new template: ");
        assert_eq(count_names(&lab), 0);
        lab.store->tools.cube_image = lab.cube_image;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        assert_eq(count_names(&lab), 2);
}

/* And is replaced by what that build comes to. */
TEST(what_an_earlier_build_left_and_can_not_be_read_is_not_used) {
        char *one[] = { (char *) "one", NULL }, *two[] = { (char *) "two", NULL };
        TemplateStep step = { (char *) "RUN", one };
        const TemplateWarmSpec spec = { .steps = &step, .n_steps = 1 };
        _cleanup_lab_ Lab lab;
        char command[256];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.warm = &spec;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        (void) snprintf(command, sizeof(command), "cd %s/store/.layers && grep -q '\"state\":{}' ./*.json && "
                        "sed -i 's/\"state\":{}/\"state\":{\"cwd\":5}/' ./*.json", lab.dir.path);
        assert_eq(system(command), 0);
        step.args = two;
        if (build_tar(&lab, &p, "root.tar") < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        (void) snprintf(command, sizeof(command), "cd %s/store/.layers && grep -q '\"state\":{}' ./*.json", lab.dir.path);
        assert_eq(system(command), 0);
}

/* As whoever is told that it can't be used is told to. */
TEST(a_template_that_has_lost_something_is_built_again) {
        _cleanup_lab_ Lab lab;
        char path[256];
        int fd;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                assert_ok(build_tar(&lab, &p, "root.tar"));
                const Template *broken = lab.template;
                (void) snprintf(path, sizeof(path), "%s/store/%s/%s", lab.dir.path, broken->id, template_file_name((TemplateFile) i));
                assert_ok(truncate(path, 100));

                assert_ok(build_tar(&lab, &p, "root.tar"));
                assert_true(lab.template != broken);
                for (int j = 0; j < _TEMPLATE_FILE_MAX; j++) {
                        assert_ok(template_open_file(lab.template, (TemplateFile) j, &fd));
                        close(fd);
                }
        }
}

TEST(a_root_image_that_is_damaged_is_made_again) {
        _cleanup_lab_ Lab lab;
        char path[256];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        (void) snprintf(path, sizeof(path), "store/%s/root.img", lab.template->id);
        assert_ok(fchmodat(lab.dir.fd, path, 0600, 0));
        _cleanup_close_ int fd = temp_dir_open(&lab.dir, path, O_RDWR);
        assert_eq(pwrite(fd, "!", 1, 100), 1);
        fd = safe_close(fd);

        p.mem_bytes *= 2;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        (void) snprintf(path, sizeof(path), "store/%s/root.img", lab.template->id);
        fd = temp_dir_open(&lab.dir, path, O_RDONLY);
        char byte;
        assert_eq(pread(fd, &byte, 1, 100), 1);
        assert_true(byte != '!');
}

TEST(directory_and_image) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_true(fchmodat(lab.dir.fd, "r", 0755, 0) == 0 && chmod(lab.dir.path, 0755) == 0);
        p.rootfs_fd = temp_dir_open(&lab.dir, "r", O_RDONLY|O_DIRECTORY);
        if (build(&lab, &p) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        close(p.rootfs_fd);
        assert_streq(lab.template->root_type, "squashfs");

        Template *first = lab.template;
        assert_ok(template_open_file(first, TEMPLATE_FILE_ROOT, &p.rootfs_fd));
        p.tag = "image";
        if (build(&lab, &p) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        close(p.rootfs_fd);
        assert_streq(lab.template->file_sha256[TEMPLATE_FILE_ROOT], first->file_sha256[TEMPLATE_FILE_ROOT]);
        assert_true(template_store_find(lab.store, 0, NULL, "python:image") == lab.template);
}

/* What unsquashfs lists of the template's root image, beneath the root: "MODE OWNER/GROUP PATH", then " -> TARGET". */
static void list_root(const Lab *lab, char *ret, size_t size) {
        char command[512];

        (void) snprintf(command, sizeof(command), "unsquashfs -d '' -lln %s/store/%s/root.img | tail -n +2 | awk '{ $3=$4=$5=\"\"; print }' | "
                        "tr -s ' '", lab->dir.path, lab->template->id);
        FILE *f = popen(command, "re");
        assert(f);
        size_t n = fread(ret, 1, size - 1, f);
        ret[n] = 0;
        assert(pclose(f) == 0);
}

static void make_container_image(MadeImage *m) {
        static const MadeFile lower[] = {
                { 'd', "etc", .mode = 0750, .gid = 3 }, { 'f', "etc/old", "old" }, { 'f', "bin/su", "su", .mode = 04755 },
                { 'f', "bin/ping", "ping", .xattr = "user.caps=raw", .uid = 7 },
        };
        static const MadeFile upper[] = {
                { 'f', "etc/.wh.old", "" }, { 'h', "bin/su2", "bin/su" }, { 'l', "sbin", "bin" },
                { 'f', "sbin/new", "new", .uid = 70000, .gid = 8 },
        };
        const MadeLayer layers[] = { { lower, ELEMENTSOF(lower) }, { upper, ELEMENTSOF(upper) } };

        for (size_t i = 0; i < ELEMENTSOF(layers); i++)
                made_add_layer(m, &layers[i]);
        m->config = "{\"Env\":[\"PATH=/opt/bin\",\"A=b\"],\"User\":\"app:web\",\"WorkingDir\":\"/srv\"}";
        made_seal(m);
        assert_ok(chmod(m->dir.path, 0755));
}

/* An extended attribute of a file in the root image, where the file system that it is unpacked to has any. */
static void check_attribute(const Lab *lab, const char *file, const char *name, const char *value) {
        char command[512], path[256], text[64] = "";

        (void) snprintf(command, sizeof(command), "cd %s && unsquashfs -d unpacked -quiet -no-progress store/%s/root.img %s",
                        lab->dir.path, lab->template->id, file);
        FILE *f = popen(command, "re");
        assert(f && pclose(f) == 0);
        (void) snprintf(path, sizeof(path), "%s/unpacked/%s", lab->dir.path, file);
        if (setxattr(lab->agent, "user.test", "", 0, 0) < 0) {
                printf("# no extended attributes here: %s\n", strerror(errno));
                return;
        }
        assert_eq(lgetxattr(path, name, text, sizeof(text) - 1), strlen(value));
        assert_streq(text, value);
}

TEST(container_image) {
        _cleanup_image_ MadeImage m = make_image();
        _cleanup_lab_ Lab lab;
        char text[4096];

        lab_init(&lab);
        make_container_image(&m);
        TemplateBuildParams p = lab_params(&lab);
        p.image = "";
        p.rootfs_fd = m.dir.fd;
        if (build(&lab, &p) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", lab.message);
        assert_streq(lab.template->root_type, "squashfs");
        list_root(&lab, text, sizeof(text));
        assert_streq(text, "drwxr-xr-x 0/0 /bin\n-rw-r--r-- 70000/8 /bin/new\n-rw-r--r-- 7/0 /bin/ping\n"
                     "-rwsr-xr-x 0/0 /bin/su\n-rwsr-xr-x 0/0 /bin/su2\ndrwxr-x--- 0/3 /etc\nlrwxrwxrwx 0/0 /sbin -> bin\n"
                     "drwxr-xr-x 0/0 /srv\n");

        check_attribute(&lab, "bin/ping", "user.caps", "raw");

        /* How its programs are run is kept with it. */
        for (int i = 0; i < 2; i++) {
                const ExecDefaults *d = &template_store_find(lab.store, 0, NULL, "python")->defaults;

                assert_streq(d->env[0], "PATH=/opt/bin");
                assert_streq(d->env[1], "A=b");
                assert_true(!d->env[2]);
                assert_streq(d->user, "app:web");
                assert_streq(d->cwd, "/srv");
                lab.store = template_store_free(lab.store);
                lab_load(&lab);
        }
}

TEST(container_images_that_are_refused) {
        static const MadeFile out = { 'f', "../../../../tmp/escaped", "x" };
        _cleanup_image_ MadeImage m = make_image(), hostile = make_image();
        _cleanup_lab_ Lab lab;
        char path[128];

        lab_init(&lab);
        make_container_image(&m);
        TemplateBuildParams p = lab_params(&lab);
        p.rootfs_fd = m.dir.fd;
        p.image = "nightly";
        assert_true(build(&lab, &p) < 0);
        assert_true(strstr(lab.message, "rootfs: cube-image: there is no image named \"nightly\""));

        p.image = "";
        made_blob_path(m.digests[1], path);
        temp_dir_write(&m.dir, path, "x", 1);
        assert_true(build(&lab, &p) < 0);
        assert_true(strstr(lab.message, "root: cube-image: layer 2 of 2: wrong checksum"));

        temp_dir_done(&m.dir);
        m = make_image();
        make_container_image(&m);
        strcpy(m.diff_ids[1], m.diff_ids[0]);
        made_seal(&m);
        p.rootfs_fd = m.dir.fd;
        assert_true(build(&lab, &p) < 0);
        assert_true(strstr(lab.message, "root: cube-image: layer 2 of 2: wrong checksum: unpacked it is "));

        made_add_layer(&hostile, &(MadeLayer) { &out, 1 });
        made_seal(&hostile);
        assert_ok(chmod(hostile.dir.path, 0755));
        p.rootfs_fd = hostile.dir.fd;
        assert_true(build(&lab, &p) < 0);
        assert_true(strstr(lab.message, "root: cube-image: layer 1 of 1: \"../../../../tmp/escaped\" leads out of the root"));
        assert_eq(count_entries(&lab), 0);
        assert_eq(access("/tmp/escaped", F_OK), -1);
}

TEST(stream) {
        _cleanup_lab_ Lab lab;
        int fds[2];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_true(pipe2(fds, O_CLOEXEC) == 0);
        int in = temp_dir_open(&lab.dir, "root.tar", O_RDONLY);
        char buffer[65536];
        ssize_t n = read(in, buffer, sizeof(buffer));
        assert_true(n > 0 && n < 65536);
        assert_ok(write_full(fds[1], buffer, (size_t) n));
        close(in);
        close(fds[1]);
        p.rootfs_fd = fds[0];
        assert_ok(build(&lab, &p));
        close(fds[0]);
}

/* Each failing step names itself and leaves nothing. */
TEST(failures) {
        _cleanup_lab_ Lab lab;
        MadeAgent agent = make_agent();

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        temp_dir_write(&lab.dir, "text", "this is nothing of use", 22);
        temp_dir_write(&lab.dir, "empty", "", 0);

        TemplateBuildParams p = lab_params(&lab);
        check_failure(&lab, &p, "empty", "rootfs: cube-image: the root file system is an empty file");
        check_failure(&lab, &p, "text", "root: cube-image: reading the tar");

        p.kernel_fd = temp_dir_open(&lab.dir, "text", O_RDONLY);
        check_failure(&lab, &p, "root.tar", "kernel: cube-image: not a kernel");
        close(p.kernel_fd);
        p.kernel_fd = -EBADF;

        p.kernel_path = "/nonexistent";
        check_failure(&lab, &p, "root.tar", "/nonexistent: No such file");
        p.kernel_path = NULL;

        p.kernel_name = "small";
        check_failure(&lab, &p, "root.tar", "the small kernel is not installed");
        p.kernel_name = NULL;

        p.mem_bytes = MIB(16);
        check_failure(&lab, &p, "root.tar", "initramfs: 16M of memory are not enough: kernel 6.1.0-test-amd64 needs");
        p.mem_bytes = MIB(512);

        p.no_modules = false;
        check_failure(&lab, &p, "root.tar", "initramfs: the modules of kernel 6.1.0-test-amd64 are not there");
        p.no_modules = true;

        temp_dir_write(&lab.dir, "agent", "#!", 2);
        check_failure(&lab, &p, "root.tar", "initramfs: cube-image: the agent is no ELF program");
        temp_dir_write(&lab.dir, "agent", &agent, sizeof(agent));

        p.root_max_bytes = 2;
        check_failure(&lab, &p, "root.tar", "root: cube-image: the root file system unpacks to more than 2 bytes");
        p.root_max_bytes = 0;

        lab.store->tools.mkfs = "/bin/false";
        check_failure(&lab, &p, "root.tar", "disk: false: exit status 1");
        lab.store->tools.mkfs = "/usr/sbin/mkfs.ext4";

        assert_ok(build_tar(&lab, &p, "root.tar"));
}

static char *setup[] = { (char *) "make install", NULL };

/* What is too long to be read again with the template. */
static void check_places(Lab *lab) {
        char path[2048], user[257];
        char *args[] = { path, NULL }, *root[] = { (char *) "/", NULL };
        TemplateStep steps[] = { { (char *) "WORKDIR", args }, { (char *) "WORKDIR", args }, { (char *) "WORKDIR", root } };
        Template base = { .defaults = { .cwd = path } };
        TemplateBuildParams p = lab_params(lab);

        memset(path, 'd', sizeof(path) - 1);
        memset(user, 'u', sizeof(user) - 1);
        path[sizeof(path) - 1] = user[sizeof(user) - 1] = 0;
        p.warm = &(TemplateWarmSpec) { .steps = steps, .n_steps = ELEMENTSOF(steps), .cwd = (char *) "/x" };
        check_failure(lab, &p, "root.tar", "the working directory that the steps come to is too long");
        path[0] = '/';
        p = lab_params(lab), p.warm = &(TemplateWarmSpec) { .steps = steps, .n_steps = 1, .user = user };
        check_failure(lab, &p, "root.tar", "the name of the user is too long");
        steps[0].args = steps[1].args = (char *[]) { path + 1, NULL };
        p = lab_params(lab), p.warm = &(TemplateWarmSpec) { .steps = steps, .n_steps = 2 }, p.rootfs_fd = STDIN_FILENO;
        assert_true(!template_build_params_fault(&p));
        p.rootfs_fd = -EBADF;
        p.base = &base;
        assert_true(strstr(template_build_params_fault(&p), "directory that the steps come to is too long"));
}

TEST(bad_params) {
        _cleanup_lab_ Lab lab;
        TemplateBuildParams p;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        p = lab_params(&lab), p.name = "../x";
        check_failure(&lab, &p, "root.tar", "name");
        p = lab_params(&lab), p.tag = "";
        check_failure(&lab, &p, "root.tar", "tag");
        p = lab_params(&lab), p.cpus = 17;
        check_failure(&lab, &p, "root.tar", "CPUs");
        p = lab_params(&lab), p.mem_bytes = 0;
        check_failure(&lab, &p, "root.tar", "memory");
        p = lab_params(&lab), p.disk_bytes = MIB(64) + 1;
        check_failure(&lab, &p, "root.tar", "disk");
        p = lab_params(&lab), p.cmdline = "a\nb";
        check_failure(&lab, &p, "root.tar", "command line");
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .setup = (char *[]) { (char *) "", NULL } };
        check_failure(&lab, &p, "root.tar", "setup command is empty");
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .cwd = (char *) "srv" };
        check_failure(&lab, &p, "root.tar", "absolute");
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .env = (char *[]) { (char *) "SECRET", NULL } };
        check_failure(&lab, &p, "root.tar", "environment");
        assert_true(!strstr(lab.message, "SECRET"));
        static const char *const targets[] = { "srv", "/", "/srv/", "" };
        for (size_t i = 0; i < ELEMENTSOF(targets); i++) {
                TemplateCopy copy = { lab.dir.fd, targets[i] };
                p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .copies = &copy, .n_copies = 1 };
                check_failure(&lab, &p, "root.tar", "has to be an absolute path");
        }
        TemplateCopy copies[TEMPLATE_COPIES_MAX + 1] = {};
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .copies = copies, .n_copies = ELEMENTSOF(copies) };
        check_failure(&lab, &p, "root.tar", "too much to copy");
        TemplateStep step = { (char *) "RUN", (char *[]) { (char *) "", NULL } };
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .steps = &step, .n_steps = 1 };
        check_failure(&lab, &p, "root.tar", "command of a RUN is empty");
        p = lab_params(&lab), p.warm = &(TemplateWarmSpec) { .steps = &step, .n_steps = 1, .setup = setup };
        check_failure(&lab, &p, "root.tar", "setup commands and steps don't go together");
        check_places(&lab);
        p = lab_params(&lab), p.kernel_name = "tiny";
        check_failure(&lab, &p, "root.tar", "by name there are the kernels small and stock");
        p = lab_params(&lab), p.kernel_name = "stock", p.kernel_fd = STDIN_FILENO;
        check_failure(&lab, &p, "root.tar", "by name or as a file, not both");
        p = lab_params(&lab), p.kernel_name = "small", p.modules_fd = STDIN_FILENO;
        check_failure(&lab, &p, "root.tar", "takes no modules");
        p = lab_params(&lab);
        assert_eq(build(&lab, &p), -EINVAL);
        lab.store->tools.boot_dir = lab.modules;
        check_failure(&lab, &p, "root.tar", "linux-image-cloud-amd64");
}

TEST(cancel) {
        static const char *const steps[] = { "looking", "kernel", "initramfs", "root image", "disk", "writing", "naming" };
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        for (size_t i = 1; i < ELEMENTSOF(steps); i++) {
                TemplateBuildParams p = lab_params(&lab);

                lab.cancel_at = steps[i];
                assert_eq(build_tar(&lab, &p, "root.tar"), -ECANCELED);
                assert_eq(count_entries(&lab), 0);
        }
}

/* A tool that hangs: cancelled while it runs, and by the time-out. */
TEST(hanging_tool) {
        _cleanup_lab_ Lab lab;
        char *message = NULL;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        (void) snprintf(lab.slow, sizeof(lab.slow), "%s/slow", lab.dir.path);
        temp_dir_write(&lab.dir, "slow", "#!/bin/sh\nsleep 1000 & sleep 1000\n", 34);
        assert_true(chmod(lab.slow, 0755) == 0 && chmod(lab.dir.path, 0755) == 0);
        lab.store->tools.mkfs = lab.slow;

        TemplateBuildParams p = lab_params(&lab);
        /* The tools before it have as long, and may need longer. */
        int r;
        p.step_timeout_usec = USEC_PER_SEC;
        do {
                p.step_timeout_usec *= 2;
                r = build_tar(&lab, &p, "root.tar");
        } while (r < 0 && !startswith(lab.message, "disk:") && strstr(lab.message, "took too long"));
        assert_true(r < 0);
        assert_streq(lab.message, "disk: slow: took too long");
        assert_eq(count_entries(&lab), 0);
        assert_eq(lab.store->n_templates, 0);

        p.step_timeout_usec = 0;
        p.rootfs_fd = temp_dir_open(&lab.dir, "root.tar", O_RDONLY);
        lab.done = false;
        lab.percent = 0;
        assert_ok(template_build_start(lab.event, lab.store, &p, &callbacks, &lab, &lab.build, &message));
        while (lab.percent < 55)
                assert_ok(sd_event_run(lab.event, USEC_PER_SEC));
        template_build_cancel(lab.build);
        while (!lab.done)
                assert_ok(sd_event_run(lab.event, USEC_PER_SEC));
        close(p.rootfs_fd);
        assert_eq(lab.r, -ECANCELED);
        assert_streq(lab.message, "disk: cancelled");
        assert_eq(count_entries(&lab), 0);
        assert_eq(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(a_guest_is_warmed_before_the_template_gets_its_name) {
        _cleanup_lab_ Lab lab;
        const TemplateWarmSpec spec = { .setup = setup };

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.warm = &spec;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        assert_true(lab.warm && !lab.name_was_there && !lab.warm_canceled);
        assert_true(template_store_find(lab.store, 0, NULL, "python") == lab.template);
        assert_eq(count_entries(&lab), 1);
}

TEST(a_guest_that_fails_fails_the_build) {
        _cleanup_lab_ Lab lab;
        const TemplateWarmSpec spec = { .setup = setup };

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.warm = &spec;
        lab.warm_result = -EIO;
        check_failure(&lab, &p, "root.tar", "warm: the guest said no");
}

TEST(a_cancel_reaches_the_guest) {
        _cleanup_lab_ Lab lab;
        const TemplateWarmSpec spec = { .setup = setup };

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.warm = &spec;
        lab.cancel_at = "warming";
        assert_eq(build_tar(&lab, &p, "root.tar"), -ECANCELED);
        assert_true(lab.warm_canceled);
        assert_streq(lab.message, "warm: cancelled");
        assert_eq(count_entries(&lab), 0);
}

static void on_removed_base(TemplateStore *s, const char *id, int r, const char *message, void *userdata) {
        Lab *lab = userdata;

        assert(r == 0);
        lab->warm_canceled = true;
}

static int open_file(const Template *t, TemplateFile file, struct stat *ret) {
        int fd;

        assert_ok(template_open_file(t, file, &fd));
        assert_ok(fstat(fd, ret));
        return fd;
}

static void assert_files_shared(const Template *a, const Template *b) {
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                struct stat x, y;

                safe_close(open_file(a, (TemplateFile) i, &x));
                safe_close(open_file(b, (TemplateFile) i, &y));
                assert_eq(x.st_ino == y.st_ino, i != TEMPLATE_FILE_DISK);
                assert_eq(x.st_size, y.st_size);
        }
}

TEST(a_template_stands_on_another_one) {
        _cleanup_lab_ Lab lab;
        char *user[] = { (char *) "app", NULL }, *dir[] = { (char *) "/srv", NULL }, *sub[] = { (char *) "data", NULL },
             *env[] = { (char *) "A", (char *) "1", NULL };
        TemplateStep steps[] = {
                { (char *) "USER", user }, { (char *) "WORKDIR", dir }, { (char *) "ENV", env }, { (char *) "WORKDIR", sub },
        };
        const TemplateWarmSpec spec = { .steps = steps, .n_steps = ELEMENTSOF(steps) };
        char block[4096], path[256];
        struct stat st;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *base = lab.template;

        /* What its guest would have written. */
        temp_dir_write(&lab.dir, "layer", "", 0);
        _cleanup_close_ int layer = temp_dir_open(&lab.dir, "layer", O_RDWR);
        memset(block, 'x', sizeof(block));
        assert_ok(ftruncate(layer, (off_t) base->disk_bytes));
        assert_eq(pwrite(layer, block, sizeof(block), MIB(40)), (ssize_t) sizeof(block));

        p = lab_params(&lab);
        p.name = "derived";
        p.base = base;
        p.base_layer_fds[p.n_base_layers++] = layer;
        p.warm = &spec;
        assert_ok(build(&lab, &p));
        assert_files_shared(base, lab.template);
        assert_true(streq(lab.template->defaults.user, "app") && streq(lab.template->defaults.cwd, "/srv/data"));
        assert_true(!lab.template->defaults.env || !lab.template->defaults.env[0]);

        _cleanup_close_ int disk = open_file(lab.template, TEMPLATE_FILE_DISK, &st), base_disk = open_file(base, TEMPLATE_FILE_DISK, &st);
        char there[4096], super[2][4096];
        assert_eq(pread(disk, there, sizeof(there), MIB(40)), (ssize_t) sizeof(there));
        assert_eq(memcmp(there, block, sizeof(block)), 0);
        assert_true(pread(disk, super[0], 4096, 0) == 4096 && pread(base_disk, super[1], 4096, 0) == 4096);
        assert_eq(memcmp(super[0], super[1], 4096), 0);
        (void) snprintf(path, sizeof(path), "%s/store/%s/.shared", lab.dir.path, lab.template->id);
        assert_true(access(path, F_OK) < 0 && errno == ENOENT);

        /* And goes on without it. */
        assert_ok(template_store_remove(lab.event, base, on_removed_base, &lab));
        while (!lab.warm_canceled)
                assert_ok(sd_event_run(lab.event, 60 * USEC_PER_SEC));
        safe_close(open_file(lab.template, TEMPLATE_FILE_ROOT, &st));
        /* And where it is kept for all that have it. */
        assert_eq(st.st_nlink, 2);
}

TEST(a_build_on_another_template_that_fails_leaves_that_as_it_was) {
        _cleanup_lab_ Lab lab;
        const TemplateWarmSpec spec = { .setup = setup };
        struct stat st;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *base = lab.template;

        p = lab_params(&lab);
        p.name = "derived";
        p.base = base;
        p.warm = &spec;
        lab.warm_result = -EIO;
        assert_eq(build(&lab, &p), -EIO);
        assert_eq(count_entries(&lab), 1);
        safe_close(open_file(base, TEMPLATE_FILE_ROOT, &st));
        /* And where it is kept for all that have it. */
        assert_eq(st.st_nlink, 2);
}

TEST(a_build_has_a_time_limit) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.timeout_usec = 1;
        check_failure(&lab, &p, "root.tar", "the build took longer than it may");
}

/* Somebody kept a descriptor for writing: the template is not taken. */
TEST(writer_left_behind) {
        _cleanup_lab_ Lab lab;
        char script[512];

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        (void) snprintf(lab.slow, sizeof(lab.slow), "%s/slow", lab.dir.path);
        /* leaves its process group, as a program that was taken over would, and stays for as long as the test is there */
        (void) snprintf(script, sizeof(script), "#!/bin/sh\n/usr/sbin/mkfs.ext4 \"$@\" || exit 1\n"
                        "setsid sh -c 'while [ -e \"$0\" ]; do sleep 1; done' \"$0\" >/dev/null 2>&1 &\n");
        temp_dir_write(&lab.dir, "slow", script, strlen(script));
        assert_true(chmod(lab.slow, 0755) == 0 && chmod(lab.dir.path, 0755) == 0);
        lab.store->tools.mkfs = lab.slow;
        TemplateBuildParams p = lab_params(&lab);
        check_failure(&lab, &p, "root.tar", "seal: cube-image: disk.img: something that a tool left behind");
}

TEST(default_kernel) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char *path = NULL, expected[256];

        assert_eq(template_default_kernel(d.path, &path), -ENOENT);
        temp_dir_write(&d, "vmlinuz-6.12.9-amd64", "", 0);
        assert_ok(template_default_kernel(d.path, &path));
        free(path);
        temp_dir_write(&d, "vmlinuz-6.1.0-9-cloud-amd64", "", 0);
        temp_dir_write(&d, "vmlinuz-6.1.0-57-cloud-amd64", "", 0);
        temp_dir_write(&d, "initrd.img-6.99.0-57-cloud-amd64", "", 0);
        assert_ok(template_default_kernel(d.path, &path));
        (void) snprintf(expected, sizeof(expected), "%s/vmlinuz-6.1.0-57-cloud-amd64", d.path);
        assert_streq(path, expected);
        free(path);
}
