/* SPDX-License-Identifier: Apache-2.0 */

/* What callers give to cubed on the bus: arguments, and options of any name and type, of the calls that take most of
 * them. What a call takes for right keeps to its rules.
 *
 * Input: u8 which call (see calls), then its arguments as values by its signature, then options: { u8 key, u8 kind,
 * value }... A text is u8 length and bytes, a number eight bytes, a list u8 how many. */

#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "guest.h"

#define DEPTH_MAX 3U
#define ENTRIES_MAX 32U

static const char *const keys[] = {
        "memory", "cpus", "disk", "timeout", "idle-timeout", "on-timeout", "checkpoint", "cpu-quota", "hostname", "request-id",
        "labels", "bind-client", "network-policy", "network-bandwidth-out", "network-packets-in", "network-new-connections",
        "default", "allow", "deny", "inbound", "env", "cwd", "user", "rows", "cols", "mode", "size", "parents", "u32", "u64",
        "bool", "string", "strv", "dict", "fd", "files", "policy", "name", "either", "tenant",
};

static Template template;

/* Who calls may, and what is made of it is none of this target's. */

int __wrap_bus_authorize(sd_bus_message *m, const BusAccess *access, uid_t *ret_actor, sd_bus_error *error);
int __wrap_bus_authorize_sandbox(sd_bus_message *m, const Sandbox *s, const char *action, uid_t *ret_actor,
                                 sd_bus_error *error);
int __wrap_bus_find_template(uid_t actor, const char *tenant, const char *ref, Template **ret, sd_bus_error *error);
int __wrap_bus_find_snapshot(uid_t actor, const char *tenant, const char *id, Snapshot **ret, sd_bus_error *error);
int __wrap_bus_policy_load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, LoadedPolicy **ret,
                           sd_bus_error *error);
int __wrap_sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret,
                          sd_bus_error *error);

int __wrap_bus_authorize(sd_bus_message *m, const BusAccess *access, uid_t *ret_actor, sd_bus_error *error) {
        *ret_actor = 1000;
        return 1;
}

int __wrap_bus_authorize_sandbox(sd_bus_message *m, const Sandbox *s, const char *action, uid_t *ret_actor,
                                 sd_bus_error *error) {
        *ret_actor = 1000;
        return 1;
}

int __wrap_bus_find_template(uid_t actor, const char *tenant, const char *ref, Template **ret, sd_bus_error *error) {
        *ret = &template;
        return 0;
}

int __wrap_bus_find_snapshot(uid_t actor, const char *tenant, const char *id, Snapshot **ret, sd_bus_error *error) {
        return sd_bus_error_set(error, BUS_ERROR_NO_SUCH_SNAPSHOT, "There is none");
}

int __wrap_bus_policy_load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, LoadedPolicy **ret,
                           sd_bus_error *error) {
        FUZZ_CHECK(bus_policy_check(rules, error) == 0);
        *ret = NULL;
        return 1;
}

int __wrap_sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret,
                          sd_bus_error *error) {
        FUZZ_CHECK(spec->on_timeout >= 0 && spec->template == &template);
        FUZZ_CHECK(!spec->request_id || (*spec->request_id && strlen(spec->request_id) <= 128));
        FUZZ_CHECK(!spec->hostname || (*spec->hostname && strlen(spec->hostname) <= 63 && !strchr(spec->hostname, '/')));
        for (size_t i = 0; spec->labels && spec->labels[i]; i++)
                FUZZ_CHECK(strchr(spec->labels[i], '='));
        return sd_bus_error_set(error, BUS_ERROR_BUSY, "Not here");
}

/* Messages. What can't be in one is left out. */

static void text_read(FuzzInput *in, char ret[static UINT8_MAX + 1]) {
        size_t n = fuzz_u8(in);

        ret[fuzz_bytes(in, ret, n)] = 0;
        for (char *p = ret; *p; p++)
                if ((unsigned char) *p >= 0x80)
                        *p = '?';
}

static int put_text(sd_bus_message *m, FuzzInput *in) {
        char text[UINT8_MAX + 1];

        text_read(in, text);
        return sd_bus_message_append_basic(m, 's', text);
}

static int put_key(sd_bus_message *m, FuzzInput *in) {
        uint8_t k = fuzz_u8(in);

        return k < ELEMENTSOF(keys) ? sd_bus_message_append_basic(m, 's', keys[k]) : put_text(m, in);
}

static uint64_t number_read(FuzzInput *in) {
        uint64_t v;

        (void) fuzz_bytes(in, &v, sizeof(v));
        return v;
}

static int put_options(sd_bus_message *m, FuzzInput *in, unsigned n, unsigned depth);

