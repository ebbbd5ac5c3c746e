/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>
#include <termios.h>

#include "base/agent-proto.h"
#include "guest/process-stream.h"
#include "guest/process.h"
#include "guest/relay.h"
#include "guest/transport.h"

typedef struct ProcessStream {
        Relay relay;
        Process *process;
        uint32_t which;
        int found;              /* RELAY_*, not acted upon yet */
        bool end_of_file;       /* Ctrl-D has been typed for the host */
        bool input_ended;       /* by a host that was still there */
        bool abandoned;
} ProcessStream;

static const char *const stream_names[PROCESS_STREAMS] = {
        [AGENT_STREAM_STDIN] = "stdin",
        [AGENT_STREAM_STDOUT] = "stdout",
        [AGENT_STREAM_STDERR] = "stderr",
        [AGENT_STREAM_PTY] = "terminal",
};

static void process_stream_done(Stream *s) {
        ProcessStream *x = s->state;

        relay_done(&x->relay);
        if (x->abandoned)
                process_abandon(x->process, x->which);
        else
                process_detach(x->process, x->which);
        free(x);
}

/* A terminal can't be half-closed. What a person at it would do is to press Ctrl-D, and that means
 * the end to line editors too, which have switched the kernel's own meaning of it off. */
static void type_end_of_file(ProcessStream *x) {
        struct termios t;

        if (x->end_of_file)
                return;
        x->end_of_file = true;
        if (tcgetattr(x->relay.local_fd, &t) >= 0 &&
            pump_push(&x->relay.up, &t.c_cc[VEOF], 1) >= 0) {
                x->relay.up_open = true;
                stream_wake(x->relay.stream);
        }
}

static void close_local(ProcessStream *x) {
        loop_remove(&x->relay.local);
        process_close(x->process, x->which);
}

static void act_on_terminal(ProcessStream *x, int what) {
        Stream *s = x->relay.stream;

        if (what & RELAY_DOWN_END) {
                /* A program may close its terminal just before it exits (cat does): closing our end
                 * then would end it by SIGHUP in place of its own status. */
                if (x->process->exited)
                        close_local(x);
                stream_free(s);
        } else if (what & RELAY_HOST_GONE) {
                process_hang_up(x->process);
                stream_free(s);
        } else if (what & RELAY_UP_END)
                type_end_of_file(x);
}

/* As between programs on one host: the end of input closes the pipe, and a reader that goes away means
 * SIGPIPE to the writer. */
static void act_on_pipe(ProcessStream *x) {
        Stream *s = x->relay.stream;

        close_local(x);
        stream_free(s);
}

static void process_stream_run(Stream *s, uint32_t events) {
        ProcessStream *x = s->state;
        bool hung_up = events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR);

        if (hung_up && x->which == AGENT_STREAM_STDIN && !transport_peer_gone(s->fd))
                x->input_ended = true;

        x->found |= relay_run(&x->relay, events);
        /* A program that reads no input must not keep the loss of the terminal from being seen. */
        if (x->found == 0 && hung_up && x->which == AGENT_STREAM_PTY && transport_peer_gone(s->fd))
                x->found = RELAY_HOST_GONE;

        if (x->found == 0 || ((x->found & (RELAY_UP_END|RELAY_HOST_GONE)) && stream_in_doubt(s)))
                return;
        int what = x->found;
        x->found = 0;
        if (x->which == AGENT_STREAM_PTY)
                act_on_terminal(x, what);
        else
                act_on_pipe(x);
}

static void process_stream_abandon(Stream *s) {
        ProcessStream *x = s->state;

        /* All of the input had come before, up to its end: the program still gets it. */
        if (x->input_ended) {
                outbox_done(&s->out);
                return;
        }
        x->abandoned = true;
        stream_free(s);
}

void process_stream_start(Stream *s, Request *q) {
        static const StreamKind kind = {
                .run = process_stream_run,
                .done = process_stream_done,
                .abandon = process_stream_abandon,
        };
        int fd;

        Process *p = process_find(s->agent, q->pid);
        if (!p || p->starting) {
                stream_answer_error(s, -ESRCH, "process %u: not started by the agent", q->pid);
                return;
        }

        const char *name = q->stream < PROCESS_STREAMS ? stream_names[q->stream] : "unknown stream";
        int r = process_attach(p, q->stream, s, &fd);
        if (r < 0) {
                stream_answer_error(s, r, "%s of process %u: %s", name, q->pid,
                                    r == -EINVAL ? "there is none" :
                                    r == -EBUSY  ? "attached already" : "closed");
                return;
        }

        ProcessStream *x = new0(ProcessStream, 1);
        bool in = q->stream == AGENT_STREAM_STDIN;
        r = x ? relay_init(&x->relay, s, fd, in || p->pty, !in) : -ENOMEM;
        if (r < 0) {
                free(x);
                process_detach(p, q->stream);
                stream_answer_error(s, r, "%s of process %u: %s", name, q->pid, strerror(-r));
                return;
        }

        x->process = p;
        x->which = q->stream;
        stream_set_kind(s, &kind, x);
        stream_answer_ok(s, NULL);
}

static void wait_stream_exited(Waiter *w) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        Process *p = w->process;

        if (p->exit_signal > 0)
                tlv_put_u32(&body, AGENT_TAG_EXIT_SIGNAL, p->exit_signal);
        else
                tlv_put_u32(&body, AGENT_TAG_EXIT_CODE, p->exit_code);
        tlv_put_u32(&body, AGENT_TAG_TIMED_OUT, p->timed_out);

        if (tlv_writer_finish(&body) >= 0 &&
            outbox_put_frame(&w->stream->out, AGENT_EXITED, 0, w->stream->id, body.data, body.size) >= 0)
                p->waited = true;
        process_remove_waiter(w);
        stream_finish(w->stream);
}

static void wait_stream_run(Stream *s, uint32_t events) {
        if ((events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR)) && transport_peer_gone(s->fd))
                stream_free(s);
}

static void wait_stream_done(Stream *s) {
        Waiter *w = s->state;

        if (w->process)
                process_remove_waiter(w);
        free(w);
}

void wait_stream_start(Stream *s, Request *q) {
        static const StreamKind kind = { .run = wait_stream_run, .done = wait_stream_done };

        Process *p = process_find(s->agent, q->pid);
        if (!p || p->starting) {
                stream_answer_error(s, -ESRCH, "process %u: not started by the agent", q->pid);
                return;
        }
        Waiter *w = new0(Waiter, 1);
        if (!w) {
                stream_answer_error(s, -ENOMEM, "process %u: out of memory", q->pid);
                return;
        }

        w->stream = s;
        w->exited = wait_stream_exited;
        stream_set_kind(s, &kind, w);
        stream_answer_ok(s, NULL);
        process_add_waiter(p, w);
        if (p->exited)
                w->exited(w);
}
