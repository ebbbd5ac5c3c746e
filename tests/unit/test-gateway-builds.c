/* SPDX-License-Identifier: Apache-2.0 */

/* Builds of templates, as clients ask for them: names, steps, logs, and the files of steps. */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "gateway/build-log.h"
#include "gateway/build-spec.h"
#include "gateway/bus-json.h"
#include "gateway/image-ref.h"
#include "gateway/uploads.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

#define HASH "abababababababababababababababababababababababababababababababab"
#define OTHER "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
#define THIRD "efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef"

static json_object *json(const char *text) {
        json_object *o = json_tokener_parse(text);

        assert_true(o);
        return o;
}

static const char names_text[] =
        "[[\"t1..mine:latest\",7,\"tone\"],[\"t1..mine:v1\",7,\"ttwo\"],"
        "[\"t1..mine:default\",7,\"tlast\"],[\"t1..mine:00000000-0000-4000-8000-000000000001\",7,\"tone\"],"
        "[\"t1..python:latest\",7,\"tthree\"],[\"python:latest\",0,\"thost\"],[\"python:3\",0,\"tolder\"],"
        "[\"t2..theirs:latest\",7,\"tfour\"],[\"private:latest\",8,\"tfive\"],[\"t1..forged:latest\",8,\"tsix\"]]";

static const char *find(json_object *names, const char *tenant, const char *text) {
        static TemplateFound f;
        TemplateRef ref;

        if (template_ref_parse(text, tenant, &ref) < 0)
                return "not a reference";
        return template_names_find(names, tenant, 7, &ref, &f) < 0 ? f.name_is_known ? "no such tag" : "" : f.cubed_id;
}

TEST(a_tenant_finds_his_own_then_the_hosts_and_nobody_elses) {
        char id[TEMPLATE_ID_SIZE], build[BUILD_ID_SIZE], text[64];
        json_object *names = json(names_text);

        assert_streq(find(names, "t1", "mine"), "tone");
        assert_streq(find(names, "t1", "mine:default"), "tone");
        assert_streq(find(names, "t1", "t1/mine:v1"), "ttwo");
        assert_streq(find(names, "t1", "mine:00000000-0000-4000-8000-000000000001"), "tone");
        assert_streq(find(names, "t1", "mine:v2"), "no such tag");
        assert_streq(find(names, "t1", "mine:latest"), "tlast");
        assert_streq(find(names, "t1", "python:latest"), "no such tag");
        assert_streq(find(names, "t2", "python:latest"), "thost");
        template_public_id("t1", "mine", id);
        assert_streq(find(names, "t1", id), "tone");
        (void) snprintf(text, sizeof(text), "%s:v1", id);
        assert_streq(find(names, "t1", text), "ttwo");
        assert_streq(find(names, "t1", "python"), "tthree");
        assert_streq(find(names, "t2", "python"), "thost");
        assert_streq(find(names, "t2", "python:3"), "tolder");
        assert_streq(find(names, "t2", "tolder"), "tolder");
        static const char *const hidden[] = { "mine", "t1..mine", "tone", "tfive", "private", "t1..forged", "tsix", "t2..theirs:x" };
        for (size_t i = 0; i < ELEMENTSOF(hidden); i++)
                assert_streq(find(names, "t2", hidden[i]), "");
        assert_streq(find(names, "t2", id), "");
        assert_streq(find(names, "t1", "forged"), "");
        template_names_build(names, "t1", 7, "tone", build);
        assert_streq(build, "00000000-0000-4000-8000-000000000001");
        template_names_build(names, "t2", 7, "tone", build);
        assert_streq(build, "");
        json_object_put(names);
}

/* E2B's default tag is "default", where "latest" is like any other; cubed's is "latest". */
TEST(tags_come_back_as_clients_said_them) {
        static const char *const tags[] = { DEFAULT_TAG, "latest", "v1" };
        char made[CUBED_NAME_MAX], entry[CUBED_NAME_MAX + 16];
        TemplateName n;

        template_cubed_name("t1", "mine", "", made);
        assert_streq(made, "t1..mine:latest");
        for (size_t i = 0; i < ELEMENTSOF(tags); i++) {
                assert_true(template_client_tag_valid(tags[i]));
                template_cubed_name("t1", "mine", tags[i], made);
                (void) snprintf(entry, sizeof(entry), "[\"%s\",7,\"tone\"]", made);
                json_object *o = json(entry);
                assert_true(template_name_parse(o, "t1", 7, &n) && n.own);
                assert_streq(n.tag, tags[i]);
                json_object_put(o);
        }
}

