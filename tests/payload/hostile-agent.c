/* SPDX-License-Identifier: Apache-2.0 */
#include "hostile-agent.h"

#define HEADER_BYTES 12U
#define FLAG_MORE 1U
#define ENDLESS_MAX 8U
#define FLOOD_ROOM 4096U
#define TYPE_FILE 0100644U
#define TYPE_DIRECTORY 040755U
#define TYPE_LINK 0120777U

typedef void (*Act)(Conn *c, uint32_t id);

typedef struct Mode {
        const char *name;
        Act act;
} Mode;

/* A connection that something is said on for ever. */
typedef struct Endless {
        Conn *conn;
        Act act;
        uint32_t id;
} Endless;

static Endless endless[ENDLESS_MAX];
static unsigned endless_used;     /* none goes on from here on */
static const Mode *flood, *epoch; /* what was begun */
static uint8_t block[70000];

/* Frames whose header need not tell the truth. */

static void send_header(Conn *c, uint32_t len, uint16_t type, uint16_t flags, uint32_t id) {
        struct PACKED {
                uint32_t len;
                uint16_t type, flags;
                uint32_t id;
        } h = { len, type, flags, id };

        vsock_send(c, &h, sizeof(h));
}

static void send_text(Conn *c, uint16_t type, uint32_t id, const char *text) {
        send_header(c, (uint32_t) strlen(text), type, 0, id);
        vsock_send(c, text, (uint32_t) strlen(text));
}

static void put_file(const char *name, uint32_t name_len, uint32_t mode) {
        static struct PACKED {
                AgentFile file;
                char name[4200];
        } record;

        record.file = (AgentFile) { .size = 7, .mode = mode, .name_len = name_len };
        memcpy(record.name, name, MIN(name_len, sizeof(record.name)));
        put_bytes(AGENT_TAG_FILE, &record, (uint32_t) sizeof(AgentFile) + MIN(name_len, (uint32_t) sizeof(record.name)));
}

static void put_name(const char *name, uint32_t mode) {
        put_file(name, (uint32_t) strlen(name), mode);
}

static const Mode *find_mode(const Mode *modes, unsigned n, const char *name) {
        for (unsigned i = 0; i < n; i++)
                if (streq(modes[i].name, name))
                        return modes + i;
        return NULL;
}

static bool act(const Mode *m, Conn *c, uint32_t id) {
        if (m)
                m->act(c, id);
        return m;
}

static void go_on(Conn *c, uint32_t id, Act act) {
        for (unsigned i = 0; i < ENDLESS_MAX; i++)
                if (!endless[i].conn) {
                        endless[i] = (Endless) { c, act, id };
                        if (i >= endless_used)
                                endless_used = i + 1;
                        return;
                }
}

static void say_nothing(Conn *c, uint32_t id) {
        (void) c;
        (void) id;
}

/* Answers that no request gets from an agent. */

static void answer_file(Conn *c, uint32_t id) {
        put_name("file", TYPE_FILE);
        send_frame(c, AGENT_OK, id);
}

static void answer_twice(Conn *c, uint32_t id) {
        answer_file(c, id);
        answer_file(c, id);
}

static void answer_two(Conn *c, uint32_t id) {
        put_name("one", TYPE_FILE);
        put_name("another", TYPE_FILE);
        send_frame(c, AGENT_OK, id);
}

static void answer_others(Conn *c, uint32_t id) {
        for (uint32_t other = id - 8; other != id + 8; other++)
                if (other != id)
                        send_frame(c, other & 1 ? AGENT_OK : AGENT_ERROR, other);
        answer_file(c, id);
}

static void answer_type(Conn *c, uint32_t id) {
        send_frame(c, AGENT_READY, id);
}

static void answer_request(Conn *c, uint32_t id) {
        send_frame(c, AGENT_EXEC, id);
}

static void answer_no_records(Conn *c, uint32_t id) {
        send_text(c, AGENT_OK, id, "these are no records");
}

static void answer_long_record(Conn *c, uint32_t id) {
        const uint32_t record[] = { AGENT_TAG_FILE, 0xfffffff0 };

        send_header(c, sizeof(record), AGENT_OK, 0, id);
        vsock_send(c, record, sizeof(record));
}

static void answer_short_record(Conn *c, uint32_t id) {
        put_bytes(AGENT_TAG_FILE, "abc", 3);
        send_frame(c, AGENT_OK, id);
}

