/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "base/frame.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/job.h"
#include "dbus/bus-errors.h"
#include "tests/dbus/fake-core.h"
#include "tests/dbus/fake-network.h"
#include "tests/dbus/fake-snapshots.h"
#include "tests/dbus/fake-templates.h"

typedef struct Request {
        uint32_t id;
        AgentAnswer answer;
        void *userdata;
        struct Request *next;
} Request;

struct SandboxPrivate {
        char dir[64];
        pid_t agent;
        int control_fd;
        sd_event_source *listen_source, *io, *child, *deadline;
        FrameParser parser;
        Request *requests;
        uint32_t last_id;
        SandboxDone created;
        void *created_userdata;
        SandboxDone ended;
        void *ended_userdata;
        bool removed, reboots;
};

static const char *harness_path;
static unsigned long long n_made;

uint64_t fake_now_usec(void) {
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        return (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
}

static const char *const states[_SANDBOX_STATE_MAX] = {
        "creating", "running", "pausing", "paused", "resuming", "stopping", "failed",
};

const char *sandbox_state_to_string(SandboxState s) {
        return states[s];
}

SandboxState sandbox_state_from_string(const char *s) {
        for (unsigned i = 0; i < _SANDBOX_STATE_MAX; i++)
                if (streq(states[i], s))
                        return (SandboxState) i;
        return _SANDBOX_STATE_INVALID;
}

static const char *const ends[_SANDBOX_END_MAX] = { "kill", "pause", "pause-disk" };

const char *sandbox_end_to_string(SandboxEnd e) {
        return ends[e];
}

SandboxEnd sandbox_end_from_string(const char *s) {
        for (unsigned i = 0; i < _SANDBOX_END_MAX; i++)
                if (streq(ends[i], s))
                        return (SandboxEnd) i;
        return _SANDBOX_END_INVALID;
}

const char *job_state_to_string(JobState s) {
        static const char *const names[] = { "running", "done", "failed", "canceled" };
        return names[s];
}

static void changed(Sandbox *s, const char *a, const char *b) {
        char *l[] = { (char *) a, (char *) b, NULL };
        s->manager->hooks->sandbox_changed(s->manager, s, l);
}

static struct sockaddr_un address(const Sandbox *s, const char *name) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        snprintf(sa.sun_path, sizeof(sa.sun_path), "%.60s/%s", s->priv->dir, name);
        return sa;
}

static void fail_requests(Sandbox *s) {
        static const sd_bus_error gone = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_GUEST_FAILED, "The sandbox ended meanwhile");

        for (Request *q; (q = s->priv->requests);) {
                s->priv->requests = q->next;
                q->answer(s, &gone, NULL, 0, false, q->userdata);
                free(q);
        }
}

static void remove_sandbox(Sandbox *s) {
        static const sd_bus_error failed = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_GUEST_FAILED, "The guest ended at once");
        Manager *m = s->manager;
        struct SandboxPrivate *p = s->priv;
        char command[128];

        fail_requests(s);
        if (p->created)
                p->created(s, &failed, p->created_userdata);
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i] == s) {
                        memmove(&m->sandboxes[i], &m->sandboxes[i + 1], (--m->n_sandboxes - i) * sizeof(Sandbox *));
                        break;
                }
        if (m->hooks) {
                m->hooks->sandbox_removed(m, s);
                fake_snapshots_gone(s);
        }
        if (p->ended)
                p->ended(s, NULL, p->ended_userdata);

        sd_event_source_disable_unref(p->listen_source);
        sd_event_source_disable_unref(p->io);
        sd_event_source_disable_unref(p->child);
        sd_event_source_disable_unref(p->deadline);
        safe_close(p->control_fd);
        frame_parser_done(&p->parser);
        snprintf(command, sizeof(command), "rm -rf '%s'", p->dir);
        if (system(command) != 0)
                fprintf(stderr, "fake: %s left\n", p->dir);
        fake_network_leave(s);
        for (char **l = s->labels; l && *l; l++)
                free(*l);
        free(s->labels);
        free(s->hostname);
        free(s->request_id);
        free(s->bound_client);
        free(s->template_id);
        free(s->template_name);
        free(s->scope_name);
        free(s->kernel_release);
        free(p);
        free(s);
}