TEST(ids_are_of_tenant_and_name) {
        char a[TEMPLATE_ID_SIZE], b[TEMPLATE_ID_SIZE], id[BUILD_ID_SIZE];

        template_public_id("ab", "c", a);
        template_public_id("a", "bc", b);
        assert_true(!streq(a, b) && strlen(a) == 20);
        build_id_new(id);
        assert_true(build_id_valid(id) && id[14] == '4' && !build_id_valid("x") && !build_id_valid(""));
        assert_true(!template_client_tag_valid(id) && template_client_tag_valid("v1.2-x"));
}

static const char *image(const char *text) {
        static char ret[3 * TEMPLATE_REF_MAX];
        TemplateRef ref;

        if (image_template(text, &ref) < 0)
                return "";
        (void) snprintf(ret, sizeof(ret), "%s:%s%s", ref.name, ref.tag, ref.host ? "" : "not the host's");
        return ret;
}

TEST(an_image_is_a_template_of_the_host) {
        assert_streq(image("e2bdev/base"), "base:");
        assert_streq(image("e2bdev/base:latest"), "base:");
        assert_streq(image("python:3.12-slim"), "python:3.12-slim");
        assert_streq(image("docker.io/library/ubuntu:latest"), "ubuntu:");
        assert_streq(image("library/ubuntu"), "ubuntu:");
        static const char *const none[] = { "", "e2bdev/other", "e2bdev/base:v2", "ghcr.io/x/y", "localhost:5000/x", "x@sha256:00", "../x" };
        for (size_t i = 0; i < ELEMENTSOF(none); i++)
                assert_streq(image(none[i]), "");
}

static const char *ref(const char *text) {
        static ImageRef r;

        return image_ref_parse(text, &r) < 0 ? "" : r.name;
}

TEST(names_of_images_are_read_as_docker_reads_them) {
        char text[400];

        assert_streq(ref("python:3"), "docker.io/library/python:3");
        assert_streq(ref("ubuntu"), "docker.io/library/ubuntu:latest");
        assert_streq(ref("e2bdev/base"), "docker.io/e2bdev/base:latest");
        assert_streq(ref("docker.io/python:3"), "docker.io/library/python:3");
        assert_streq(ref("index.docker.io/library/python"), "docker.io/library/python:latest");
        assert_streq(ref("GHCR.io/a/b__c-d.e:V1"), "ghcr.io/a/b__c-d.e:V1");
        assert_streq(ref("localhost/a"), "localhost/a:latest");
        assert_streq(ref("registry:5000/a/b/c"), "registry:5000/a/b/c:latest");
        assert_streq(ref("10.1.2.3:5000/a"), "10.1.2.3:5000/a:latest");
        (void) snprintf(text, sizeof(text), "python:3@sha256:%s", HASH);
        assert_streq(ref(text), "docker.io/library/python@sha256:" HASH);
        static const char *const none[] = {
                "", "/", "a/", "/a", "a//b", "a:", "a:b:c", "a@", "a@sha256:00", "a@md5:" HASH, "A", "a/B", "a..b", "a___b", ".a", "a.", "-a",
                "--help", "a:-b", "a b", "a\nb", "a:b c", "x.y:0/a", "x.y:65536/a", "x.y:p/a", ".x/a", "x..y/a", "-x.y/a", "x.y-/a",
                "docker://a", "http://x.y/a", "u:p@x.y/a", "x.y/a?b", "x.y/../a", "[::1]:5000/a", "oci:a/b",
        };
        for (size_t i = 0; i < ELEMENTSOF(none); i++)
                assert_streq(ref(none[i]), "");
        memset(text, 'a', 300);
        text[300] = 0;
        assert_streq(ref(text), "");
        text[0] = ':';
        assert_streq(ref(text), "");
        memcpy(text, "a:", 2);
        assert_streq(ref(text), "");
}

