/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"
#include "clock.h"
#include "hostile-agent.h"

#define HEADER_BYTES 12U
#define ERRNO_NOENT 2U
#define ERRNO_SRCH 3U
#define ERRNO_BUSY 16U
#define ERRNO_NOSPC 28U
#define ERRNO_NOSYS 38U
#define FILE_PATH "/payload"
/* Nothing can be written here. */
#define FULL_PATH "/full"
#define FILE_TEXT "This file is all there is.\n"

typedef struct PACKED Header {
        uint32_t len;
        uint16_t type, flags;
        uint32_t id;
} Header;

typedef struct PACKED Record {
        uint16_t tag, reserved;
        uint32_t len;
} Record;

typedef struct Body {
        const uint8_t *data;
        uint32_t len;
} Body;

static struct PACKED {
        Header header;
        uint8_t body[8192];
} out;
static uint32_t out_len;

/* The control stream's frames, which may come in pieces. */
static uint8_t in[HEADER_BYTES + AGENT_FRAME_MAX + 1] __attribute__((aligned(8)));
static uint32_t in_have;

#define CLAIM_DELAY_NSEC (3 * 1000000000ULL)

static Conn *control;
static uint64_t memory_bytes;
static bool refused; /* by the VMM: to be tried again */
static bool stalled, stubborn, claimed, claims_ignored, claims_slow, envd_ignored;
/* Strings of a request, with a NUL behind each. */
static char strings[16384];
static uint32_t strings_used;

/* Building */

void put_bytes(uint16_t tag, const void *data, uint32_t len) {
        Record r = { .tag = tag, .len = len };

        if (out_len + sizeof(r) + len + 8 > sizeof(out.body))
                return;
        memcpy(out.body + out_len, &r, sizeof(r));
        memcpy(out.body + out_len + sizeof(r), data, len);
        out_len += sizeof(r) + len;
        while (out_len % 8)
                out.body[out_len++] = 0;
}

void put_u32(uint16_t tag, uint32_t v) {
        put_bytes(tag, &v, sizeof(v));
}

void put_u64(uint16_t tag, uint64_t v) {
        put_bytes(tag, &v, sizeof(v));
}

static void put_text(uint16_t tag, const char *s) {
        put_bytes(tag, s, (uint32_t) strlen(s));
}

void send_frame(Conn *c, uint16_t type, uint32_t id) {
        out.header = (Header) { .len = out_len, .type = type, .id = id };
        vsock_send(c, &out, HEADER_BYTES + out_len);
        out_len = 0;
}

static void send_error(Conn *c, uint32_t id, uint32_t error, const char *message) {
        put_u32(AGENT_TAG_ERRNO, error);
        put_text(AGENT_TAG_MESSAGE, message);
        send_frame(c, AGENT_ERROR, id);
}

/* Reading */

/* The next record, and body behind it. */
static bool next_record(Body *body, Record *ret, const uint8_t **ret_data) {
        if (body->len < sizeof(Record))
                return false;
        memcpy(ret, body->data, sizeof(*ret));
        uint64_t whole = sizeof(Record) + (((uint64_t) ret->len + 7) & ~7ULL);
        if (whole > body->len)
                return false;
        *ret_data = body->data + sizeof(Record);
        body->data += whole;
        body->len -= (uint32_t) whole;
        return true;
}

static uint32_t find_u32(Body body, uint16_t tag, uint32_t otherwise) {
        const uint8_t *data;
        Record r;

        while (next_record(&body, &r, &data))
                if (r.tag == tag && r.len == 4)
                        return *(const uint32_t *) data;
        return otherwise;
}

/* 0: it is not there. */
static uint64_t find_u64(Body body, uint16_t tag) {
        const uint8_t *data;
        Record r;

        while (next_record(&body, &r, &data))
                if (r.tag == tag && r.len == 8)
                        return *(const uint64_t *) data;
        return 0;
}

static const char *keep_string(const uint8_t *data, uint32_t len) {
        char *s = strings + strings_used;

        if (len >= sizeof(strings) - strings_used)
                return "";
        memcpy(s, data, len);
        s[len] = 0;
        strings_used += len + 1;
        return s;
}

static const char *find_string(Body body, uint16_t tag) {
        const uint8_t *data;
        Record r;

        while (next_record(&body, &r, &data))
                if (r.tag == tag)
                        return keep_string(data, r.len);
        return "";
}

/* Requests */

