/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/denials.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/host-network.h"
#include "daemon/log.h"

#define AUDIT_QUEUE_MAX 512U
#define AUDIT_ENTRY_MAX 8192U
#define AUDIT_VALUE_MAX 512U
#define AUDIT_ARGUMENTS_MAX 64U
#define AUDIT_RULES_MAX 64U
#define AUDIT_RETRY_USEC USEC_PER_SEC

typedef struct AuditEntry {
        char *text;
        size_t size;
} AuditEntry;

struct Audit {
        sd_event *event;
        char *socket_path;
        bool arguments;

        int fd;                             /* connected datagram socket, -EBADF while there is none */
        sd_event_source *writable;          /* off unless the journal's queue is full */
        sd_event_source *retry;             /* off unless the journal is not there */
        AuditEntry queue[AUDIT_QUEUE_MAX];  /* ring */
        size_t first, n_queued;
        uint64_t lost, lost_reported;

        Denials denials;
        sd_event_source *denials_told;      /* off unless some wait to be told */
};

/* One entry in the making; a field that does not fit is left out. */
typedef struct Builder {
        char text[AUDIT_ENTRY_MAX];
        size_t size;
} Builder;

static void _printf_(3, 4) add(Builder *b, const char *field, const char *format, ...) {
        char value[AUDIT_VALUE_MAX * 4 + 512];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(value, sizeof(value), format, ap);
        va_end(ap);
        if (n < 0)
                return;

        /* The simple form of the protocol: a line feed would begin another field. */
        for (char *p = value; *p; p++)
                if ((unsigned char) *p < 0x20)
                        *p = ' ';

        size_t room = sizeof(b->text) - b->size;
        n = snprintf(b->text + b->size, room, "%s=%s\n", field, value);
        if (n > 0 && (size_t) n < room)
                b->size += (size_t) n;
}

/* Text that a guest or client chose. */
static void add_text(Builder *b, const char *field, const char *text) {
        if (!text)
                return;
        _cleanup_free_ char *e = escape_text(text, strlen(text), AUDIT_VALUE_MAX);
        add(b, field, "%s", strempty(e));
}

static void begin(Builder *b, const char *id, const char *event, int priority) {
        b->size = 0;
        add(b, "MESSAGE_ID", "%s", id);
        add(b, "PRIORITY", "%d", priority);
        add(b, "SYSLOG_IDENTIFIER", "cubed");
        add(b, "CUBE_EVENT", "%s", event);
}

static void begin_sandbox(Builder *b, const char *id, const char *event, int priority, const Sandbox *s) {
        begin(b, id, event, priority);
        add(b, "CUBE_SANDBOX", "%s", s->id);
        add(b, "CUBE_OWNER_UID", "%u", (unsigned) s->owner_uid);
        if (*s->tenant)
                add(b, "CUBE_TENANT", "%s", s->tenant);
        if (s->template_id)
                add(b, "CUBE_TEMPLATE", "%s", s->template_id);
        if (s->template_name)
                add_text(b, "CUBE_TEMPLATE_NAME", s->template_name);
        if (s->vmm_pid > 0)
                add(b, "OBJECT_PID", "%d", (int) s->vmm_pid);
}

static int audit_connect(Audit *a) {
        union {
                struct sockaddr sa;
                struct sockaddr_un un;
        } addr = { .un.sun_family = AF_UNIX };

        size_t n = strlen(a->socket_path);
        if (n >= sizeof(addr.un.sun_path))
                return -ENAMETOOLONG;
        memcpy(addr.un.sun_path, a->socket_path, n + 1);

        a->writable = sd_event_source_disable_unref(a->writable);
        a->fd = safe_close(a->fd);

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        /* Connected, so that EPOLLOUT means the journal's queue and not our own. */
        if (connect(fd, &addr.sa, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + n + 1)) < 0)
                return -errno;

        a->fd = TAKE_FD(fd);
        return 0;
}

