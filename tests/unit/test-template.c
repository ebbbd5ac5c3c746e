/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/resource.h>

#include "daemon/template-private.h"
#include "make-template.h"
#include "test.h"

#define ONE "aaaaaaaaaaaaaaa1"
#define TWO "aaaaaaaaaaaaaaa2"
#define THREE "aaaaaaaaaaaaaaa3"

TEST(load) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        Template *t;
        int fd;

        make_template(&d, ONE, "python", 0);
        make_template_name(&d, 0, "python:latest", ONE);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_warnings, 0);
        assert_eq(s->n_templates, 1);
        t = s->templates[0];
        assert_streq(t->id, ONE);
        assert_streq(t->name, "python");
        assert_true(t->named);
        assert_streq(t->kernel.release, "6.1.0-test");
        assert_eq(t->kernel.n_segments, 1);
        assert_streq(t->cmdline, "a=b");
        assert_eq(t->mem_bytes, MIB(512));
        assert_eq(t->cpus, 2);
        assert_eq(t->file_bytes[TEMPLATE_FILE_DISK], MIB(64));
        assert_streq(t->file_sha256[TEMPLATE_FILE_ROOT], MADE_SUM);
        assert_true(template_floor(t) > MIB(36) && template_floor(t) < MIB(64));

        assert_ok(template_open_file(t, TEMPLATE_FILE_ROOT, &fd));
        close(fd);
        make_template_file(&d, ONE, "root.img", 8192);
        assert_eq(template_open_file(t, TEMPLATE_FILE_ROOT, &fd), -ESTALE);
}

TEST(names_that_can_not_be_read_stay_as_they_were) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        struct rlimit before, limit;

        make_template(&d, ONE, "python", 0);
        make_template_name(&d, 0, "python:latest", ONE);
        make_template_name(&d, 0, "other:1", ONE);
        assert_ok(template_store_load(&s, d.path));
        assert_true(s->templates[0]->named && s->templates[0]->aliases);
        s->templates[0]->renamed = false;

        /* names/ is found, names/0 is not. */
        int fd = open("/dev/null", O_RDONLY|O_CLOEXEC);
        assert_true(fd >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
        limit = (struct rlimit) { (rlim_t) fd + 1, before.rlim_max };
        close(fd);
        assert_true(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        int r = template_names_settle(s);
        assert_true(setrlimit(RLIMIT_NOFILE, &before) == 0);

        assert_eq(r, -EMFILE);
        assert_eq(s->n_warnings, 0);
        assert_true(s->templates[0]->named);
        assert_streq(s->templates[0]->aliases[0], "other:1");
        assert_true(!s->templates[0]->renamed);
        assert_ok(template_names_settle(s));
        assert_true(s->templates[0]->named);
}

TEST(what_could_not_be_added_is_not_there) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        Template *t = NULL;

        assert_ok(template_store_load(&s, d.path));
        make_template(&d, ONE, "python", 0);
        temp_dir_write(&d, "names", "", 0);
        assert_eq(template_store_add(s, ONE, &t), -ENOTDIR);
        assert_true(!t && s->n_templates == 0 && !template_store_find_id(s, ONE));
}

TEST(new_store) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/new", d.path);
        assert_ok(template_store_load(&s, path));
        assert_eq(s->n_templates, 0);
        assert_true(!template_store_find(s, 0, NULL, "python"));
        (void) snprintf(path, sizeof(path), "%s/no/where", d.path);
        TemplateStore *other = NULL;
        assert_eq(template_store_load(&other, path), -ENOENT);
        assert_true(!other);
}

TEST(find) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;

        make_template(&d, ONE, "python", 0);
        make_template(&d, TWO, "python", 1000);
        make_template(&d, THREE, "python", 0);
        make_template_name(&d, 0, "python:latest", ONE);
        make_template_name(&d, 1000, "python:latest", TWO);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_templates, 3);

        assert_streq(template_store_find(s, 0, NULL, "python")->id, ONE);
        assert_streq(template_store_find(s, 0, NULL, "python:latest")->id, ONE);
        /* one's own first, root's for everybody else, and nobody else's by name */
        assert_streq(template_store_find(s, 1000, NULL, "python")->id, TWO);
        assert_streq(template_store_find(s, 1001, NULL, "python")->id, ONE);
        assert_streq(template_store_find(s, 1001, NULL, THREE)->id, THREE);
        assert_true(!template_store_find(s, 0, NULL, "python:1"));
        assert_true(!template_store_find(s, 0, NULL, "python:latest:x"));
        assert_true(!template_store_find(s, 0, NULL, "../python"));
        assert_true(!template_store_find(s, 0, NULL, ""));
        assert_true(!s->templates[0]->named || !s->templates[1]->named || !s->templates[2]->named);

        /* the name moves */
        Template *t;
        make_template(&d, "bbbbbbbbbbbbbbbb", "python", 0);
        make_template_name(&d, 0, "python:latest", "bbbbbbbbbbbbbbbb");
        assert_ok(template_store_add(s, "bbbbbbbbbbbbbbbb", &t));
        assert_streq(template_store_find(s, 0, NULL, "python")->id, "bbbbbbbbbbbbbbbb");
        assert_true(!template_store_find(s, 0, NULL, ONE)->named);
        assert_eq(template_store_add(s, ONE, &t), -EEXIST);
}

