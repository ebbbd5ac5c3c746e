/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <ftw.h>
#include <pwd.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/config.h"
#include "daemon/sandbox.h"
#include "tests/unit/test.h"

static char root[] = "/tmp/cubed-test-config-XXXXXX";
static char warnings[16][600];
static unsigned n_warnings;

static void on_warning(void *userdata, const char *path, unsigned line, const char *message) {
        if (n_warnings < ELEMENTSOF(warnings))
                (void) snprintf(warnings[n_warnings], sizeof(warnings[0]), "%s:%u: %s", path + strlen(root), line, message);
        n_warnings++;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static void make_root(void) {
        (void) nftw(root, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
        memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
        assert_true(mkdtemp(root));
        n_warnings = 0;
}

static void put(const char *path, const char *text) {
        char full[512];

        for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
                (void) snprintf(full, sizeof(full), "%s%.*s", root, (int) (p - path), path);
                (void) mkdir(full, 0755);
        }
        (void) snprintf(full, sizeof(full), "%s%s", root, path);
        FILE *f = fopen(full, "we");
        assert_true(f);
        fputs(text, f);
        fclose(f);
}

TEST(defaults_are_those_of_the_design) {
        Config c;

        assert_ok(config_init(&c));
        assert_streq(c.default_template, "python");
        assert_eq(c.default_mem_bytes, MIB(512));
        assert_eq(c.default_cpus, 1);
        assert_eq(c.default_disk_bytes, GIB(4));
        assert_eq(c.default_timeout_usec, 300 * USEC_PER_SEC);
        assert_true(c.default_idle_timeout_usec == UINT64_MAX && c.default_on_timeout == SANDBOX_END_KILL);
        assert_true(c.auto_resume_timeout_usec == 5 * 60 * USEC_PER_SEC);
        assert_eq(c.boot_timeout_usec, 60 * USEC_PER_SEC);
        assert_eq(c.stop_timeout_usec, 10 * USEC_PER_SEC);
        assert_eq(c.checkpoints_max, 16);
        assert_eq(c.checkpoint_bytes_max, GIB(4));
        assert_eq(c.uid_base, 0x70000000);
        assert_eq(c.uid_count, 65536);
        assert_true(!c.kernel_path && !c.kernel_command_line && !c.audit_arguments);
        assert_eq(c.cpuid_hide_xsave, CONFIG_AUTO);
        assert_streq(c.network4, "auto");
        assert_true(!c.network6 && !c.default_internet);
        assert_eq(c.free_slots, 16);
        assert_eq(c.network_mark, 0x1000);
        assert_eq(c.network_audit_usec, 60 * USEC_PER_SEC);
        assert_true(c.net_limits.bytes_out == UINT64_MAX && c.net_limits.bytes_in == UINT64_MAX);
        assert_true(c.net_limits.packets_out == UINT32_MAX && c.net_limits.packets_in == UINT32_MAX && c.net_limits.flows_new == UINT32_MAX);
        assert_eq(c.net_limits.flows_open, 1024);
        assert_streq(c.state_directory, "/var/lib/cubed");
        assert_streq(c.runtime_directory, "/run/cubed");
        config_done(&c);
}

TEST(no_file_is_no_error) {
        Config c;

        make_root();
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        config_done(&c);
}

TEST(values_and_units) {
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf",
            "# comment\n; another\n\n[Sandbox]\n  DefaultMemory = 256M  \r\nDefaultCPUs=4\nDefaultTimeout=infinity\nBootTimeout=1min 30s\n"
            "DefaultTemplate=base:v1\n[Limits]\nMaxSandboxes=infinity\nMaxMemoryPerSandbox=1.5G\nUIDRange=0x71000000/1000\n"
            "[Guest]\nKernelPath=/boot/vmlinuz-x\nKernelCommandLine=a=b \"c d\"\nCpuidHideXsave=yes\n[Manager]\nAuditArguments=on\n");
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_eq(c.default_mem_bytes, MIB(256));
        assert_eq(c.default_cpus, 4);
        assert_true(c.default_timeout_usec == UINT64_MAX);
        assert_eq(c.boot_timeout_usec, 90 * USEC_PER_SEC);
        assert_streq(c.default_template, "base:v1");
        assert_eq(c.max_sandboxes, CONFIG_UNLIMITED);
        assert_eq(c.max_mem_bytes, MIB(1536));
        assert_eq(c.uid_base, 0x71000000);
        assert_eq(c.uid_count, 1000);
        assert_streq(c.kernel_path, "/boot/vmlinuz-x");
        assert_streq(c.kernel_command_line, "a=b \"c d\"");
        assert_eq(c.cpuid_hide_xsave, CONFIG_YES);
        assert_true(c.audit_arguments);
        config_done(&c);
}

