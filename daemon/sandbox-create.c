/* SPDX-License-Identifier: Apache-2.0 */

/* The way of a sandbox from nothing to running: prepare, which a pool may do ahead one day (place in
 * the network, process, scope, machine), then claim, which brings what the request asked for.
 *
 * Each step ends in a callback that starts the next. All of them share one time limit, BootTimeout=.
 * Any failure goes to sandbox_fail(), which names it and takes everything back. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/core-sched.h"
#include "daemon/host-network.h"
#include "daemon/id.h"
#include "daemon/log.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

#define CUBE_SLICE "cube.slice"
/* vCPUs, device threads, and a kernel thread of KVM's that counts here. */
#define SCOPE_TASKS_MAX 64U
/* PID 1 waits for the VMM, which waits for the guest, and then still has to end. */
#define SCOPE_STOP_GRACE_USEC (5 * USEC_PER_SEC)
#define HELLO_TIMEOUT_USEC (30 * USEC_PER_SEC)
/* To give back a guest's memory takes its time as well. */
#define END_GRACE_USEC (5 * USEC_PER_SEC)
#define ENTROPY_BYTES 64U
#define DEVICE_ERRORS_MAX 16U
#define CLAIM_TEXT_MAX 512U
#define JOURNAL_STDOUT "/run/systemd/journal/stdout"

static const char *const step_text[_STEP_MAX_SANDBOX] = {
        [STEP_SLOT] = "waiting for its place in the network",
        [STEP_SCOPE] = "waiting for PID 1 to start its scope",
        [STEP_CONNECT] = "waiting for its VMM to answer",
        [STEP_BUILD] = "waiting for its VMM to build the machine",
        [STEP_CLAIM] = "booting",
        [STEP_TIME] = "waiting for its guest to take the time",
        [STEP_NETWORK] = "waiting for its network policy",
        [STEP_MEMORY] = "waiting for its guest to take its memory",
        [STEP_RUNNING] = "running",
};

/* Whether the next step may be taken: it is in the making, and nothing has gone wrong yet. */
static bool sandbox_creating(const Sandbox *s) {
        return sandbox_in_making(s) && !s->priv->exited && !sd_bus_error_is_set(&s->priv->error);
}

static const char *what_is_done(const Sandbox *s) {
        return s->state == SANDBOX_RESUMING ? "resumed" : "created";
}

static void fail_errno(Sandbox *s, int r, const char *what) {
        sandbox_failf(s, bus_error_of_errno(r), "Sandbox %s could not be %s: %s: %s", s->id, what_is_done(s), what, strerror(-r));
}

static int on_step_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;
        char limit[FORMAT_USEC_MAX];

        (void) format_usec(limit, s->manager->config.boot_timeout_usec);
        if (p->step != STEP_CLAIM) {
                sandbox_failf(s, BUS_ERROR_GUEST_TIMEOUT, "Sandbox %s could not be %s within BootTimeout=%s; it was still %s",
                              s->id, what_is_done(s), limit, step_text[p->step]);
                return 0;
        }

        _cleanup_free_ char *tail = sandbox_console_tail(s);
        sandbox_failf(s, BUS_ERROR_GUEST_TIMEOUT,
                      "The guest of sandbox %s did not answer within BootTimeout=%s (its agent %s). Its console's last lines:\n%s",
                      s->id, limit, p->agent_ready ? "came up, but did not take the claim" : "never came up",
                      isempty(tail) ? "(nothing was printed)" : tail);
        return 0;
}

/* Claim. */

static int start_timeouts(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        uint64_t timeout_usec = s->timeout_usec;

        /* Who woke it has not asked for so short a time, and may not know of it. */
        if (p->auto_resuming)
                timeout_usec = MAX(timeout_usec, s->manager->config.auto_resume_timeout_usec);
        if (timeout_usec != UINT64_MAX) {
                p->deadline_boot_usec = usec_add(clock_usec(CLOCK_BOOTTIME), timeout_usec);
                s->deadline_usec = usec_add(clock_usec(CLOCK_REALTIME), timeout_usec);
        }
        sandbox_touch(s);
        int r = sandbox_arm_deadline(s);
        return r < 0 ? r : sandbox_arm_idle(s);
}

