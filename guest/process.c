/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/agent-proto.h"
#include "guest/helper.h"
#include "guest/log.h"
#include "guest/process.h"
#include "guest/shutdown.h"
#include "guest/spawn.h"
#include "guest/user.h"

#define KILL_AFTER_USEC (2U * USEC_PER_SEC)
#define LIST_NAME_MAX 128U

Process *process_find(Agent *a, uint32_t pid) {
        for (Process *p = a->processes; p; p = p->list_next)
                if ((uint32_t) p->pid == pid && pid != 0)
                        return p;
        return NULL;
}

static void process_free(Process *p) {
        Agent *a = p->agent;

        LIST_REMOVE(a->processes, p);
        if (p->exited)
                a->n_exited--;
        else
                a->n_live--;

        loop_remove(&p->status_source);
        loop_remove(&p->timer);
        safe_close(p->status_fd);
        for (unsigned i = 0; i < PROCESS_STREAMS; i++) {
                drain_stop(&p->drains[i]);
                safe_close(p->fds[i]);
        }
        free(p->name);
        free(p);
}

static bool process_in_use(const Process *p) {
        for (unsigned i = 0; i < PROCESS_STREAMS; i++)
                if (p->attached[i] || drain_active(&p->drains[i]))
                        return true;
        return p->waiters || p->starting;
}

static void drop_oldest(Agent *a) {
        Process *waited = NULL, *any = NULL;

        for (Process *p = a->processes; p; p = p->list_next)
                if (p->exited && !process_in_use(p)) {
                        any = p;
                        if (p->waited)
                                waited = p;
                }
        if (any)
                process_free(waited ? waited : any);
}

void process_forget_pid(Agent *a, pid_t pid) {
        Process *p = process_find(a, (uint32_t) pid);
        if (!p)
                return;
        loop_remove(&p->timer);
        if (process_in_use(p))
                p->pid = 0;
        else
                process_free(p);
}

static void process_end_start(Process *p) {
        SpawnFailure failure;

        ssize_t n = read(p->status_fd, &failure, sizeof(failure));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;

        p->starting = false;
        loop_remove(&p->status_source);
        p->status_fd = safe_close(p->status_fd);

        if (n == 0) {
                p->started(p, NULL);
                return;
        }

        /* The child's few instructions up to its _exit() are left to the reaper. */
        if (n != sizeof(failure)) {
                failure = (SpawnFailure) { .error = EIO };
                snprintf(failure.message, sizeof(failure.message), "%s ended before it ran", p->name);
        }
        failure.message[sizeof(failure.message) - 1] = 0;
        p->started(p, &failure);
        process_free(p);
}

static void tell_host(Process *p, const SpawnFailure *failure) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);

        if (failure) {
                reply_error(&p->reply, -failure->error, "%s", failure->message);
                return;
        }
        tlv_put_u32(&w, AGENT_TAG_PID, (uint32_t) p->pid);
        reply_ok(&p->reply, &w);
}

static void on_status(LoopSource *s, uint32_t events) {
        process_end_start(s->userdata);
}

static void on_timeout(LoopSource *s, uint32_t events) {
        Process *p = s->userdata;

        /* The group may outlive its leader; its number stays taken while it does. */
        if (p->timed_out) {
                (void) kill(-p->pid, SIGKILL);
                loop_remove(&p->timer);
                return;
        }
        if (p->exited)
                return;

        p->timed_out = true;
        (void) kill(-p->pid, SIGTERM);
        (void) kill(-p->pid, SIGCONT);
        (void) loop_set_timer(&p->timer, KILL_AFTER_USEC);
}

static Process *process_new(Agent *a, Request *q, const User *u, Spawned *s) {
        Process *p = new0(Process, 1);
        if (!p)
                return NULL;

        *p = (Process) {
                .agent = a,
                .pid = s->pid,
                .uid = u->uid,
                .name = TAKE_PTR(q->argv.items[0]),
                .pty = q->pty,
                .fds = {
                        [AGENT_STREAM_STDIN] = TAKE_FD(s->stdin_fd),
                        [AGENT_STREAM_STDOUT] = TAKE_FD(s->stdout_fd),
                        [AGENT_STREAM_STDERR] = TAKE_FD(s->stderr_fd),
                        [AGENT_STREAM_PTY] = TAKE_FD(s->pty_fd),
                },
                .starting = true,
                .status_fd = TAKE_FD(s->status_fd),
        };
        process_forget_pid(a, p->pid);
        LIST_PREPEND(a->processes, p);
        a->n_live++;
        return p;
}

static int process_watch(Process *p, uint64_t timeout_usec) {
        Loop *l = &p->agent->loop;

        int r = loop_add(l, &p->status_source, p->status_fd, EPOLLIN, on_status, p);
        if (r >= 0 && timeout_usec > 0 && timeout_usec != UINT64_MAX)
                r = loop_add_timer(l, &p->timer, timeout_usec, on_timeout, p);
        return r;
}