TEST(bad_names) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;

        make_template(&d, ONE, "python", 0);
        make_template_name(&d, 0, "python:latest", "../../etc");
        make_template_name(&d, 0, "other", ONE);
        make_template_name(&d, 7, "python:latest", ONE);
        assert_true(mkdirat(d.fd, "names/bob", 0755) == 0);
        assert_true(mkdirat(d.fd, "names/0/x:y", 0755) == 0);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_warnings, 5);
        assert_true(!s->templates[0]->named);
        assert_true(!template_store_find(s, 7, NULL, "python"));
}

TEST(aliases) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;

        make_template(&d, ONE, "python", 0);
        make_template(&d, TWO, "python", 1000);
        make_template_name(&d, 0, "stable:1", ONE);
        make_template_name(&d, 0, "interpreter:latest", ONE);
        make_template_name(&d, 1000, "python:latest", TWO);
        make_template_name(&d, 1000, "stable:1", TWO);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_warnings, 0);

        /* its own name stands for nothing, the others for it */
        Template *one = template_store_find_id(s, ONE);
        assert_true(!one->named && !template_store_find_name(s, 0, NULL, "python", "latest"));
        assert_streq(one->aliases[0], "interpreter:latest");
        assert_streq(one->aliases[1], "stable:1");
        assert_true(!one->aliases[2]);
        assert_true(template_store_find(s, 0, NULL, "interpreter") == one);
        assert_true(template_store_find(s, 0, NULL, "stable:1") == one);
        assert_true(!template_store_find(s, 0, NULL, "stable"));
        /* one's own go before root's, as with names */
        assert_streq(template_store_find(s, 1000, NULL, "stable:1")->id, TWO);
        assert_true(template_store_find(s, 1000, NULL, "interpreter") == one);

        /* moved by another: told of both, and of nobody else */
        Template *three;
        for (size_t i = 0; i < s->n_templates; i++)
                s->templates[i]->renamed = false;
        make_template(&d, THREE, "new", 0);
        make_template_name(&d, 0, "stable:1", THREE);
        assert_ok(template_store_add(s, THREE, &three));
        assert_true(three->renamed && one->renamed && !template_store_find_id(s, TWO)->renamed);
        assert_true(template_store_find(s, 0, NULL, "stable:1") == three && !one->aliases[1]);
}

/* Loads a store whose one template has this in place of that. */
static bool loads_with(const char *that, const char *this) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        char json[4096], changed[8192];
        const char *at;

        make_template(&d, ONE, "python", 0);
        (void) snprintf(json, sizeof(json), MADE_TEMPLATE_JSON, ONE, "python", 0U);
        at = strstr(json, that);
        assert(at);
        (void) snprintf(changed, sizeof(changed), "%.*s%s%s", (int) (at - json), json, this, at + strlen(that));
        make_template_json(&d, ONE, changed);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_templates + s->n_warnings, 1);
        return s->n_templates == 1;
}

TEST(strict) {
        assert_true(loads_with("\"cpus\":2", "\"cpus\": 3"));
        assert_true(loads_with("\"cpus\":2", "\"cpus\":2,\"tenant\":\"acme\""));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":2,\"tenant\":\"a/b\""));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":2,\"tenant\":\"\""));
        assert_true(!loads_with("\"version\":1", "\"version\":2"));
        assert_true(!loads_with("\"version\":1,", ""));
        assert_true(!loads_with("\"version\":1", "\"version\":\"1\""));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":17"));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":0"));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":-1"));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":2.5"));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":18446744073709551617"));
        assert_true(!loads_with("\"cpus\":2", "\"cpus\":2,\"colour\":\"red\""));
        assert_true(!loads_with("\"mem_bytes\":536870912", "\"mem_bytes\":1099511627776"));
        assert_true(!loads_with("\"name\":\"python\"", "\"name\":\"../x\""));
        assert_true(!loads_with("\"id\":\"" ONE, "\"id\":\"" TWO));
        assert_true(!loads_with("\"gpa\":16777216", "\"gpa\":4096"));
        assert_true(!loads_with("6.1.0-test", "6.1/../.."));
        assert_true(!loads_with("a=b", "a=b\\u0000c"));
        assert_true(!loads_with("a=b", "a=b\\nc"));
        assert_true(!loads_with(MADE_SUM, "abc"));
        assert_true(!loads_with("\"root.img\"", "\"boot.img\""));
        assert_true(!loads_with("\"bytes\":4096", "\"bytes\":4097"));
        assert_true(!loads_with("\"root_type\":\"squashfs\"", "\"root_type\":\"zip\""));
        assert_true(!loads_with("\"disk_bytes\":67108864", "\"disk_bytes\":67108865"));
        assert_true(!loads_with("{\"version\"", "[{\"version\""));
        assert_true(!loads_with("}}}", "}}}}"));
        assert_true(!loads_with("}}}", "}}"));
        assert_true(loads_with("}}}", "}}}\n \t\n"));
        assert_true(!loads_with("\"kernel\":{", "\"kernel\":{\"a\":[[[[[[[[[[[[[[]]]]]]]]]]]]]],"));
}

