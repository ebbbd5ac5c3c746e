/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/build-file.h"
#include "ctl/build-options.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

/* What is said on stderr is not looked at here. */
static int build(BuildOptions *o, int c, const char *argument) {
        static char taken[256];

        if (argument)
                (void) snprintf(taken, sizeof(taken), "%s", argument);
        optarg = argument ? taken : NULL;
        return build_option(o, c);
}

TEST(setup_commands_keep_their_order) {
        BuildOptions o = {};

        assert_eq(build(&o, BUILD_SETUP, "apt-get update"), 1);
        assert_eq(build(&o, BUILD_SETUP, "pip install x"), 1);
        assert_true(build(&o, BUILD_SETUP, "") < 0);
        assert_streq(o.setup[0], "apt-get update");
        assert_streq(o.setup[1], "pip install x");
        assert_true(!o.setup[2]);
        build_options_done(&o);
}

TEST(copies) {
        BuildOptions o = {};

        assert_eq(build(&o, BUILD_COPY, "app:/srv/app"), 1);
        assert_eq(build(&o, BUILD_COPY, "/a:b/c.txt:/srv/"), 1);
        assert_eq(build(&o, BUILD_COPY, "/a/dir/:/"), 1);
        assert_eq(o.n_copies, 3);
        assert_streq(o.copies[0].source, "app");
        assert_streq(o.copies[0].path, "/srv/app");
        assert_streq(o.copies[1].source, "/a:b/c.txt");
        assert_streq(o.copies[1].path, "/srv/c.txt");
        assert_streq(o.copies[2].path, "/dir");
        build_options_done(&o);
}

/* What a step has come to: "TYPE SOURCE|ARGUMENT|...", as cubed is told. */
static const char *step(const char *text) {
        static char said[512];
        BuildStep s;

        if (build_step_parse(text, &s) < 0)
                return "refused";
        int n = snprintf(said, sizeof(said), "%s %s", s.type, strempty(s.source));
        for (size_t i = 0; i < s.n_args; i++)
                n += snprintf(said + n, sizeof(said) - (size_t) n, "|%s", s.args[i] ? s.args[i] : "?");
        build_step_done(&s);
        return said;
}

TEST(steps) {
        assert_streq(step("RUN make"), "RUN |make");
        assert_streq(step("  RUN\tmake  all \n x "), "RUN |make  all \n x ");
        assert_streq(step("RUN --user=app make"), "RUN |make|app");
        assert_streq(step("COPY app /srv"), "COPY app|?|?|/srv||");
        assert_streq(step("COPY  a b  c/ "), "COPY a b|?|?|c/||");
        assert_streq(step("COPY --chown=a:b --chmod=755 app /srv"), "COPY app|?|?|/srv|a:b|755");
        assert_streq(step("COPY --chmod=755 app /srv"), "COPY app|?|?|/srv||755");
        assert_streq(step("ENV A=b = c "), "ENV |A|b = c ");
        assert_streq(step("ENV A="), "ENV |A|");
        assert_streq(step("WORKDIR /srv/my app"), "WORKDIR |/srv/my app");
        assert_streq(step("USER app"), "USER |app");
        assert_streq(step("USER --sudo app"), "USER |app|true");
}