static void do_exec(Conn *c, uint32_t id, Body body) {
        const uint8_t *data;
        Args args = {};
        Record r;

        while (next_record(&body, &r, &data)) {
                if (r.tag == AGENT_TAG_ARGV && args.argc < ELEMENTSOF(args.argv))
                        args.argv[args.argc++] = keep_string(data, r.len);
                if (r.tag == AGENT_TAG_ENV && args.n_env < ELEMENTSOF(args.env))
                        args.env[args.n_env++] = keep_string(data, r.len);
                if (r.tag == AGENT_TAG_USER)
                        args.user = keep_string(data, r.len);
                if (r.tag == AGENT_TAG_CWD)
                        args.cwd = keep_string(data, r.len);
        }

        if (args.argc > 0 && hostile_exec(c, id, args.argv[0]))
                return;
        Process *p = process_start(&args);
        if (!p) {
                send_error(c, id, ERRNO_NOENT, "No such program in the payload");
                return;
        }
        put_u32(AGENT_TAG_PID, process_pid(p));
        send_frame(c, AGENT_OK, id);
}

static void do_signal(Conn *c, uint32_t id, Body body) {
        Process *p = process_find(find_u32(body, AGENT_TAG_PID, 0));

        if (!p) {
                send_error(c, id, ERRNO_SRCH, "No such process");
                return;
        }
        process_signal(p, find_u32(body, AGENT_TAG_SIGNAL, 15));
        send_frame(c, AGENT_OK, id);
}

/* It has one CPU, which never rests, and no disk. */
static void do_usage(Conn *c, uint32_t id) {
        const AgentUsage u = {
                .cpu_total_usec = clock_monotonic() / 1000, .mem_total = memory_bytes, .mem_used = memory_bytes / 2, .cpus = 1,
        };

        put_bytes(AGENT_TAG_USAGE, &u, sizeof(u));
        send_frame(c, AGENT_OK, id);
}

static void do_list(Conn *c, uint32_t id) {
        Process *p;

        for (unsigned i = 0; (p = process_nth(i)); i++) {
                struct PACKED {
                        AgentProcess process;
                        char name[PROCESS_NAME_BYTES];
                } record = {};
                uint32_t code, signal;
                uint32_t name_len = (uint32_t) strlen(process_name(p));

                record.process.pid = process_pid(p);
                record.process.state = process_exited(p, &code, &signal);
                memcpy(record.name, process_name(p), name_len);
                put_bytes(AGENT_TAG_PROCESS, &record, (uint32_t) sizeof(AgentProcess) + name_len);
        }
        send_frame(c, AGENT_OK, id);
}

static void put_file(void) {
        struct PACKED {
                AgentFile file;
                char name[sizeof(FILE_PATH) - 1];
        } record = {
                .file = { .size = sizeof(FILE_TEXT) - 1, .mode = 0100644, .name_len = sizeof(FILE_PATH) - 2 },
        };

        memcpy(record.name, FILE_PATH + 1, sizeof(FILE_PATH) - 2);
        put_bytes(AGENT_TAG_FILE, &record, (uint32_t) sizeof(AgentFile) + sizeof(FILE_PATH) - 2);
}

static void do_stat(Conn *c, uint32_t id, Body body) {
        if (!streq(find_string(body, AGENT_TAG_PATH), FILE_PATH)) {
                send_error(c, id, ERRNO_NOENT, "No such file");
                return;
        }
        put_file();
        send_frame(c, AGENT_OK, id);
}

/* Files that are made go nowhere, but are told on the console. */
static void say_file(const char *what, const char *path) {
        put_string(what);
        put_string(path);
        put_string("\n");
}

static void do_make(Conn *c, uint32_t id, const char *what, uint16_t tag, Body body) {
        say_file(what, find_string(body, tag));
        send_frame(c, AGENT_OK, id);
}

static void wait_nsec(uint64_t nsec) {
        uint64_t end = clock_monotonic() + nsec;

        while (clock_monotonic() < end)
                pause_cpu();
}

