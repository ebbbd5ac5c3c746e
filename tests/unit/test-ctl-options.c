/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/create-options.h"
#include "ctl/exec-options.h"
#include "tests/unit/test.h"

/* What is said on stderr is not looked at here; tests/dbus/test_ctl.py does. */
static int create(CreateOptions *o, int c, const char *argument) {
        optarg = (char *) argument;
        return create_option(o, c);
}

/* What the argument was changed to is left in taken. */
static char taken[256];
static int exec(ExecOptions *o, int c, const char *argument) {
        if (argument)
                (void) snprintf(taken, sizeof(taken), "%s", argument);
        optarg = argument ? taken : NULL;
        return exec_option(o, c);
}

TEST(sizes_and_numbers) {
        CreateOptions o = {};

        assert_eq(create(&o, LIMIT_MEMORY, "256M"), 1);
        assert_eq(o.limits.mem_bytes, MIB(256));
        assert_eq(create(&o, CREATE_DISK, "1.5G"), 1);
        assert_eq(o.disk_bytes, MIB(1536));
        assert_eq(create(&o, CREATE_CPUS, "16"), 1);
        assert_eq(o.cpus, 16);
        assert_eq(create(&o, CREATE_TIMEOUT, "infinity"), 1);
        assert_true(o.timeout_usec == UINT64_MAX);
        assert_eq(create(&o, LIMIT_CPU_QUOTA, "50%"), 1);
        assert_eq(o.limits.cpu_quota_usec, 500000);

        assert_true(create(&o, LIMIT_MEMORY, "0") < 0);
        assert_true(create(&o, LIMIT_MEMORY, "much") < 0);
        assert_true(create(&o, CREATE_DISK, "0") < 0);
        assert_true(create(&o, CREATE_CPUS, "0") < 0);
        assert_true(create(&o, CREATE_CPUS, "17") < 0);
        assert_true(create(&o, CREATE_CPUS, "-1") < 0);
        assert_true(create(&o, CREATE_TIMEOUT, "0") < 0);
        assert_true(create(&o, LIMIT_CPU_QUOTA, "50") < 0);
        assert_true(create(&o, LIMIT_CPU_QUOTA, "0%") < 0);
        assert_true(create(&o, CREATE_TEMPLATE, "") < 0);
}

TEST(ends_and_checkpoints) {
        CreateOptions o = {};

        assert_eq(create(&o, CREATE_IDLE_TIMEOUT, "5min"), 1);
        assert_eq(o.idle_timeout_usec, 300 * USEC_PER_SEC);
        assert_eq(create(&o, CREATE_IDLE_TIMEOUT, "infinity"), 1);
        assert_true(o.idle_timeout_usec == UINT64_MAX);
        assert_true(create(&o, CREATE_IDLE_TIMEOUT, "0") < 0);
        assert_eq(o.timeout_usec, 0);

        assert_eq(create(&o, CREATE_ON_TIMEOUT, "pause-disk"), 1);
        assert_streq(o.on_timeout, "pause-disk");
        assert_true(create(&o, CREATE_ON_TIMEOUT, "sleep") < 0);
        assert_true(create(&o, CREATE_ON_TIMEOUT, "") < 0);

        assert_true(!o.auto_resume_given);
        assert_eq(create(&o, CREATE_AUTO_RESUME, NULL), 1);
        assert_true(o.auto_resume && o.auto_resume_given);
        assert_eq(create(&o, CREATE_AUTO_RESUME, "no"), 1);
        assert_true(!o.auto_resume && o.auto_resume_given);
        assert_true(create(&o, CREATE_AUTO_RESUME, "perhaps") < 0);

        assert_eq(create(&o, CREATE_CHECKPOINT, "30s"), 1);
        assert_eq(o.checkpoint_usec, 30 * USEC_PER_SEC);
        assert_eq(create(&o, CREATE_CHECKPOINT, "exec"), 1);
        assert_true(o.checkpoint_usec == UINT64_MAX);
        assert_true(create(&o, CREATE_CHECKPOINT, "999ms") < 0);
        assert_true(create(&o, CREATE_CHECKPOINT, "infinity") < 0);
        assert_true(create(&o, CREATE_CHECKPOINT, "always") < 0);
}