TEST(steps_that_are_none_are_refused) {
        static const char *const bad[] = {
                "", " ", "RUN", "RUN ", "RUN --user=app", "COPY", "COPY app", "COPY --chown=app app", "ENV", "ENV A", "ENV =b", "ENV A b=c",
                "WORKDIR", "USER", "USER a b", "USER --sudo", "USER --sudoapp", "FROM x", "run x", "RUNx y",
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (!streq(step(bad[i]), "refused"))
                        test_stop(TEST_FAILED, __LINE__, "it was taken: '%s'", bad[i]);
}

TEST(a_template_on_another_one_keeps_what_that_has) {
        BuildOptions o = { .from = "template:python:1" };

        assert_ok(build_options_check(&o));
        assert_streq(build_options_base(&o), "python:1");
        o.disk_bytes = GIB(1);
        assert_true(build_options_check(&o) < 0);
        o.disk_bytes = 0;
        o.kernel = "small";
        assert_true(build_options_check(&o) < 0);
        o.kernel = NULL;
        o.from = "template:";
        assert_true(build_options_check(&o) < 0);
        o.from = "./template:python";
        assert_true(!build_options_base(&o));
        assert_ok(build_options_check(&o));
}

TEST(copies_that_go_nowhere_are_refused) {
        BuildOptions o = {};

        assert_true(build(&o, BUILD_COPY, "app") < 0);
        assert_true(build(&o, BUILD_COPY, "app:srv") < 0);
        assert_true(build(&o, BUILD_COPY, ":/srv") < 0);
        assert_true(build(&o, BUILD_COPY, "/:/srv/") < 0);
        build_options_done(&o);
        for (unsigned i = 0; i < BUILD_COPIES_MAX; i++)
                assert_eq(build(&o, BUILD_COPY, "a:/a"), 1);
        assert_true(build(&o, BUILD_COPY, "a:/a") < 0);
        build_options_done(&o);
        o = (BuildOptions) { .from = "-", .no_warm = true };
        assert_eq(build(&o, BUILD_COPY, "a:/a"), 1);
        assert_true(build_options_check(&o) < 0);
        build_options_done(&o);
}

TEST(times) {
        BuildOptions o = {};

        assert_eq(build(&o, BUILD_TIMEOUT, "infinity"), 1);
        assert_true(o.timeout_usec == UINT64_MAX);
        assert_eq(build(&o, BUILD_READY_TIMEOUT, "90"), 1);
        assert_eq(o.ready_timeout_usec, 90 * USEC_PER_SEC);
        assert_true(build(&o, BUILD_TIMEOUT, "0") < 0);
        assert_true(build(&o, BUILD_READY_TIMEOUT, "soon") < 0);
}

TEST(the_environment_is_that_of_exec) {
        BuildOptions o = {};

        assert_eq(build(&o, 'e', "A=B"), 1);
        assert_true(build(&o, 'e', "1=B") < 0);
        assert_true(build(&o, 'C', "srv") < 0);
        assert_eq(build(&o, 'u', "1000"), 1);
        assert_streq(o.exec.env[0], "A=B");
        build_options_done(&o);
}

TEST(a_cold_template_runs_nothing) {
        BuildOptions o = { .from = "-" };

        assert_ok(build_options_check(&o));
        assert_eq(build(&o, BUILD_NO_WARM, NULL), 1);
        assert_ok(build_options_check(&o));
        o.start = "server";
        assert_true(build_options_check(&o) < 0);
        o.no_warm = false;
        assert_ok(build_options_check(&o));
        o.from = NULL;
        assert_true(build_options_check(&o) < 0);
}

TEST(what_is_reached_in_the_build_and_what_later) {
        BuildOptions o = { .from = "-" };

        assert_eq(build(&o, CTL_OPTION_POLICY + POLICY_ALLOW, "example.com"), 1);
        assert_ok(build_options_check(&o));
        assert_true(!policy_options_given(&o.build_policy));
        assert_eq(build(&o, CTL_OPTION_BUILD_POLICY + POLICY_ALLOW, "pypi.org"), 1);
        assert_streq(o.policy.allow[0], "example.com");
        assert_streq(o.build_policy.allow[0], "pypi.org");
        assert_true(build(&o, CTL_OPTION_BUILD_POLICY + POLICY_DEFAULT, "all") < 0);
        /* a template without a warm guest may have a policy, but nothing is run that could have another */
        o.no_warm = true;
        assert_true(build_options_check(&o) < 0);
        policy_options_done(&o.build_policy);
        assert_ok(build_options_check(&o));
        build_options_done(&o);
}

TEST(what_is_not_of_a_build_is_left_to_others) {
        BuildOptions o = {};

        assert_eq(build(&o, 'q', NULL), 0);
}

/* As if the command line had these of what options is given. */
static int load(BuildFile *f, BuildOptions *o, const char *text, const int *given, size_t n_given) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char path[128];

        *f = (BuildFile) {};
        *o = (BuildOptions) {};
        temp_dir_write(&d, "cube.json", text, strlen(text));
        (void) snprintf(path, sizeof(path), "%s/cube.json", d.path);
        return build_file_load(f, path, given, n_given, o);
}

static void done(BuildFile *f, BuildOptions *o) {
        build_options_done(o);
        build_file_done(f);
}

TEST(a_file_holds_what_options_hold) {
        BuildFile f;
        BuildOptions o;

        assert_ok(load(&f, &o, "{\"name\": \"web:1\", \"memory\": \"256M\", \"disk\": 1073741824, \"cpus\": 2, \"no-modules\": true,"
                               "\"no-warm\": false, \"setup\": [\"one\", \"two\\nlines\"], \"start\": \"serve\", \"alias\": [\"web\"],"
                               "\"env\": [\"A=b c\"], \"network\": \"internet\", \"build-allow\": [\"example.com tcp:443\"]}\n", NULL, 0));
        assert_streq(f.name, "web:1");
        assert_true(o.mem_bytes == MIB(256) && o.disk_bytes == GIB(1) && o.cpus == 2 && o.no_modules && !o.no_warm);
        assert_streq(o.setup[0], "one");
        assert_streq(o.setup[1], "two\nlines");
        assert_true(!o.setup[2]);
        assert_streq(o.start, "serve");
        assert_streq(o.aliases[0], "web");
        assert_streq(o.exec.env[0], "A=b c");
        assert_true(policy_options_given(&o.policy) && policy_options_given(&o.build_policy));
        done(&f, &o);
}