static int start_agent(Sandbox *s);

static void unlink_socket(const Sandbox *s, const char *name) {
        struct sockaddr_un sa = address(s, name);

        (void) unlink(sa.sun_path);
}

static int start_again(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        fail_requests(s);
        p->reboots = false;
        p->listen_source = sd_event_source_disable_unref(p->listen_source);
        p->io = sd_event_source_disable_unref(p->io);
        p->child = sd_event_source_disable_unref(p->child);
        p->control_fd = safe_close(p->control_fd);
        frame_parser_done(&p->parser);
        frame_parser_init(&p->parser, AGENT_FRAME_MAX);
        unlink_socket(s, "control.sock");
        unlink_socket(s, "stream.sock");
        return start_agent(s);
}

int fake_guest_reboot(Sandbox *s, SandboxDone done, void *userdata) {
        s->priv->created = done;
        s->priv->created_userdata = userdata;
        s->priv->reboots = true;
        return kill(s->priv->agent, SIGKILL) < 0 ? -errno : 0;
}

static int on_agent_exit(sd_event_source *source, const siginfo_t *si, void *userdata) {
        Sandbox *s = userdata;

        if (s->priv->reboots)
                return start_again(s);

        if (s->exit_reason == VMM_EXIT_NONE) {
                s->exit_reason = si->si_code == CLD_EXITED ? VMM_EXIT_POWEROFF : VMM_EXIT_SIGNAL;
                s->exit_status = si->si_code == CLD_EXITED ? 0 : (uint32_t) si->si_status;
        }
        remove_sandbox(s);
        return 0;
}

static void on_claimed(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        SandboxDone done = s->priv->created;

        if (sd_bus_error_is_set(error))
                return;
        s->state = SANDBOX_RUNNING;
        s->state_changed_usec = fake_now_usec();
        free(s->kernel_release);
        s->kernel_release = strdup("6.1.0-\xff" "fake");
        changed(s, "State", "StateChangedTimestamp");
        s->priv->created = NULL;
        done(s, NULL, s->priv->created_userdata);
}

static void claim(Sandbox *s) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        uint8_t entropy[32] = {};

        tlv_put_str(&w, AGENT_TAG_HOSTNAME, s->hostname);
        tlv_put_u64(&w, AGENT_TAG_REALTIME_NSEC, fake_now_usec() * 1000);
        tlv_put(&w, AGENT_TAG_ENTROPY, entropy, sizeof(entropy));
        tlv_put_u32(&w, AGENT_TAG_CPUS, s->cpus);
        if (sandbox_agent_request(s, AGENT_CLAIM, &w, on_claimed, NULL, &error) < 0)
                fprintf(stderr, "fake: claim: %s\n", strempty(error.message));
}

static void error_of_agent(const uint8_t *body, size_t size, sd_bus_error *error) {
        TlvReader r = TLV_READER_INIT(body, size);
        _cleanup_free_ char *message = NULL;
        uint32_t e = EIO;
        Tlv t;

        while (tlv_next(&r, &t) > 0)
                if (t.tag == AGENT_TAG_ERRNO)
                        (void) tlv_get_u32(&t, &e);
                else if (t.tag == AGENT_TAG_MESSAGE)
                        (void) tlv_get_str(&t, &message);
        (void) sd_bus_error_set_errnof(error, -(int) e, "%s", message ? message : strerror((int) e));
}

static void take_frame(Sandbox *s, const FrameHeader *h, const uint8_t *body) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        bool more = h->flags & FRAME_FLAG_MORE;

        if (h->type == AGENT_READY) {
                claim(s);
                return;
        }
        for (Request **at = &s->priv->requests, *q; (q = *at); at = &q->next) {
                if (q->id != h->id)
                        continue;
                if (!more)
                        *at = q->next;
                if (h->type == AGENT_ERROR)
                        error_of_agent(body, h->len, &error);
                q->answer(s, &error, body, h->len, more, q->userdata);
                if (!more)
                        free(q);
                return;
        }
}

