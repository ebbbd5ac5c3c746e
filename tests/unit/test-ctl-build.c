/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/build-options.h"
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
        o = (BuildOptions) { .rootfs = "-", .no_warm = true };
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
        BuildOptions o = { .rootfs = "-" };

        assert_ok(build_options_check(&o));
        assert_eq(build(&o, BUILD_NO_WARM, NULL), 1);
        assert_ok(build_options_check(&o));
        o.start = "server";
        assert_true(build_options_check(&o) < 0);
        o.no_warm = false;
        assert_ok(build_options_check(&o));
        o.rootfs = NULL;
        assert_true(build_options_check(&o) < 0);
}

TEST(what_is_reached_in_the_build_and_what_later) {
        BuildOptions o = { .rootfs = "-" };

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