TEST(paths_begin_where_the_file_lies) {
        BuildFile f;
        BuildOptions o;

        assert_ok(load(&f, &o, "{\"kernel\": \"boot/vmlinux\", \"modules\": \"/lib/modules/x\", \"copy\": [\"app:/srv/\", \"/etc/hosts:/etc/hosts\"]}",
                       NULL, 0));
        assert_true(startswith(o.kernel, "/tmp/cube-test.") && strstr(o.kernel, "/boot/vmlinux"));
        assert_streq(o.modules, "/lib/modules/x");
        assert_true(startswith(o.copies[0].source, "/tmp/cube-test.") && strstr(o.copies[0].source, "/app"));
        assert_streq(o.copies[0].path, "/srv/app");
        assert_streq(o.copies[1].source, "/etc/hosts");
        done(&f, &o);
}

TEST(what_steps_copy_lies_where_the_file_lies) {
        BuildFile f;
        BuildOptions o;

        assert_ok(load(&f, &o, "{\"from\": \"template:python\", \"step\": [\"COPY app .\", \"COPY /etc/hosts /etc/\", \"RUN x\"]}", NULL, 0));
        assert_streq(o.from, "template:python");
        assert_eq(o.n_steps, 3);
        assert_true(startswith(o.steps[0].source, "/tmp/cube-test.") && strstr(o.steps[0].source, "/app"));
        assert_streq(o.steps[1].source, "/etc/hosts");
        assert_streq(o.steps[2].type, "RUN");
        done(&f, &o);
}

TEST(a_kernel_may_be_named_and_a_file_of_that_name_is_a_path) {
        BuildFile f;
        BuildOptions o;

        assert_ok(load(&f, &o, "{\"kernel\": \"small\"}", NULL, 0));
        assert_streq(o.kernel, "small");
        assert_true(build_kernel_is_name(o.kernel));
        done(&f, &o);
        assert_ok(load(&f, &o, "{\"kernel\": \"./small\"}", NULL, 0));
        assert_true(startswith(o.kernel, "/tmp/cube-test.") && !build_kernel_is_name(o.kernel));
        done(&f, &o);
        assert_true(build_kernel_is_name("stock") && !build_kernel_is_name("tiny") && !build_kernel_is_name(NULL));
}

TEST(the_command_line_wins) {
        static const int given[] = { BUILD_MEMORY, BUILD_SETUP };
        BuildFile f;
        BuildOptions o;

        assert_ok(load(&f, &o, "{\"memory\": \"256M\", \"cpus\": 2, \"setup\": [\"one\"]}", given, ELEMENTSOF(given)));
        assert_true(o.mem_bytes == 0 && !o.setup && o.cpus == 2);
        done(&f, &o);
        /* but it is right or wrong as a whole */
        assert_true(load(&f, &o, "{\"memory\": true}", given, ELEMENTSOF(given)) < 0);
        done(&f, &o);
}

TEST(a_file_that_is_not_right_is_refused) {
        static const char *const bad[] = {
                "", "{", "[]", "\"x\"", "{\"colour\": \"red\"}", "{\"help\": true}", "{\"file\": \"x\"}", "{\"memory\": \"lots\"}",
                "{\"memory\": [\"1G\"]}", "{\"memory\": 1.5}", "{\"memory\": null}", "{\"cpus\": 99}", "{\"cpus\": -1}",
                "{\"setup\": \"one\"}", "{\"setup\": [1]}", "{\"setup\": [\"\"]}", "{\"setup\": [[\"a\"]]}", "{\"no-warm\": \"yes\"}",
                "{\"no-warm\": 1}", "{\"name\": \"a/b\"}", "{\"name\": 5}", "{\"start\": \"a\\u0000b\"}", "{\"cpus\": 1} x",
                "{\"cpus\": 1}{}", "{\"cmdline\": \"\xff\"}", "{\"a\": {\"b\": {\"c\": {\"d\": {}}}}}", "{\"copy\": [\"app\"]}",
                "{\"step\": \"RUN x\"}", "{\"step\": [[\"RUN\", \"x\"]]}", "{\"step\": [\"EXPOSE 80\"]}",
        };
        BuildFile f;
        BuildOptions o;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                if (load(&f, &o, bad[i], NULL, 0) >= 0)
                        test_stop(TEST_FAILED, __LINE__, "it was taken: %s", bad[i]);
                done(&f, &o);
        }
}