TEST(the_network) {
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf",
            "[Network]\nNetwork4=10.200.0.0/16\nNetwork6=fd12:3456::/64\nFreeSlots=0\nMark=256\nAuditIntervalSec=5min\n"
            "IngressUsers=nobody 1000\nDefaultPolicy=internet\nBandwidthOut=10M\nBandwidthIn=1G\nPacketsOut=1000\n"
            "PacketsIn=2000\nNewConnections=50\nOpenConnections=infinity\n");
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_streq(c.network4, "10.200.0.0/16");
        assert_streq(c.network6, "fd12:3456::/64");
        assert_eq(c.free_slots, 0);
        assert_eq(c.network_mark, 0x100);
        assert_eq(c.network_audit_usec, 300 * USEC_PER_SEC);
        assert_true(c.ingress_users.n == 2 && config_users_have(&c.ingress_users, 65534) && config_users_have(&c.ingress_users, 1000));
        assert_true(c.default_internet);
        assert_true(c.net_limits.bytes_out == MIB(10) && c.net_limits.bytes_in == GIB(1));
        assert_true(c.net_limits.packets_out == 1000 && c.net_limits.packets_in == 2000 && c.net_limits.flows_new == 50);
        assert_eq(c.net_limits.flows_open, UINT32_MAX);
        config_done(&c);
}

TEST(odd_networks_change_nothing) {
        static const char *const lines[] = {
                "Network4=10.200.0.0", "Network4=10.200.0.0/30", "Network4=10.0.0.0/7", "Network4=fd00::/64", "Network4=x/16",
                "Network6=10.200.0.0/16", "Network6=fd00::/125", "Network6=yes", "Mark=0", "Mark=3", "Mark=0x100000000", "Mark=x",
                "FreeSlots=5000", "FreeSlots=infinity", "AuditIntervalSec=0", "DefaultPolicy=allow", "BandwidthOut=0", "OpenConnections=0",
        };
        Config c, before;

        assert_ok(config_init(&before));
        for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
                char text[128];

                make_root();
                (void) snprintf(text, sizeof(text), "[Network]\n%s\n", lines[i]);
                put("/etc/cubed/cubed.conf", text);
                assert_ok(config_init(&c));
                assert_ok(config_load(&c, root, on_warning, NULL));
                if (n_warnings != 1)
                        test_stop(TEST_FAILED, __LINE__, "no warning about %s", lines[i]);
                assert_streq(c.network4, before.network4);
                assert_true(!c.network6 && c.network_mark == before.network_mark && c.free_slots == before.free_slots);
                assert_true(c.network_audit_usec == before.network_audit_usec && !c.default_internet);
                assert_true(memcmp(&c.net_limits, &before.net_limits, sizeof(c.net_limits)) == 0);
                config_done(&c);
        }
        config_done(&before);
}