TEST(what_a_build_had_started_is_kept) {
        static const char cpus[] = "\"cpus\":2", start[] = "\"cpus\":2,\"start\":{\"command\":\"a\\nb\",\"ready\":\"c\",\"ready_timeout_usec\":7}";
        char text[4096], made[4096];
        Template *t = NULL, *again = NULL;
        const char *reason;

        assert_true(loads_with(cpus, start));
        assert_true(loads_with(cpus, "\"cpus\":2,\"start\":{\"command\":\"a\",\"ready_timeout_usec\":0}"));
        static const char *const wrong[] = {
                "{}", "\"a\"", "{\"command\":\"a\"}", "{\"command\":\"\",\"ready_timeout_usec\":0}",
                "{\"command\":\"a\\u0000b\",\"ready_timeout_usec\":0}", "{\"ready\":\"a\",\"ready_timeout_usec\":0}",
                "{\"command\":\"a\",\"ready\":\"\",\"ready_timeout_usec\":0}", "{\"command\":7,\"ready_timeout_usec\":0}",
                "{\"command\":\"a\",\"ready_timeout_usec\":0,\"more\":1}",
        };
        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                (void) snprintf(text, sizeof(text), "%s,\"start\":%s", cpus, wrong[i]);
                assert_true(!loads_with(cpus, text));
        }

        (void) snprintf(made, sizeof(made), MADE_TEMPLATE_JSON, ONE, "python", 0U);
        char *at = strstr(made, cpus);
        (void) snprintf(text, sizeof(text), "%.*s%s%s", (int) (at - made), made, start, at + strlen(cpus));
        assert_ok(template_parse(text, strlen(text), &t, &reason));
        json_object *o = template_to_json_whole(t);
        assert_true(o);
        const char *written = json_object_to_json_string(o);
        assert_ok(template_parse(written, strlen(written), &again, &reason));
        json_object_put(o);
        assert_streq(again->start.command, "a\nb");
        assert_streq(again->start.ready, "c");
        assert_eq(again->start.ready_timeout_usec, 7);
        template_free(t);
        template_free(again);
}

/* An earlier cubed took them from images and packs. */
TEST(what_the_bus_can_not_tell_is_left_out) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        char json[4096], changed[8192];

        make_template(&d, ONE, "python", 0);
        (void) snprintf(json, sizeof(json), MADE_TEMPLATE_JSON, ONE, "python", 0U);
        (void) snprintf(changed, sizeof(changed), "{\"defaults\":{\"env\":[\"A=b\"],\"user\":\"a\\uffff\",\"cwd\":\"/\xf0\x9f\xbf\xbe\"},%s",
                        json + 1);
        make_template_json(&d, ONE, changed);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_templates, 1);
        assert_eq(s->n_warnings, 2);
        const ExecDefaults *defaults = &s->templates[0]->defaults;
        assert_true(!defaults->user && !defaults->cwd);
        assert_streq(defaults->env[0], "A=b");
}

TEST(broken_directories) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;

        make_template(&d, ONE, "python", 0);
        make_template(&d, TWO, "python", 0);
        make_template(&d, THREE, "python", 0);
        assert_true(unlinkat(d.fd, ONE "/disk.img", 0) == 0);
        assert_true(unlinkat(d.fd, TWO "/template.json", 0) == 0);
        make_template_json(&d, THREE, "");
        assert_true(mkdirat(d.fd, "lost+found", 0700) == 0);
        assert_true(mkdirat(d.fd, ".build-x", 0700) == 0);
        assert_ok(template_store_load(&s, d.path));
        assert_eq(s->n_templates, 0);
        assert_eq(s->n_warnings, 4);
}

TEST(refs) {
        char *name, *tag;

        assert_ok(template_ref_parse("python", &name, &tag));
        assert_streq(name, "python");
        assert_streq(tag, "latest");
        free(name);
        free(tag);
        assert_ok(template_ref_parse("python:3.11", &name, &tag));
        assert_streq(tag, "3.11");
        free(name);
        free(tag);
        assert_eq(template_ref_parse("python:", &name, &tag), -EINVAL);
        assert_eq(template_ref_parse(":latest", &name, &tag), -EINVAL);
        assert_eq(template_ref_parse("a/b", &name, &tag), -EINVAL);
        assert_eq(template_ref_parse("", &name, &tag), -EINVAL);
}

TEST(in_use) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(template_store_freep) TemplateStore *s = NULL;
        sd_event *e = NULL;

        make_template(&d, ONE, "python", 0);
        assert_ok(template_store_load(&s, d.path));
        assert_ok(sd_event_new(&e));
        template_use(s->templates[0]);
        assert_eq(template_store_remove(e, s->templates[0], NULL, NULL), -EBUSY);
        template_release(s->templates[0]);
        sd_event_unref(e);
}
