/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "daemon/audit.h"
#include "dbus/bus-agent.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"

static void on_gone(Sandbox *s, const sd_bus_error *error, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                (void) sd_bus_reply_method_error(call, error);
        else
                (void) sd_bus_reply_method_return(call, NULL);
}

static int method_stop(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        audit_stop(s->manager->audit, s, actor, "stop");
        return bus_keep_call(m, sandbox_stop(s, on_gone, sd_bus_message_ref(m), error));
}

static int method_kill(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        audit_stop(s->manager->audit, s, actor, "kill");
        return bus_keep_call(m, sandbox_kill(s, VMM_EXIT_KILLED, on_gone, sd_bus_message_ref(m), error));
}

static int method_set_timeout(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        uint64_t timeout;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "t", &timeout);
        if (r >= 0)
                r = sandbox_set_timeout(s, timeout, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, NULL);
}

static int method_set_idle_timeout(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        uint64_t timeout;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "t", &timeout);
        if (r < 0)
                return r;
        if (timeout == 0)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "An idle time-out of 0 would be over at once");
        r = sandbox_set_idle_timeout(s, timeout, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, NULL);
}

static int method_set_auto_resume(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        int auto_resume;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "b", &auto_resume);
        if (r >= 0)
                r = sandbox_set_auto_resume(s, auto_resume, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, NULL);
}

static int method_set_limits(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        SandboxLimits limits = {};
        uid_t actor;
        const BusOption options[] = {
                { "cpu-quota", BUS_OPTION_U64, &limits.cpu_quota_usec, BUS_OPTION_NONZERO },
                { "memory", BUS_OPTION_U64, &limits.mem_bytes, BUS_OPTION_NONZERO },
                BUS_NETWORK_LIMITS(&limits.net),
        };

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        return bus_keep_call(m, sandbox_set_limits(s, &limits, on_gone, sd_bus_message_ref(m), error));
}

static int append_number(sd_bus_message *reply, const char *name, uint64_t value) {
        if (value == UINT64_MAX)
                return 0;
        return sd_bus_message_append(reply, "{sv}", name, "t", value);
}

static int append_statistics(sd_bus_message *reply, const SandboxStatistics *st) {
        const struct {
                const char *name;
                uint64_t value;
        } cgroup[] = {
                { "MemoryCurrent", st->memory_current }, { "MemoryPeak", st->memory_peak },
                { "CPUUsageUSec", st->cpu_usage_usec },  { "TasksCurrent", st->pids_current },
                { "OOMKills", st->oom_kills },
        };

        int r = sd_bus_message_open_container(reply, 'a', "{sv}");
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(cgroup); i++)
                r = append_number(reply, cgroup[i].name, cgroup[i].value);
        for (size_t i = 0; r >= 0 && i < st->n_counters; i++) {
                const VmmCounter *c = &st->counters[i];
                _cleanup_free_ char *name = bus_text(c->name, strnlen(c->name, sizeof(c->name)));
                r = name ? append_number(reply, name, c->value) : -ENOMEM;
        }
        if (r >= 0 && st->net)
                r = bus_append_network_statistics(reply, st->net);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static void on_statistics(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata, *reply = NULL;
        int r = -EIO;

        if (!sd_bus_error_is_set(error)) {
                r = sd_bus_message_new_method_return(call, &reply);
                if (r >= 0)
                        r = append_statistics(reply, st);
                if (r >= 0)
                        r = sd_bus_send(NULL, reply, NULL);
        }
        if (r < 0)
                bus_reply_error(call, error, r);
}

static int method_get_statistics(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_LIST, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        return bus_keep_call(m, sandbox_get_statistics(s, on_statistics, sd_bus_message_ref(m), error));
}