static void answer_name_len(Conn *c, uint32_t id) {
        const AgentFile file = { .mode = TYPE_FILE, .name_len = 0xffffffff };

        put_bytes(AGENT_TAG_FILE, &file, sizeof(file));
        send_frame(c, AGENT_OK, id);
}

static void answer_tag(Conn *c, uint32_t id) {
        put_u32(AGENT_TAG_PID, 1);
        send_frame(c, AGENT_OK, id);
}

static void answer_empty(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
}

static void answer_pid_0(Conn *c, uint32_t id) {
        put_u32(AGENT_TAG_PID, 0);
        send_frame(c, AGENT_OK, id);
}

static void answer_pid_unknown(Conn *c, uint32_t id) {
        put_u32(AGENT_TAG_PID, 0xffffffff);
        send_frame(c, AGENT_OK, id);
}

static void answer_errno(Conn *c, uint32_t id, uint32_t error, const char *message) {
        put_u32(AGENT_TAG_ERRNO, error);
        put_bytes(AGENT_TAG_MESSAGE, message, (uint32_t) strlen(message));
        send_frame(c, AGENT_ERROR, id);
}

static void answer_errno_0(Conn *c, uint32_t id) {
        answer_errno(c, id, 0, "no error at all");
}

static void answer_errno_huge(Conn *c, uint32_t id) {
        answer_errno(c, id, 0xfffffff3, "less than nothing");
}

/* What is said of a VMM that is gone, or of a connection to it. */
static void answer_gone(Conn *c, uint32_t id) {
        answer_errno(c, id, 71, "EPROTO");
}

static void answer_reset(Conn *c, uint32_t id) {
        answer_errno(c, id, 104, "ECONNRESET");
}

static void answer_not_connected(Conn *c, uint32_t id) {
        answer_errno(c, id, 107, "ENOTCONN");
}

static void answer_message(Conn *c, uint32_t id) {
        answer_errno(c, id, 5, "\033]0;title\a\033[2Jno\nCUBE_EVENT=kill\nFailed to do nothing");
}

static void answer_long_message(Conn *c, uint32_t id) {
        static char message[8000];

        memset(message, 'x', sizeof(message) - 1);
        answer_errno(c, id, 5, message);
}

static void answer_bare_error(Conn *c, uint32_t id) {
        send_frame(c, AGENT_ERROR, id);
}

/* MORE and MORE of the same. */
static void say_more(Conn *c, uint32_t id) {
        static struct PACKED {
                uint32_t tag, len;
                AgentFile file;
                char name[8];
        } records[300];

        if (vsock_room(c) < HEADER_BYTES + sizeof(records))
                return;
        for (unsigned i = 0; records[0].tag == 0 && i < ELEMENTSOF(records); i++) {
                unsigned at = ELEMENTSOF(records) - 1 - i; /* the first one last */

                records[at].file = (AgentFile) { .mode = TYPE_FILE, .name_len = sizeof(records[at].name) };
                memcpy(records[at].name, "the same", sizeof(records[at].name));
                records[at].len = sizeof(AgentFile) + sizeof(records[at].name);
                records[at].tag = AGENT_TAG_FILE;
        }
        send_header(c, sizeof(records), AGENT_OK, FLAG_MORE, id);
        vsock_send(c, records, sizeof(records));
}

static void answer_more(Conn *c, uint32_t id) {
        go_on(c, id, say_more);
}

/* What breaks the stream itself. */

static void answer_garbage(Conn *c, uint32_t id) {
        (void) id;
        memset(block, 0xa5, 4096);
        vsock_send(c, block, 4096);
}

static void answer_oversize(Conn *c, uint32_t id) {
        send_header(c, AGENT_FRAME_MAX + 1, AGENT_OK, 0, id);
}

/* All that comes behind it is a part of it. */
static void answer_half(Conn *c, uint32_t id) {
        send_header(c, AGENT_FRAME_MAX, AGENT_OK, 0, id);
}

static void answer_hang_up(Conn *c, uint32_t id) {
        (void) id;
        vsock_shutdown(c, true);
}