static void control_frame(Conn *c, const Header *h, Body body) {
        strings_used = 0;
        if (hostile_epoch(c, h->type, h->id))
                return;
        if (h->type >= AGENT_STAT && h->type <= AGENT_MKDIR &&
            hostile_request(c, h->type, h->id, find_string(body, AGENT_TAG_PATH)))
                return;
        switch (h->type) {
        case AGENT_CLAIM:
                if (claims_ignored)
                        break;
                if (claimed)
                        processes_abandon();
                claimed = true;
                uint64_t realtime = find_u64(body, AGENT_TAG_REALTIME_NSEC);
                if (claims_slow)
                        wait_nsec(CLAIM_DELAY_NSEC);
                if (realtime)
                        clock_set_realtime(realtime);
                send_frame(c, AGENT_OK, h->id);
                break;
        case AGENT_SET_TIME:
                clock_set_realtime(find_u64(body, AGENT_TAG_REALTIME_NSEC));
                send_frame(c, AGENT_OK, h->id);
                break;
        case AGENT_PING:
        case AGENT_ADD_ENTROPY:
        case AGENT_RESIZE:
        case AGENT_FREEZE:
        case AGENT_THAW:
                send_frame(c, AGENT_OK, h->id);
                break;
        case AGENT_EXEC:
                do_exec(c, h->id, body);
                break;
        case AGENT_SIGNAL:
                do_signal(c, h->id, body);
                break;
        case AGENT_LIST_PROCESSES:
                do_list(c, h->id);
                break;
        case AGENT_USAGE:
                do_usage(c, h->id);
                break;
        case AGENT_STAT:
                do_stat(c, h->id, body);
                break;
        case AGENT_MKDIR:
                do_make(c, h->id, "made directory ", AGENT_TAG_PATH, body);
                break;
        case AGENT_SYMLINK:
                do_make(c, h->id, "made link ", AGENT_TAG_PATH, body);
                break;
        case AGENT_ENVD:
                /* There is no TCP here: nobody ever comes. */
                if (envd_ignored)
                        put_string("payload: no answer about envd\n");
                else
                        do_make(c, h->id, "serves envd to ", AGENT_TAG_USER, body);
                break;
        case AGENT_POWEROFF:
                send_frame(c, AGENT_OK, h->id);
                if (!stubborn)
                        power_off();
                break;
        default:
                send_error(c, h->id, ERRNO_NOSYS, "Not in the payload");
        }
}

static void control_data(Conn *c, const uint8_t *data, uint32_t len) {
        if (len > sizeof(in) - in_have)
                len = (uint32_t) sizeof(in) - in_have;
        memcpy(in + in_have, data, len);
        in_have += len;

        while (in_have >= HEADER_BYTES) {
                Header h;

                memcpy(&h, in, sizeof(h));
                uint32_t whole = HEADER_BYTES + h.len;
                if (h.len > AGENT_FRAME_MAX || in_have < whole)
                        break;
                if (!stalled)
                        control_frame(c, &h, (Body) { .data = in + HEADER_BYTES, .len = h.len });
                memcpy(in, in + whole, in_have - whole);
                in_have -= whole;
        }
}

/* Streams */

void report_exit(Conn *c, uint32_t code, uint32_t signal) {
        if (signal)
                put_u32(AGENT_TAG_EXIT_SIGNAL, signal);
        else
                put_u32(AGENT_TAG_EXIT_CODE, code);
        send_frame(c, AGENT_EXITED, 0);
        vsock_shutdown(c, true);
}

static void open_process_stream(Conn *c, const Header *h, Body body) {
        Process *p = process_find(find_u32(body, AGENT_TAG_PID, 0));

        c->stream = find_u32(body, AGENT_TAG_STREAM, 0);
        bool wait = h->type == AGENT_STREAM_WAIT;
        if (p && wait && hostile_wait(c, h->id, process_name(p)))
                return;
        if (!p)
                send_error(c, h->id, ERRNO_SRCH, "No such process");
        else if (wait ? !process_attach_wait(p, c) : !process_attach(p, c->stream, c))
                send_error(c, h->id, ERRNO_BUSY, "Taken");
        else {
                c->role = wait ? ROLE_WAIT : ROLE_STREAM;
                c->process = p;
                send_frame(c, AGENT_OK, h->id);
        }
}

static void end_file_stream(Conn *c) {
        put_u32(AGENT_TAG_ERRNO, 0);
        send_frame(c, AGENT_END, 0);
        vsock_shutdown(c, true);
}

static void open_read_stream(Conn *c, const Header *h, Body body) {
        if (!streq(find_string(body, AGENT_TAG_PATH), FILE_PATH)) {
                send_error(c, h->id, ERRNO_NOENT, "No such file");
                return;
        }
        put_file();
        send_frame(c, AGENT_OK, h->id);
        memcpy(out.body, FILE_TEXT, sizeof(FILE_TEXT) - 1);
        out_len = sizeof(FILE_TEXT) - 1;
        send_frame(c, AGENT_DATA, 0);
        end_file_stream(c);
}

static void open_write_stream(Conn *c, const Header *h, Body body) {
        const char *path = find_string(body, AGENT_TAG_PATH);

        if (streq(path, FULL_PATH)) {
                send_error(c, h->id, ERRNO_NOSPC, "No space in the payload");
                return;
        }
        say_file("wrote file ", path);
        c->role = ROLE_SINK;
        send_frame(c, AGENT_OK, h->id);
}