TEST(registries_are_listed_by_name_or_domain) {
        static const char list[] = " docker.io registry.lan:5000  *.example.com ";

        assert_true(image_registry_listed(list, "docker.io") && image_registry_listed(list, "registry.lan:5000"));
        assert_true(image_registry_listed(list, "a.example.com") && image_registry_listed(list, "a.b.example.com"));
        static const char *const others[] = { "io", "docker.i", "xdocker.io", "docker.io:443", "registry.lan", "example.com",
                                              ".example.com.evil", "evilexample.com", "a.example.com:5000", "*", "" };
        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                assert_true(!image_registry_listed(list, others[i]) && !image_registry_listed("", others[i]));
        assert_true(image_registry_listed("x *", "anything:1") && !image_registry_listed("*.", "x"));
}

static const char *source(const char *text) {
        static char ret[BUILD_PATH_MAX];
        char body[512];
        ErrorText error;
        BuildSpec s;

        (void) snprintf(body, sizeof(body), "{\"fromTemplate\":\"b\",\"steps\":[{\"type\":\"COPY\",\"args\":[\"%s\",\"t\"],"
                        "\"filesHash\":\"" HASH "\"}]}", text);
        json_object *o = json(body);
        int r = build_spec_parse(o, &s, &error);
        (void) snprintf(ret, sizeof(ret), "%s", r < 0 ? error.text : s.steps[0].source);
        build_spec_done(&s);
        json_object_put(o);
        return ret;
}

TEST(what_a_pattern_stands_for_is_what_is_before_it) {
        assert_streq(source("a/b.txt"), "a/b.txt");
        assert_streq(source("./a//b/"), "a/b");
        assert_streq(source("a/x/../b"), "a/b");
        assert_streq(source("a/*.txt"), "a");
        assert_streq(source("*"), ".");
        assert_streq(source("."), ".");
        assert_streq(source("a/b[0-9]/c"), "a");
        assert_true(strstr(source("a/../../b"), "leads out"));
        assert_true(strstr(source("/etc"), "absolute"));
}

static const char *message(const BuildLog *l, size_t i) {
        return i < l->n ? l->entries[i].message : "";
}

TEST(a_log_is_lines_of_the_clients_steps) {
        static const char text[] = "early\r\n[step 1 of 4 (USER)]\nhidden\n[step 2 of 4 (RUN)]\nout\n[step 2 of 4 (RUN)] x\n"
                                   "[step 3 of 4 (COPY)]\n[step 4 of 4 (RUN)]\nhidden\n[all steps are done]\nserves\xff";
        BuildLog l = { .n_before = 1, .n_steps = 2 };
        char name[16];

        for (size_t i = 0; i < strlen(text); i++)
                build_log_feed(&l, text + i, 1, i);
        build_log_end(&l, 99);
        static const char *const wanted[] = { "early", "[1/2] RUN", "out", "[step 2 of 4 (RUN)] x", "[2/2] COPY", "serves?" };
        assert_eq(l.n, ELEMENTSOF(wanted));
        for (size_t i = 0; i < l.n; i++)
                assert_streq(message(&l, i), wanted[i]);
        json_object *page = build_log_to_json(&l, 0, 100, LOG_LEVEL_DEBUG);
        static const char *const steps[] = { "base", "1", "1", "1", "2", "finalize" };
        for (size_t i = 0; i < l.n; i++)
                assert_streq(info_string(json_object_array_get_idx(page, i), "step"), steps[i]);
        json_object_put(page);
        static const char *const of[] = { "base", "base", "1", "2", "finalize", "finalize" };
        for (unsigned i = 0; i < ELEMENTSOF(of); i++) {
                build_step_name(&l, i, name, sizeof(name));
                assert_streq(name, of[i]);
        }
        build_log_done(&l);
}

TEST(a_log_has_an_end_but_its_last_word) {
        BuildLog l = {};
        char line[4096];

        memset(line, 'x', sizeof(line) - 1);
        line[sizeof(line) - 1] = '\n';
        for (unsigned i = 0; i < 2000; i++)
                build_log_feed(&l, line, sizeof(line), i);
        assert_true(l.full && l.bytes < 3U * 1024U * 1024U);
        assert_streq(message(&l, l.n - 1), "The log is full, the rest is not shown");
        build_log_add(&l, LOG_LEVEL_ERROR, 1, "why");
        assert_streq(message(&l, l.n - 1), "why");
        build_log_done(&l);
}