static int audit_send(Audit *a, const char *text, size_t size) {
        int r;

        for (unsigned attempt = 0; attempt < 2; attempt++) {
                if (a->fd < 0) {
                        r = audit_connect(a);
                        if (r < 0)
                                return r;
                }
                if (send(a->fd, text, size, MSG_NOSIGNAL|MSG_DONTWAIT) >= 0)
                        return 0;
                r = -errno;
                if (r == -EAGAIN || r == -EMSGSIZE)
                        return r;
                /* The journal's socket was made anew. */
                a->writable = sd_event_source_disable_unref(a->writable);
                a->fd = safe_close(a->fd);
        }
        return r;
}

static void audit_report_lost(Audit *a) {
        Builder b;

        if (a->lost == a->lost_reported)
                return;
        begin(&b, AUDIT_ID_LOST, "lost", LOG_WARNING);
        add(&b, "CUBE_COUNT", "%llu", (unsigned long long) (a->lost - a->lost_reported));
        add(&b, "MESSAGE", "%llu audit entries were lost: the journal did not take them in time",
            (unsigned long long) (a->lost - a->lost_reported));
        if (audit_send(a, b.text, b.size) >= 0)
                a->lost_reported = a->lost;
}

static int on_writable(sd_event_source *source, int fd, uint32_t revents, void *userdata);
static int on_retry(sd_event_source *source, uint64_t usec, void *userdata);

static int audit_wait(Audit *a, int why) {
        if (!a->event)
                return -EAGAIN;
        if (why == -EAGAIN) {
                if (a->writable)
                        return sd_event_source_set_enabled(a->writable, SD_EVENT_ON);
                return sd_event_add_io(a->event, &a->writable, a->fd, EPOLLOUT, on_writable, a);
        }
        if (!a->retry)
                return sd_event_add_time_relative(a->event, &a->retry, CLOCK_MONOTONIC, AUDIT_RETRY_USEC, 0,
                                                  on_retry, a);
        (void) sd_event_source_set_time_relative(a->retry, AUDIT_RETRY_USEC);
        return sd_event_source_set_enabled(a->retry, SD_EVENT_ONESHOT);
}

static void audit_flush(Audit *a) {
        /* A bounded number a round; EPOLLOUT brings the next. */
        for (unsigned i = 0; i < 64 && a->n_queued > 0; i++) {
                AuditEntry *e = a->queue + a->first;
                int r = audit_send(a, e->text, e->size);

                if (r < 0 && r != -EMSGSIZE) {
                        (void) audit_wait(a, r);
                        return;
                }
                if (r < 0)
                        a->lost++;
                free(TAKE_PTR(e->text));
                a->first = (a->first + 1) % AUDIT_QUEUE_MAX;
                a->n_queued--;
        }
        if (a->n_queued > 0) {
                (void) audit_wait(a, -EAGAIN);
                return;
        }
        audit_report_lost(a);
        if (a->writable)
                (void) sd_event_source_set_enabled(a->writable, SD_EVENT_OFF);
}

static int on_writable(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        audit_flush(userdata);
        return 0;
}

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        audit_flush(userdata);
        return 0;
}

static void audit_lose(Audit *a) {
        if (a->lost++ == a->lost_reported)
                log_warning("The journal does not take audit entries, losing some");
}

static void audit_submit(Audit *a, const Builder *b) {
        int r = 0;

        if (a->n_queued == 0) {
                r = audit_send(a, b->text, b->size);
                if (r >= 0)
                        return;
        }
        if (a->n_queued == AUDIT_QUEUE_MAX || r == -EMSGSIZE || (a->n_queued == 0 && audit_wait(a, r) < 0)) {
                audit_lose(a);
                return;
        }

        char *copy = malloc(b->size);
        if (!copy) {
                audit_lose(a);
                return;
        }
        memcpy(copy, b->text, b->size);
        a->queue[(a->first + a->n_queued++) % AUDIT_QUEUE_MAX] = (AuditEntry) { copy, b->size };
}