/* From its new state.json on it is not a paused one any more, and its sandbox.json can go. */
static void leave_disk(Sandbox *s) {
        s->priv->kept_as = SANDBOX_CREATING;
        sandbox_forget_kept(s, s->disk_top);
}

/* Before anybody hears of it: what can't be saved has come to nothing, for a restarted cubed would end it. */
static int save_running(Sandbox *s) {
        SandboxState before = s->state;

        s->state = SANDBOX_RUNNING;
        int r = sandbox_save(s);
        s->state = before;
        if (r >= 0 && before == SANDBOX_RESUMING)
                leave_disk(s);
        return r;
}

static void tell_running(Sandbox *s, bool resumed) {
        static const char *const names[] = { "VMMPID", "Deadline", "Start", "BaseSnapshot" };

        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                sandbox_changed(s, names[i]);
        if (resumed) {
                audit_resumed(s->manager->audit, s, s->priv->auto_resuming);
                return;
        }
        audit_started(s->manager->audit, s);
        if (!sandbox_policy_is_deny(loaded_policy_rules(s->policy)))
                audit_policy(s->manager->audit, s, AUDIT_UID_NONE);
}

static void sandbox_runs(Sandbox *s) {
        bool resumed = s->state == SANDBOX_RESUMING;
        struct SandboxPrivate *p = s->priv;
        SandboxDone done = p->create_done;

        p->step = STEP_RUNNING;
        p->was_running = true;
        p->step_timer = sd_event_source_disable_unref(p->step_timer);
        int r = start_timeouts(s);
        if (r >= 0)
                r = sandbox_arm_checkpoints(s);
        if (r < 0) {
                fail_errno(s, r, "setting its timers");
                return;
        }

        r = save_running(s);
        if (r < 0) {
                fail_errno(s, r, "saving its state");
                return;
        }
        p->park_delay_usec = 0;
        sandbox_set_state(s, SANDBOX_RUNNING);
        tell_running(s, resumed);
        p->auto_resuming = false;

        p->create_done = NULL;
        if (done)
                done(s, NULL, p->create_userdata);
}

static void on_memory(Sandbox *s, const sd_bus_error *error, void *userdata) {
        if (!sandbox_creating(s))
                return;
        if (error)
                sandbox_fail(s, error);
        else
                sandbox_runs(s);
}

/* As the snapshot has it, it may be more or less than was asked for. */
static void fit_memory(Sandbox *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        if (!s->restored || s->mem_bytes == s->priv->restored_mem_bytes) {
                sandbox_runs(s);
                return;
        }
        s->priv->step = STEP_MEMORY;
        if (sandbox_adapt_memory(s, s->priv->restored_mem_bytes, on_memory, NULL, &e) < 0)
                sandbox_fail(s, &e);
}

static void on_network(Sandbox *s, const sd_bus_error *error) {
        if (!sandbox_creating(s))
                return;
        if (error)
                sandbox_fail(s, error);
        else
                fit_memory(s);
}

/* Not before: until it has entropy and a name of its own, a copy would talk to the world as that which it is a copy of. */
static void open_network(Sandbox *s) {
        s->priv->step = STEP_NETWORK;
        int r = sandbox_network_open(s, on_network);
        if (r < 0)
                fail_errno(s, r, "opening its network");
        else if (r > 0)
                fit_memory(s);
}

void sandbox_tell_claimed(const Sandbox *s, const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        Tlv t;

        while (tlv_next(&reader, &t) > 0)
                if (t.tag == AGENT_TAG_MESSAGE) {
                        _cleanup_free_ char *text = escape_text(t.data, t.len, CLAIM_TEXT_MAX);
                        log_warning("Sandbox %s: its guest took the claim, but: %s", s->id, strempty(text));
                        return;
                }
}

static void on_time_told(Sandbox *s) {
        if (sandbox_creating(s))
                open_network(s);
}