static int on_control(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Sandbox *s = userdata;
        uint8_t buf[65536];
        const uint8_t *body;
        FrameHeader h;

        ssize_t n = read(fd, buf, MIN(sizeof(buf), frame_parser_missing(&s->priv->parser)));
        if (n <= 0) {
                if (n == 0 || errno != EAGAIN)
                        sd_event_source_set_enabled(source, SD_EVENT_OFF);
                return 0;
        }
        if (frame_parser_feed(&s->priv->parser, buf, (size_t) n) < 0)
                return -EBADMSG;
        if (frame_parser_peek(&s->priv->parser, &h, &body) > 0) {
                take_frame(s, &h, body);
                frame_parser_next(&s->priv->parser);
        }
        return 0;
}

static int on_agent_connects(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Sandbox *s = userdata;

        s->priv->control_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (s->priv->control_fd < 0)
                return -errno;
        sd_event_source_set_enabled(source, SD_EVENT_OFF);
        return sd_event_add_io(s->manager->event, &s->priv->io, s->priv->control_fd, EPOLLIN, on_control, s);
}

static int start_agent(Sandbox *s) {
        struct sockaddr_un sa = address(s, "control.sock");

        int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 || listen(fd, 1) < 0)
                return -errno;
        int r = sd_event_add_io(s->manager->event, &s->priv->listen_source, fd, EPOLLIN, on_agent_connects, s);
        if (r < 0)
                return r;
        (void) sd_event_source_set_io_fd_own(s->priv->listen_source, 1);

        s->priv->agent = fork();
        if (s->priv->agent == 0) {
                sigset_t none;
                sigemptyset(&none);
                (void) sigprocmask(SIG_SETMASK, &none, NULL);
                (void) setsid();
                if (getenv("FAKE_GUEST_NETWORK"))
                        execlp("unshare", "unshare", "--net", "--fork", "--kill-child", "--pid", "--mount-proc", "sh", "-c",
                               "ip link set lo up && exec \"$@\"", "sh", harness_path, s->priv->dir, NULL);
                execlp("unshare", "unshare", "--fork", "--kill-child", "--pid", "--mount-proc", harness_path,
                       s->priv->dir, NULL);
                _exit(127);
        }
        s->vmm_pid = s->priv->agent;
        return sd_event_add_child(s->manager->event, &s->priv->child, s->priv->agent, WEXITED, on_agent_exit, s);
}

static char **copy_labels(char **l) {
        size_t n = 0;
        while (l && l[n])
                n++;
        char **copy = new0(char *, n + 1);
        for (size_t i = 0; copy && i < n; i++)
                copy[i] = strdup(l[i]);
        return copy;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        return sandbox_kill(userdata, VMM_EXIT_TIMEOUT, NULL, NULL, NULL);
}

static int start_deadline(Sandbox *s) {
        return sd_event_add_time_relative(s->manager->event, &s->priv->deadline, CLOCK_MONOTONIC, s->timeout_usec, 0, on_deadline, s);
}

void sandbox_unbind(Sandbox *s) {
        free(s->bound_client);
        s->bound_client = NULL;
}

int sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret,
                   sd_bus_error *error) {
        if (spec->mem_bytes > GIB(32))
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "More memory than this host has");

        Sandbox *s = new0(Sandbox, 1);
        struct SandboxPrivate *p = new0(struct SandboxPrivate, 1);
        *p = (struct SandboxPrivate) { .control_fd = -EBADF, .created = done, .created_userdata = userdata };
        *s = (Sandbox) {
                .manager = m, .priv = p, .state = SANDBOX_CREATING, .owner_uid = spec->owner_uid,
                .mem_bytes = spec->mem_bytes ? spec->mem_bytes : MIB(512), .cpus = spec->cpus ? spec->cpus : 1,
                .disk_bytes = spec->disk_bytes ? spec->disk_bytes : GIB(4), .cpu_quota_usec = spec->cpu_quota_usec,
                .timeout_usec = spec->timeout_usec ? spec->timeout_usec : UINT64_MAX, .deadline_usec = UINT64_MAX,
                .idle_timeout_usec = spec->idle_timeout_usec ? spec->idle_timeout_usec : UINT64_MAX,
                .on_timeout = spec->on_timeout, .auto_resume = spec->auto_resume, .checkpoint_usec = spec->checkpoint_usec,
        };
        tenant_name_copy(s->tenant, spec->tenant);
        fake_snapshots_stand(s, spec->snapshot);
        int r = fake_network_join(s, spec);
        if (r < 0)
                return r;
        snprintf(s->id, sizeof(s->id), "i%011llu", ++n_made);
        s->template_id = strdup(spec->template->id);
        s->template_name = strdup(spec->template->name);
        s->hostname = strdup(spec->hostname ? spec->hostname : s->id);
        s->request_id = spec->request_id ? strdup(spec->request_id) : NULL;
        s->bound_client = spec->bound_client ? strdup(spec->bound_client) : NULL;
        s->labels = copy_labels(spec->labels);
        s->created_usec = s->state_changed_usec = fake_now_usec();
        if (asprintf(&s->scope_name, "cube-%s.scope", s->id) < 0)
                return -ENOMEM;

        strcpy(p->dir, "/tmp/fake-cubed-XXXXXX");
        if (!mkdtemp(p->dir))
                return -errno;
        (void) chmod(p->dir, 0755);
        frame_parser_init(&p->parser, AGENT_FRAME_MAX);
        m->sandboxes = realloc(m->sandboxes, (m->n_sandboxes + 1) * sizeof(Sandbox *));
        m->sandboxes[m->n_sandboxes++] = s;
        m->hooks->sandbox_added(m, s);
        r = start_agent(s);
        if (r >= 0 && s->timeout_usec != UINT64_MAX) {
                s->deadline_usec = fake_now_usec() + s->timeout_usec;
                r = start_deadline(s);
        }
        *ret = s;
        return r;
}

int sandbox_check_running(const Sandbox *s, sd_bus_error *error) {
        if (s->state == SANDBOX_RUNNING)
                return 0;
        return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is %s; resume it first", s->id,
                                 sandbox_state_to_string(s->state));
}

int sandbox_agent_request(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                          sd_bus_error *error) {
        uint8_t header[FRAME_HEADER_SIZE];
        int r = type == AGENT_CLAIM ? 0 : sandbox_check_running(s, error);
        if (r < 0)
                return r;

        if (type == AGENT_ENVD && access(strempty(getenv("FAKE_ENVD_TAKEN")), F_OK) == 0)
                return sd_bus_error_set_errnof(error, EADDRINUSE, "envd on port 49983: a program in the guest has it");

        Request *q = new0(Request, 1);
        *q = (Request) { .id = ++s->priv->last_id, .answer = answer, .userdata = userdata, .next = s->priv->requests };
        s->priv->requests = q;
        /* Of a guest that does not get to it. */
        if (type == AGENT_ENVD && access(strempty(getenv("FAKE_ENVD_HOLD")), F_OK) == 0) {
                fprintf(stderr, "envd waits: %s\n", s->id);
                return 0;
        }
        frame_header_put(&(FrameHeader) { .len = (uint32_t) body->size, .type = (uint16_t) type, .id = q->id }, header);
        (void) fd_set_nonblock(s->priv->control_fd, false);
        r = write_full(s->priv->control_fd, header, sizeof(header));
        if (r >= 0)
                r = write_full(s->priv->control_fd, body->data, body->size);
        (void) fd_set_nonblock(s->priv->control_fd, true);
        return r;
}

int sandbox_agent_ask(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                      sd_bus_error *error) {
        return sandbox_agent_request(s, type, body, answer, userdata, error);
}