int audit_new(sd_event *event, const char *socket_path, bool arguments, Audit **ret) {
        Audit *a = new0(Audit, 1);
        if (!a)
                return -ENOMEM;

        *a = (Audit) {
                .event = event ? sd_event_ref(event) : NULL,
                .socket_path = strdup(socket_path ? socket_path : "/run/systemd/journal/socket"),
                .arguments = arguments,
                .fd = -EBADF,
        };
        if (!a->socket_path) {
                audit_free(a);
                return -ENOMEM;
        }
        *ret = a;
        return 0;
}

static void tell_all_denials(Audit *a, uint64_t now);

Audit *audit_free(Audit *a) {
        if (!a)
                return NULL;

        tell_all_denials(a, UINT64_MAX);
        if (a->n_queued > 0)
                audit_flush(a);
        while (a->n_queued-- > 0) {
                free(a->queue[a->first].text);
                a->first = (a->first + 1) % AUDIT_QUEUE_MAX;
        }
        sd_event_source_disable_unref(a->writable);
        sd_event_source_disable_unref(a->retry);
        sd_event_source_disable_unref(a->denials_told);
        sd_event_unref(a->event);
        safe_close(a->fd);
        free(a->socket_path);
        free(a);
        return NULL;
}

void audit_set_arguments(Audit *a, bool on) {
        a->arguments = on;
}

uint64_t audit_lost(const Audit *a) {
        return a->lost;
}

void audit_created(Audit *a, const Sandbox *s) {
        Builder b;

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_CREATED, "create", LOG_INFO, s);
        add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) s->owner_uid);
        add(&b, "CUBE_MEMORY_BYTES", "%llu", (unsigned long long) s->mem_bytes);
        add(&b, "CUBE_CPUS", "%u", s->cpus);
        add(&b, "MESSAGE", "Creating sandbox %s of uid %u from template %s", s->id, (unsigned) s->owner_uid,
            strempty(s->template_name ? s->template_name : s->template_id));
        audit_submit(a, &b);
}

void audit_started(Audit *a, const Sandbox *s) {
        Builder b;

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_STARTED, "start", LOG_INFO, s);
        add_text(&b, "CUBE_KERNEL", s->kernel_release);
        add(&b, "CUBE_START", "%s", s->restored ? "restored" : "booted");
        if (s->disk_top)
                add(&b, "CUBE_SNAPSHOT", "%s", s->disk_top->id);
        add(&b, "MESSAGE", "Sandbox %s runs%s", s->id, s->restored ? ", restored" : "");
        audit_submit(a, &b);
}

void audit_failed(Audit *a, const Sandbox *s, const char *why) {
        Builder b;

        if (!a || s->builder)
                return;
        _cleanup_free_ char *text = escape_text(why, strlen(why), AUDIT_VALUE_MAX);
        begin_sandbox(&b, AUDIT_ID_FAILED, "create-failed", LOG_WARNING, s);
        add_text(&b, "CUBE_REASON", why);
        add(&b, "MESSAGE", "Sandbox %s could not be created: %s", s->id, strempty(text));
        audit_submit(a, &b);
}

/* What the kernel calls a system call, by a number that a VMM wrote. */
static void add_call(Builder *b, const Sandbox *s, uint32_t call) {
        char *name = call <= INT_MAX ? seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int) call) : NULL;

        add(b, "CUBE_SYSTEM_CALL", "%s", name ?: "unknown");
        add(b, "MESSAGE", "Sandbox %s ended: forbidden-call, its VMM made system call %u (%s), which its filter does not allow",
            s->id, call, name ?: "unknown");
        free(name);
}