TEST(network_policies) {
        CreateOptions o = {};

        assert_true(!policy_options_given(&o.policy));
        assert_eq(create(&o, CTL_OPTION_POLICY + POLICY_DEFAULT, "internet"), 1);
        assert_true(create(&o, CTL_OPTION_POLICY + POLICY_DEFAULT, "yes") < 0);
        assert_streq(o.policy.def, "internet");
        create_options_done(&o);

        o = (CreateOptions) {};
        assert_eq(create(&o, CTL_OPTION_POLICY + POLICY_ALLOW, "8.8.8.8 udp:53"), 1);
        assert_eq(create(&o, CTL_OPTION_POLICY + POLICY_ALLOW, "example.com."), 1);
        assert_eq(create(&o, CTL_OPTION_POLICY + POLICY_INBOUND, "all"), 1);
        assert_true(policy_options_given(&o.policy) && !o.policy.def && !o.policy.deny);
        assert_streq(o.policy.allow[0], "8.8.8.8 udp:53");
        assert_streq(o.policy.allow[1], "example.com.");
        assert_true(!o.policy.allow[2]);
        create_options_done(&o);
}

TEST(network_limits) {
        CreateOptions o = {};

        assert_eq(create(&o, LIMIT_BANDWIDTH_OUT, "10M"), 1);
        assert_eq(o.limits.bandwidth_out, MIB(10));
        assert_eq(create(&o, LIMIT_BANDWIDTH_IN, "infinity"), 1);
        assert_true(o.limits.bandwidth_in == UINT64_MAX);
        assert_eq(create(&o, LIMIT_PACKETS_IN, "1000"), 1);
        assert_eq(create(&o, LIMIT_OPEN_CONNECTIONS, "infinity"), 1);
        assert_true(o.limits.packets_in == 1000 && o.limits.open_connections == UINT32_MAX);
        assert_true(o.limits.packets_out == 0 && o.limits.new_connections == 0);
        assert_true(create(&o, LIMIT_BANDWIDTH_OUT, "0") < 0);
        assert_true(create(&o, LIMIT_BANDWIDTH_OUT, "fast") < 0);
        assert_true(create(&o, LIMIT_PACKETS_OUT, "0") < 0);
        assert_true(create(&o, LIMIT_NEW_CONNECTIONS, "1K") < 0);
}

TEST(one_thing_to_start_from) {
        CreateOptions o = {};

        assert_eq(create_source(&o, "ls"), 0);
        assert_true(!o.source);
        assert_eq(create_source(&o, "template:python"), 1);
        assert_eq(create_source(&o, "snapshot:sabcdefghijk"), 1);
        assert_streq(o.source, "snapshot:sabcdefghijk");
        assert_true(create(&o, CREATE_TEMPLATE, "python") < 0);

        o = (CreateOptions) { .template = "python" };
        assert_true(create_source(&o, "snapshot:sabcdefghijk") < 0);
}

TEST(labels) {
        CreateOptions o = {};

        assert_eq(create(&o, CREATE_LABEL, "a=b=c"), 1);
        assert_eq(create(&o, CREATE_LABEL, "empty="), 1);
        assert_true(create(&o, CREATE_LABEL, "none") < 0);
        assert_true(create(&o, CREATE_LABEL, "=x") < 0);
        assert_true(streq(o.labels[0], "a=b=c") && streq(o.labels[1], "empty=") && !o.labels[2]);
        create_options_done(&o);
}

TEST(environment) {
        ExecOptions o = {};

        setenv("CTL_TEST_VARIABLE", "here", 1);
        unsetenv("CTL_TEST_MISSING");
        assert_eq(exec(&o, 'e', "A=1"), 1);
        assert_eq(exec(&o, 'e', "A="), 1);
        assert_eq(exec(&o, 'e', "CTL_TEST_VARIABLE"), 1);
        assert_true(exec(&o, 'e', "CTL_TEST_MISSING") < 0);
        assert_true(exec(&o, 'e', "1A=x") < 0);
        assert_true(exec(&o, 'e', "=x") < 0);
        assert_true(exec(&o, 'e', "A-B=x") < 0);
        assert_true(streq(o.env[0], "A=1") && streq(o.env[1], "A=") && streq(o.env[2], "CTL_TEST_VARIABLE=here"));
        exec_options_done(&o);
}

TEST(values_of_the_environment_leave_the_process_title) {
        ExecOptions o = {};

        assert_eq(exec(&o, 'e', "TOKEN=se=cret"), 1);
        assert_streq(taken, "TOKEN=*******");
        assert_true(exec(&o, 'e', "1A=secret") < 0);
        assert_streq(taken, "1A=******");
        assert_streq(o.env[0], "TOKEN=se=cret");
        exec_options_done(&o);
}

TEST(process_options) {
        ExecOptions o = {};

        assert_eq(exec(&o, 'C', "/tmp"), 1);
        assert_true(exec(&o, 'C', "tmp") < 0);
        assert_eq(exec(&o, EXEC_TIMEOUT, "1min"), 1);
        assert_eq(o.timeout_usec, 60 * USEC_PER_SEC);
        assert_true(exec(&o, EXEC_TIMEOUT, "0") < 0);
        assert_eq(exec(&o, 't', NULL), 1);
        assert_true(o.pty);
        assert_eq(exec(&o, 'z', NULL), 0);
}