static void on_claimed(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                       void *userdata) {
        Sandbox *s = userdata;

        if (more || !sandbox_creating(s))
                return;
        if (error == -ECONNRESET)
                return; /* the VMM ended: its exit tells why */
        if (error < 0) {
                sandbox_failf(s, BUS_ERROR_GUEST_FAILED, "The guest of sandbox %s did not take the claim: %s", s->id, message);
                return;
        }
        sandbox_tell_claimed(s, body, size);
        /* Who talks to it from here on finds its clock right. The stream keeps the order; what took its time is waited for. */
        if (sandbox_time_is_late(s->priv->claim_sent_usec)) {
                s->priv->step = STEP_TIME;
                sandbox_tell_time(s, on_time_told);
                return;
        }
        sandbox_tell_time(s, NULL);
        open_network(s);
}

int sandbox_put_claim(const Sandbox *s, TlvWriter *w) {
        uint8_t entropy[ENTROPY_BYTES];

        if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
                return -EIO;
        tlv_put(w, AGENT_TAG_ENTROPY, entropy, sizeof(entropy));
        explicit_bzero(entropy, sizeof(entropy));
        tlv_put_u64(w, AGENT_TAG_REALTIME_NSEC, clock_usec(CLOCK_REALTIME) * NSEC_PER_USEC);
        tlv_put_str(w, AGENT_TAG_HOSTNAME, s->hostname);
        tlv_put_u32(w, AGENT_TAG_CPUS, s->cpus);
        tlv_put_u64(w, AGENT_TAG_DISK_BYTES, s->disk_bytes);
        sandbox_put_network(s, w);
        return tlv_writer_finish(w);
}

static void sandbox_claim(Sandbox *s) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);

        s->priv->step = STEP_CLAIM;
        s->priv->claim_sent_usec = clock_usec(CLOCK_MONOTONIC);
        int r = sandbox_put_claim(s, &w);
        if (r >= 0)
                r = vmm_client_claim(s->priv->vmm, &w, UINT64_MAX, on_claimed, s);
        if (w.data)
                explicit_bzero(w.data, w.size);
        if (r < 0)
                fail_errno(s, r, "claiming it");
}

/* Prepare, backwards: each function below starts what is above it. */

/* The agent of a restored guest introduced itself long ago. */
static void on_hello_loaded(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        const uint8_t *frame;
        FrameHeader h;
        Tlv t;

        while (error >= 0 && tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_FRAME && frame_split(t.data, t.len, &h, &frame) >= 0 && h.type == AGENT_READY)
                        sandbox_agent_ready(userdata, frame, h.len);
}

static void on_built(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Sandbox *s = userdata;

        if (error == -ECONNRESET || !sandbox_creating(s))
                return;
        if (error < 0 && s->restored) {
                sandbox_failf(s, error == -ENOMEM ? BUS_ERROR_NO_RESOURCES : BUS_ERROR_HOST_UNSUPPORTED,
                              "Sandbox %s can't be restored from %s %s: %s", s->id,
                              s->memory_top->kind == SNAPSHOT_TEMPLATE ? "the memory of template" : "snapshot",
                              s->memory_top->kind == SNAPSHOT_TEMPLATE ? s->template_name : s->memory_top->id, message);
                return;
        }
        if (error < 0) {
                sandbox_failf(s, error == -ENOMEM ? BUS_ERROR_NO_RESOURCES : BUS_ERROR_HOST_UNSUPPORTED,
                              "The VMM of sandbox %s could not build the machine: %s", s->id, message);
                return;
        }
        /* Its answer is there before that of the guest. */
        if (s->restored)
                (void) vmm_client_call(c, VMM_OP_HELLO, NULL, NULL, 0, HELLO_TIMEOUT_USEC, on_hello_loaded, s);
        sandbox_claim(s);
}

static void on_hello(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = userdata;

        if (error == -ECONNRESET || !sandbox_creating(s))
                return;
        if (error < 0 || vmm_client_state(body) != VMM_STATE_NEW) {
                sandbox_failf(s, BUS_ERROR_INTERNAL, "The VMM of sandbox %s does not speak our protocol: %s", s->id,
                              error < 0 ? message : "it is in the wrong state");
                return;
        }
        s->priv->step = STEP_BUILD;
        int r = s->restored ? sandbox_send_load(s, on_built, &e) : sandbox_send_build(s, on_built, &e);
        if (r < 0)
                sandbox_fail(s, &e);
}