void audit_exited(Audit *a, const Sandbox *s) {
        Builder b;
        bool wanted = s->exit_reason == VMM_EXIT_POWEROFF || s->exit_reason == VMM_EXIT_KILLED ||
                s->exit_reason == VMM_EXIT_STOP_TIMEOUT || s->exit_reason == VMM_EXIT_TIMEOUT;
        const char *reason = vmm_exit_reason_to_string(s->exit_reason);

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_EXITED, "exit", wanted ? LOG_INFO : LOG_WARNING, s);
        add(&b, "CUBE_REASON", "%s", reason);
        add(&b, "CUBE_STATUS", "%u", s->exit_status);
        if (s->exit_reason == VMM_EXIT_FORBIDDEN_CALL)
                add_call(&b, s, s->exit_status);
        else
                add(&b, "MESSAGE", "Sandbox %s ended: %s, status %u", s->id, reason, s->exit_status);
        audit_submit(a, &b);
}

void audit_device(Audit *a, const Sandbox *s, const char *device, const char *message) {
        Builder b;

        if (!a)
                return;
        _cleanup_free_ char *d = escape_text(strempty(device), strlen(strempty(device)), 64),
                *t = escape_text(strempty(message), strlen(strempty(message)), AUDIT_VALUE_MAX);
        begin_sandbox(&b, AUDIT_ID_DEVICE, "device-error", LOG_WARNING, s);
        add(&b, "CUBE_DEVICE", "%s", strempty(d));
        add(&b, "CUBE_REASON", "%s", strempty(t));
        add(&b, "MESSAGE", "Sandbox %s: device %s: %s", s->id, strempty(d), strempty(t));
        audit_submit(a, &b);
}

void audit_adopted(Audit *a, const Sandbox *s) {
        Builder b;

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_ADOPTED, "adopted", LOG_INFO, s);
        add(&b, "MESSAGE", "Sandbox %s went on while cubed was away, taken over again", s->id);
        audit_submit(a, &b);
}

static bool secret_name(const char *s, size_t n) {
        static const char *const words[] = { "pass", "secret", "token", "key", "auth", "cred" };

        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < ELEMENTSOF(words); k++)
                        if (n - i >= strlen(words[k]) && strncasecmp(s + i, words[k], strlen(words[k])) == 0)
                                return true;
        return false;
}

/* NAME=VALUE and --option VALUE whose name smells of a secret lose the value. Not a promise: what
 * must not be logged must not be an argument. */
static void add_arguments(Builder *b, char **argv) {
        bool mask_next = false;

        for (size_t i = 0; argv[i] && i < AUDIT_ARGUMENTS_MAX; i++) {
                const char *sign = strchr(argv[i], '=');
                size_t n = sign ? (size_t) (sign - argv[i]) : strlen(argv[i]);
                bool secret = secret_name(argv[i], n);

                if (mask_next)
                        add(b, "CUBE_ARGUMENT", "***");
                else if (sign && secret) {
                        _cleanup_free_ char *name = escape_text(argv[i], n, AUDIT_VALUE_MAX);
                        add(b, "CUBE_ARGUMENT", "%s=***", strempty(name));
                } else
                        add_text(b, "CUBE_ARGUMENT", argv[i]);
                mask_next = !mask_next && !sign && argv[i][0] == '-' && secret;
        }
}

void audit_snapshot(Audit *a, const Sandbox *s, const Snapshot *n, uint64_t pause_usec, uint64_t n_pages) {
        uint64_t bytes = 0;
        Builder b;

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_SNAPSHOT, "snapshot", LOG_INFO, s);
        add(&b, "CUBE_SNAPSHOT", "%s", n->id);
        add(&b, "CUBE_SNAPSHOT_KIND", "%s", snapshot_kind_to_string(n->kind));
        add_text(&b, "CUBE_SNAPSHOT_NAME", n->name);
        if (n->number > 0)
                add(&b, "CUBE_CHECKPOINT", "%llu", (unsigned long long) n->number);
        for (size_t i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                bytes += n->file_bytes[i];
        add(&b, "CUBE_PAUSE_USEC", "%llu", (unsigned long long) pause_usec);
        add(&b, "CUBE_SNAPSHOT_BYTES", "%llu", (unsigned long long) bytes);
        add(&b, "CUBE_SNAPSHOT_PAGES", "%llu", (unsigned long long) n_pages);
        add(&b, "MESSAGE", "Snapshot %s of sandbox %s", n->id, s->id);
        audit_submit(a, &b);
}