/* Waits: good enough for a test. */
static int open_stream(Sandbox *s, AgentFrameType type, const TlvWriter *body, uint8_t *buf, size_t max, size_t *ret_size,
                       sd_bus_error *error) {
        struct sockaddr_un sa = address(s, "stream.sock");
        uint8_t header[FRAME_HEADER_SIZE];
        FrameHeader h;

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0)
                return -errno;
        frame_header_put(&(FrameHeader) { .len = (uint32_t) body->size, .type = (uint16_t) type, .id = 1 }, header);
        int r = write_full(fd, header, sizeof(header));
        if (r >= 0)
                r = write_full(fd, body->data, body->size);
        if (r >= 0)
                r = read_full(fd, header, sizeof(header));
        if (r < 0)
                return r;
        frame_header_get(header, &h);
        if (h.len > max)
                return -EMSGSIZE;
        r = read_full(fd, buf, h.len);
        if (r < 0)
                return r;
        if (h.type == AGENT_ERROR) {
                error_of_agent(buf, h.len, error);
                return -EIO;
        }
        *ret_size = h.len;
        return TAKE_FD(fd);
}

int sandbox_open_stream(Sandbox *s, AgentFrameType type, const TlvWriter *body, StreamDone done, void *userdata,
                        sd_bus_error *error) {
        uint8_t buf[4096];
        size_t size;

        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        _cleanup_close_ int fd = open_stream(s, type, body, buf, sizeof(buf), &size, error);
        if (fd < 0)
                return fd;
        done(s, NULL, &fd, buf, size, userdata);
        return 0;
}

typedef struct FakeExec {
        ExecDone done;
        void *userdata;
        bool pty;
} FakeExec;

static void on_exec_pid(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error stream_error = SD_BUS_ERROR_NULL;
        _cleanup_free_ FakeExec *x = userdata;
        TlvReader reader = TLV_READER_INIT(body, size);
        int fds[3] = { -EBADF, -EBADF, -EBADF };
        size_t n = x->pty ? 1 : 3, unused;
        uint8_t buf[4096];
        uint32_t pid = 0;
        Tlv t;

        if (sd_bus_error_is_set(error)) {
                x->done(s, error, 0, fds, 0, x->userdata);
                return;
        }
        if (tlv_next(&reader, &t) <= 0 || t.tag != AGENT_TAG_PID || tlv_get_u32(&t, &pid) < 0)
                fprintf(stderr, "fake: no pid\n");
        for (size_t i = 0; i < n; i++) {
                _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
                tlv_put_u32(&w, AGENT_TAG_PID, pid);
                tlv_put_u32(&w, AGENT_TAG_STREAM, x->pty ? AGENT_STREAM_PTY : (uint32_t) i);
                fds[i] = open_stream(s, AGENT_STREAM_PROCESS, &w, buf, sizeof(buf), &unused, &stream_error);
        }
        x->done(s, &stream_error, pid, fds, n, x->userdata);
        close_many(fds, n);
}

int sandbox_exec(Sandbox *s, const ExecSpec *spec, ExecDone done, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        FakeExec *x = new0(FakeExec, 1);

        fake_snapshots_checkpoint(s);
        *x = (FakeExec) { done, userdata, spec->pty };
        for (char **a = spec->argv; *a; a++)
                tlv_put_str(&w, AGENT_TAG_ARGV, *a);
        for (char **e = spec->env; e && *e; e++)
                tlv_put_str(&w, AGENT_TAG_ENV, *e);
        if (spec->cwd)
                tlv_put_str(&w, AGENT_TAG_CWD, spec->cwd);
        if (spec->user)
                tlv_put_str(&w, AGENT_TAG_USER, spec->user);
        if (spec->timeout_usec > 0)
                tlv_put_u64(&w, AGENT_TAG_TIMEOUT_USEC, spec->timeout_usec);
        if (spec->pty) {
                tlv_put_u32(&w, AGENT_TAG_PTY, 1);
                tlv_put_u32(&w, AGENT_TAG_ROWS, spec->rows);
                tlv_put_u32(&w, AGENT_TAG_COLS, spec->cols);
        }
        int r = sandbox_agent_request(s, AGENT_EXEC, &w, on_exec_pid, x, error);
        if (r < 0)
                free(x);
        return r;
}

