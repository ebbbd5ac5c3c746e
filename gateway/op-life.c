/* SPDX-License-Identifier: Apache-2.0 */

/* One sandbox: looking at it, its time, its pause, its end. */

#include "base/clock.h"
#include "gateway/op-common.h"
#include "gateway/serve.h"

#define REFRESH_SECONDS_MAX 3600

static bool state_is(const Request *r, const char *state) {
        return streq(info_string(r->sandbox, "State"), state);
}

static bool is_paused(const Request *r) {
        return state_is(r, "paused") || state_is(r, "failed");
}

static void call_plain(Request *r, const char *method, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message_sandbox(r, method, &m);
        cubed_call(r, m, k, done);
}

static void call_set_timeout(Request *r, uint64_t usec, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message_sandbox(r, "SetTimeout", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "t", usec);
        cubed_call(r, m, k, done);
}

static void call_pause(Request *r, bool memory, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message_sandbox(r, "Pause", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "a{sv}", 1, "memory", "b", (int) memory);
        cubed_call(r, m, k, done);
}

void op_info(Request *r) {
        request_reply_json(r, MHD_HTTP_OK,
                           sandbox_to_json_detail(r->sandbox, &r->gateway->host_key, config_domain(&r->gateway->config)));
}

void op_kill(Request *r) {
        call_plain(r, "Kill", on_done_no_content);
}

/* Connecting: what is paused is resumed, and its time never becomes shorter, whoever else connects. Its guest is told again
 * to serve clients: it may have booted from its disk, whoever resumed it. */

static void reply_connected(Request *r, unsigned status, const sd_bus_error *error) {
        if (!error)
                reply_sandbox(r, status);
        else if (sd_bus_error_has_name(error, BUS_ERROR_NOT_RUNNING) || sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_SANDBOX) ||
                 sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT))
                reply_cubed_error(r, error);
        else
                reply_not_served(r, error);
}

static void on_served_resumed(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        reply_connected(r, MHD_HTTP_CREATED, error);
}

static void on_served_running(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        reply_connected(r, MHD_HTTP_OK, error);
}

static void serve(Request *r, CubedDone done) {
        const ServeSpec s = serve_spec(r, true, NULL);

        serve_envd(r, &s, done);
}

static void on_resumed(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_cubed_error(r, error);
        else
                serve(r, state_is(r, "running") ? on_served_running : on_served_resumed);
}

/* 0, or the request is answered. */
static int read_timeout(Request *r, const char *name, int64_t least, int64_t default_seconds, bool cut, uint64_t *ret) {
        ErrorText error = {};

        int k = timeout_parse(r->json, name, &r->gateway->config, least, default_seconds, cut, ret, &error);
        if (k < 0)
                reply_bad(r, k, &error);
        return k;
}

/* A body that says it wrongly was refused: check_memory(). */
static bool wants_memory(const Request *r) {
        ErrorText error = {};
        bool memory = true;

        (void) field_bool(r->json, "memory", &memory, &error);
        return memory;
}

static void connect_with(Request *r, uint64_t timeout) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message_sandbox(r, "Resume", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "a{sv}", 3, "memory", "b", (int) wants_memory(r), "wait", "b", 1, "timeout", "t", timeout);
        cubed_call(r, m, k, on_resumed);
}

/* 0, or the request is answered. */
static int check_memory(Request *r) {
        ErrorText error = {};
        bool memory;

        int k = field_bool(r->json, "memory", &memory, &error);
        if (k < 0)
                reply_bad(r, k, &error);
        return k < 0 ? k : 0;
}

void op_connect(Request *r) {
        uint64_t timeout;

        if (check_memory(r) < 0)
                return;
        if (read_timeout(r, "timeout", 1, request_is_v2(r) ? TIMEOUT_V2 : -1, false, &timeout) >= 0)
                connect_with(r, timeout);
}

void op_resume(Request *r) {
        uint64_t timeout;

        if (state_is(r, "running")) {
                request_reply_error(r, MHD_HTTP_CONFLICT, "Sandbox %s is already running", r->sandbox_id);
                return;
        }
        if (check_memory(r) < 0)
                return;
        if (read_timeout(r, "timeout", 1, TIMEOUT_V1, false, &timeout) >= 0)
                connect_with(r, timeout);
}

/* Time. */

void op_timeout(Request *r) {
        uint64_t timeout;

        if (read_timeout(r, "timeout", 0, -1, true, &timeout) < 0)
                return;
        if (!state_is(r, "running"))
                reply_no_sandbox(r);
        else
                /* None left is over at once, in the way that it was created with. */
                call_set_timeout(r, MAX(timeout, (uint64_t) 1), on_done_no_content);
}

void op_refresh(Request *r) {
        uint64_t timeout;

        if (read_timeout(r, "duration", 0, TIMEOUT_V1, true, &timeout) < 0)
                return;
        timeout = MIN(timeout, (uint64_t) REFRESH_SECONDS_MAX * USEC_PER_SEC);
        if (!state_is(r, "running"))
                reply_no_sandbox(r);
        else if (timeout == 0 || wall_usec() + timeout <= info_u64(r->sandbox, "Deadline"))
                request_reply(r, MHD_HTTP_NO_CONTENT);
        else
                call_set_timeout(r, timeout, on_done_no_content);
}

/* Pause. */

void op_pause(Request *r) {
        ErrorText error = {};
        bool memory = true;

        int k = field_bool(r->json, "memory", &memory, &error);
        if (k < 0)
                reply_bad(r, k, &error);
        else if (is_paused(r))
                request_reply_error(r, MHD_HTTP_CONFLICT, "Error pausing sandbox - sandbox '%s' is already paused", r->sandbox_id);
        else if (!state_is(r, "running") && !state_is(r, "pausing"))
                request_reply_error(r, MHD_HTTP_CONFLICT, "Sandbox '%s' cannot be paused while in '%s' state", r->sandbox_id,
                                    info_string(r->sandbox, "State"));
        else
                call_pause(r, memory, on_done_no_content);
}