void audit_snapshot_failed(Audit *a, const Sandbox *s, const char *why) {
        Builder b;

        if (!a || s->builder)
                return;
        _cleanup_free_ char *text = escape_text(why, strlen(why), AUDIT_VALUE_MAX);
        begin_sandbox(&b, AUDIT_ID_SNAPSHOT_FAILED, "snapshot-failed", LOG_WARNING, s);
        add_text(&b, "CUBE_REASON", why);
        add(&b, "MESSAGE", "%s", strempty(text));
        audit_submit(a, &b);
}

void audit_rolled_back(Audit *a, const Sandbox *s, const Snapshot *n) {
        Builder b;

        if (!a)
                return;
        begin_sandbox(&b, AUDIT_ID_ROLLED_BACK, "rolled-back", LOG_INFO, s);
        add(&b, "CUBE_SNAPSHOT", "%s", n->id);
        add(&b, "MESSAGE", "Sandbox %s was rolled back to snapshot %s", s->id, n->id);
        audit_submit(a, &b);
}

void audit_rollback_failed(Audit *a, const Sandbox *s, const Snapshot *kept, const char *why) {
        Builder b;

        if (!a)
                return;
        _cleanup_free_ char *text = escape_text(why, strlen(why), AUDIT_VALUE_MAX);
        begin_sandbox(&b, AUDIT_ID_ROLLBACK_FAILED, "rollback-failed", kept ? LOG_ERR : LOG_WARNING, s);
        if (kept)
                add(&b, "CUBE_SNAPSHOT", "%s", kept->id);
        add_text(&b, "CUBE_REASON", why);
        add(&b, "MESSAGE", "%s", strempty(text));
        audit_submit(a, &b);
}

void audit_paused(Audit *a, const Sandbox *s) {
        Builder b;

        if (!a)
                return;
        begin_sandbox(&b, AUDIT_ID_PAUSED, "paused", LOG_INFO, s);
        if (s->disk_top)
                add(&b, "CUBE_SNAPSHOT", "%s", s->disk_top->id);
        add(&b, "CUBE_MEMORY", "%s", s->memory_top ? "yes" : "no");
        add(&b, "MESSAGE", "Sandbox %s is paused%s", s->id, s->memory_top ? "" : ", without its memory");
        audit_submit(a, &b);
}

void audit_resumed(Audit *a, const Sandbox *s, bool by_connection) {
        Builder b;

        if (!a)
                return;
        begin_sandbox(&b, AUDIT_ID_RESUMED, "resumed", LOG_INFO, s);
        add(&b, "CUBE_START", "%s", s->restored ? "restored" : "booted");
        add(&b, "CUBE_TRIGGER", "%s", by_connection ? "connection" : "request");
        add(&b, "MESSAGE", "Sandbox %s runs again, %s%s", s->id, s->restored ? "restored" : "booted",
            by_connection ? ", for a connection of this host" : "");
        audit_submit(a, &b);
}

static void submit_failed(Audit *a, const char *id, const char *event, const Sandbox *s, const char *what, const char *why) {
        Builder b;

        if (!a)
                return;
        _cleanup_free_ char *text = escape_text(why, strlen(why), AUDIT_VALUE_MAX);
        begin_sandbox(&b, id, event, LOG_WARNING, s);
        add_text(&b, "CUBE_REASON", why);
        add(&b, "MESSAGE", "Sandbox %s could not be %s: %s", s->id, what, strempty(text));
        audit_submit(a, &b);
}