TEST(mistakes_are_warned_about_and_change_nothing) {
        static const char *const expected[] = {
                "/etc/cubed/cubed.conf:1: DefaultCPUs= stands before any section header, ignored",
                "/etc/cubed/cubed.conf:3: Unknown key DefaultMemroy= in section [Sandbox], ignored",
                "/etc/cubed/cubed.conf:4: Bad value DefaultMemory=lots (not understood), keeping what was set before",
                "/etc/cubed/cubed.conf:5: Bad value DefaultCPUs=17 (out of range), keeping what was set before",
                "/etc/cubed/cubed.conf:6: MaxSandboxes= belongs into section [Limits], ignored here",
                "/etc/cubed/cubed.conf:7: Neither Key=Value nor a section header: nonsense",
                "/etc/cubed/cubed.conf:8: Unknown section [Sandboxes], ignored",
                "/etc/cubed/cubed.conf:11: Bad value UIDRange=0/65536 (out of range), keeping what was set before",
                "/etc/cubed/cubed.conf:12: Bad value UIDRange=0x70000000 (out of range), keeping what was set before",
                "/etc/cubed/cubed.conf:14: Bad value StateDirectory=var/lib (not understood), keeping what was set before",
                "/etc/cubed/cubed.conf:15: Not a section header: [Guest",
        };
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf",
            "DefaultCPUs=2\n[Sandbox]\nDefaultMemroy=1G\nDefaultMemory=lots\nDefaultCPUs=17\nMaxSandboxes=3\nnonsense\n"
            "[Sandboxes]\nDefaultCPUs=3\n[Limits]\nUIDRange=0/65536\nUIDRange=0x70000000\n[Manager]\nStateDirectory=var/lib\n[Guest\n");
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        for (size_t i = 0; i < ELEMENTSOF(expected); i++)
                if (i != 8)
                        assert_streq(warnings[i], expected[i]);
        assert_eq(n_warnings, ELEMENTSOF(expected));
        assert_eq(c.default_mem_bytes, MIB(512));
        assert_eq(c.default_cpus, 1);
        assert_eq(c.uid_base, 0x70000000);
        assert_streq(c.state_directory, "/var/lib/cubed");
        config_done(&c);
}

TEST(etc_comes_over_usr_and_drop_ins_in_order) {
        Config c;

        make_root();
        put("/usr/lib/cubed/cubed.conf", "[Sandbox]\nDefaultCPUs=2\nDefaultMemory=1G\n");
        put("/etc/cubed/cubed.conf", "[Sandbox]\nDefaultCPUs=3\n");
        put("/usr/lib/cubed/cubed.conf.d/10-a.conf", "[Sandbox]\nDefaultMemory=100M\n");
        put("/usr/lib/cubed/cubed.conf.d/20-b.conf", "[Sandbox]\nDefaultDisk=1G\nStopTimeout=1\n");
        put("/etc/cubed/cubed.conf.d/20-b.conf", "[Sandbox]\nDefaultDisk=2G\n");
        put("/etc/cubed/cubed.conf.d/15-c.conf", "[Sandbox]\nDefaultMemory=200M\n");
        put("/etc/cubed/cubed.conf.d/99-not-one.txt", "[Sandbox]\nDefaultMemory=300M\n");
        put("/etc/cubed/cubed.conf.d/.hidden.conf", "[Sandbox]\nDefaultMemory=300M\n");
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_eq(c.default_cpus, 3);
        assert_eq(c.default_mem_bytes, MIB(200));
        assert_eq(c.default_disk_bytes, GIB(2));
        assert_eq(c.stop_timeout_usec, 10 * USEC_PER_SEC);
        config_done(&c);
}

TEST(empty_value_means_default) {
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf", "[Sandbox]\nDefaultMemory=1G\nDefaultMemory=\n[Guest]\nKernelPath=/x\nKernelPath=\n");
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_eq(c.default_mem_bytes, MIB(512));
        assert_true(!c.kernel_path);
        config_done(&c);
}

TEST(users_by_name_and_number) {
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf", "[Network]\nSpecialRangesUsers=70000 root  1000 \t nobody\n");
        assert_ok(config_init(&c));
        assert_eq(c.special_users.n, 0);
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_eq(c.special_users.n, 4);
        assert_true(config_users_have(&c.special_users, 0) && config_users_have(&c.special_users, 1000));
        assert_true(config_users_have(&c.special_users, 70000) && config_users_have(&c.special_users, 65534));
        assert_true(!config_users_have(&c.special_users, 1001));
        config_done(&c);
}

