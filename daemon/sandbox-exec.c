/* SPDX-License-Identifier: Apache-2.0 */

/* Starting a program: EXEC on the control stream gives a pid, then each of its streams is a
 * connection of its own whose client end is handed out. If one can't be opened, the program is
 * killed: nobody would ever read from it. */

#include <signal.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

#define EXEC_STREAMS_MAX 3U

typedef struct Exec {
        Sandbox *sandbox;
        ExecDone done;
        void *userdata;
        bool pty;
        uint32_t pid;
        unsigned life;         /* of the guest that has it */
        int fds[EXEC_STREAMS_MAX];
        size_t n_fds;          /* wanted */
        size_t n_waiting;      /* asked for */
        TlvWriter request;     /* until it is sent */
        sd_bus_error error;    /* the first */
} Exec;

/* The environment does not stay in memory that is used again. */
static void forget_request(Exec *e) {
        if (e->request.data)
                explicit_bzero(e->request.data, e->request.size);
        tlv_writer_done(&e->request);
        e->request = (TlvWriter) {};
}

static Exec *exec_free(Exec *e) {
        close_many(e->fds, ELEMENTSOF(e->fds));
        sd_bus_error_free(&e->error);
        forget_request(e);
        free(e);
        return NULL;
}

static void exec_kill(Exec *e) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);

        tlv_put_u32(&w, AGENT_TAG_PID, e->pid);
        tlv_put_u32(&w, AGENT_TAG_SIGNAL, SIGKILL);
        tlv_put_u32(&w, AGENT_TAG_GROUP, 1);
        (void) sandbox_agent_request(e->sandbox, AGENT_SIGNAL, &w, NULL, NULL, NULL);
}

static void exec_finish(Exec *e) {
        if (sd_bus_error_is_set(&e->error)) {
                /* After a rollback the pid is somebody else's. */
                if (e->pid > 0 && e->life == e->sandbox->priv->life)
                        exec_kill(e);
                e->done(e->sandbox, &e->error, 0, NULL, 0, e->userdata);
        } else
                e->done(e->sandbox, NULL, e->pid, e->fds, e->n_fds, e->userdata);
        exec_free(e);
}

/* Which stream an answer belongs to. */
typedef struct ExecStream {
        Exec *exec;
        size_t index;
} ExecStream;

static void on_stream(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size, void *userdata) {
        _cleanup_free_ ExecStream *x = userdata;
        Exec *e = x->exec;

        e->n_waiting--;
        if (!error)
                e->fds[x->index] = TAKE_FD(*fd);
        else if (!sd_bus_error_is_set(&e->error))
                (void) sd_bus_error_copy(&e->error, error);
        if (e->n_waiting == 0)
                exec_finish(e);
}

static int open_stream(Exec *e, size_t index) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);

        tlv_put_u32(&w, AGENT_TAG_PID, e->pid);
        tlv_put_u32(&w, AGENT_TAG_STREAM, e->pty ? AGENT_STREAM_PTY : (uint32_t) index);
        ExecStream *x = new0(ExecStream, 1);
        if (!x)
                return sd_bus_error_set_errno(&e->error, ENOMEM);
        *x = (ExecStream) { e, index };
        int r = sandbox_open_stream(e->sandbox, AGENT_STREAM_PROCESS, &w, on_stream, x, &e->error);
        if (r < 0) {
                free(x);
                return r;
        }
        e->n_waiting++;
        return 0;
}

static uint32_t parse_pid(const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        uint32_t pid = 0;
        Tlv t;

        while (tlv_next(&reader, &t) > 0)
                if (t.tag == AGENT_TAG_PID)
                        (void) tlv_get_u32(&t, &pid);
        return pid;
}

static void on_started(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        Exec *e = userdata;

        if (more)
                return; /* one frame is what EXEC is answered with; the last one counts */
        if (error)
                (void) sd_bus_error_copy(&e->error, error);
        else {
                e->pid = parse_pid(body, size);
                if (e->pid == 0)
                        (void) sd_bus_error_setf(&e->error, BUS_ERROR_GUEST_FAILED, "The agent of sandbox %s told no pid", s->id);
        }
        for (size_t i = 0; i < e->n_fds && !sd_bus_error_is_set(&e->error); i++)
                (void) open_stream(e, i);
        if (e->n_waiting == 0)
                exec_finish(e);
}

static void put_strings(TlvWriter *w, AgentTag tag, char **strings) {
        for (size_t i = 0; strings && strings[i]; i++)
                tlv_put_str(w, tag, strings[i]);
}