void sandbox_agent_ready(Sandbox *s, const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        Tlv t;

        s->priv->agent_ready = true;
        while (tlv_next(&reader, &t) > 0)
                if (t.tag == AGENT_TAG_KERNEL_RELEASE) {
                        free(s->kernel_release);
                        s->kernel_release = escape_text(t.data, t.len, 64);
                        sandbox_changed(s, "KernelRelease");
                        /* A frame has room for thousands, and each would be a signal on the bus. */
                        return;
                }
}

static void on_agent_event(VmmClient *c, AgentFrameType type, const uint8_t *body, size_t size, void *userdata) {
        Sandbox *s = userdata;

        /* Once: what is told by it does not change, and each would be a signal on the bus. */
        if (type == AGENT_READY && !s->priv->agent_ready && !s->priv->was_running)
                sandbox_agent_ready(s, body, size);
}

static void on_agent_lost(VmmClient *c, void *userdata) {
        Sandbox *s = userdata;

        /* A guest can let it come and go as fast as it likes; the journal need not know of more than one. */
        if (!s->priv->agent_lost)
                log_warning("Sandbox %s: the guest's agent is gone", s->id);
        s->priv->agent_lost = true;
        if (sandbox_creating(s))
                sandbox_failf(s, BUS_ERROR_GUEST_FAILED, "The agent in sandbox %s ended while it was being %s", s->id, what_is_done(s));
}

static void on_device(VmmClient *c, const char *device, const char *message, void *userdata) {
        Sandbox *s = userdata;

        /* The VMM limits what a guest can make it say; one that was taken over limits nothing. */
        if (s->priv->n_device_errors >= DEVICE_ERRORS_MAX)
                return;
        s->priv->n_device_errors++;
        audit_device(s->manager->audit, s, device, message);
}

static int on_lost_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        log_warning("Sandbox %s: its VMM was about to end but did not, killing it", s->id);
        sandbox_end(s, VMM_EXIT_VMM_ERROR);
        return 0;
}

/* What its VMM says, or the end of the control socket, comes a moment before the end of the process. */
static void expect_end(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        /* Once: saying it again and again must not put it off. */
        if (p->end_expected || p->exited)
                return;
        p->end_expected = true;
        p->stop_timer = sd_event_source_disable_unref(p->stop_timer);
        (void) sd_event_add_time_relative(s->manager->event, &p->stop_timer, CLOCK_MONOTONIC, END_GRACE_USEC, 0,
                                          on_lost_timer, s);
}

static void on_exiting(VmmClient *c, VmmExitReason reason, uint32_t status, void *userdata) {
        Sandbox *s = userdata;

        /* Only to be told early: what counts is the exit record, once the process is gone. */
        if (s->state == SANDBOX_RUNNING)
                sandbox_set_state(s, SANDBOX_STOPPING);
        expect_end(s);
}

static void on_vmm_gone(VmmClient *c, int error, void *userdata) {
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;

        p->vmm_lost = true;
        if (error != -ECONNRESET) {
                log_warning_errno(error, "Sandbox %s: its VMM broke the protocol, killing it: %m", s->id);
                sandbox_end(s, VMM_EXIT_VMM_ERROR);
                return;
        }
        expect_end(s);
}

static const VmmEvents vmm_events = {
        .agent = on_agent_event,
        .agent_lost = on_agent_lost,
        .device = on_device,
        .exiting = on_exiting,
        .gone = on_vmm_gone,
};

int sandbox_connect(Sandbox *s) {
        union {
                struct sockaddr sa;
                struct sockaddr_un un;
        } addr = { .un.sun_family = AF_UNIX };
        _cleanup_free_ char *path = sandbox_path(s, "ctl");

        if (!path)
                return -ENOMEM;
        if (strlen(path) >= sizeof(addr.un.sun_path))
                return -ENAMETOOLONG;
        memcpy(addr.un.sun_path, path, strlen(path) + 1);

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        /* Never waits: it is in the listener's queue, whether or not the VMM is there yet. */
        if (connect(fd, &addr.sa, sizeof(addr.un)) < 0)
                return -errno;
        int r = vmm_client_new(s->manager->event, fd, &vmm_events, s, &s->priv->vmm);
        if (r < 0)
                return r;
        (void) TAKE_FD(fd);
        return 0;
}