void audit_pause_failed(Audit *a, const Sandbox *s, const char *why) {
        submit_failed(a, AUDIT_ID_PAUSE_FAILED, "pause-failed", s, "paused", why);
}

void audit_resume_failed(Audit *a, const Sandbox *s, const char *why) {
        submit_failed(a, AUDIT_ID_RESUME_FAILED, "resume-failed", s, "resumed", why);
}

void audit_exec(Audit *a, const Sandbox *s, uid_t actor, char **argv, uint32_t pid) {
        Builder b;
        size_t argc = 0;

        if (!a)
                return;
        while (argv[argc])
                argc++;

        _cleanup_free_ char *program = escape_text(strempty(argv[0]), strlen(strempty(argv[0])), 256);
        begin_sandbox(&b, AUDIT_ID_EXEC, "exec", LOG_INFO, s);
        add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        add(&b, "CUBE_PROGRAM", "%s", strempty(program));
        add(&b, "CUBE_ARGUMENT_COUNT", "%zu", argc > 0 ? argc - 1 : 0);
        add(&b, "CUBE_GUEST_PID", "%u", pid);
        if (a->arguments && argc > 0)
                add_arguments(&b, argv + 1);
        add(&b, "MESSAGE", "Sandbox %s: uid %u started %s with %zu argument(s)", s->id, (unsigned) actor,
            strempty(program), argc > 0 ? argc - 1 : 0);
        audit_submit(a, &b);
}

static void audit_request(Audit *a, const char *message_id, const Sandbox *s, uid_t actor, const char *what) {
        Builder b;

        if (!a)
                return;
        begin_sandbox(&b, message_id, what, LOG_INFO, s);
        add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        add(&b, "MESSAGE", "Sandbox %s: %s asked for by uid %u", s->id, what, (unsigned) actor);
        audit_submit(a, &b);
}

void audit_stop(Audit *a, const Sandbox *s, uid_t actor, const char *how) {
        audit_request(a, AUDIT_ID_STOP, s, actor, how);
}

void audit_asked(Audit *a, const Sandbox *s, uid_t actor, const char *what) {
        audit_request(a, AUDIT_ID_ASKED, s, actor, what);
}

/* The first of them: an entry has an end. */
static void add_rules(Builder *b, const char *field, char *const *list) {
        for (size_t i = 0; list && list[i] && i < AUDIT_RULES_MAX; i++)
                add_text(b, field, list[i]);
}