/* A directory of names that lead elsewhere, or into a terminal. What is asked below it is a file. */
static void answer_names(Conn *c, uint32_t id) {
        static char name[4096];
        static const char *const names[] = {
                "good", "", ".", "..", "../out", "/out", "a/b", "../../../../../../tmp/out", "\033[2J\033[31mred", "two\nlines",
                "\xff\xfe\x80", "\xc2\x9b" "31m", "\x7f", "-rf", "~", "$(reboot)",
        };

        for (unsigned i = 0; i < ELEMENTSOF(names); i++)
                put_name(names[i], TYPE_FILE);
        put_file("nul\0nul", 7, TYPE_FILE);
        memset(name, 'n', sizeof(name));
        put_file(name, 255, TYPE_FILE);
        put_file(name, 256, TYPE_FILE);
        put_file(name, 4095, TYPE_FILE);
        put_name("..", TYPE_DIRECTORY);
        put_name("link", TYPE_LINK);
        put_name("device", 0020666);
        put_name("strange", 0xffffffff);
        send_frame(c, AGENT_OK, id);
}

/* Directories in directories, without end. */
static void answer_deep(Conn *c, uint32_t id) {
        put_name("deep", TYPE_DIRECTORY);
        send_frame(c, AGENT_OK, id);
}

static const Mode answers[] = {
        { "silence", say_nothing },
        { "twice", answer_twice },
        { "two", answer_two },
        { "others", answer_others },
        { "type", answer_type },
        { "request", answer_request },
        { "no-records", answer_no_records },
        { "long-record", answer_long_record },
        { "short-record", answer_short_record },
        { "name-len", answer_name_len },
        { "tag", answer_tag },
        { "empty", answer_empty },
        { "pid-0", answer_pid_0 },
        { "pid-unknown", answer_pid_unknown },
        { "errno-0", answer_errno_0 },
        { "errno-huge", answer_errno_huge },
        { "errno-gone", answer_gone },
        { "errno-reset", answer_reset },
        { "errno-not-connected", answer_not_connected },
        { "message", answer_message },
        { "long-message", answer_long_message },
        { "bare-error", answer_bare_error },
        { "more", answer_more },
        { "garbage", answer_garbage },
        { "oversize", answer_oversize },
        { "half", answer_half },
        { "hang-up", answer_hang_up },
        { "names", answer_names },
        { "deep", answer_deep },
};

static bool answer(Conn *c, uint32_t id, const char *mode) {
        return act(find_mode(answers, ELEMENTSOF(answers), mode), c, id);
}

static const char *behind(const char *s, const char *prefix) {
        while (*prefix)
                if (*s++ != *prefix++)
                        return NULL;
        return s;
}

/* What lies below a mode is a file, or goes by the same mode. */
static bool answer_below(Conn *c, uint32_t id, const char *mode) {
        char first[32];
        unsigned n = 0;

        while (mode[n] && mode[n] != '/' && n < sizeof(first) - 1) {
                first[n] = mode[n];
                n++;
        }
        first[n] = 0;
        return answer(c, id, first);
}

bool hostile_request(Conn *c, uint16_t type, uint32_t id, const char *path) {
        const char *mode = behind(path, "/hostile/");

        if (!mode || type != AGENT_STAT)
                return mode && answer_below(c, id, mode);
        if (streq(mode, "names") || streq(mode, "deep")) {
                put_name(mode, TYPE_DIRECTORY);
                send_frame(c, AGENT_OK, id);
        } else if (!answer(c, id, mode))
                answer_file(c, id);
        return true;
}

bool hostile_program(const char *program) {
        return behind(program, "hostile-exit-");
}

bool hostile_exec(Conn *c, uint32_t id, const char *program) {
        const char *mode = behind(program, "hostile-");

        return mode && answer(c, id, mode);
}

/* Streams: the first answer. */

static void open_more(Conn *c, uint32_t id) {
        send_header(c, 0, AGENT_OK, FLAG_MORE, id);
}

static void open_large(Conn *c, uint32_t id) {
        send_header(c, sizeof(block) / 2, AGENT_OK, 0, id);
        memset(block, 0, sizeof(block));
        vsock_send(c, block, sizeof(block) / 2);
}

/* A file's contents. */

static void send_data(Conn *c, const char *text) {
        send_text(c, AGENT_DATA, 0, text);
}

static void send_end(Conn *c, uint32_t error, const char *message) {
        put_u32(AGENT_TAG_ERRNO, error);
        if (message)
                put_bytes(AGENT_TAG_MESSAGE, message, (uint32_t) strlen(message));
        send_frame(c, AGENT_END, 0);
}

static void read_good(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_data(c, "hostile");
        send_end(c, 0, NULL);
        vsock_shutdown(c, true);
}