/* Uploads. */

typedef struct Store {
        TempDir dir;
        int files_fd, builds_fd;
} Store;

static Store store_make(void) {
        Store s = { .dir = temp_dir_make() };

        assert_ok(uploads_open(s.dir.path, &s.files_fd, &s.builds_fd));
        return s;
}

static void store_done(Store *s) {
        close(s->files_fd);
        close(s->builds_fd);
        temp_dir_done(&s->dir);
}

static const UploadLimits limits = { .one_max = 1000, .all_max = 1500, .n_max = 2 };

static int upload(Store *s, const char *tenant, const char *hash, size_t size) {
        uint8_t data[2000] = { 0x1f, 0x8b, 8 };
        Upload *u = NULL;

        int r = upload_new(s->files_fd, tenant, hash, size, &limits, &u);
        if (r < 0)
                return r;
        for (size_t i = 0; i < size && r >= 0; i += 100)
                r = upload_write(u, data + i, MIN(size - i, 100U));
        if (r >= 0)
                r = upload_finish(u);
        upload_free(u);
        return r;
}

TEST(files_are_there_once_they_are_whole) {
        _cleanup_(store_done) Store s = store_make();
        Upload *u;

        assert_true(!uploads_have(s.files_fd, "t1", HASH));
        assert_ok(upload_new(s.files_fd, "t1", HASH, 10, &limits, &u));
        assert_ok(upload_write(u, "\x1f\x8b\x08", 3));
        assert_true(!uploads_have(s.files_fd, "t1", HASH));
        assert_eq(upload_finish(u), -ENODATA);
        assert_eq(upload_write(u, "12345678", 8), -EFBIG);
        assert_ok(upload_write(u, "1234567", 7));
        assert_ok(upload_finish(u));
        upload_free(u);
        assert_true(uploads_have(s.files_fd, "t1", HASH) && !uploads_have(s.files_fd, "t2", HASH));
}

TEST(what_is_given_up_leaves_nothing) {
        _cleanup_(store_done) Store s = store_make();
        Upload *u;

        assert_ok(upload_new(s.files_fd, "t1", HASH, 10, &limits, &u));
        upload_free(u);
        DIR *d = fdopendir(openat(s.files_fd, "t1", O_RDONLY|O_DIRECTORY|O_CLOEXEC));
        unsigned n = 0;
        while (readdir(d))
                n++;
        closedir(d);
        assert_eq(n, 2u);
}

TEST(the_oldest_makes_room) {
        _cleanup_(store_done) Store s = store_make();

        assert_ok(upload(&s, "t1", HASH, 900));
        const struct timespec past[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
        assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
        assert_ok(upload(&s, "t1", OTHER, 400));
        assert_true(uploads_have(s.files_fd, "t1", OTHER));
        assert_ok(upload(&s, "t2", HASH, 1000));
        assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
        assert_ok(upload(&s, "t1", OTHER, 1000));
        assert_true(!uploads_have(s.files_fd, "t1", HASH) && uploads_have(s.files_fd, "t1", OTHER) && uploads_have(s.files_fd, "t2", HASH));
        assert_eq(upload(&s, "t1", HASH, 1001), -EFBIG);
}

TEST(many_small_ones_make_room_too) {
        _cleanup_(store_done) Store s = store_make();
        const struct timespec past[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
        Upload *first, *second, *third;

        assert_ok(upload(&s, "t1", HASH, 3));
        assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
        assert_ok(upload(&s, "t1", OTHER, 3));
        assert_ok(upload(&s, "t1", THIRD, 3));
        assert_true(!uploads_have(s.files_fd, "t1", HASH) && uploads_have(s.files_fd, "t1", OTHER) && uploads_have(s.files_fd, "t1", THIRD));
        /* Those on their way stay. */
        assert_ok(upload_new(s.files_fd, "t1", HASH, 3, &limits, &first));
        assert_ok(upload_new(s.files_fd, "t1", HASH, 3, &limits, &second));
        assert_eq(upload_new(s.files_fd, "t1", HASH, 3, &limits, &third), -EDQUOT);
        upload_free(first);
        assert_ok(upload_new(s.files_fd, "t1", HASH, 3, &limits, &third));
        upload_free(second);
        upload_free(third);
}

/* How often a directory is listed. */
static unsigned n_listed;
DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);

DIR *__wrap_fdopendir(int fd) {
        n_listed++;
        return __real_fdopendir(fd);
}

/* The lower its number, the older it is, by nanoseconds among ten. */
static void make_one_of_many(Store *s, unsigned i) {
        const struct timespec at[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 + i / 10, .tv_nsec = i % 10 } };
        char path[80];

        (void) snprintf(path, sizeof(path), "t1/%064u", i * 7 % 200);
        int fd = openat(s->files_fd, path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600);
        assert_ok(fd);
        assert_ok(ftruncate(fd, 3));
        close(fd);
        assert_ok(utimensat(s->files_fd, path, at, 0));
}

