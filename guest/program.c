/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>
#include <signal.h>
#include <stdio.h>

#include "base/agent-proto.h"
#include "guest/agent.h"
#include "guest/json.h"
#include "guest/program.h"

#define OUTPUT_CHUNK (32U * 1024U)
#define TERMINAL_CHUNK (16U * 1024U)
#define CHUNKS_PER_TURN 4U
/* What a pipe holds. */
#define CHUNKS_AT_END 4U
#define RETAIN_USEC (30U * USEC_PER_SEC)
#define ENDED_MAX 256U
/* Of input that waits for the program to read. */
#define INPUT_BYTES_MAX (16U * 1024U * 1024U)

#define DATA_FORMAT "{\"event\":{\"data\":{\"%s\":\""
#define DATA_END "\"}}}"

static const char *const output_names[PROCESS_STREAMS] = {
        [AGENT_STREAM_STDOUT] = "stdout",
        [AGENT_STREAM_STDERR] = "stderr",
        [AGENT_STREAM_PTY] = "pty",
};

static void try_end(Program *p);

Program *program_find(Agent *a, uint32_t pid, const char *tag, bool ended) {
        for (Program *p = a->programs; p; p = p->list_next) {
                if (!p->running || (p->exited && !ended))
                        continue;
                if (tag ? p->tag && streq(p->tag, tag) : p->pid == pid)
                        return p;
        }
        return NULL;
}

static void send_start(const Program *p, ConnectCall *call) {
        char message[64];

        connect_send(call, message,
                     (size_t) snprintf(message, sizeof(message), "{\"event\":{\"start\":{\"pid\":%u}}}", p->pid));
}

static void send_data(Program *p, uint32_t which, const uint8_t *data, size_t size) {
        static char message[64 + BASE64_ENCODE_RAW_LENGTH(OUTPUT_CHUNK)];

        size_t n = (size_t) snprintf(message, sizeof(message), DATA_FORMAT, output_names[which]);
        base64_encode_raw(message + n, size, data);
        n += BASE64_ENCODE_RAW_LENGTH(size);
        memcpy(message + n, DATA_END, strlen(DATA_END));
        n += strlen(DATA_END);

        for (ConnectCall *call = p->listeners; call; call = call->list_next)
                connect_send(call, message, n);
}

/* As Go's os/exec says it, which is what clients compare with. */
static const char *signal_text(uint32_t number) {
        static const struct {
                int number;
                const char *text;
        } texts[] = {
                { SIGHUP, "hangup" }, { SIGINT, "interrupt" }, { SIGQUIT, "quit" }, { SIGILL, "illegal instruction" },
                { SIGTRAP, "trace/breakpoint trap" }, { SIGABRT, "aborted" }, { SIGBUS, "bus error" },
                { SIGFPE, "floating point exception" }, { SIGKILL, "killed" }, { SIGUSR1, "user defined signal 1" },
                { SIGSEGV, "segmentation fault" }, { SIGUSR2, "user defined signal 2" }, { SIGPIPE, "broken pipe" },
                { SIGALRM, "alarm clock" }, { SIGTERM, "terminated" },
        };

        for (size_t i = 0; i < ELEMENTSOF(texts); i++)
                if ((uint32_t) texts[i].number == number)
                        return texts[i].text;
        return NULL;
}

static json_object *end_event(const Program *p) {
        _cleanup_json_ json_object *end = json_object_new_object(), *event = json_object_new_object();
        json_object *message = json_object_new_object();
        char status[64];

        if (p->exit_signal > 0 && signal_text(p->exit_signal))
                snprintf(status, sizeof(status), "signal: %s", signal_text(p->exit_signal));
        else if (p->exit_signal > 0)
                snprintf(status, sizeof(status), "signal: signal %u", p->exit_signal);
        else
                snprintf(status, sizeof(status), "exit status %u", p->exit_code);

        json_put_int(end, "exitCode", p->exit_signal > 0 ? -1 : (int) p->exit_code);
        json_put(end, "exited", json_object_new_boolean(p->exit_signal == 0));
        json_put_text(end, "status", status);
        if (p->exit_signal > 0 || p->exit_code != 0)
                json_put_text(end, "error", status);
        json_put(event, "end", TAKE_PTR(end));
        json_put(message, "event", TAKE_PTR(event));
        return message;
}

static void send_end(const Program *p, ConnectCall *call) {
        _cleanup_json_ json_object *o = end_event(p);

        connect_send_json(call, o);
        connect_end(call);
}

/* Listeners */