static int check_exec(Agent *a, const Request *q, const Reply *reply) {
        if (a->stopping)
                reply_error(reply, -ESHUTDOWN, "the guest is going down");
        else if (a->n_live >= PROCESSES_LIVE_MAX)
                reply_error(reply, -EAGAIN, "%u processes run already", a->n_live);
        else if (isempty(q->argv.items[0]))
                reply_error(reply, -EINVAL, "the program's name is empty");
        else if (q->rows > UINT16_MAX || q->cols > UINT16_MAX)
                reply_error(reply, -EINVAL, "terminal of %u by %u", q->rows, q->cols);
        else
                return 0;
        return -EINVAL;
}

int process_start(Agent *a, Request *q, const User *u, ProcessStarted started, const Reply *reply, void *owner) {
        Spawned s;

        int r = spawn(q, u, &s);
        if (r < 0)
                return r;

        Process *p = process_new(a, q, u, &s);
        r = p ? process_watch(p, q->timeout_usec) : -ENOMEM;
        if (r < 0) {
                (void) kill(s.pid, SIGKILL);
                if (p)
                        process_free(p);
                else
                        spawned_done(&s);
                return r;
        }
        p->started = started;
        p->owner = owner;
        if (reply)
                p->reply = *reply;
        return 0;
}

void handle_exec(Agent *a, Request *q, Reply reply) {
        _cleanup_user_ User u = {};

        if (check_exec(a, q, &reply) < 0)
                return;
        int r = user_find(q->user, &u);
        if (r < 0) {
                reply_error(&reply, r, "user %s: %s", strempty(q->user),
                            r == -ENOENT ? "not in the guest's /etc/passwd or /etc/group" : strerror(-r));
                return;
        }
        r = process_start(a, q, &u, tell_host, &reply, NULL);
        if (r < 0)
                reply_error(&reply, r, "starting %s: %s", strempty(q->argv.items[0]), strerror(-r));
}

static void process_exited(Process *p, int status) {
        Agent *a = p->agent;

        if (WIFSIGNALED(status))
                p->exit_signal = (uint32_t) WTERMSIG(status);
        else
                p->exit_code = (uint32_t) WEXITSTATUS(status);
        p->exited = true;
        a->n_live--;
        a->n_exited++;

        for (Waiter *w = p->waiters, *next; w; w = next) {
                next = w->list_next;
                w->exited(w);
        }
        /* After a time-out the timer goes on, for the rest of the group. */
        if (!p->timed_out)
                loop_remove(&p->timer);
        while (a->n_exited > PROCESSES_EXITED_MAX) {
                unsigned before = a->n_exited;
                drop_oldest(a);
                if (a->n_exited == before)
                        break;
        }
}

/* Says whether any child is left. */
static bool reap(Agent *a) {
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (helper_reaped(a, pid, status))
                        continue;
                Process *p = process_find(a, (uint32_t) pid);
                if (p && p->starting) {
                        /* Frees the record when its program never ran. */
                        process_end_start(p);
                        p = process_find(a, (uint32_t) pid);
                }
                if (p && !p->exited)
                        process_exited(p, status);
        }
        return pid == 0;
}

static void on_signal(LoopSource *s, uint32_t events) {
        Agent *a = s->userdata;
        struct signalfd_siginfo si;

        while (read(a->signal_fd, &si, sizeof(si)) == sizeof(si))
                if (si.ssi_signo != SIGCHLD)
                        shutdown_start(a);

        if (!reap(a))
                shutdown_no_children(a);
}

int processes_init(Agent *a) {
        /* Besides SIGCHLD, what poweroff(8) of busybox, sysvinit and systemd send to PID 1. */
        const int signals[] = { SIGCHLD, SIGTERM, SIGUSR2, SIGPWR, SIGRTMIN + 4 };
        sigset_t mask;

        sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTSOF(signals); i++)
                sigaddset(&mask, signals[i]);
        if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
                return -errno;

        a->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC|SFD_NONBLOCK);
        if (a->signal_fd < 0)
                return -errno;
        return loop_add(&a->loop, &a->signal_source, a->signal_fd, EPOLLIN, on_signal, a);
}

void processes_done(Agent *a) {
        while (a->processes)
                process_free(a->processes);
        loop_remove(&a->signal_source);
        a->signal_fd = safe_close(a->signal_fd);
}

int process_attach(Process *p, uint32_t which, const void *who, int *ret_fd) {
        if (which >= PROCESS_STREAMS || (which == AGENT_STREAM_PTY) != p->pty)
                return -EINVAL;
        if (p->attached[which])
                return -EBUSY;
        if (p->fds[which] < 0)
                return -EPIPE;

        drain_stop(&p->drains[which]);
        p->attached[which] = who;
        *ret_fd = p->fds[which];
        return 0;
}