/* Adopted ones are not ours to reap: their pid may be another's by now. */
bool sandbox_shares_core(const Sandbox *s, const Sandbox *other) {
        return other != s && tenant_same(other->owner_uid, other->tenant, s->owner_uid, s->tenant) && other->vmm_pid > 0 && !other->priv->exited && !other->priv->adopted;
}

/* Where it does not work out the VMM has a cookie of its own, which is the safe side. */
static void share_core(const Sandbox *s) {
        const Manager *m = s->manager;

        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (sandbox_shares_core(s, m->sandboxes[i])) {
                        int r = core_sched_share(m->sandboxes[i]->vmm_pid, s->vmm_pid);
                        if (r < 0 && r != -EOPNOTSUPP)
                                log_warning_errno(r, "Sandbox %s: its VMM does not share cores with others of its tenant: %m", s->id);
                        return;
                }
}

static void on_scope(Scope *scope, const sd_bus_error *error, void *userdata) {
        Sandbox *s = userdata;

        if (!sandbox_creating(s))
                return;
        if (error) {
                sandbox_failf(s, BUS_ERROR_INTERNAL, "PID 1 refused the scope of sandbox %s: %s", s->id, strempty(error->message));
                return;
        }
        s->priv->step = STEP_CONNECT;
        share_core(s);
        int r = vmm_gate_open(&s->priv->process);
        if (r < 0) {
                fail_errno(s, r, "starting its VMM");
                return;
        }
        r = sandbox_connect(s);
        if (r >= 0)
                r = vmm_client_call(s->priv->vmm, VMM_OP_HELLO, NULL, NULL, 0, HELLO_TIMEOUT_USEC, on_hello, s);
        if (r < 0)
                fail_errno(s, r, "connecting to its VMM");
}

static int start_scope(Sandbox *s) {
        _cleanup_free_ char *description = NULL;

        if (asprintf(&description, "%s %s %s template %s of uid %u", s->builder ? "Builder" : "Sandbox", s->id,
                     s->builder ? "of" : "from", s->template_name, (unsigned) s->owner_uid) < 0) {
                description = NULL;
                return -ENOMEM;
        }
        ScopeSpec spec = {
                .name = s->scope_name,
                .slice = CUBE_SLICE,
                .description = description,
                .pid = s->vmm_pid,
                .mem_max = scope_memory_max(s->mem_bytes),
                .mem_swap_max = s->mem_bytes,
                .cpu_quota_usec = s->cpu_quota_usec,
                .tasks_max = SCOPE_TASKS_MAX,
                .stop_timeout_usec = usec_add(s->manager->config.stop_timeout_usec, SCOPE_STOP_GRACE_USEC),
        };
        return scope_start(s->manager->priv->units, &spec, on_scope, s, &s->priv->scope);
}

static int on_child(sd_event_source *source, const siginfo_t *si, void *userdata) {
        sandbox_process_gone(userdata, si);
        return 0;
}

static int on_pid_fd(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        sandbox_process_gone(userdata, NULL);
        return 0;
}

int sandbox_watch_process(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        int r;

        if (p->adopted)
                r = sd_event_add_io(s->manager->event, &p->exit_source, p->process.pid_fd, EPOLLIN, on_pid_fd, s);
        else
                r = sd_event_add_child_pidfd(s->manager->event, &p->exit_source, p->process.pid_fd, WEXITED, on_child, s);
        /* Ahead of the control socket, so that what ended is known when its requests fail. */
        return r < 0 ? r : sd_event_source_set_priority(p->exit_source, SD_EVENT_PRIORITY_IMPORTANT);
}