static bool has_ports(uint32_t protocol) {
        return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static void format_protocol(char buf[static 16], uint32_t protocol) {
        static const struct {
                uint32_t number;
                const char *name;
        } names[] = { { IPPROTO_TCP, "tcp" }, { IPPROTO_UDP, "udp" }, { IPPROTO_ICMP, "icmp" }, { IPPROTO_ICMPV6, "icmp" } };

        (void) snprintf(buf, 16, "%u", protocol);
        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                if (names[i].number == protocol)
                        (void) snprintf(buf, 16, "%s", names[i].name);
}

void audit_policy(Audit *a, const Sandbox *s, uid_t actor) {
        const SandboxPolicy *p = loaded_policy_rules(s->policy);
        Builder b;

        if (!a || s->builder)
                return;
        begin_sandbox(&b, AUDIT_ID_POLICY, "network-policy", LOG_INFO, s);
        if (actor != AUDIT_UID_NONE)
                add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        add(&b, "CUBE_POLICY", "%s", p->internet ? "internet" : "deny");
        add_rules(&b, "CUBE_ALLOW", p->allow);
        add_rules(&b, "CUBE_DENY", p->deny);
        add_rules(&b, "CUBE_INBOUND", p->inbound);
        add(&b, "MESSAGE", "Sandbox %s: network policy %s, %zu rules allow, %zu deny, %zu inbound", s->id,
            p->internet ? "internet" : "deny", sandbox_policy_count(p->allow), sandbox_policy_count(p->deny),
            sandbox_policy_count(p->inbound));
        audit_submit(a, &b);
}

/* A guest chose some of these numbers and all of these packets. */
void audit_network_denied(Audit *a, const Sandbox *s, const NetEventInfo *e) {
        char protocol[16], port[16] = "";
        Builder b;

        if (!a || s->builder)
                return;
        format_protocol(protocol, e->protocol);
        begin_sandbox(&b, AUDIT_ID_NETWORK_DENIED, "network-denied", LOG_NOTICE, s);
        add(&b, "CUBE_DIRECTION", "%s", e->inbound ? "in" : "out");
        add_text(&b, e->inbound ? "CUBE_SOURCE" : "CUBE_DESTINATION", e->address);
        add(&b, "CUBE_PROTOCOL", "%s", protocol);
        if (has_ports(e->protocol))
                add(&b, "CUBE_PORT", "%u", e->port);
        add(&b, "CUBE_VERDICT", "deny");
        add_text(&b, "CUBE_REASON", e->reason);
        if (*e->name)
                add_text(&b, "CUBE_NAME", e->name);
        add(&b, "CUBE_COUNT", "%u", e->count);
        if (has_ports(e->protocol))
                (void) snprintf(port, sizeof(port), " port %u", e->port);
        add(&b, "MESSAGE", "Sandbox %s: %s %s %s%s was denied (%s)", s->id, protocol, e->inbound ? "from" : "to", e->address, port,
            e->reason);
        audit_submit(a, &b);
}

void audit_name_denied(Audit *a, const Sandbox *s, const NetEventInfo *e) {
        bool answer = streq(e->reason, "answer");
        Builder b;

        if (!a || s->builder)
                return;
        _cleanup_free_ char *name = escape_text(e->name, strlen(e->name), 256);
        begin_sandbox(&b, AUDIT_ID_NETWORK_DENIED, "name-denied", LOG_NOTICE, s);
        add(&b, "CUBE_DIRECTION", "out");
        add_text(&b, "CUBE_NAME", e->name);
        if (answer)
                add_text(&b, "CUBE_DESTINATION", e->address);
        add(&b, "CUBE_VERDICT", "deny");
        add_text(&b, "CUBE_REASON", e->reason);
        add(&b, "CUBE_COUNT", "%u", e->count);
        if (answer)
                add(&b, "MESSAGE", "Sandbox %s: name %s led to %s, which it may not open", s->id, strempty(name), e->address);
        else if (*e->name)
                add(&b, "MESSAGE", "Sandbox %s: name %s may not be resolved", s->id, strempty(name));
        else
                add(&b, "MESSAGE", "Sandbox %s: %u names more may not be resolved", s->id, e->count);
        audit_submit(a, &b);
}

void audit_snapshot_remove(Audit *a, const Snapshot *s, uid_t actor) {
        Builder b;

        if (!a)
                return;
        begin(&b, AUDIT_ID_SNAPSHOT_REMOVE, "snapshot-remove", LOG_INFO);
        add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        add(&b, "CUBE_OWNER_UID", "%u", (unsigned) s->owner_uid);
        if (*s->tenant)
                add(&b, "CUBE_TENANT", "%s", s->tenant);
        add(&b, "CUBE_SNAPSHOT", "%s", s->id);
        if (s->sandbox_id)
                add(&b, "CUBE_SANDBOX", "%s", s->sandbox_id);
        add(&b, "MESSAGE", "Snapshot %s: removal asked for by uid %u", s->id, (unsigned) actor);
        audit_submit(a, &b);
}

/* whom is "": of more than there was room for. */
static void tell_denials(Audit *a, const char *whom, uint32_t count) {
        Builder b;

        begin(&b, AUDIT_ID_DENIED, "denied", LOG_NOTICE);
        add(&b, "CUBE_ACTION", "several");
        add(&b, "CUBE_COUNT", "%u", count);
        if (isempty(whom)) {
                add(&b, "MESSAGE", "Denied: %u more calls, of several uids", count);
        } else {
                add(&b, "CUBE_ACTOR_UID", "%s", whom);
                add(&b, "MESSAGE", "Denied: %u more calls by uid %s", count, whom);
        }
        audit_submit(a, &b);
}

static int on_denials(sd_event_source *source, uint64_t usec, void *userdata);

static void tell_all_denials(Audit *a, uint64_t now) {
        char whom[DENIALS_WHOM_MAX];
        uint32_t count;

        while ((count = denials_take(&a->denials, now, whom)) > 0)
                tell_denials(a, whom, count);
}

/* Tells those whose interval has ended, and sees to it that it is called for the others. */
static void settle_denials(Audit *a) {
        tell_all_denials(a, now_usec());
        uint64_t next = denials_next(&a->denials);
        if (next == UINT64_MAX || !a->event)
                return;
        if (!a->denials_told) {
                (void) sd_event_add_time(a->event, &a->denials_told, CLOCK_MONOTONIC, next, 0, on_denials, a);
                return;
        }
        (void) sd_event_source_set_time(a->denials_told, next);
        (void) sd_event_source_set_enabled(a->denials_told, SD_EVENT_ONESHOT);
}

static int on_denials(sd_event_source *source, uint64_t usec, void *userdata) {
        settle_denials(userdata);
        return 0;
}

void audit_denied(Audit *a, uid_t actor, const char *action, const char *object) {
        char whom[DENIALS_WHOM_MAX];
        Builder b;

        if (!a)
                return;
        (void) snprintf(whom, sizeof(whom), "%u", (unsigned) actor);
        bool told = denials_admit(&a->denials, whom, now_usec());
        settle_denials(a);
        if (!told)
                return;
        _cleanup_free_ char *o = object ? escape_text(object, strlen(object), 128) : NULL;
        begin(&b, AUDIT_ID_DENIED, "denied", LOG_NOTICE);
        add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        add_text(&b, "CUBE_ACTION", action);
        if (o)
                add(&b, sandbox_id_valid(object) ? "CUBE_SANDBOX" : "CUBE_OBJECT", "%s", o);
        add(&b, "MESSAGE", "Denied: %s by uid %u%s%s", strempty(action), (unsigned) actor, o ? " on " : "",
            strempty(o));
        audit_submit(a, &b);
}

static void audit_template(Audit *a, const char *id, const char *event, const char *verb, uid_t actor,
                           const char *tenant, const char *name, const char *template_id) {
        Builder b;

        if (!a)
                return;
        begin(&b, id, event, LOG_INFO);
        if (actor != AUDIT_UID_NONE)
                add(&b, "CUBE_ACTOR_UID", "%u", (unsigned) actor);
        if (!isempty(tenant))
                add(&b, "CUBE_TENANT", "%s", tenant);
        add_text(&b, "CUBE_TEMPLATE", template_id);
        add_text(&b, "CUBE_TEMPLATE_NAME", name);
        add(&b, "MESSAGE", "Template %.128s%s%.32s%s %s", strempty(name), template_id ? " (" : "", strempty(template_id),
            template_id ? ")" : "", verb);
        audit_submit(a, &b);
}

void audit_template_built(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id) {
        audit_template(a, AUDIT_ID_TEMPLATE_BUILT, "template-built", "built", actor, tenant, name, id);
}

void audit_template_named(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id) {
        audit_template(a, AUDIT_ID_TEMPLATE_NAMED, "template-named", id ? "named so" : "is no name any more", actor, tenant, name, id);
}

void audit_template_removed(Audit *a, uid_t actor, const char *tenant, const char *name, const char *id) {
        audit_template(a, AUDIT_ID_TEMPLATE_REMOVED, "template-removed", "removed", actor, tenant, name, id);
}