static int put_array(sd_bus_message *m, FuzzInput *in, const char *contents) {
        unsigned n = fuzz_u8(in) % ENTRIES_MAX;
        char a[UINT8_MAX + 1], b[UINT8_MAX + 1];

        int r = sd_bus_message_open_container(m, 'a', contents);
        for (unsigned i = 0; i < n && r >= 0; i++) {
                text_read(in, a);
                if (streq(contents, "s")) {
                        r = sd_bus_message_append(m, "s", a);
                        continue;
                }
                text_read(in, b);
                r = streq(contents, "(hs)") ? sd_bus_message_append(m, "(hs)", STDERR_FILENO, b)
                                            : sd_bus_message_append(m, contents, a, b);
        }
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int put_value(sd_bus_message *m, FuzzInput *in, unsigned kind, unsigned depth) {
        static const char *const types[] = { "u", "t", "b", "s", "as", "a{ss}", "h", "a(hs)", "a{sv}", "v" };
        const char *type = types[kind % ELEMENTSOF(types)];

        int r = sd_bus_message_open_container(m, 'v', type);
        if (r < 0)
                return r;
        if (streq(type, "u"))
                r = sd_bus_message_append(m, "u", (uint32_t) number_read(in));
        else if (streq(type, "t"))
                r = sd_bus_message_append(m, "t", number_read(in));
        else if (streq(type, "b"))
                r = sd_bus_message_append(m, "b", (int) fuzz_u8(in) & 1);
        else if (streq(type, "s"))
                r = put_text(m, in);
        else if (streq(type, "h"))
                r = sd_bus_message_append(m, "h", STDERR_FILENO);
        else if (streq(type, "a{sv}"))
                r = put_options(m, in, fuzz_u8(in) % ENTRIES_MAX, depth + 1);
        else if (streq(type, "v"))
                r = sd_bus_message_append(m, "v", "s", "a variant");
        else
                r = put_array(m, in, type + 1);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int put_options(sd_bus_message *m, FuzzInput *in, unsigned n, unsigned depth) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        for (unsigned i = 0; i < n && in->left > 0 && r >= 0 && depth < DEPTH_MAX; i++) {
                r = sd_bus_message_open_container(m, 'e', "sv");
                if (r >= 0)
                        r = put_key(m, in);
                if (r >= 0)
                        r = put_value(m, in, fuzz_u8(in), depth);
                if (r >= 0)
                        r = sd_bus_message_close_container(m);
        }
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* Calls */

static int read_all(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_strv_ char **strv = NULL, **dict = NULL, **either = NULL;
        _cleanup_bus_policy_ BusPolicy policy = {};
        const char *s = NULL, *other = NULL;
        BusFiles files = {};
        uint32_t u32 = 1;
        uint64_t u64 = 1;
        bool flag = false;
        int fd = -EBADF;
        const BusOption options[] = {
                { "u32", BUS_OPTION_U32, &u32, BUS_OPTION_NONZERO },   { "u64", BUS_OPTION_U64, &u64, BUS_OPTION_NONZERO },
                { "bool", BUS_OPTION_BOOL, &flag, 0 },                  { "string", BUS_OPTION_STRING, &s, 0 },
                { "strv", BUS_OPTION_STRV, &strv, 0 },                  { "dict", BUS_OPTION_DICT, &dict, 0 },
                { "fd", BUS_OPTION_FD, &fd, 0 },                        { "files", BUS_OPTION_FILES, &files, 0 },
                { "policy", BUS_OPTION_POLICY, &policy, 0 },            { "either", BUS_OPTION_STRING, &other, 0 },
                { "either", BUS_OPTION_STRV, &either, 0 },
        };

        int r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        FUZZ_CHECK(u32 != 0 && u64 != 0 && files.n <= BUS_FILES_MAX);
        for (size_t i = 0; dict && dict[i]; i++)
                FUZZ_CHECK(strchr(dict[i], '='));
        return 1;
}

static int read_policy(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_policy_ BusPolicy policy = {};
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *back = NULL;

        int r = bus_policy_read(m, &policy, error);
        if (r < 0)
                return r;
        FUZZ_CHECK(sd_bus_message_new_method_return(m, &back) >= 0 && bus_policy_append(back, &policy.rules) >= 0);
        return 1;
}

static int read_lists(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_policy_ BusPolicy policy = {};

        return bus_policy_read_lists(m, &policy.rules, error);
}

static const struct {
        sd_bus_message_handler_t call;
        const char *arguments;     /* s, u, or l: a list of texts */
} calls[] = {
        { bus_method_create_sandbox, "s" }, { bus_method_exec, "l" },        { bus_method_exec_pty, "l" },
        { bus_method_copy_to, "s" },        { bus_method_copy_from, "s" },   { bus_method_make_directory, "s" },
        { read_all, "" },                   { read_policy, "" },             { read_lists, "" },
        { bus_method_signal_process, "u" }, { bus_method_stat_file, "s" },   { bus_method_rename_file, "ss" },
        { bus_method_serve_envd, "" },
};

static int put_arguments(sd_bus_message *m, FuzzInput *in, const char *arguments) {
        int r = 0;

        for (; *arguments && r >= 0; arguments++)
                r = *arguments == 's' ? put_text(m, in)
                  : *arguments == 'u' ? sd_bus_message_append(m, "u", (uint32_t) number_read(in))
                                      : put_array(m, in, "s");
        return r;
}

static void call(sd_bus *bus, FuzzGuest *g, FuzzInput *in) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        size_t which = fuzz_u8(in) % ELEMENTSOF(calls);

        FUZZ_CHECK(sd_bus_message_new_method_call(bus, &m, NULL, "/", NULL, "Method") >= 0);
        int r = put_arguments(m, in, calls[which].arguments);
        if (r >= 0)
                r = put_options(m, in, ENTRIES_MAX, 0);
        if (r < 0 || sd_bus_message_seal(m, 1, 0) < 0 || sd_bus_message_rewind(m, true) < 0)
                return;
        r = calls[which].call(m, &g->sandbox, &error);
        FUZZ_CHECK(r != 0 || which == 8);
        FUZZ_CHECK(!sd_bus_error_is_set(&error) || error.message);
        guest_run(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static FuzzGuest g;
        BusFront front = { .manager = &g.manager };
        FuzzInput in = { data, size };
        sd_bus *bus;
        int ends[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        FUZZ_CHECK(sd_bus_new(&bus) >= 0 && sd_bus_set_fd(bus, ends[0], ends[0]) >= 0 && sd_bus_start(bus) >= 0);
        guest_new(&g);
        g.manager.bus = bus;
        bus_front = &front;
        call(bus, &g, &in);
        guest_free(&g);
        bus_front = NULL;
        sd_bus_close_unref(bus);
        safe_close(ends[1]);
        return 0;
}