static bool congested(const Program *p) {
        for (const ConnectCall *call = p->listeners; call; call = call->list_next)
                if (connect_congested(call))
                        return true;
        return false;
}

static void go_on(Program *p) {
        for (size_t i = 0; i < PROGRAM_OUTPUTS; i++)
                if (p->outputs[i].held) {
                        p->outputs[i].held = false;
                        (void) loop_rearm(&p->outputs[i].source);
                }
}

static void listener_drained(ConnectCall *call) {
        go_on(call->owner);
}

static void listener_gone(ConnectCall *call) {
        Program *p = call->owner;

        LIST_REMOVE(p->listeners, call);
        if (p->starter == call)
                p->starter = NULL;
        go_on(p);
}

static void add_listener(Program *p, ConnectCall *call) {
        LIST_PREPEND(p->listeners, call);
        call->owner = p;
        call->gone = listener_gone;
        call->drained = listener_drained;
}

void program_listen(Program *p, ConnectCall *call) {
        send_start(p, call);
        if (p->ended)
                send_end(p, call);
        else
                add_listener(p, call);
}

/* Those that wait for its exit */

static void killer_gone(ConnectCall *call) {
        Program *p = call->owner;

        LIST_REMOVE(p->killers, call);
}

void program_await_exit(Program *p, ConnectCall *call) {
        LIST_PREPEND(p->killers, call);
        call->owner = p;
        call->gone = killer_gone;
}

static void answer_killers(Program *p) {
        while (p->killers) {
                _cleanup_json_ json_object *nothing = json_object_new_object();
                ConnectCall *call = p->killers;

                LIST_REMOVE(p->killers, call);
                call->gone = NULL;
                connect_reply(call, nothing);
        }
}

/* Output */

static void output_ended(ProgramOutput *o) {
        Program *p = o->program;

        o->open = false;
        loop_remove(&o->source);
        /* While the program runs, closing our end of its terminal would hang up on it: that waits for its exit. */
        if (o->which != AGENT_STREAM_PTY) {
                process_close(p->process, o->which);
                process_detach(p->process, o->which);
        }
        try_end(p);
}

/* 1: there may be more, 0: none at the moment, -EPIPE: all has come */
static int read_output(ProgramOutput *o) {
        static uint8_t chunk[OUTPUT_CHUNK];

        ssize_t n = read(o->source.fd, chunk, o->which == AGENT_STREAM_PTY ? TERMINAL_CHUNK : OUTPUT_CHUNK);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return errno == EINTR;
        /* EIO is the end of a terminal. */
        if (n <= 0)
                return -EPIPE;
        send_data(o->program, o->which, chunk, (size_t) n);
        return 1;
}

static void write_inputs(Program *p);

static void on_output(LoopSource *s, uint32_t events) {
        ProgramOutput *o = s->userdata;
        int r = 1;

        o->held = false;
        if (o->which == AGENT_STREAM_PTY)
                write_inputs(o->program);
        for (unsigned i = 0; r > 0 && i < CHUNKS_PER_TURN; i++) {
                if (congested(o->program)) {
                        o->held = true;
                        return;
                }
                r = read_output(o);
        }
        if (r > 0)
                (void) loop_rearm(s);
        else if (r < 0)
                output_ended(o);
}

/* Input */

struct ProgramInput {
        ProgramInput *next;
        ConnectCall *call;      /* NULL: it has gone */
        ProgramWritten written;
        uint8_t *data;
        size_t size, offset;
};

static void input_free(ProgramInput *in) {
        free(in->data);
        free(in);
}

static void input_gone(ConnectCall *call) {
        ProgramInput *in = call->owner;
        in->call = NULL;
}

static void answer_input(ProgramInput *in, const Program *p, int error) {
        ConnectCall *call = TAKE_PTR(in->call);

        if (!call)
                return;
        call->gone = NULL;
        in->written(call, p, error);
}

static void end_input(Program *p) {
        loop_remove(&p->input_source);
        p->input = false;
        p->input_fd = -EBADF;
        if (p->process && !p->pty) {
                process_close(p->process, AGENT_STREAM_STDIN);
                process_detach(p->process, AGENT_STREAM_STDIN);
        }
}

/* 1: written, 0: it takes no more at the moment */
static int write_input(const Program *p, ProgramInput *in) {
        while (in->offset < in->size) {
                ssize_t n = write(p->input_fd, in->data + in->offset, in->size - in->offset);
                if (n < 0 && errno != EINTR)
                        return errno == EAGAIN ? 0 : -errno;
                if (n > 0)
                        in->offset += (size_t) n;
        }
        return 1;
}

