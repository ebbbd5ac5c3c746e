/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/create-options.h"
#include "ctl/text.h"
#include "ctl/values.h"

static int parse_on_timeout(const char *s, const char **ret) {
        if (!streq(s, "kill") && !streq(s, "pause") && !streq(s, "pause-disk"))
                return ctl_usage("--on-timeout=%s is not known: kill, pause or pause-disk.", s);
        *ret = s;
        return 1;
}

static int parse_checkpoint(const char *s, uint64_t *ret) {
        if (streq(s, "exec")) {
                *ret = UINT64_MAX;
                return 1;
        }
        if (parse_usec(s, ret) < 0 || *ret < USEC_PER_SEC || *ret == UINT64_MAX)
                return ctl_usage("--checkpoint=%s is neither exec nor an interval of a second or more.", s);
        return 1;
}

static int parse_auto_resume(CreateOptions *o, const char *s) {
        int r = s ? parse_bool(s) : 1;

        if (r < 0)
                return ctl_usage("--auto-resume=%s is neither yes nor no.", s);
        o->auto_resume = r;
        o->auto_resume_given = true;
        return 1;
}

static int add_label(CreateOptions *o, const char *s) {
        if (!strchr(s, '=') || *s == '=')
                return ctl_usage("--label=%s is not KEY=VALUE.", s);
        int r = text_strv_add(&o->labels, s);
        return r < 0 ? r : 1;
}

static int check_one_source(const CreateOptions *o) {
        if (o->template && o->source)
                return ctl_usage("--template=%s and %s are two things to start from.", o->template, o->source);
        return 1;
}

int create_option(CreateOptions *o, int c) {
        switch (c) {
        case CREATE_TEMPLATE:
                if (isempty(optarg))
                        return ctl_usage("--template= needs a name; 'cubectl template list' shows them.");
                o->template = optarg;
                return check_one_source(o);
        case CREATE_DISK:
                return value_size("disk", optarg, &o->disk_bytes);
        case CREATE_CPUS:
                return value_cpus(optarg, &o->cpus);
        case CREATE_TIMEOUT:
                return value_time("timeout", optarg, &o->timeout_usec);
        case CREATE_IDLE_TIMEOUT:
                return value_time("idle-timeout", optarg, &o->idle_timeout_usec);
        case CREATE_ON_TIMEOUT:
                return parse_on_timeout(optarg, &o->on_timeout);
        case CREATE_AUTO_RESUME:
                return parse_auto_resume(o, optarg);
        case CREATE_CHECKPOINT:
                return parse_checkpoint(optarg, &o->checkpoint_usec);
        case CREATE_HOSTNAME:
                o->hostname = optarg;
                return 1;
        case CREATE_LABEL:
                return add_label(o, optarg);
        case CREATE_REQUEST_ID:
                o->request_id = optarg;
                return 1;
        }
        int r = policy_option(&o->policy, CTL_OPTION_POLICY, "network", c);
        return r != 0 ? r : limit_option(&o->limits, c);
}

int create_source(CreateOptions *o, const char *s) {
        if (!startswith(s, "snapshot:") && !startswith(s, "template:"))
                return 0;
        o->source = s;
        return check_one_source(o);
}

void create_options_done(CreateOptions *o) {
        o->labels = text_strv_free(o->labels);
        policy_options_done(&o->policy);
}

static int append_string(sd_bus_message *m, const char *name, const char *value) {
        return value ? sd_bus_message_append(m, "{sv}", name, "s", value) : 0;
}

static int append_u64(sd_bus_message *m, const char *name, uint64_t value) {
        return value > 0 ? sd_bus_message_append(m, "{sv}", name, "t", value) : 0;
}

int create_append_labels(sd_bus_message *m, char **labels) {
        int r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", "labels");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{ss}");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{ss}");
        for (; r >= 0 && *labels; labels++) {
                const char *eq = strchr(*labels, '=');
                _cleanup_free_ char *key = strndup(*labels, (size_t) (eq - *labels));
                r = key ? sd_bus_message_append(m, "{ss}", key, eq + 1) : -ENOMEM;
        }
        for (size_t i = 0; r >= 0 && i < 3; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

static int append_checkpoint(sd_bus_message *m, uint64_t usec) {
        return usec == UINT64_MAX ? append_string(m, "checkpoint", "exec") : append_u64(m, "checkpoint", usec);
}

int create_options_append(sd_bus_message *m, const CreateOptions *o) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = append_u64(m, "disk", o->disk_bytes);
        if (r >= 0)
                r = append_u64(m, "timeout", o->timeout_usec);
        if (r >= 0)
                r = append_u64(m, "idle-timeout", o->idle_timeout_usec);
        if (r >= 0)
                r = append_string(m, "on-timeout", o->on_timeout);
        if (r >= 0 && o->auto_resume_given)
                r = sd_bus_message_append(m, "{sv}", "auto-resume", "b", (int) o->auto_resume);
        if (r >= 0)
                r = append_checkpoint(m, o->checkpoint_usec);
        if (r >= 0 && o->cpus > 0)
                r = sd_bus_message_append(m, "{sv}", "cpus", "u", o->cpus);
        if (r >= 0)
                r = append_string(m, "hostname", o->hostname);
        if (r >= 0)
                r = append_string(m, "request-id", o->request_id);
        if (r >= 0 && o->labels)
                r = create_append_labels(m, o->labels);
        if (r >= 0)
                r = policy_options_append_entry(m, "network-policy", &o->policy);
        if (r >= 0)
                r = limit_options_append(m, &o->limits);
        if (r >= 0 && o->bind_client)
                r = sd_bus_message_append(m, "{sv}", "bind-client", "b", 1);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int create_sandbox(sd_bus *bus, const CreateOptions *o, char ret_id[static SANDBOX_ID_MAX]) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *source = NULL;
        const char *id;

        if (!o->source && asprintf(&source, "template:%s", strempty(o->template)) < 0)
                return -ENOMEM;

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER,
                                               "CreateSandbox");
        if (r >= 0)
                r = sd_bus_message_append(call, "s", o->source ? o->source : source);
        if (r >= 0)
                r = create_options_append(call, o);
        if (r >= 0)
                r = ctl_call_message(bus, "Starting a sandbox", call, &reply, &error);
        if (r >= 0)
                r = sd_bus_message_read(reply, "so", &id, NULL);
        if (r >= 0 && !sandbox_id_valid(id))
                r = -EBADMSG;
        if (r < 0)
                return ctl_fail(r, &error, "create a sandbox");

        strcpy(ret_id, id);
        return 0;
}

void end_sandbox(sd_bus *bus, const char *id) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        int r = ctl_call_sandbox(bus, "Ending the sandbox", id, "Kill", NULL, &error, NULL);
        if (r < 0 && !sd_bus_error_has_name(&error, BUS_ERROR_NO_SUCH_SANDBOX) &&
            !sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_OBJECT))
                ctl_fail(r, &error, "end sandbox %s", id);
}