/* One that is not known, or one too many, leaves the list as it was: never a part of it. */
TEST(users_that_are_not_there) {
        char text[1024] = "[Network]\nSpecialRangesUsers=1000\nSpecialRangesUsers=1001 no-such-user-here\n"
                          "SpecialRangesUsers=4294967295\nSpecialRangesUsers=1002,1003\nSpecialRangesUsers=";
        Config c;

        make_root();
        for (unsigned i = 0; i <= CONFIG_USERS_MAX; i++)
                (void) snprintf(strchr(text, 0), 16, "%u ", 2000 + i);
        put("/etc/cubed/cubed.conf", text);
        assert_ok(config_init(&c));
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 4);
        assert_eq(c.special_users.n, 1);
        assert_true(config_users_have(&c.special_users, 1000));

        put("/etc/cubed/cubed.conf", "[Network]\nSpecialRangesUsers=\n");
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(c.special_users.n, 0);
        config_done(&c);
}

TEST(what_is_wrong_with_users_is_told) {
        static const struct { const char *line, *told; } cases[] = {
                { "SpecialRangesUsers=root no-such-user-here nor-such-a-one", "(there is no user no-such-user-here, nor-such-a-one)" },
                { "IngressUsers=no-such-user-here", "(there is no user no-such-user-here)" },
                { "IngressUsers=1 2 3 4 5 6 7 8 9", "(more than 8 users)" },
                { "IngressUsers=1 2 3 4 5 6 7 root nobody", "(more than 8 users)" },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                char text[200];
                Config c;

                make_root();
                (void) snprintf(text, sizeof(text), "[Network]\nIngressUsers=1 2 3 4 5 6 7 8\n%s\n", cases[i].line);
                put("/etc/cubed/cubed.conf", text);
                assert_ok(config_init(&c));
                assert_ok(config_load(&c, root, on_warning, NULL));
                assert_eq(n_warnings, 1);
                assert_true(strstr(warnings[0], cases[i].told));
                assert_eq(c.ingress_users.n, CONFIG_INGRESS_USERS_MAX);
                assert_eq(c.special_users.n, 0);
                config_done(&c);
        }
}

/* Users of the gateway and of the ingress come with parts of cubed that need not be installed. */
TEST(the_gateway_may_name_tenants_unless_others_are_named) {
        const struct passwd *p = getpwnam("cube-gateway");
        Config c;

        make_root();
        assert_ok(config_init(&c));
        assert_eq(c.delegates.n, p ? 1 : 0);
        assert_true(!p || config_users_have(&c.delegates, p->pw_uid));
        assert_true(!config_users_have(&c.delegates, 0));
        const struct passwd *q = getpwnam("cube-ingress");
        assert_eq(c.ingress_users.n, q ? 1 : 0);
        assert_true(!q || config_users_have(&c.ingress_users, q->pw_uid));

        put("/etc/cubed/cubed.conf", "[Manager]\nDelegateTo=nobody 1000\nDelegateTo=no-such-user-here\n");
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 1);
        assert_true(strstr(warnings[0], "(there is no user no-such-user-here)"));
        assert_true(c.delegates.n == 2 && config_users_have(&c.delegates, 65534) && config_users_have(&c.delegates, 1000));
        put("/etc/cubed/cubed.conf", "[Manager]\nDelegateTo=\n");
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 1);
        assert_eq(c.delegates.n, p ? 1 : 0);
        config_done(&c);
}

TEST(tenants_of_users) {
        Config c;

        make_root();
        put("/etc/cubed/cubed.conf", "[Network]\nSpecialRangesTenants=nobody/acme 1000/acme  nobody/x.y\n");
        assert_ok(config_init(&c));
        assert_eq(c.special_tenants.n, 0);
        assert_ok(config_load(&c, root, on_warning, NULL));
        assert_eq(n_warnings, 0);
        assert_eq(c.special_tenants.n, 3);
        assert_true(config_tenants_have(&c.special_tenants, 65534, "acme") && config_tenants_have(&c.special_tenants, 65534, "x.y"));
        assert_true(config_tenants_have(&c.special_tenants, 1000, "acme") && !config_tenants_have(&c.special_tenants, 1000, "x.y"));
        assert_true(!config_tenants_have(&c.special_tenants, 1000, NULL) && !config_tenants_have(&c.special_tenants, 1000, ""));
        config_done(&c);
}

