/* SPDX-License-Identifier: Apache-2.0 */

/* Processes in a guest. No answer waits for one of them: Exec answers when it has started, its end
 * comes over the descriptor that WaitProcess gives. */

#include <endian.h>

#include "base/parse.h"
#include "daemon/audit.h"
#include "dbus/bus-agent.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"

typedef struct Exec {
        sd_bus_message *call;
        uid_t actor;
        char **argv;
        bool pty;
} Exec;

static Exec *exec_free(Exec *x) {
        if (!x)
                return NULL;
        sd_bus_message_unref(x->call);
        strv_free(x->argv);
        free(x);
        return NULL;
}
DEFINE_CLEANUP(Exec *, exec_free);

static void on_exec(Sandbox *s, const sd_bus_error *error, uint32_t pid, int *fds, size_t n_fds, void *userdata) {
        _cleanup_(exec_freep) Exec *x = userdata;

        if (sd_bus_error_is_set(error)) {
                bus_reply_error(x->call, error, 0);
                return;
        }

        audit_exec(s->manager->audit, s, x->actor, x->argv, pid);
        if (x->pty && n_fds == 1)
                (void) sd_bus_reply_method_return(x->call, "uh", pid, fds[0]);
        else if (!x->pty && n_fds == 3)
                (void) sd_bus_reply_method_return(x->call, "uhhh", pid, fds[0], fds[1], fds[2]);
        else
                bus_reply_error(x->call, NULL, -EPROTO);
}

/* Values are never in a message: they may be secret. */
static int check_exec(const ExecSpec *spec, sd_bus_error *error) {
        if (!spec->argv || isempty(spec->argv[0]))
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "There is no program to run in argv");
        if (spec->cwd && *spec->cwd != '/')
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Working directory '%s' is not absolute",
                                         spec->cwd);
        for (size_t i = 0; spec->env && spec->env[i]; i++)
                if (!env_assignment_valid(spec->env[i]))
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                                 "Entry %zu of option 'env' is not NAME=VALUE", i + 1);
        return 0;
}

static int start_exec(sd_bus_message *m, Sandbox *s, uid_t actor, ExecSpec *spec, sd_bus_error *error) {
        _cleanup_(exec_freep) Exec *x = new0(Exec, 1);
        if (!x)
                return -ENOMEM;

        *x = (Exec) { .call = sd_bus_message_ref(m), .actor = actor, .argv = TAKE_PTR(spec->argv), .pty = spec->pty };
        spec->argv = x->argv;
        int r = sandbox_exec(s, spec, on_exec, x, error);
        spec->argv = NULL;
        if (r < 0)
                return r;

        TAKE_PTR(x);
        return 1;
}

static int read_exec(sd_bus_message *m, Sandbox *s, bool pty, sd_bus_error *error) {
        _cleanup_strv_ char **argv = NULL, **env = NULL;
        ExecSpec spec = { .pty = pty, .rows = 24, .cols = 80 };
        uid_t actor;
        const BusOption options[] = {
                { "env", BUS_OPTION_STRV, &env, 0 },
                { "cwd", BUS_OPTION_STRING, &spec.cwd, 0 },
                { "user", BUS_OPTION_STRING, &spec.user, 0 },
                { "timeout", BUS_OPTION_U64, &spec.timeout_usec, 0 },
                { "rows", BUS_OPTION_U32, &spec.rows, BUS_OPTION_NONZERO },
                { "cols", BUS_OPTION_U32, &spec.cols, BUS_OPTION_NONZERO },
        };

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        r = bus_read_strings(m, &argv, error);
        if (r >= 0)
                r = bus_options_read(m, options, pty ? ELEMENTSOF(options) : ELEMENTSOF(options) - 2, error);
        if (r < 0)
                return r;
        spec.argv = argv;
        spec.env = env;
        if (spec.timeout_usec == UINT64_MAX)
                spec.timeout_usec = 0;
        r = check_exec(&spec, error);
        if (r < 0)
                return r;

        argv = NULL;
        return start_exec(m, s, actor, &spec, error);
}

int bus_method_exec(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return read_exec(m, userdata, false, error);
}

int bus_method_exec_pty(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return read_exec(m, userdata, true, error);
}

static void on_wait_stream(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                           void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                bus_reply_error(call, error, 0);
        else
                (void) sd_bus_reply_method_return(call, "h", *fd);
}

int bus_method_wait_process(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Sandbox *s = userdata;
        uint32_t pid;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "u", &pid);
        if (r < 0)
                return r;

        tlv_put_u32(&body, AGENT_TAG_PID, pid);
        r = tlv_writer_finish(&body);
        if (r < 0)
                return r;
        return bus_keep_call(m, sandbox_open_stream(s, AGENT_STREAM_WAIT, &body, on_wait_stream, sd_bus_message_ref(m),
                                                    error));
}

int bus_method_signal_process(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Sandbox *s = userdata;
        uint32_t pid;
        int32_t signal;
        int group;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "uib", &pid, &signal, &group);
        if (r < 0)
                return r;
        if (signal < 1 || signal > 64)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "%i is not a signal: 1 to 64", signal);

        tlv_put_u32(&body, AGENT_TAG_PID, pid);
        tlv_put_u32(&body, AGENT_TAG_SIGNAL, (uint32_t) signal);
        tlv_put_u32(&body, AGENT_TAG_GROUP, (uint32_t) group);
        return bus_agent_call(m, s, AGENT_SIGNAL, &body, NULL, error);
}

int bus_method_resize_process(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        uint32_t pid, rows, cols;
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "uuu", &pid, &rows, &cols);
        if (r < 0)
                return r;
        if (rows < 1 || rows > UINT16_MAX || cols < 1 || cols > UINT16_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "A terminal can't have %u x %u characters",
                                         cols, rows);

        tlv_put_u32(&body, AGENT_TAG_PID, pid);
        tlv_put_u32(&body, AGENT_TAG_ROWS, rows);
        tlv_put_u32(&body, AGENT_TAG_COLS, cols);
        return bus_agent_call(m, s, AGENT_RESIZE, &body, NULL, error);
}

static int append_process(sd_bus_message *reply, const Tlv *t) {
        AgentProcess p;

        if (t->len < sizeof(p))
                return -EBADMSG;
        memcpy(&p, t->data, sizeof(p));
        _cleanup_free_ char *name = bus_text(t->data + sizeof(p), t->len - sizeof(p));
        if (!name)
                return -ENOMEM;

        return sd_bus_message_append(reply, "(" CUBE_BUS_PROCESS ")", le32toh(p.pid), le32toh(p.uid), name,
                                     p.state ? "exited" : "running", p.pty != 0);
}

int bus_method_list_processes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const BusAgentListing listing = {
                .tag = AGENT_TAG_PROCESS, .signature = CUBE_BUS_PROCESS, .array = true, .append = append_process,
        };
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        return bus_agent_call(m, s, AGENT_LIST_PROCESSES, &body, &listing, error);
}