static bool assigns(char **env, const char *assignment) {
        size_t n = strcspn(assignment, "=") + 1;

        for (; env && *env; env++)
                if (strncmp(*env, assignment, n) == 0)
                        return true;
        return false;
}

/* Of the template: only what the call says nothing of, since of two assignments programs see the first. */
static void put_defaults(TlvWriter *w, const ExecDefaults *d, const ExecSpec *spec) {
        for (char **e = d->env; e && *e; e++)
                if (!assigns(spec->env, *e))
                        tlv_put_str(w, AGENT_TAG_ENV, *e);
        if (isempty(spec->cwd) && d->cwd)
                tlv_put_str(w, AGENT_TAG_CWD, d->cwd);
        if (isempty(spec->user) && d->user)
                tlv_put_str(w, AGENT_TAG_USER, d->user);
}

static void put_exec(TlvWriter *w, const ExecSpec *spec, const Template *template) {
        put_strings(w, AGENT_TAG_ARGV, spec->argv);
        put_strings(w, AGENT_TAG_ENV, spec->env);
        /* NULL: it is gone, of a sandbox that was taken over. */
        if (template)
                put_defaults(w, &template->defaults, spec);
        if (!isempty(spec->cwd))
                tlv_put_str(w, AGENT_TAG_CWD, spec->cwd);
        if (!isempty(spec->user))
                tlv_put_str(w, AGENT_TAG_USER, spec->user);
        if (spec->pty) {
                tlv_put_u32(w, AGENT_TAG_PTY, 1);
                tlv_put_u32(w, AGENT_TAG_ROWS, spec->rows > 0 ? spec->rows : 24);
                tlv_put_u32(w, AGENT_TAG_COLS, spec->cols > 0 ? spec->cols : 80);
        }
        if (spec->timeout_usec > 0)
                tlv_put_u64(w, AGENT_TAG_TIMEOUT_USEC, spec->timeout_usec);
}

static int check_spec(const ExecSpec *spec, sd_bus_error *error) {
        if (!spec->argv || !spec->argv[0] || !*spec->argv[0])
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "No program to start was named");
        for (size_t i = 0; spec->env && spec->env[i]; i++)
                if (!env_assignment_valid(spec->env[i]))
                        /* Without the assignment itself: its value may be a secret. */
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                                 "Environment entry %zu is not NAME=VALUE", i + 1);
        if (!isempty(spec->cwd) && spec->cwd[0] != '/')
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "The working directory must be an absolute path");
        return 0;
}

static int exec_send(Exec *e, sd_bus_error *error) {
        Sandbox *s = e->sandbox;

        e->life = s->priv->life;
        int r = sandbox_agent_request(s, AGENT_EXEC, &e->request, on_started, e, error);
        forget_request(e);
        return r;
}

/* Taken or not: what becomes of the checkpoint is nothing to the program. */
static void on_checkpoint(Sandbox *s, void *userdata) {
        Exec *e = userdata;

        if (s->manager->snapshots->stopping)
                (void) sandbox_set_error(s, &e->error, -ECONNRESET, "cubed is going down");
        if (sd_bus_error_is_set(&e->error) || exec_send(e, &e->error) < 0)
                exec_finish(e);
}

static int exec_begin(Exec *e, sd_bus_error *error) {
        if (e->sandbox->checkpoint_usec == UINT64_MAX && sandbox_checkpoint(e->sandbox, on_checkpoint, e) >= 0)
                return 0;
        return exec_send(e, error);
}

int sandbox_exec(Sandbox *s, const ExecSpec *spec, ExecDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r >= 0)
                r = check_spec(spec, error);
        if (r < 0)
                return r;

        Exec *e = new0(Exec, 1);
        if (!e)
                return sd_bus_error_set_errno(error, ENOMEM);
        *e = (Exec) {
                .sandbox = s,
                .done = done,
                .userdata = userdata,
                .pty = spec->pty,
                .fds = { -EBADF, -EBADF, -EBADF },
                .n_fds = spec->pty ? 1 : EXEC_STREAMS_MAX,
                .request = TLV_WRITER_INIT(AGENT_FRAME_MAX),
        };
        put_exec(&e->request, spec, s->priv->template);
        if (tlv_writer_finish(&e->request) == -EMSGSIZE)
                r = sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                      "Arguments and environment are larger than %u KiB together", AGENT_FRAME_MAX / 1024);
        else
                r = exec_begin(e, error);
        if (r < 0)
                exec_free(e);
        return r;
}