int process_start_time(pid_t pid, uint64_t *ret) {
        char path[64];
        _cleanup_free_ char *stat = NULL;

        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        int r = read_file(AT_FDCWD, path, 4096, &stat, NULL);
        if (r < 0)
                return r;
        /* Field 22; the second may hold blanks and brackets, the last bracket closes it. */
        char *p = strrchr(stat, ')');
        unsigned long long start;
        if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start) != 1)
                return -EBADMSG;
        *ret = start;
        return 0;
}

static int start_process(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        _cleanup_free_ char *path = NULL;

        int r = helper_path("cube-vmm", &path);
        if (r < 0)
                return r;
        VmmSpawn spawn = {
                .path = path,
                .uid = s->vmm_uid,
                .listen_fd = p->listen_fd,
                .netns_fd = p->netns_fd,
                .journal = JOURNAL_STDOUT,
        };
        r = vmm_spawn(&spawn, &p->process);
        if (r < 0)
                return r;

        s->vmm_pid = p->process.pid;
        p->listen_fd = safe_close(p->listen_fd);
        p->netns_fd = safe_close(p->netns_fd);
        r = sandbox_watch_process(s);
        if (r >= 0)
                r = process_start_time(s->vmm_pid, &p->vmm_start_time);
        return r;
}

static void on_slot_taken(Sandbox *s) {
        if (!sandbox_creating(s))
                return;
        int r = start_process(s);
        if (r < 0) {
                fail_errno(s, r, "forking its VMM");
                return;
        }
        /* On disk before the process can go anywhere: a cubed that dies now is followed by one that
         * finds and ends it. */
        r = sandbox_save(s);
        if (r < 0) {
                fail_errno(s, r, "saving its state");
                return;
        }
        s->priv->step = STEP_SCOPE;
        r = start_scope(s);
        if (r < 0)
                fail_errno(s, r, "asking PID 1 for its scope");
}

static int start_prepare(Sandbox *s, sd_bus_error *error) {
        struct SandboxPrivate *p = s->priv;
        Manager *m = s->manager;

        int r = sd_event_add_time(m->event, &p->step_timer, CLOCK_MONOTONIC,
                                  usec_add(clock_usec(CLOCK_MONOTONIC), m->config.boot_timeout_usec), 0, on_step_timer, s);
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        p->step = STEP_SLOT;
        return sandbox_take_slot(s, on_slot_taken, error);
}

static int acquire_uid(Sandbox *s, sd_bus_error *error) {
        int r = uid_range_acquire(s->manager->priv->uids, &s->vmm_uid);

        if (r == -ENOSPC)
                return sd_bus_error_setf(error, BUS_ERROR_NO_RESOURCES, "All uids of UIDRange= are in use; end a sandbox or widen it");
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}

int sandbox_start(Sandbox *s, sd_bus_error *error) {
        int r = acquire_uid(s, error);
        if (r >= 0)
                r = sandbox_prepare(s, error);
        if (r < 0)
                return r;
        r = start_prepare(s, error);
        if (r < 0) {
                sandbox_remove_files(s->priv->dir);
                sandbox_unlink_overlay(s);
        }
        return r;
}

int sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret,
                   sd_bus_error *error) {
        _cleanup_(sandbox_freep) Sandbox *s = NULL;
        char id[ID_SIZE];

        id_random(id);
        int r = sandbox_new(m, id, &s);
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        r = sandbox_apply_spec(s, spec, error);
        if (r < 0)
                return r;

        template_use(spec->template);
        s->priv->template = spec->template;
        s->state = SANDBOX_CREATING;
        s->created_usec = s->state_changed_usec = clock_usec(CLOCK_REALTIME);
        s->priv->create_done = done;
        s->priv->create_userdata = userdata;
        r = sandbox_start(s, error);
        if (r < 0) {
                audit_failed(m->audit, s, strempty(error->message));
                return r;
        }
        r = manager_add_sandbox(m, s);
        if (r < 0) {
                sandbox_remove_files(s->priv->dir);
                sandbox_unlink_overlay(s);
                return sd_bus_error_set_errno(error, r);
        }

        audit_created(m->audit, s);
        *ret = TAKE_PTR(s);
        return 0;
}