static void write_inputs(Program *p) {
        while (p->inputs) {
                ProgramInput *in = p->inputs;

                int r = p->input ? write_input(p, in) : -EPIPE;
                if (r == 0)
                        return;
                p->inputs = in->next;
                answer_input(in, p, r);
                input_free(in);
                if (r < 0 && p->input && !p->pty)
                        end_input(p);
        }
        if (p->input_ends && p->input)
                end_input(p);
}

static void on_input(LoopSource *s, uint32_t events) {
        write_inputs(s->userdata);
}

static size_t input_bytes(const Program *p) {
        size_t n = 0;

        for (const ProgramInput *in = p->inputs; in; in = in->next)
                n += sizeof(*in) + in->size;
        return n;
}

void program_write(Program *p, ConnectCall *call, uint8_t **data, size_t size, ProgramWritten written) {
        /* It stays when its client goes: one that asks again and again would fill the memory. */
        if (input_bytes(p) + size > INPUT_BYTES_MAX) {
                connect_fail(call, CONNECT_RESOURCE_EXHAUSTED, "the program does not read its input: %u bytes of it wait at most",
                             INPUT_BYTES_MAX);
                return;
        }
        ProgramInput *in = new0(ProgramInput, 1), **end = &p->inputs;
        if (!in) {
                connect_fail(call, CONNECT_INTERNAL, "out of memory");
                return;
        }
        *in = (ProgramInput) { .call = call, .written = written, .data = TAKE_PTR(*data), .size = size };
        call->owner = in;
        call->gone = input_gone;
        while (*end)
                end = &(*end)->next;
        *end = in;
        write_inputs(p);
}

void program_close_input(Program *p) {
        p->input_ends = true;
        write_inputs(p);
}

/* Life */

void program_free(Program *p) {
        answer_killers(p);
        while (p->listeners)
                connect_end(p->listeners);
        while (p->inputs) {
                ProgramInput *in = p->inputs;

                p->inputs = in->next;
                answer_input(in, p, -EPIPE);
                input_free(in);
        }
        /* Only when the agent itself ends is something of the process still held. */
        if (p->waiter.process)
                process_remove_waiter(&p->waiter);
        for (size_t i = 0; i < PROGRAM_OUTPUTS; i++)
                loop_remove(&p->outputs[i].source);
        loop_remove(&p->input_source);
        LIST_REMOVE(p->agent->programs, p);
        loop_remove(&p->timer);
        json_object_put(p->config);
        free(p->tag);
        free(p);
}

static void forget_oldest(Agent *a) {
        Program *oldest = NULL;
        unsigned n = 0;

        for (Program *p = a->programs; p; p = p->list_next)
                if (p->ended) {
                        oldest = p;
                        n++;
                }
        if (n > ENDED_MAX)
                program_free(oldest);
}

static void on_retained(LoopSource *s, uint32_t events) {
        program_free(s->userdata);
}

static void end_program(Program *p) {
        Agent *a = p->agent;

        p->ended = true;
        json_object_put(TAKE_PTR(p->config));
        loop_remove(&p->timer);
        while (p->listeners)
                send_end(p, p->listeners);
        write_inputs(p);
        if (loop_add_timer(&a->loop, &p->timer, RETAIN_USEC, on_retained, p) < 0)
                program_free(p);
        else
                forget_oldest(a);
}

/* Of a program that was killed: what it had written before. Its children may go on, and then write to nobody. */
static void leave_output(ProgramOutput *o) {
        Program *p = o->program;
        int r = 1;

        for (unsigned i = 0; o->open && r > 0 && i < CHUNKS_AT_END; i++)
                r = read_output(o);
        o->held = false;
        loop_remove(&o->source);
        if (o->which == AGENT_STREAM_PTY && !o->open) {
                process_close(p->process, o->which);
                process_detach(p->process, o->which);
        } else if (o->open)
                process_abandon(p->process, o->which);
        o->open = false;
}

static void try_end(Program *p) {
        bool open = false;

        for (size_t i = 0; i < PROGRAM_OUTPUTS; i++)
                open |= p->outputs[i].open;
        if (p->ended || !p->exited || (open && !p->killed))
                return;

        if (p->input)
                end_input(p);
        for (size_t i = 0; i < PROGRAM_OUTPUTS; i++)
                if (p->outputs[i].program && (p->outputs[i].open || p->outputs[i].which == AGENT_STREAM_PTY))
                        leave_output(&p->outputs[i]);
        p->process = NULL;
        end_program(p);
}