TEST(many_old_ones_go_by_one_look_at_them) {
        static const UploadLimits many = { .one_max = 1000, .all_max = 1000, .n_max = 200 };
        _cleanup_(store_done) Store s = store_make();
        char hash[80];
        Upload *u;

        assert_ok(mkdirat(s.files_fd, "t1", 0700));
        for (unsigned i = 0; i < 200; i++)
                make_one_of_many(&s, i);
        n_listed = 0;
        assert_ok(upload_new(s.files_fd, "t1", HASH, 549, &many, &u));
        assert_eq(n_listed, 1u);
        upload_free(u);
        /* 450 bytes and more stay: the newest 150. */
        for (unsigned i = 0; i < 200; i++) {
                (void) snprintf(hash, sizeof(hash), "%064u", i * 7 % 200);
                assert_eq(uploads_have(s.files_fd, "t1", hash), i >= 50);
        }
}

TEST(nothing_goes_for_what_finds_no_room) {
        _cleanup_(store_done) Store s = store_make();
        Upload *first, *second;

        assert_ok(upload(&s, "t1", OTHER, 400));
        assert_ok(upload_new(s.files_fd, "t1", HASH, 1000, &limits, &first));
        assert_eq(upload_new(s.files_fd, "t1", THIRD, 600, &limits, &second), -EDQUOT);
        assert_true(uploads_have(s.files_fd, "t1", OTHER));
        upload_free(first);
}

TEST(what_builds_have_counts_until_they_end) {
        _cleanup_(store_done) Store s = store_make();
        int fd;

        assert_ok(upload(&s, "t1", HASH, 900));
        assert_ok(build_directory_make(s.builds_fd, "one", &fd));
        assert_ok(build_directory_add(fd, "1", s.files_fd, "t1", HASH));
        assert_eq(upload(&s, "t1", OTHER, 700), -EDQUOT);
        assert_ok(upload(&s, "t1", OTHER, 600));
        /* Others have room of their own, and his others make some. */
        assert_ok(upload(&s, "t2", OTHER, 700));
        assert_ok(upload(&s, "t1", THIRD, 600));
        assert_true(uploads_have(s.files_fd, "t1", HASH) && !uploads_have(s.files_fd, "t1", OTHER));
        close(fd);
        build_directory_remove(s.builds_fd, "one");
        assert_ok(upload(&s, "t1", OTHER, 700));
}

TEST(what_a_build_has_counts_when_it_was_sent_again) {
        _cleanup_(store_done) Store s = store_make();
        int fd;

        assert_ok(upload(&s, "t1", HASH, 600));
        assert_ok(build_directory_make(s.builds_fd, "one", &fd));
        assert_ok(build_directory_add(fd, "1", s.files_fd, "t1", HASH));
        assert_ok(upload(&s, "t1", HASH, 600));
        assert_eq(upload(&s, "t1", OTHER, 1000), -EDQUOT);
        close(fd);
        build_directory_remove(s.builds_fd, "one");
        assert_ok(upload(&s, "t1", OTHER, 1000));
}