static int append_usage(sd_bus_message *reply, const Tlv *t) {
        AgentUsage u;

        if (t->len != sizeof(u))
                return -EBADMSG;
        memcpy(&u, t->data, sizeof(u));
        return sd_bus_message_append(reply, "a{sv}", 8, "CPUs", "u", le32toh(u.cpus), "CPUTotalUSec", "t",
                                     le64toh(u.cpu_total_usec), "CPUIdleUSec", "t", le64toh(u.cpu_idle_usec), "MemoryTotal",
                                     "t", le64toh(u.mem_total), "MemoryUsed", "t", le64toh(u.mem_used), "MemoryCache", "t",
                                     le64toh(u.mem_cache), "DiskTotal", "t", le64toh(u.disk_total), "DiskUsed", "t",
                                     le64toh(u.disk_used));
}

static int method_get_guest_usage(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const BusAgentListing listing = { .tag = AGENT_TAG_USAGE, .look = true, .append = append_usage };
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_LIST, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        return bus_agent_call(m, s, AGENT_USAGE, &body, &listing, error);
}

static int method_open_console(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_close_ int fd = -EBADF;
        Sandbox *s = userdata;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_CONSOLE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sandbox_open_console(s, &fd, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "h", fd);
}

static void on_connected(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                         void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                bus_reply_error(call, error, 0);
        else
                (void) sd_bus_reply_method_return(call, "h", *fd);
}

static int method_connect(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Sandbox *s = userdata;
        uint16_t port;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "q", &port);
        if (r < 0)
                return r;
        if (port == 0)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "Port 0 is not a port: 1 to 65535");

        tlv_put_u32(&body, AGENT_TAG_PORT, port);
        r = tlv_writer_finish(&body);
        if (r < 0)
                return r;
        return bus_keep_call(m, sandbox_open_stream(s, AGENT_STREAM_TCP, &body, on_connected, sd_bus_message_ref(m),
                                                error));
}

static int property_get_state(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "s", sandbox_state_to_string(s->state));
}

static int property_get_pid(sd_bus *bus, const char *path, const char *interface, const char *property,
                            sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "u", (uint32_t) MAX(s->vmm_pid, 0));
}

/* How it came to run. */
static int property_get_start(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "s", s->restored ? "restored" : "booted");
}

static int property_get_on_timeout(sd_bus *bus, const char *path, const char *interface, const char *property,
                                   sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "s", sandbox_end_to_string(s->on_timeout));
}

static int property_get_auto_resume(sd_bus *bus, const char *path, const char *interface, const char *property,
                                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "b", s->auto_resume);
}

static int property_get_parked(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "b", s->state == SANDBOX_PAUSED && sandbox_parks(s));
}

static int property_get_checkpoint(sd_bus *bus, const char *path, const char *interface, const char *property,
                                   sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "s", s->checkpoint_usec == 0 ? "" :
                                     s->checkpoint_usec == UINT64_MAX ? "exec" : "interval");
}

static int property_get_checkpoint_usec(sd_bus *bus, const char *path, const char *interface, const char *property,
                                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return sd_bus_message_append(reply, "t", s->checkpoint_usec == UINT64_MAX ? 0 : s->checkpoint_usec);
}

static int property_get_base_snapshot(sd_bus *bus, const char *path, const char *interface, const char *property,
                                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        const Snapshot *on = bus_snapshot_shown(s->disk_top);
        return sd_bus_message_append(reply, "s", on ? on->id : "");
}

static int property_get_kernel(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        const char *release = strempty(s->kernel_release);
        _cleanup_free_ char *text = bus_text(release, strlen(release));
        if (!text)
                return -ENOMEM;
        return sd_bus_message_append(reply, "s", text);
}

static int append_label(sd_bus_message *reply, const char *label) {
        const char *eq = strchr(label, '=');
        if (!eq)
                return 0;

        _cleanup_free_ char *key = strndup(label, (size_t) (eq - label));
        if (!key)
                return -ENOMEM;
        return sd_bus_message_append(reply, "{ss}", key, eq + 1);
}