static void read_long_frame(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_header(c, AGENT_DATA_MAX + 1, AGENT_DATA, 0, 0);
}

static void read_half(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_header(c, 1000, AGENT_DATA, 0, 0);
        vsock_send(c, "half", 4);
        vsock_shutdown(c, true);
}

static void read_no_end(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_data(c, "hostile");
        vsock_shutdown(c, true);
}

static void read_errno(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_end(c, 0xffffffff, "less than nothing");
        vsock_shutdown(c, true);
}

static void read_message(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_end(c, 5, "\033[2Jno\nLeft out nothing");
        vsock_shutdown(c, true);
}

static void read_request(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_text(c, AGENT_STREAM_WRITE, 0, "hostile");
}

static void read_silence(Conn *c, uint32_t id) {
        answer_file(c, id);
        send_data(c, "hostile");
}

static const Mode reads[] = {
        { "long-frame", read_long_frame },
        { "half-frame", read_half },
        { "no-end", read_no_end },
        { "errno", read_errno },
        { "end-message", read_message },
        { "request-frame", read_request },
        { "stall", read_silence },
        { "open-more", open_more },
        { "open-large", open_large },
        { "open-garbage", answer_garbage },
        { "open-error", answer_bare_error },
};

/* Who writes a file. */

static void write_deaf(Conn *c, uint32_t id) {
        c->role = ROLE_DEAF;
        send_frame(c, AGENT_OK, id);
}

static void write_end(Conn *c, uint32_t id) {
        c->role = ROLE_DEAF;
        send_frame(c, AGENT_OK, id);
        send_end(c, 0, NULL);
        vsock_shutdown(c, true);
}

static void write_data(Conn *c, uint32_t id) {
        c->role = ROLE_SINK;
        send_frame(c, AGENT_OK, id);
        send_data(c, "this is yours");
}

static const Mode writes[] = {
        { "deaf", write_deaf },
        { "end", write_end },
        { "data", write_data },
        { "open-garbage", answer_garbage },
        { "open-error", answer_bare_error },
};

bool hostile_stream(Conn *c, uint16_t type, uint32_t id, const char *path) {
        const char *mode = behind(path, "/hostile/");
        const Mode *m;

        if (!mode)
                return false;
        if (type == AGENT_STREAM_WRITE)
                m = find_mode(writes, ELEMENTSOF(writes), mode);
        else
                m = find_mode(reads, ELEMENTSOF(reads), mode);
        if (!act(m, c, id) && !answer(c, id, mode))
                read_good(c, id);
        return true;
}

/* How a process ended. */

static void send_exit(Conn *c, uint16_t tag, uint32_t value) {
        put_u32(tag, value);
        send_frame(c, AGENT_EXITED, 0);
}

static void wait_twice(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        send_exit(c, AGENT_TAG_EXIT_CODE, 3);
        send_exit(c, AGENT_TAG_EXIT_CODE, 4);
        vsock_shutdown(c, true);
}

static void wait_code(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        send_exit(c, AGENT_TAG_EXIT_CODE, 256);
}

static void wait_signal(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        send_exit(c, AGENT_TAG_EXIT_SIGNAL, 0xffffffff);
}

static void wait_both(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        put_u32(AGENT_TAG_EXIT_CODE, 0);
        send_exit(c, AGENT_TAG_EXIT_SIGNAL, 9);
}

static void wait_none(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        send_frame(c, AGENT_EXITED, 0);
}

static void wait_garbage(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        answer_garbage(c, id);
}

static void wait_end(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        vsock_shutdown(c, true);
}

static const Mode waits[] = {
        { "twice", wait_twice },
        { "code", wait_code },
        { "signal", wait_signal },
        { "both", wait_both },
        { "none", wait_none },
        { "garbage", wait_garbage },
        { "end", wait_end },
};

bool hostile_wait(Conn *c, uint32_t id, const char *program) {
        const char *mode = behind(program, "hostile-exit-");

        return mode && act(find_mode(waits, ELEMENTSOF(waits), mode), c, id);
}

/* Unasked. */

/* Types that are no answers, from nobody, and answers that nobody waits for. */
static void flood_events(Conn *c, uint32_t n) {
        send_header(c, 0, (uint16_t) n, (uint16_t) (n >> 3), 0);
}

static void flood_answers(Conn *c, uint32_t n) {
        send_header(c, 0, n & 1 ? AGENT_OK : AGENT_ERROR, 0, n);
}