static void on_exited(Waiter *w) {
        Program *p = (Program *) w;

        p->exited = true;
        p->exit_code = p->process->exit_code;
        p->exit_signal = p->process->exit_signal;
        p->process->waited = true;
        process_remove_waiter(w);
        answer_killers(p);
        try_end(p);
}

int program_kill(Program *p, int signal) {
        p->killed |= signal == SIGKILL || signal == SIGTERM;
        return kill((pid_t) p->pid, signal) < 0 ? -errno : 0;
}

static void on_timeout(LoopSource *s, uint32_t events) {
        Program *p = s->userdata;

        loop_remove(&p->timer);
        if (p->starter)
                connect_fail(p->starter, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
        p->killed = true;
        if (p->exited)
                try_end(p);
        else
                (void) program_kill(p, SIGKILL);
}

static int watch_output(Program *p, size_t i, uint32_t which, uint32_t events) {
        ProgramOutput *o = &p->outputs[i];
        int fd;

        int r = process_attach(p->process, which, p, &fd);
        if (r < 0)
                return r;
        *o = (ProgramOutput) { .program = p, .which = which, .open = true };
        r = loop_add(&p->agent->loop, &o->source, fd, events, on_output, o);
        if (r < 0) {
                *o = (ProgramOutput) {};
                process_detach(p->process, which);
                return r;
        }
        if (which == AGENT_STREAM_PTY)
                p->input_fd = fd;
        return 0;
}

static int watch_pipes(Program *p) {
        int r = watch_output(p, 0, AGENT_STREAM_STDOUT, EPOLLIN|EPOLLRDHUP|EPOLLET);
        if (r >= 0)
                r = watch_output(p, 1, AGENT_STREAM_STDERR, EPOLLIN|EPOLLRDHUP|EPOLLET);
        if (r < 0 || !p->input)
                return r;
        r = process_attach(p->process, AGENT_STREAM_STDIN, p, &p->input_fd);
        return r < 0 ? r : loop_add(&p->agent->loop, &p->input_source, p->input_fd, EPOLLOUT|EPOLLET, on_input, p);
}

static void fail_start(Program *p, const char *message) {
        const char *cmd = "";
        json_object *o;

        if (json_object_object_get_ex(p->config, "cmd", &o))
                cmd = json_object_get_string(o);
        if (p->starter)
                connect_fail(p->starter, CONNECT_INVALID_ARGUMENT, "error starting process '%s': %s", cmd, message);
        program_free(p);
}

/* E2B's envd starts all by a shell, and so a program that can't be run is one that fails. */
static void run_nothing(Program *p, const SpawnFailure *failure) {
        p->running = p->exited = true;
        p->exit_code = failure->error == ENOENT ? 127 : 126;
        if (p->starter)
                send_start(p, p->starter);
        char text[sizeof(failure->message) + 1];
        send_data(p, AGENT_STREAM_STDERR, (const uint8_t *) text,
                  (size_t) snprintf(text, sizeof(text), "%s\n", failure->message));
        p->input = false;
        end_program(p);
}

static void on_started(Process *process, const SpawnFailure *failure) {
        Program *p = process->owner;

        p->pid = (uint32_t) process->pid;
        if (failure && failure->program) {
                run_nothing(p, failure);
                return;
        }
        if (failure) {
                fail_start(p, failure->message);
                return;
        }

        p->running = true;
        p->process = process;
        p->waiter.exited = on_exited;
        process_add_waiter(process, &p->waiter);
        if (p->starter)
                send_start(p, p->starter);
        int r = p->pty ? watch_output(p, 0, AGENT_STREAM_PTY, LOOP_EDGES) : watch_pipes(p);
        if (r >= 0 && p->timeout_usec > 0)
                r = loop_add_timer(&p->agent->loop, &p->timer, p->timeout_usec, on_timeout, p);
        /* Nobody could follow it. */
        if (r < 0)
                (void) program_kill(p, SIGKILL);
}

int program_start(ConnectCall *call, Request *q, char **tag, json_object **config) {
        Agent *a = call->agent;

        Program *p = new0(Program, 1);
        if (!p)
                return -ENOMEM;
        *p = (Program) {
                .agent = a,
                .tag = TAKE_PTR(*tag),
                .config = TAKE_PTR(*config),
                .pty = q->pty,
                .input = q->pty || !q->no_input,
                .input_fd = -EBADF,
                .starter = call,
                .timeout_usec = call->timeout_usec,
        };
        LIST_PREPEND(a->programs, p);
        int r = process_start(a, q, &call->user, on_started, NULL, p);
        if (r < 0) {
                p->starter = NULL;
                program_free(p);
                return r;
        }
        call->own_deadline = true;
        add_listener(p, call);
        return 0;
}