static int property_get_labels(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;

        int r = sd_bus_message_open_container(reply, 'a', "{ss}");
        for (char **l = s->labels; r >= 0 && l && *l; l++)
                r = append_label(reply, *l);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

#define CONST SD_BUS_VTABLE_PROPERTY_CONST
#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
#define OPEN SD_BUS_VTABLE_UNPRIVILEGED

const sd_bus_vtable bus_sandbox_vtable[] = {
        SD_BUS_VTABLE_START(0),

        /* Environment and arguments are wiped from the message's memory. */
        SD_BUS_METHOD_WITH_ARGS("Exec", SD_BUS_ARGS("as", argv, "a{sv}", options),
                                SD_BUS_RESULT("u", pid, "h", stdin, "h", stdout, "h", stderr), bus_method_exec,
                                OPEN|SD_BUS_VTABLE_SENSITIVE),
        SD_BUS_METHOD_WITH_ARGS("ExecPty", SD_BUS_ARGS("as", argv, "a{sv}", options),
                                SD_BUS_RESULT("u", pid, "h", pty), bus_method_exec_pty, OPEN|SD_BUS_VTABLE_SENSITIVE),
        SD_BUS_METHOD_WITH_ARGS("WaitProcess", SD_BUS_ARGS("u", pid), SD_BUS_RESULT("h", wait),
                                bus_method_wait_process, OPEN),
        SD_BUS_METHOD_WITH_ARGS("SignalProcess", SD_BUS_ARGS("u", pid, "i", signal, "b", group), SD_BUS_NO_RESULT,
                                bus_method_signal_process, OPEN),
        SD_BUS_METHOD_WITH_ARGS("ResizeProcess", SD_BUS_ARGS("u", pid, "u", rows, "u", columns), SD_BUS_NO_RESULT,
                                bus_method_resize_process, OPEN),
        SD_BUS_METHOD_WITH_ARGS("ListProcesses", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("a(" CUBE_BUS_PROCESS ")", processes), bus_method_list_processes, OPEN),

        SD_BUS_METHOD_WITH_ARGS("CopyTo", SD_BUS_ARGS("s", path, "a{sv}", options), SD_BUS_RESULT("h", stream),
                                bus_method_copy_to, OPEN),
        SD_BUS_METHOD_WITH_ARGS("CopyFrom", SD_BUS_ARGS("s", path, "a{sv}", options),
                                SD_BUS_RESULT("h", stream, "(" CUBE_BUS_FILE ")", file), bus_method_copy_from, OPEN),
        SD_BUS_METHOD_WITH_ARGS("StatFile", SD_BUS_ARGS("s", path, "b", follow),
                                SD_BUS_RESULT("(" CUBE_BUS_FILE ")", file), bus_method_stat_file, OPEN),
        SD_BUS_METHOD_WITH_ARGS("ListDirectory", SD_BUS_ARGS("s", path),
                                SD_BUS_RESULT("a(" CUBE_BUS_FILE ")", files), bus_method_list_directory, OPEN),
        SD_BUS_METHOD_WITH_ARGS("RemoveFile", SD_BUS_ARGS("s", path, "b", recursive), SD_BUS_NO_RESULT,
                                bus_method_remove_file, OPEN),
        SD_BUS_METHOD_WITH_ARGS("RenameFile", SD_BUS_ARGS("s", path, "s", target), SD_BUS_NO_RESULT,
                                bus_method_rename_file, OPEN),
        SD_BUS_METHOD_WITH_ARGS("MakeDirectory", SD_BUS_ARGS("s", path, "a{sv}", options), SD_BUS_NO_RESULT,
                                bus_method_make_directory, OPEN),
        SD_BUS_METHOD_WITH_ARGS("ServeEnvd", SD_BUS_ARGS("a{sv}", options), SD_BUS_NO_RESULT, bus_method_serve_envd,
                                OPEN|SD_BUS_VTABLE_SENSITIVE),

        SD_BUS_METHOD_WITH_ARGS("Connect", SD_BUS_ARGS("q", port), SD_BUS_RESULT("h", stream), method_connect, OPEN),
        SD_BUS_METHOD_WITH_ARGS("OpenConsole", SD_BUS_NO_ARGS, SD_BUS_RESULT("h", console), method_open_console, OPEN),

        SD_BUS_METHOD_WITH_ARGS("Stop", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_stop, OPEN),
        SD_BUS_METHOD_WITH_ARGS("Kill", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_kill, OPEN),
        SD_BUS_METHOD_WITH_ARGS("SetTimeout", SD_BUS_ARGS("t", timeout_usec), SD_BUS_NO_RESULT, method_set_timeout,
                                OPEN),
        SD_BUS_METHOD_WITH_ARGS("SetIdleTimeout", SD_BUS_ARGS("t", timeout_usec), SD_BUS_NO_RESULT,
                                method_set_idle_timeout, OPEN),
        SD_BUS_METHOD_WITH_ARGS("SetAutoResume", SD_BUS_ARGS("b", auto_resume), SD_BUS_NO_RESULT, method_set_auto_resume,
                                OPEN),
        SD_BUS_METHOD_WITH_ARGS("SetLimits", SD_BUS_ARGS("a{sv}", limits), SD_BUS_NO_RESULT, method_set_limits, OPEN),
        SD_BUS_METHOD_WITH_ARGS("SetNetworkPolicy", SD_BUS_ARGS("a{sv}", policy), SD_BUS_NO_RESULT,
                                bus_method_set_network_policy, OPEN),
        SD_BUS_METHOD_WITH_ARGS("ChangeNetworkPolicy", SD_BUS_ARGS("a{sv}", add, "a{sv}", remove), SD_BUS_NO_RESULT,
                                bus_method_change_network_policy, OPEN),
        SD_BUS_METHOD_WITH_ARGS("GetStatistics", SD_BUS_NO_ARGS, SD_BUS_RESULT("a{sv}", statistics),
                                method_get_statistics, OPEN),
        SD_BUS_METHOD_WITH_ARGS("GetGuestUsage", SD_BUS_NO_ARGS, SD_BUS_RESULT("a{sv}", usage), method_get_guest_usage, OPEN),

        SD_BUS_METHOD_WITH_ARGS("Pause", SD_BUS_ARGS("a{sv}", options), SD_BUS_NO_RESULT, bus_method_pause, OPEN),
        SD_BUS_METHOD_WITH_ARGS("Resume", SD_BUS_ARGS("a{sv}", options), SD_BUS_NO_RESULT, bus_method_resume, OPEN),
        SD_BUS_METHOD_WITH_ARGS("Snapshot", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("s", id, "o", snapshot),
                                bus_method_snapshot, OPEN),
        SD_BUS_METHOD_WITH_ARGS("Fork", SD_BUS_ARGS("u", n, "a{sv}", options),
                                SD_BUS_RESULT("a(" CUBE_BUS_FORKED ")", sandboxes), bus_method_fork, OPEN),
        SD_BUS_METHOD_WITH_ARGS("Rollback", SD_BUS_ARGS("s", snapshot, "a{sv}", options), SD_BUS_NO_RESULT,
                                bus_method_rollback, OPEN),

        SD_BUS_PROPERTY("Id", "s", bus_property_id, offsetof(Sandbox, id), CONST),
        SD_BUS_PROPERTY("State", "s", property_get_state, 0, CHANGES),
        SD_BUS_PROPERTY("StateChangedTimestamp", "t", NULL, offsetof(Sandbox, state_changed_usec), CHANGES),
        SD_BUS_PROPERTY("Owner", "u", bus_property_uid, offsetof(Sandbox, owner_uid), CONST),
        SD_BUS_PROPERTY("Tenant", "s", bus_property_id, offsetof(Sandbox, tenant), CONST),
        SD_BUS_PROPERTY("Template", "s", NULL, offsetof(Sandbox, template_id), CONST),
        SD_BUS_PROPERTY("TemplateName", "s", NULL, offsetof(Sandbox, template_name), CONST),
        SD_BUS_PROPERTY("Hostname", "s", NULL, offsetof(Sandbox, hostname), CONST),
        SD_BUS_PROPERTY("Memory", "t", NULL, offsetof(Sandbox, mem_bytes), CHANGES),
        SD_BUS_PROPERTY("CPUs", "u", NULL, offsetof(Sandbox, cpus), CONST),
        SD_BUS_PROPERTY("Disk", "t", NULL, offsetof(Sandbox, disk_bytes), CONST),
        SD_BUS_PROPERTY("CPUQuotaPerSecUSec", "t", NULL, offsetof(Sandbox, cpu_quota_usec), CHANGES),
        SD_BUS_PROPERTY("NetworkPolicy", "a{sv}", bus_property_sandbox_policy, 0, CHANGES),
        SD_BUS_PROPERTY("NetworkAddress", "s", bus_property_id, offsetof(Sandbox, address4), CHANGES),
        SD_BUS_PROPERTY("NetworkAddress6", "s", bus_property_id, offsetof(Sandbox, address6), CHANGES),
        SD_BUS_PROPERTY("NetworkBandwidthOutMax", "t", NULL, offsetof(Sandbox, net_limits.bytes_out), CHANGES),
        SD_BUS_PROPERTY("NetworkBandwidthInMax", "t", NULL, offsetof(Sandbox, net_limits.bytes_in), CHANGES),
        SD_BUS_PROPERTY("NetworkPacketsOutMax", "u", NULL, offsetof(Sandbox, net_limits.packets_out), CHANGES),
        SD_BUS_PROPERTY("NetworkPacketsInMax", "u", NULL, offsetof(Sandbox, net_limits.packets_in), CHANGES),
        SD_BUS_PROPERTY("NetworkNewConnectionsMax", "u", NULL, offsetof(Sandbox, net_limits.flows_new), CHANGES),
        SD_BUS_PROPERTY("NetworkOpenConnectionsMax", "u", NULL, offsetof(Sandbox, net_limits.flows_open), CHANGES),
        SD_BUS_PROPERTY("CreatedTimestamp", "t", NULL, offsetof(Sandbox, created_usec), CONST),
        SD_BUS_PROPERTY("TimeoutUSec", "t", NULL, offsetof(Sandbox, timeout_usec), CHANGES),
        SD_BUS_PROPERTY("Deadline", "t", NULL, offsetof(Sandbox, deadline_usec), CHANGES),
        SD_BUS_PROPERTY("IdleTimeoutUSec", "t", NULL, offsetof(Sandbox, idle_timeout_usec), CHANGES),
        SD_BUS_PROPERTY("OnTimeout", "s", property_get_on_timeout, 0, CONST),
        SD_BUS_PROPERTY("AutoResume", "b", property_get_auto_resume, 0, CHANGES),
        SD_BUS_PROPERTY("Parked", "b", property_get_parked, 0, CHANGES),
        SD_BUS_PROPERTY("Checkpoint", "s", property_get_checkpoint, 0, CONST),
        SD_BUS_PROPERTY("CheckpointIntervalUSec", "t", property_get_checkpoint_usec, 0, CONST),
        SD_BUS_PROPERTY("Scope", "s", NULL, offsetof(Sandbox, scope_name), CONST),
        SD_BUS_PROPERTY("VMMPID", "u", property_get_pid, 0, CHANGES),
        SD_BUS_PROPERTY("KernelRelease", "s", property_get_kernel, 0, CHANGES),
        SD_BUS_PROPERTY("Start", "s", property_get_start, 0, CHANGES),
        SD_BUS_PROPERTY("BaseSnapshot", "s", property_get_base_snapshot, 0, CHANGES),
        SD_BUS_PROPERTY("Labels", "a{ss}", property_get_labels, 0, CONST),
        SD_BUS_VTABLE_END
};