int sandbox_open_console(Sandbox *s, int *ret_fd, sd_bus_error *error) {
        static const char text[] = "Linux version 6.1\r\nbooted \033[31mred\033[0m\r\n";

        if (s->state == SANDBOX_PAUSED)
                return sandbox_check_running(s, error);
        int fd = memfd_create("console", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, CONSOLE_BYTES) < 0)
                return -errno;
        ConsoleRing *ring = mmap(NULL, CONSOLE_BYTES, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
        if (ring == MAP_FAILED)
                return -errno;
        memcpy(ring->data, text, sizeof(text) - 1);
        ring->head = sizeof(text) - 1;
        ConsoleMarks *marks = (ConsoleMarks *) (ring + 1);
        marks->marks[0] = (ConsoleMark) { 0, s->state_changed_usec + 1000 };
        marks->marks[1] = (ConsoleMark) { strlen("Linux version 6.1\r\n"), s->state_changed_usec + 2000 };
        marks->n = 2;
        (void) munmap(ring, CONSOLE_BYTES);
        *ret_fd = fd;
        return 0;
}

int sandbox_kill(Sandbox *s, VmmExitReason reason, SandboxDone done, void *userdata, sd_bus_error *error) {
        s->exit_reason = reason;
        s->state = SANDBOX_STOPPING;
        s->priv->ended = done;
        s->priv->ended_userdata = userdata;
        /* Of one whose end takes its time. */
        if (access(strempty(getenv("FAKE_STOP_HOLD")), F_OK) == 0)
                return 0;
        return kill(s->priv->agent, SIGKILL) < 0 ? -errno : 0;
}

int sandbox_stop(Sandbox *s, SandboxDone done, void *userdata, sd_bus_error *error) {
        return sandbox_kill(s, VMM_EXIT_POWEROFF, done, userdata, error);
}

int sandbox_set_timeout(Sandbox *s, uint64_t timeout_usec, sd_bus_error *error) {
        s->timeout_usec = timeout_usec;
        s->deadline_usec = timeout_usec == UINT64_MAX ? UINT64_MAX : fake_now_usec() + timeout_usec;
        s->priv->deadline = sd_event_source_disable_unref(s->priv->deadline);
        changed(s, "TimeoutUSec", "Deadline");
        return timeout_usec == UINT64_MAX ? 0 : start_deadline(s);
}

int sandbox_set_idle_timeout(Sandbox *s, uint64_t idle_timeout_usec, sd_bus_error *error) {
        s->idle_timeout_usec = idle_timeout_usec;
        changed(s, "IdleTimeoutUSec", NULL);
        return 0;
}

bool sandbox_parks(const Sandbox *s) {
        return s->auto_resume && s->state == SANDBOX_PAUSED;
}

int sandbox_set_auto_resume(Sandbox *s, bool auto_resume, sd_bus_error *error) {
        s->auto_resume = auto_resume;
        changed(s, "AutoResume", "Parked");
        return 0;
}

int sandbox_set_limits(Sandbox *s, const SandboxLimits *limits, SandboxDone done, void *userdata, sd_bus_error *error) {
        if (limits->cpu_quota_usec > 0)
                s->cpu_quota_usec = limits->cpu_quota_usec;
        if (limits->mem_bytes > 0)
                s->mem_bytes = limits->mem_bytes;
        changed(s, "CPUQuotaPerSecUSec", "Memory");
        fake_network_limit(s, &limits->net);
        done(s, NULL, userdata);
        return 0;
}

int sandbox_get_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error) {
        VmmCounter c = { .name = "exits", .value = 17 };
        NetStats net = { .out = { 3, 300 }, .out_denied = { 2, 120 }, .denied = { [NET_DENIED_POLICY] = 2 }, .flows_open = 1 };
        SandboxStatistics st = { MIB(12), UINT64_MAX, 1500, 3, 0, &c, 1, &net };
        done(s, NULL, &st, userdata);
        return 0;
}

Sandbox *manager_find_sandbox(Manager *m, const char *id) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (streq(m->sandboxes[i]->id, id))
                        return m->sandboxes[i];
        return NULL;
}

Sandbox *manager_find_sandbox_by_pid(Manager *m, pid_t pid) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->vmm_pid == pid)
                        return m->sandboxes[i];
        return NULL;
}