/* Frames of a file that is written to nowhere, up to AGENT_END. */
static void sink_data(Conn *c, const uint8_t *data, uint32_t len) {
        while (len > 0 && !c->done) {
                uint32_t n;

                if (c->body_left > 0) {
                        n = MIN(len, c->body_left);
                        c->body_left -= n;
                } else {
                        n = MIN(len, HEADER_BYTES - c->head_have);
                        memcpy(c->head + c->head_have, data, n);
                        c->head_have += n;
                        if (c->head_have == HEADER_BYTES) {
                                const Header *h = (const Header *) c->head;

                                c->head_have = 0;
                                c->body_left = h->len;
                                if (h->type == AGENT_END)
                                        end_file_stream(c);
                        }
                }
                data += n;
                len -= n;
        }
}

static void first_frame(Conn *c, const uint8_t *data, uint32_t len) {
        Header h;

        if (len < HEADER_BYTES)
                return;
        memcpy(&h, data, sizeof(h));
        Body body = { .data = data + HEADER_BYTES, .len = MIN(h.len, len - HEADER_BYTES) };

        strings_used = 0;
        switch (h.type) {
        case AGENT_STREAM_PROCESS:
        case AGENT_STREAM_WAIT:
                open_process_stream(c, &h, body);
                break;
        case AGENT_STREAM_READ:
        case AGENT_STREAM_WRITE:
                if (hostile_stream(c, h.type, h.id, find_string(body, AGENT_TAG_PATH)))
                        break;
                if (h.type == AGENT_STREAM_READ)
                        open_read_stream(c, &h, body);
                else
                        open_write_stream(c, &h, body);
                break;
        default:
                send_error(c, h.id, ERRNO_NOSYS, "Not in the payload");
        }
}

/* From vsock.c */

void on_connect(Conn *c) {
        if (c != control)
                return;
        c->role = ROLE_CONTROL;
        if (hostile_introduce(c))
                return;
        put_u32(AGENT_TAG_VERSION, AGENT_PROTO_VERSION);
        put_text(AGENT_TAG_KERNEL_RELEASE, "cube-payload");
        put_u32(AGENT_TAG_CPUS, 1);
        put_u64(AGENT_TAG_MEM_BYTES, memory_bytes);
        send_frame(c, AGENT_READY, 0);
}

void on_data(Conn *c, const uint8_t *data, uint32_t len) {
        if (c->role == ROLE_STREAM && c->process) {
                process_input(c->process, c, data, len);
                return;
        }

        if (c->role == ROLE_CONTROL)
                control_data(c, data, len);
        else if (c->role == ROLE_UNKNOWN)
                first_frame(c, data, len);
        else if (c->role == ROLE_SINK)
                sink_data(c, data, len);
        else if (c->role == ROLE_DEAF)
                return;
        vsock_consumed(c, len);
}

void on_host_done(Conn *c) {
        if (c->role == ROLE_STREAM && c->process && c->stream == AGENT_STREAM_STDIN)
                process_input_end(c->process);
}

void on_closed(Conn *c) {
        if (c->process)
                process_detach(c->process, c);
        c->process = NULL;
        hostile_closed(c);
        if (c != control)
                return;
        control = NULL;
        /* The VMM lets nobody in while cubed is slow. */
        refused = c->state == CONN_REQUESTED;
}

void agent_ignore_claims(bool yes) {
        claims_ignored = yes;
}

void agent_claim_slowly(void) {
        claims_slow = true;
}

void agent_ignore_envd(void) {
        envd_ignored = true;
}

void agent_start(uint64_t mem_bytes, bool stall, bool ignore_poweroff) {
        memory_bytes = mem_bytes;
        stalled = stall;
        stubborn = ignore_poweroff;
        agent_connect();
}

Conn *agent_control(void) {
        return control;
}

void agent_connect(void) {
        in_have = 0;
        control = vsock_connect(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT);
}

static void connect_control(void) {
        refused = false;
        control = vsock_connect(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT);
}

bool agent_try_again(void) {
        if (!refused)
                return false;
        connect_control();
        return true;
}

bool agent_restart(void) {
        in_have = 0;
        if (!vsock_init())
                return false;
        connect_control();
        return control;
}

bool agent_flood(void) {
        static uint64_t n;
        char release[24];

        if (!control || control->state != CONN_OPEN || vsock_room(control) < 256)
                return false;
        release[format_number(release, n++)] = 0;
        put_text(AGENT_TAG_KERNEL_RELEASE, release);
        send_frame(control, AGENT_READY, 0);
        return true;
}