static void flood_large(Conn *c, uint32_t n) {
        if (vsock_room(c) < sizeof(block) / 2 + HEADER_BYTES)
                return;
        send_header(c, sizeof(block) / 2, AGENT_OK, 0, n);
        vsock_send(c, block, sizeof(block) / 2);
}

/* Ports of the host, the agent's own one among them, from ports that are the agent's or not. */
static void flood_ports(Conn *c, uint32_t n) {
        static const uint32_t ports[] = { AGENT_CONTROL_PORT, 0, 1, 22, 111, 1025, 9999, 0x40000000, 0x40000001, 0xffffffff };

        (void) c;
        vsock_try(1000 + n % 5000, ports[n % ELEMENTSOF(ports)]);
}

static void flood_connections(Conn *c, uint32_t n) {
        (void) n;
        vsock_abort(c);
        agent_connect();
}

/* Once more from the beginning, and then by a thousand names: hostile_introduce(). */
static void flood_names(Conn *c, uint32_t n) {
        static bool renamed;

        if (!renamed)
                flood_connections(c, n);
        renamed = true;
}

static const Mode floods[] = {
        { "names", flood_names },
        { "events", flood_events },
        { "answers", flood_answers },
        { "large-answers", flood_large },
        { "ports", flood_ports },
        { "connections", flood_connections },
};

/* About what goes on between two lives. */

static void epoch_twice(Conn *c, uint32_t id) {
        send_frame(c, AGENT_OK, id);
        send_frame(c, AGENT_OK, id);
        send_frame(c, AGENT_ERROR, id);
}

static void epoch_error(Conn *c, uint32_t id) {
        answer_errno(c, id, 28, "\033[2Jno room\nCUBE_EVENT=kill");
}

static void epoch_more(Conn *c, uint32_t id) {
        send_header(c, 0, AGENT_OK, FLAG_MORE, id);
        send_header(c, 0, AGENT_OK, FLAG_MORE, id);
        send_frame(c, AGENT_OK, id);
}

/* What hooks of a fork have printed. */
static void epoch_message(Conn *c, uint32_t id) {
        static char message[8000];

        memset(message, '\033', sizeof(message));
        memcpy(message, "hooks:\nCUBE_EVENT=kill\n", 23);
        put_bytes(AGENT_TAG_MESSAGE, message, sizeof(message));
        send_frame(c, AGENT_OK, id);
}

static const Mode epochs[] = {
        { "epoch-silence", say_nothing },
        { "epoch-twice", epoch_twice },
        { "epoch-error", epoch_error },
        { "epoch-more", epoch_more },
        { "epoch-type", answer_type },
        { "epoch-reset", answer_reset },
        { "epoch-message", epoch_message },
};

bool hostile_epoch(Conn *c, uint16_t type, uint32_t id) {
        if (type != AGENT_CLAIM && type != AGENT_FREEZE && type != AGENT_THAW)
                return false;
        return act(epoch, c, id);
}

bool hostile_introduce(Conn *c) {
        static uint64_t records[2000];

        if (!flood || flood->act != flood_names)
                return false;
        for (unsigned i = 0; i < ELEMENTSOF(records); i += 2) {
                records[i] = AGENT_TAG_KERNEL_RELEASE | 8ULL << 32;
                records[i + 1] = 0x6161616161616161ULL + i;
        }
        send_header(c, sizeof(records), AGENT_READY, 0, 0);
        vsock_send(c, records, sizeof(records));
        return true;
}

bool hostile_begin(const char *mode) {
        flood = find_mode(floods, ELEMENTSOF(floods), mode);
        epoch = find_mode(epochs, ELEMENTSOF(epochs), mode);
        return flood || epoch || streq(mode, "nothing");
}

static bool has_room(const Conn *c) {
        return c && c->state == CONN_OPEN && vsock_room(c) >= FLOOD_ROOM;
}

bool hostile_run(void) {
        static uint32_t n;
        bool moved = false;

        for (Endless *e = endless; e < endless + endless_used; e++)
                if (has_room(e->conn)) {
                        e->act(e->conn, e->id);
                        moved = true;
                }
        if (flood && has_room(agent_control()))
                moved |= act(flood, agent_control(), n++);
        return moved;
}

void hostile_closed(const Conn *c) {
        for (Endless *e = endless; e < endless + ENDLESS_MAX; e++)
                if (e->conn == c)
                        e->conn = NULL;
}
