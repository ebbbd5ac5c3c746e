/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/agent-proto.h"
#include "guest/agent.h"
#include "guest/envd-path.h"
#include "guest/envd-process.h"
#include "guest/json.h"
#include "guest/program.h"

#define KEEPALIVE "{\"event\":{\"keepalive\":{}}}"
#define BAD_REQUEST "the request is no message of this method"

/* Start */

static int add_text(StringList *l, char *text) {
        int r = text ? strings_add(l, text) : -ENOMEM;
        if (r < 0)
                free(text);
        return r;
}

static int add_arguments(Request *q, const char *cmd, json_object *args) {
        int r = add_text(&q->argv, strdup(cmd));

        for (size_t i = 0; r >= 0 && args && i < json_object_array_length(args); i++) {
                json_object *arg = json_object_array_get_idx(args, i);
                const char *text = json_object_get_string(arg);

                if (!json_object_is_type(arg, json_type_string) || strlen(text) != (size_t) json_object_get_string_len(arg))
                        return -EBADMSG;
                r = add_text(&q->argv, strdup(text));
        }
        return r;
}

static int add_variables(Request *q, const Envd *e, json_object *envs) {
        int r = add_text(&q->env, strdup("E2B_SANDBOX=true"));

        for (size_t i = 0; r >= 0 && i < e->env.n; i++)
                r = envd_set_variable(&q->env, strdup(e->env.items[i]));
        if (r < 0 || !envs)
                return r;
        json_object_object_foreach(envs, name, value) {
                const char *text = json_object_get_string(value);
                char *assignment;

                if (!json_object_is_type(value, json_type_string) || !*name || strchr(name, '=') ||
                    strlen(text) != (size_t) json_object_get_string_len(value))
                        return -EBADMSG;
                r = envd_set_variable(&q->env, asprintf(&assignment, "%s=%s", name, text) < 0 ? NULL : assignment);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int parse_size(json_object *pty, Request *q) {
        json_object *size;

        q->pty = 1;
        q->cols = 80;
        q->rows = 24;
        int r = json_get_object(pty, "size", &size);
        if (r <= 0)
                return r;
        if (json_get_u32(size, "cols", &q->cols) < 0 || json_get_u32(size, "rows", &q->rows) < 0)
                return -EBADMSG;
        q->present |= UINT64_C(1) << AGENT_TAG_COLS | UINT64_C(1) << AGENT_TAG_ROWS;
        return q->cols <= UINT16_MAX && q->rows <= UINT16_MAX ? 1 : -EBADMSG;
}

typedef struct Wanted {
        const char *cmd, *cwd, *tag;
        json_object *config, *args, *envs;
} Wanted;

static int parse_start(json_object *request, Request *q, Wanted *w) {
        bool input = true;
        json_object *pty;

        *w = (Wanted) { .cwd = "" };
        if (json_get_object(request, "process", &w->config) <= 0 || json_get_text(w->config, "cmd", &w->cmd) <= 0 || !*w->cmd ||
            json_get_array(w->config, "args", &w->args) < 0 || json_get_object(w->config, "envs", &w->envs) < 0 ||
            json_get_text(w->config, "cwd", &w->cwd) < 0 || json_get_text(request, "tag", &w->tag) < 0 ||
            json_get_bool(request, "stdin", &input) < 0)
                return -EBADMSG;
        q->no_input = !input;
        int r = json_get_object(request, "pty", &pty);
        return r <= 0 ? r : parse_size(pty, q);
}

/* What List says of it: nothing that the client did not say, and nothing else that it did. */
static json_object *make_config(const Wanted *w) {
        json_object *config = json_object_new_object();

        json_put_text(config, "cmd", w->cmd);
        if (w->args)
                json_put(config, "args", json_object_get(w->args));
        if (w->envs)
                json_put(config, "envs", json_object_get(w->envs));
        if (*w->cwd)
                json_put_text(config, "cwd", w->cwd);
        return config;
}

static bool set_directory(ConnectCall *call, Request *q, const Wanted *w) {
        struct stat st;

        int r = envd_path(&call->agent->envd, &call->user, w->cwd, &q->cwd);
        if (r < 0)
                connect_fail(call, r == -EINVAL ? CONNECT_INVALID_ARGUMENT : CONNECT_INTERNAL, "%s",
                             r == -EINVAL ? "cannot expand user-specific home dir" : strerror(-r));
        else if (stat(q->cwd, &st) < 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist", q->cwd);
        else
                return true;
        return false;
}

static void process_start_call(ConnectCall *call, json_object *request) {
        _cleanup_json_ json_object *config = NULL;
        _cleanup_request_ Request q = {};
        _cleanup_free_ char *tag = NULL;
        Wanted w;

        if (parse_start(request, &q, &w) < 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
                return;
        }
        if (!set_directory(call, &q, &w))
                return;
        if (call->agent->n_live >= PROCESSES_LIVE_MAX) {
                connect_fail(call, CONNECT_RESOURCE_EXHAUSTED, "%u processes run already", call->agent->n_live);
                return;
        }

        int r = add_arguments(&q, w.cmd, w.args);
        if (r >= 0)
                r = add_variables(&q, &call->agent->envd, w.envs);
        config = make_config(&w);
        tag = w.tag ? strdup(w.tag) : NULL;
        if (r >= 0)
                r = program_start(call, &q, &tag, &config);
        if (r == -EBADMSG)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
        else if (r < 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "error starting process '%s': %s", w.cmd, strerror(-r));
}

/* The others speak of one that is known. */

static Program *find(ConnectCall *call, json_object *request, bool ended) {
        json_object *selector;
        const char *tag = NULL;
        uint32_t pid = 0;

        if (json_get_object(request, "process", &selector) <= 0 || json_get_u32(selector, "pid", &pid) < 0 ||
            json_get_text(selector, "tag", &tag) < 0 || (pid == 0 && !tag)) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
                return NULL;
        }
        Program *p = program_find(call->agent, pid, tag, ended);
        if (!p && tag)
                connect_fail(call, CONNECT_NOT_FOUND, "process with tag %s not found", tag);
        else if (!p)
                connect_fail(call, CONNECT_NOT_FOUND, "process with pid %u not found", pid);
        return p;
}

static void process_connect_call(ConnectCall *call, json_object *request) {
        Program *p = find(call, request, true);

        if (p)
                program_listen(p, call);
}

static void process_list_call(ConnectCall *call, json_object *request) {
        _cleanup_json_ json_object *answer = json_object_new_object();
        json_object *list = json_object_new_array();

        for (Program *p = call->agent->programs; p && list; p = p->list_next) {
                if (!p->running || p->exited)
                        continue;
                json_object *o = json_object_new_object();
                json_put(o, "config", json_object_get(p->config));
                json_put_int(o, "pid", p->pid);
                if (p->tag)
                        json_put_text(o, "tag", p->tag);
                json_object_array_add(list, o);
        }
        json_put(answer, "processes", list);
        connect_reply(call, answer);
}

static void reply_nothing(ConnectCall *call) {
        _cleanup_json_ json_object *o = json_object_new_object();

        connect_reply(call, o);
}

/* Padding may lack, and the alphabet may be that of URLs. */
static int decode_bytes(const char *text, size_t size, uint8_t **ret, size_t *ret_size) {
        _cleanup_free_ char *standard = malloc(size + 4);
        _cleanup_free_ uint8_t *data = malloc(BASE64_DECODE_LENGTH(size + 3) + 1);
        struct base64_decode_ctx ctx;

        if (!standard || !data)
                return -ENOMEM;
        for (size_t i = 0; i < size; i++)
                standard[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
        while (size % 4 != 0)
                standard[size++] = '=';
        size_t n = BASE64_DECODE_LENGTH(size);
        base64_decode_init(&ctx);
        if (!base64_decode_update(&ctx, &n, data, size, standard) || !base64_decode_final(&ctx))
                return -EBADMSG;
        *ret = TAKE_PTR(data);
        *ret_size = n;
        return 0;
}

/* Of one message, or of one in a stream. */
static void write_input(ConnectCall *call, Program *p, json_object *input, ProgramWritten written) {
        _cleanup_free_ uint8_t *data = NULL;
        const char *text;
        size_t size;

        int terminal = json_get_text(input, "pty", &text), pipe = terminal > 0 ? 0 : json_get_text(input, "stdin", &text);
        if (terminal < 0 || pipe < 0 || (terminal == 0 && pipe == 0) || decode_bytes(text, strlen(text), &data, &size) < 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
        else if (terminal && !p->pty)
                connect_fail(call, CONNECT_INTERNAL,
                             "error writing to tty: tty not assigned to process — input should be written to the stdin");
        else if (pipe && p->pty)
                connect_fail(call, CONNECT_INTERNAL, "error writing to stdin: tty assigned to process — "
                                                     "input should be written to the pty, not the stdin");
        else if (!p->input || p->input_ends)
                connect_fail(call, CONNECT_INTERNAL, "error writing to stdin: stdin not enabled or closed");
        else
                program_write(p, call, &data, size, written);
}

static void fail_input(ConnectCall *call, const Program *p, int error) {
        connect_fail(call, CONNECT_INTERNAL, "error writing to %s: %s", p->pty ? "tty" : "stdin", strerror(-error));
}

static void on_input_written(ConnectCall *call, const Program *p, int error) {
        if (error < 0)
                fail_input(call, p, error);
        else
                reply_nothing(call);
}

static void process_send_input_call(ConnectCall *call, json_object *request) {
        json_object *input;

        Program *p = find(call, request, false);
        if (!p)
                return;
        if (json_get_object(request, "input", &input) <= 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
        else
                write_input(call, p, input, on_input_written);
}

/* StreamInput: whose it is comes first, then its input, and signs of life between. */

static void on_streamed(ConnectCall *call, const Program *p, int error) {
        if (error < 0)
                fail_input(call, p, error);
        else
                connect_resume(call);
}

static void stream_data(ConnectCall *call, json_object *data) {
        json_object *input;

        Program *p = call->pid > 0 ? program_find(call->agent, call->pid, NULL, false) : NULL;
        if (call->pid == 0 || json_get_object(data, "input", &input) <= 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
        else if (!p)
                connect_fail(call, CONNECT_NOT_FOUND, "process with pid %u not found", call->pid);
        else {
                connect_hold(call);
                write_input(call, p, input, on_streamed);
        }
}

static void process_stream_input_message(ConnectCall *call, json_object *message) {
        json_object *part;

        int r = json_get_object(message, "start", &part);
        if (r > 0) {
                Program *p = find(call, part, false);
                if (p)
                        call->pid = p->pid;
                return;
        }
        if (r == 0)
                r = json_get_object(message, "data", &part);
        if (r > 0)
                stream_data(call, part);
        else if (r < 0 || json_get_object(message, "keepalive", &part) <= 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
}

/* By name, or by number as protocol buffers have it too. */
static void process_send_signal_call(ConnectCall *call, json_object *request) {
        const char *name = "";
        uint32_t number = 0;

        Program *p = find(call, request, false);
        if (!p)
                return;
        if (json_get_text(request, "signal", &name) < 0 && json_get_u32(request, "signal", &number) < 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
                return;
        }
        if (streq(name, "SIGNAL_SIGKILL"))
                number = SIGKILL;
        else if (streq(name, "SIGNAL_SIGTERM"))
                number = SIGTERM;
        if (number != SIGKILL && number != SIGTERM) {
                connect_fail(call, CONNECT_UNIMPLEMENTED, "invalid signal: %s", name);
                return;
        }
        int r = program_kill(p, (int) number);
        if (r < 0)
                connect_fail(call, r == -ESRCH ? CONNECT_NOT_FOUND : CONNECT_INTERNAL, "error sending signal: %s", strerror(-r));
        else if (number == SIGKILL)
                program_await_exit(p, call);
        else
                reply_nothing(call);
}

static void process_close_stdin_call(ConnectCall *call, json_object *request) {
        Program *p = find(call, request, false);

        if (!p)
                return;
        if (p->pty) {
                connect_fail(call, CONNECT_UNKNOWN,
                             "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead");
                return;
        }
        program_close_input(p);
        reply_nothing(call);
}

static void process_update_call(ConnectCall *call, json_object *request) {
        json_object *pty;
        Request size = {};

        Program *p = find(call, request, false);
        if (!p)
                return;
        int r = json_get_object(request, "pty", &pty);
        if (r > 0)
                r = parse_size(pty, &size);
        struct winsize ws = { .ws_row = (unsigned short) size.rows, .ws_col = (unsigned short) size.cols };
        if (r < 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, BAD_REQUEST);
        else if (r > 0 && !p->pty)
                connect_fail(call, CONNECT_INTERNAL, "error resizing tty: tty not assigned to process");
        else if (r > 0 && ioctl(p->input_fd, TIOCSWINSZ, &ws) < 0)
                connect_fail(call, CONNECT_INTERNAL, "error resizing tty: %s", strerror(errno));
        else
                reply_nothing(call);
}

const ConnectMethod process_methods[] = {
        { "/process.Process/Start", true, KEEPALIVE, process_start_call },
        { "/process.Process/Connect", true, KEEPALIVE, process_connect_call },
        { "/process.Process/List", false, NULL, process_list_call },
        { "/process.Process/SendInput", false, NULL, process_send_input_call },
        { "/process.Process/StreamInput", true, NULL, NULL, process_stream_input_message },
        { "/process.Process/SendSignal", false, NULL, process_send_signal_call },
        { "/process.Process/CloseStdin", false, NULL, process_close_stdin_call },
        { "/process.Process/Update", false, NULL, process_update_call },
        {},
};