Sandbox *manager_find_sandbox_by_request(Manager *m, uid_t owner, const char *tenant, const char *request_id) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->state != SANDBOX_STOPPING && m->sandboxes[i]->request_id &&
                    tenant_same(m->sandboxes[i]->owner_uid, m->sandboxes[i]->tenant, owner, tenant) &&
                    streq(m->sandboxes[i]->request_id, request_id))
                        return m->sandboxes[i];
        return NULL;
}

void manager_client_gone(Manager *m, const char *unique_name) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->bound_client && streq(m->sandboxes[i]->bound_client, unique_name))
                        (void) sandbox_kill(m->sandboxes[i], VMM_EXIT_KILLED, NULL, NULL, NULL);
}

int manager_reload(Manager *m, sd_bus_error *error) {
        return 0;
}

uint64_t manager_loop_max_usec(Manager *m, bool reset) {
        return 1234;
}

int manager_check_host(Manager *m, CheckFn fn, CheckDone done, void *userdata) {
        fn(userdata, "kvm", CHECK_OK, "/dev/kvm runs guests", NULL);
        fn(userdata, "sched-core", CHECK_WARNING, "the kernel has no core scheduling", "nothing to be done");
        if (getenv("FAKE_CHECK_FAILS"))
                fn(userdata, "cgroup", CHECK_FAILED, "no unified hierarchy", "boot with systemd.unified_cgroup_hierarchy=1");
        done(userdata);
        return 0;
}

/* One line for each, which the tests look for. */
void audit_exec(Audit *a, const Sandbox *s, uid_t actor, char **argv, uint32_t pid) {
        fprintf(stderr, "audit exec %s actor=%u program=%s\n", s->id, (unsigned) actor, argv[0]);
}

void audit_stop(Audit *a, const Sandbox *s, uid_t actor, const char *how) {
        fprintf(stderr, "audit %s %s actor=%u\n", how, s->id, (unsigned) actor);
}

void audit_asked(Audit *a, const Sandbox *s, uid_t actor, const char *what) {
        fprintf(stderr, "audit %s %s actor=%u\n", what, s->id, (unsigned) actor);
}

void audit_snapshot_remove(Audit *a, const Snapshot *s, uid_t actor) {
        fprintf(stderr, "audit snapshot-remove %s actor=%u\n", s->id, (unsigned) actor);
}

void audit_denied(Audit *a, uid_t actor, const char *action, const char *object) {
        fprintf(stderr, "audit denied actor=%u action=%s object=%s\n", (unsigned) actor, action, strempty(object));
}

int fake_manager_new(sd_event *event, sd_bus *bus, const char *harness, Manager **ret) {
        Manager *m = new0(Manager, 1);

        harness_path = harness;
        m->event = sd_event_ref(event);
        m->bus = sd_bus_ref(bus);
        m->config.default_template = strdup("python");
        m->config.default_mem_bytes = MIB(512);
        m->config.default_cpus = 1;
        m->config.default_disk_bytes = GIB(4);
        m->config.special_users = (ConfigUsers) { { 2 }, 1 };
        m->config.special_tenants.tenants[0].uid = 3;
        tenant_name_copy(m->config.special_tenants.tenants[0].name, "acme");
        m->config.special_tenants.n = 1;
        m->config.delegates = (ConfigUsers) { { 3, 5 }, 2 };
        m->templates = fake_templates_new();
        m->snapshots = new0(SnapshotStore, 1);
        int r = fake_network_new(m, &m->network);
        if (r < 0)
                return r;
        m->snapshots->userdata = m;
        *ret = m;
        return 0;
}

void fake_manager_free(Manager *m) {
        while (m->n_sandboxes > 0) {
                Sandbox *s = m->sandboxes[0];
                (void) kill(s->priv->agent, SIGKILL);
                (void) waitpid(s->priv->agent, NULL, 0);
                s->priv->child = sd_event_source_disable_unref(s->priv->child);
                remove_sandbox(s);
        }
        free(m->sandboxes);
        fake_jobs_free(m);
        fake_network_free(m->network);
        fake_templates_free(m->templates);
        fake_snapshots_free(m->snapshots);
        free(m->config.default_template);
        sd_bus_unref(m->bus);
        sd_event_unref(m->event);
        free(m);
}