TEST(what_is_wrong_with_tenants_is_told) {
        static const struct { const char *value, *told; } cases[] = {
                { "1000", "(1000 is not USER/TENANT)" },
                { "1000/", "(1000/ is not USER/TENANT)" },
                { "1000/a/b", "(1000/a/b is not USER/TENANT)" },
                { "/acme", "not understood" },
                { "no-such-user-here/acme", "(there is no user no-such-user-here)" },
                { "1/a 1/b no-such-user-here/acme", "(there is no user no-such-user-here)" },
                { "4294967295/a", "out of range" },
        };
        char many[4096] = "";
        Config c;

        for (size_t i = 0; i <= ELEMENTSOF(cases); i++) {
                char text[4200];

                for (unsigned k = 0; k <= CONFIG_TENANTS_MAX && i == ELEMENTSOF(cases); k++)
                        (void) snprintf(strchr(many, 0), 16, "%u/t ", k);
                make_root();
                (void) snprintf(text, sizeof(text), "[Network]\nSpecialRangesTenants=7/seven\nSpecialRangesTenants=%s\n",
                                *many ? many : cases[i].value);
                put("/etc/cubed/cubed.conf", text);
                assert_ok(config_init(&c));
                assert_ok(config_load(&c, root, on_warning, NULL));
                assert_eq(n_warnings, 1);
                if (!strstr(warnings[0], *many ? "(more than 64 tenants)" : cases[i].told))
                        test_stop(TEST_FAILED, __LINE__, "case %zu: %s", i, warnings[0]);
                assert_true(c.special_tenants.n == 1 && config_tenants_have(&c.special_tenants, 7, "seven"));
                config_done(&c);
        }
}

TEST(a_dump_reads_back_the_same) {
        char path[600], *first = NULL, *second = NULL;
        size_t n;
        Config c, d;

        make_root();
        assert_ok(config_init(&c));
        c.default_timeout_usec = UINT64_MAX;
        c.stop_timeout_usec = 1500001;
        c.max_sandboxes = CONFIG_UNLIMITED;
        c.special_users = (ConfigUsers) { { 1000, 1001 }, 2 };
        c.ingress_users = (ConfigUsers) { { 33 }, 1 };
        c.special_tenants.tenants[0].uid = 1000;
        tenant_name_copy(c.special_tenants.tenants[0].name, "acme");
        c.special_tenants.n = 1;
        c.delegates = (ConfigUsers) { { 34 }, 1 };
        FILE *f = open_memstream(&first, &n);
        config_dump(&c, f);
        fclose(f);

        put("/etc/cubed/cubed.conf", first);
        (void) snprintf(path, sizeof(path), "%s/etc/cubed/cubed.conf", root);
        assert_ok(config_init(&d));
        assert_ok(config_load_file(&d, path, on_warning, NULL));
        assert_eq(n_warnings, 0);
        f = open_memstream(&second, &n);
        config_dump(&d, f);
        fclose(f);
        assert_streq(second, first);
        free(first);
        free(second);
        config_done(&c);
        config_done(&d);
}

TEST(a_copy_is_its_own) {
        Config c, d;

        assert_ok(config_init(&c));
        assert_ok(config_copy(&c, &d));
        assert_true(c.default_template != d.default_template);
        assert_streq(d.default_template, "python");
        assert_true(!d.kernel_path);
        config_done(&c);
        config_done(&d);
}

TEST(every_key_is_in_the_man_page) {
        _cleanup_free_ char *dump = NULL, *page = NULL;
        const char *source = getenv("CUBE_SOURCE_ROOT");
        char path[600];
        size_t n;
        Config c;

        (void) snprintf(path, sizeof(path), "%s/docs/man/cubed.conf.5.scd", source ? source : ".");
        if (read_file(AT_FDCWD, path, MIB(1), &page, NULL) < 0)
                test_skip("docs/man/cubed.conf.5.scd is not here");
        assert_ok(config_init(&c));
        FILE *f = open_memstream(&dump, &n);
        config_dump(&c, f);
        fclose(f);
        config_done(&c);
        for (char *save = NULL, *line = strtok_r(dump, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char *sign = strchr(line, '=');
                if (!sign)
                        continue;
                sign[1] = 0;
                if (!strstr(page, line))
                        test_stop(TEST_FAILED, __LINE__, "%s is not in cubed.conf(5)", line);
        }
        make_root();
        (void) nftw(root, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
}