TEST(a_build_keeps_its_files) {
        _cleanup_(store_done) Store s = store_make();
        struct stat st;
        int fd;

        assert_ok(upload(&s, "t1", HASH, 900));
        assert_ok(build_directory_make(s.builds_fd, "one", &fd));
        assert_ok(build_directory_add(fd, "1", s.files_fd, "t1", HASH));
        assert_eq(build_directory_add(fd, "2", s.files_fd, "t2", HASH), -ENOENT);
        assert_eq(build_directory_add(fd, "2", s.files_fd, "t1", "../t1/" HASH), -EINVAL);
        assert_ok(unlinkat(s.files_fd, "t1/" HASH, 0));
        assert_ok(fstatat(fd, "1", &st, 0));
        close(fd);
        build_directory_remove(s.builds_fd, "one");
        assert_eq(fstatat(s.builds_fd, "one", &st, 0), -1);
}

static const struct timespec past[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };

static bool is_there(int at_fd, const char *path) {
        return faccessat(at_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As the next gateway does. */
static void start_anew(Store *s) {
        close(s->files_fd);
        close(s->builds_fd);
        assert_ok(uploads_open(s->dir.path, &s->files_fd, &s->builds_fd));
}

TEST(what_is_old_goes_when_the_gateway_starts) {
        _cleanup_(store_done) Store s = store_make();

        assert_ok(upload(&s, "t1", HASH, 100));
        assert_ok(upload(&s, "t1", OTHER, 100));
        assert_ok(upload(&s, "t2", OTHER, 100));
        assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
        assert_ok(utimensat(s.files_fd, "t2/" OTHER, past, 0));
        start_anew(&s);
        assert_true(!is_there(s.files_fd, "t1/" HASH) && is_there(s.files_fd, "t1/" OTHER) && !is_there(s.files_fd, "t2"));
}

TEST(a_gateway_that_was_killed_leaves_nothing) {
        _cleanup_(store_done) Store s = store_make();
        Upload *u;
        int fd;

        assert_ok(upload_new(s.files_fd, "t1", HASH, 1000, &limits, &u));
        assert_ok(build_directory_make(s.builds_fd, "one", &fd));
        close(fd);
        start_anew(&s);
        assert_true(!is_there(s.builds_fd, "one") && !is_there(s.files_fd, "t1"));
        assert_ok(upload(&s, "t1", OTHER, 1000));
        upload_free(u);
}

TEST(what_cubed_goes_on_with_stays) {
        _cleanup_(store_done) Store s = store_make();
        int fd;

        assert_ok(upload(&s, "t1", HASH, 900));
        assert_ok(build_directory_make(s.builds_fd, "one", &fd));
        assert_ok(build_directory_add(fd, "1", s.files_fd, "t1", HASH));
        assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
        assert_ok(utimensat(s.builds_fd, "one", past, 0));
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        close(fd);
        start_anew(&s);
        assert_true(is_there(copy, "1"));
        assert_eq(upload(&s, "t1", OTHER, 1000), -EDQUOT);
        close(copy);
        start_anew(&s);
        assert_true(!is_there(s.builds_fd, "one") && !is_there(s.files_fd, "t1"));
}

TEST(what_is_old_goes_each_hour) {
        _cleanup_(store_done) Store s = store_make();
        sd_event_source *sweep;
        sd_event *event;
        uint64_t next;
        Upload *u;
        int on;

        assert_ok(sd_event_new(&event));
        assert_ok(uploads_sweep_hourly(event, s.files_fd, s.builds_fd, &sweep));
        assert_ok(upload_new(s.files_fd, "t1", THIRD, 10, &limits, &u));
        for (unsigned i = 0; i < 2; i++) {
                assert_ok(upload(&s, "t1", HASH, 100));
                assert_ok(utimensat(s.files_fd, "t1/" HASH, past, 0));
                assert_ok(sd_event_source_get_time(sweep, &next));
                assert_true(next > now_usec() + UINT64_C(50) * 60 * USEC_PER_SEC);
                assert_ok(sd_event_source_get_enabled(sweep, &on));
                assert_eq(on, SD_EVENT_ONESHOT);
                assert_ok(sd_event_source_set_time(sweep, 0));
                assert_ok(sd_event_run(event, UINT64_MAX));
                assert_true(!is_there(s.files_fd, "t1/" HASH));
        }
        /* One on its way is none of it. */
        assert_ok(upload_write(u, "\x1f\x8b\x08" "1234567", 10));
        assert_ok(upload_finish(u));
        upload_free(u);
        sd_event_source_disable_unref(sweep);
        sd_event_unref(event);
}