/* Nobody can find it any more. */
static void free_if_forgotten(Process *p) {
        if (p->pid == 0 && !process_in_use(p))
                process_free(p);
}

void process_detach(Process *p, uint32_t which) {
        p->attached[which] = NULL;
        free_if_forgotten(p);
}

static void on_drained(Drain *d, void *userdata) {
        Process *p = userdata;
        uint32_t which = (uint32_t) (d - p->drains);

        /* As for a terminal that is attached: closing our end would hang up on who is about to exit. */
        if (which != AGENT_STREAM_PTY || p->exited)
                process_close(p, which);
        free_if_forgotten(p);
}

void process_abandon(Process *p, uint32_t which) {
        if (which != AGENT_STREAM_STDIN && p->fds[which] >= 0) {
                int r = drain_start(&p->drains[which], &p->agent->loop, p->fds[which], on_drained, p);
                if (r < 0)
                        log_error("output of process %d is not read any more: %s", (int) p->pid, strerror(-r));
        }
        process_detach(p, which);
}

void process_close(Process *p, uint32_t which) {
        p->fds[which] = safe_close(p->fds[which]);
}

void process_hang_up(Process *p) {
        pid_t foreground = tcgetpgrp(p->fds[AGENT_STREAM_PTY]);

        if (foreground > 1) {
                (void) kill(-foreground, SIGHUP);
                (void) kill(-foreground, SIGCONT);
        }
        /* The shell hears of it too, as from the kernel when a line drops. */
        if (!p->exited && p->pid != foreground)
                (void) kill(p->pid, SIGHUP);
}

void process_add_waiter(Process *p, Waiter *w) {
        w->process = p;
        LIST_PREPEND(p->waiters, w);
}

void process_remove_waiter(Waiter *w) {
        Process *p = w->process;

        LIST_REMOVE(p->waiters, w);
        w->process = NULL;
        free_if_forgotten(p);
}

static Process *find_live(Agent *a, const Request *q, const Reply *reply) {
        Process *p = process_find(a, q->pid);
        if (!p || p->exited)
                reply_error(reply, -ESRCH, "process %u: %s", q->pid, p ? "has exited" : "not started by the agent");
        return p && !p->exited ? p : NULL;
}

void handle_signal(Agent *a, Request *q, Reply reply) {
        Process *p = find_live(a, q, &reply);
        if (!p)
                return;

        if (q->signal > (uint32_t) SIGRTMAX)
                reply_error(&reply, -EINVAL, "no signal %u", q->signal);
        else if (kill(q->group ? -p->pid : p->pid, (int) q->signal) < 0)
                reply_error(&reply, -errno, "signal %u to process %u: %s", q->signal, q->pid, strerror(errno));
        else
                reply_ok(&reply, NULL);
}

void handle_resize(Agent *a, Request *q, Reply reply) {
        struct winsize size = { .ws_row = (unsigned short) q->rows, .ws_col = (unsigned short) q->cols };
        Process *p = find_live(a, q, &reply);
        if (!p)
                return;

        if (!p->pty)
                reply_error(&reply, -ENOTTY, "process %u has no terminal", q->pid);
        else if (q->rows > UINT16_MAX || q->cols > UINT16_MAX)
                reply_error(&reply, -EINVAL, "terminal of %u by %u", q->rows, q->cols);
        else if (ioctl(p->fds[AGENT_STREAM_PTY], TIOCSWINSZ, &size) < 0)
                reply_result(&reply, -errno, "resizing the terminal");
        else
                reply_ok(&reply, NULL);
}

static void process_put(TlvWriter *w, const Process *p) {
        uint8_t record[sizeof(AgentProcess) + LIST_NAME_MAX];
        size_t n = strnlen(p->name, LIST_NAME_MAX);
        AgentProcess head = {
                .pid = htole32((uint32_t) p->pid),
                .uid = htole32(p->uid),
                .state = htole32(p->exited),
                .pty = htole32(p->pty),
        };

        memcpy(record, &head, sizeof(head));
        memcpy(record + sizeof(head), p->name, n);
        tlv_put(w, AGENT_TAG_PROCESS, record, sizeof(head) + n);
}

void handle_list_processes(Agent *a, Request *q, Reply reply) {
        /* Both bounds together, with the longest names, fit into one frame. */
        static_assert((PROCESSES_LIVE_MAX + PROCESSES_EXITED_MAX) * (8 + sizeof(AgentProcess) + LIST_NAME_MAX) <
                              AGENT_FRAME_MAX, "a list of processes is one frame");
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);

        for (const Process *p = a->processes; p; p = p->list_next)
                if (!p->starting && p->pid != 0 && !(p->exited && p->waited))
                        process_put(&w, p);
        reply_ok(&reply, &w);
}
