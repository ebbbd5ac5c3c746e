/* SPDX-License-Identifier: Apache-2.0 */
#include "base/agent-proto.h"
#include "agent.h"
#include "blk.h"
#include "clock.h"
#include "counter.h"
#include "hostile-agent.h"
#include "net.h"
#include "process.h"

#define PROCESSES_MAX 32U
#define TEXT_BYTES 4096U
#define FIRST_PID 100U
#define TICK_MSEC 10U
#define CALM_COUNTS 8U            /* a tick */
#define ENDLESS UINT64_MAX
#define BULK_BYTES 65536U

typedef enum Program {
        PROGRAM_NONE,
        PROGRAM_TEXT,             /* over when it starts, but for its output */
        PROGRAM_BULK,
        PROGRAM_CAT,
        PROGRAM_WC,
        PROGRAM_SLEEP,
        PROGRAM_HANG,
        PROGRAM_COUNTER,
        PROGRAM_CALM_COUNTER,     /* asleep for most of the time, so that many of them leave the host its CPUs */
        PROGRAM_PANIC,
        PROGRAM_TIMER,
        PROGRAM_REGISTERS,
        PROGRAM_NET_ECHO,
        PROGRAM_NET_SERVE,
        PROGRAM_NET_ASK,
        PROGRAM_GAP,
        PROGRAM_EXTRA,
} Program;

struct Process {
        uint32_t pid;
        Program program;
        char name[PROCESS_NAME_BYTES];
        bool exited;
        uint32_t code, signal;
        Conn *streams[3];
        Conn *waiter;
        bool waiter_told;

        /* What is still to go out. */
        uint32_t text_len[2], text_done[2]; /* stdout, stderr */
        uint64_t bulk_left;
        bool input_ended;
        uint32_t ring_start, ring_used;

        uint64_t count;
        uint64_t wake_tick;
        uint64_t start_nsec;

        /* From here on guarded by the lengths above, and never cleared. */
        char text[2][TEXT_BYTES] __attribute__((aligned(8)));
        uint8_t ring[VSOCK_WINDOW] __attribute__((aligned(8)));
};

bool no_shell;

static Process processes[PROCESSES_MAX];
static unsigned processes_used; /* none was ever used from here on */
static uint32_t next_pid = FIRST_PID;
static uint64_t tries;
/* Lines of "y", for all who want many bytes. */
static uint8_t bulk[BULK_BYTES];

static void add_text(Process *p, unsigned which, const char *s, uint32_t len) {
        len = MIN(len, TEXT_BYTES - p->text_len[which]);
        memcpy(p->text[which] + p->text_len[which], s, len);
        p->text_len[which] += len;
}

static void add_words(Process *p, unsigned which, const char *const *words, unsigned n, const char *between) {
        for (unsigned i = 0; i < n; i++) {
                if (i > 0)
                        add_text(p, which, between, 1);
                add_text(p, which, words[i], (uint32_t) strlen(words[i]));
        }
        if (n > 0 || *between == ' ')
                add_text(p, which, "\n", 1);
}

static void add_number(Process *p, uint64_t v, const char *behind) {
        char number[24];

        add_text(p, 0, number, (uint32_t) format_number(number, v));
        add_text(p, 0, behind, 1);
}

static void finish(Process *p, uint32_t code) {
        p->exited = true;
        p->code = code;
}

static unsigned disk_number(const char *name) {
        return streq(name, "vdb") ? 1 : 0;
}

static void run_sector(Process *p, const Args *a) {
        static uint8_t data[SECTOR_BYTES] __attribute__((aligned(512)));

        int r = blk_request(disk_number(a->argv[1]), BLK_READ, parse_number(a->argv[2]), data);
        if (r == 0)
                add_text(p, 0, (const char *) data, sizeof(data));
        finish(p, r == 0 ? 0 : 5);
}

static void run_put_sector(Process *p, const Args *a) {
        static uint8_t data[SECTOR_BYTES] __attribute__((aligned(512)));
        unsigned disk = disk_number(a->argv[1]);

        memset(data, 0, sizeof(data));
        memcpy(data, a->argv[3], MIN(strlen(a->argv[3]), sizeof(data)));
        int r = blk_request(disk, BLK_WRITE, parse_number(a->argv[2]), data);
        if (r == 0)
                r = blk_request(disk, BLK_FLUSH, 0, NULL);
        finish(p, r == 0 ? 0 : 5);
}

/* All over it, since a request takes its time, and behind its end. */
#define FILL_SECTORS 256U

static void run_fill(Process *p, const Args *a) {
        static uint8_t data[SECTOR_BYTES] __attribute__((aligned(512)));
        unsigned disk = disk_number(a->argv[1]);
        uint64_t end = blk_capacity(disk), failed = 0, taken = 0;
        const uint64_t behind[] = { end, end + 1, 2 * end, 1ULL << 40, UINT64_MAX / SECTOR_BYTES, UINT64_MAX };

        memset(data, 0xff, sizeof(data));
        for (uint64_t i = 0; i < end; i += FILL_SECTORS)
                failed += blk_request(disk, BLK_WRITE, i, data) != 0;
        for (unsigned i = 0; i < ELEMENTSOF(behind); i++)
                taken += blk_request(disk, BLK_WRITE, behind[i], data) == 0;
        add_number(p, failed, " ");
        add_number(p, taken, "\n");
        finish(p, 0);
}

static void run_count(Process *p) {
        add_number(p, counter_value(), " ");
        add_number(p, counter_errors(), "\n");
        finish(p, counter_errors() > 0);
}

static void run_clock(Process *p) {
        uint64_t monotonic = clock_monotonic();

        add_number(p, rdtsc(), " ");
        add_number(p, monotonic, " ");
        add_number(p, clock_realtime(), " ");
        add_number(p, clock_was_away(), "\n");
        finish(p, monotonic == 0);
}

static void run_print(Process *p, const Args *a) {
        for (unsigned i = 1; i < a->argc; i++) {
                put_string(a->argv[i]);
                put_string(i + 1 < a->argc ? " " : "\n");
        }
        finish(p, 0);
}

static bool start_timer(Process *p, const char *mode, uint64_t msec) {
        uint64_t per_msec = clock_tsc_per_msec();

        if (per_msec == 0)
                return false;
        p->program = PROGRAM_TIMER;
        p->wake_tick = timer_ticks() + 1;
        p->start_nsec = clock_monotonic();
        if (streq(mode, "once"))
                timer_set_once((uint32_t) msec);
        else
                timer_set_deadline(rdtsc() + msec * per_msec);
        return true;
}

/* What "dirty" writes to, a page at a time. */
#define DIRTY_PAGES 4096U
#define PAGES_PER_MIB 256U
static volatile uint64_t dirty_pages[DIRTY_PAGES][512] __attribute__((aligned(4096)));

static void run_dirty(Process *p, const Args *a) {
        static uint64_t round;
        uint64_t n = MIN(parse_number(a->argv[1]) * PAGES_PER_MIB, DIRTY_PAGES);

        round++;
        for (uint64_t i = 0; i < n; i++)
                dirty_pages[i][0] = round;
        finish(p, 0);
}

/* The largest number of ticks between two looks at the clock. Right after "gaps" we are still busy with the one who
 * asked, which is not what they want to know. */
#define GAP_LOOKS 64U
#define GAP_LOOKS_IGNORED 1024U
static uint64_t gap_last, gap_largest;
static uint32_t gap_ignored;

static bool move_gap(void) {
        for (unsigned i = 0; i < GAP_LOOKS; i++) {
                uint64_t now = rdtsc();
                uint64_t gap = now - gap_last;

                gap_last = now;
                if (gap_ignored > 0)
                        gap_ignored--;
                else if (gap > gap_largest)
                        gap_largest = gap;
        }
        return true;
}

static void run_gaps(Process *p) {
        add_number(p, rdtsc(), " ");
        add_number(p, gap_largest, "\n");
        gap_largest = 0;
        gap_ignored = GAP_LOOKS_IGNORED;
        finish(p, 0);
}

static void run_net_config(Process *p) {
        static const char digits[] = "0123456789abcdef";
        uint8_t config[8];
        char text[16];

        net_read_config(config);
        for (unsigned i = 0; i < sizeof(config); i++) {
                text[2 * i] = digits[config[i] >> 4];
                text[2 * i + 1] = digits[config[i] & 15];
        }
        add_text(p, 0, text, sizeof(text));
        finish(p, 0);
}

static void run_net_misbehave(Process *p, const Args *a) {
        char number[24];
        uint32_t resets;

        net_misbehave((uint32_t) parse_number(a->argv[1]), (uint32_t) parse_number(a->argv[2]), &resets);
        add_text(p, 0, number, (uint32_t) format_number(number, resets));
        finish(p, 0);
}

/* How long it waits for an answer. */
#define ASK_MSEC 20000U

static uint32_t parse_address(const char *s) {
        uint32_t address = 0;

        for (unsigned i = 0; i < 4; i++) {
                address = address << 8 | (uint32_t) (parse_number(s) & 0xff);
                while (*s && *s != '.')
                        s++;
                s += *s == '.';
        }
        return address;
}

static bool move_ask(Process *p) {
        char text[NET_ANSWER_BYTES];
        int n = net_answer(text);

        if (n > 0)
                add_text(p, 0, text, (uint32_t) n);
        else if (n < 0) {
                add_text(p, 0, "unreachable ", 12);
                add_number(p, (uint64_t) (-1 - n), "\n");
        } else if (timer_ticks() >= p->wake_tick)
                add_text(p, 0, "nothing", 7);
        else
                return false;
        finish(p, 0);
        return true;
}

static bool start_machine_program(const char *name) {
        if (streq(name, "panic"))
                machine_panic();
        else if (streq(name, "reset"))
                reset();
        else if (streq(name, "triple"))
                triple_fault();
        else if (streq(name, "poweroff"))
                power_off();
        else if (streq(name, "spin"))
                spin_for_ever();
        else
                return false;
        return true;
}

static Args extra_args;

static bool keep_extra(const Args *a) {
        static char words[512];
        uint32_t used = 0;

        for (unsigned i = 0; i < a->argc; i++) {
                uint32_t n = (uint32_t) strlen(a->argv[i]) + 1;

                if (n > sizeof(words) - used)
                        return false;
                memcpy(words + used, a->argv[i], n);
                extra_args.argv[i] = words + used;
                used += n;
        }
        extra_args.argc = a->argc;
        return true;
}

static bool move_extra(Process *p) {
        uint32_t code = extra_run(&extra_args, p->text[0], TEXT_BYTES, &p->text_len[0]);

        finish(p, code);
        return true;
}

/* Programs that are over as soon as they have started, but for their output. */
static bool start_short_program(Process *p, const Args *a) {
        const char *name = a->argv[0];

        p->program = PROGRAM_TEXT;
        /* It has no files to take away. */
        if (streq(name, "true") || streq(name, "rm"))
                finish(p, 0);
        else if (streq(name, "false"))
                finish(p, 1);
        else if (streq(name, ":"))
                finish(p, 0);
        else if (streq(name, "tries"))
                finish(p, ++tries < (a->argc > 1 ? parse_number(a->argv[1]) : 0));
        else if (streq(name, "exit"))
                finish(p, a->argc > 1 ? (uint32_t) parse_number(a->argv[1]) : 0);
        else if (streq(name, "echo") || streq(name, "err")) {
                add_words(p, *name == 'e' && name[1] == 'r', a->argv + 1, a->argc - 1, " ");
                finish(p, 0);
        } else if (streq(name, "env")) {
                add_words(p, 0, a->env, a->n_env, "\n");
                finish(p, 0);
        } else if (streq(name, "who-and-where")) {
                const char *words[] = { a->user ? a->user : "-", a->cwd ? a->cwd : "-" };

                add_words(p, 0, words, 2, " ");
                finish(p, 0);
        } else if (streq(name, "count"))
                run_count(p);
        else if (streq(name, "clock"))
                run_clock(p);
        else if (streq(name, "print"))
                run_print(p, a);
        else if (streq(name, "dirty") && a->argc == 2)
                run_dirty(p, a);
        else if (streq(name, "gaps"))
                run_gaps(p);
        else if (streq(name, "net-config") && net_open())
                run_net_config(p);
        else if (streq(name, "net-misbehave") && a->argc == 3 && net_open())
                run_net_misbehave(p, a);
        else if (streq(name, "ignore-claims") || streq(name, "heed-claims")) {
                agent_ignore_claims(*name == 'i');
                finish(p, 0);
        } else if (streq(name, "misbehave") && a->argc == 2 && hostile_begin(a->argv[1]))
                finish(p, 0);
        else if (streq(name, "fill") && a->argc == 2)
                run_fill(p, a);
        else if (streq(name, "sector") && a->argc == 3)
                run_sector(p, a);
        else if (streq(name, "put-sector") && a->argc == 4)
                run_put_sector(p, a);
        else
                return false;
        return true;
}

static bool start_long_program(Process *p, const Args *a) {
        const char *name = a->argv[0];

        if (streq(name, "cat"))
                p->program = PROGRAM_CAT;
        else if (streq(name, "wc"))
                p->program = PROGRAM_WC;
        else if (streq(name, "hang") || hostile_program(name))
                p->program = PROGRAM_HANG;
        else if (streq(name, "counter") && a->argc == 1)
                p->program = PROGRAM_COUNTER;
        else if (streq(name, "counter") && streq(a->argv[1], "calmly")) {
                p->program = PROGRAM_CALM_COUNTER;
                timer_set(TICK_MSEC);
        }
        else if (streq(name, "panic-in") && a->argc > 1) {
                p->program = PROGRAM_PANIC;
                p->start_nsec = clock_monotonic() + parse_number(a->argv[1]) * 1000000;
        } else if (streq(name, "registers"))
                p->program = PROGRAM_REGISTERS;
        else if ((streq(name, "once") || streq(name, "deadline")) && a->argc > 1)
                return start_timer(p, name, parse_number(a->argv[1]));
        else if (streq(name, "gap")) {
                p->program = PROGRAM_GAP;
                gap_last = rdtsc();
                gap_largest = 0;
                gap_ignored = GAP_LOOKS_IGNORED;
        }
        else if (streq(name, "net-echo") && net_open())
                p->program = PROGRAM_NET_ECHO;
        else if (streq(name, "net-serve") && net_open())
                p->program = PROGRAM_NET_SERVE;
        else if (streq(name, "net-ask") && a->argc == 3 && net_open()) {
                p->program = PROGRAM_NET_ASK;
                p->wake_tick = timer_ticks() + ASK_MSEC / TICK_MSEC;
                timer_set(TICK_MSEC);
                net_ask(parse_address(a->argv[1]), (uint16_t) parse_number(a->argv[2]));
        }
        else if (streq(name, "yes") || streq(name, "bulk")) {
                p->program = PROGRAM_BULK;
                p->bulk_left = *name == 'b' && a->argc > 1 ? parse_number(a->argv[1]) : ENDLESS;
                if (bulk[0] == 0) {
                        memcpy(bulk, "y\n", 2);
                        for (uint32_t n = 2; n < BULK_BYTES; n *= 2)
                                memcpy(bulk + n, bulk, n);
                }
        } else if (streq(name, "sleep") && a->argc > 1) {
                p->program = PROGRAM_SLEEP;
                p->wake_tick = timer_ticks() + parse_number(a->argv[1]) * 1000 / TICK_MSEC;
                timer_set(TICK_MSEC);
        } else if (extra_known && extra_known(name) && keep_extra(a))
                p->program = PROGRAM_EXTRA;
        else
                return false;
        return true;
}

/* A free slot, else one whose process is over and has nobody left. */
static Process *new_process(void) {
        for (Process *p = processes; p < processes + PROCESSES_MAX; p++)
                if (p->program == PROGRAM_NONE)
                        return p;
        for (Process *p = processes; p < processes + PROCESSES_MAX; p++)
                if (p->exited && !p->streams[0] && !p->streams[1] && !p->streams[2] && !p->waiter)
                        return p;
        return NULL;
}

/* What a shell is told, which knows words and nothing else. */
static bool split_words(const char *s, Args *ret) {
        static char words[256];
        uint32_t n = (uint32_t) strlen(s) + 1;

        if (n > sizeof(words))
                return false;
        memcpy(words, s, n);
        ret->argc = 0;
        for (uint32_t i = 0; i < n && ret->argc < ELEMENTSOF(ret->argv); i++) {
                if (words[i] == ' ')
                        words[i] = 0;
                else if (words[i] && (i == 0 || !words[i - 1]))
                        ret->argv[ret->argc++] = words + i;
        }
        return ret->argc > 0;
}

/* Of a build's steps: a RUN, whose script begins with "if", is done, what the others want of a file system is believed to be done. */
static Process *start_script(const Args *a) {
        Args inner = *a;

        if (a->argv[2][0] != 'i' || a->argv[2][1] != 'f') {
                inner.argv[0] = "true";
                inner.argc = 1;
                return process_start(&inner);
        }
        return a->argc > 4 && split_words(a->argv[4], &inner) && !streq(inner.argv[0], "sh") ? process_start(&inner) : NULL;
}

static Process *start_shell(const Args *a) {
        Args inner = *a;

        if (a->argc >= 4 && streq(a->argv[1], "-c") && streq(a->argv[3], "sh"))
                return start_script(a);
        return a->argc == 3 && streq(a->argv[1], "-c") && split_words(a->argv[2], &inner) &&
                !streq(inner.argv[0], "sh") ? process_start(&inner) : NULL;
}

Process *process_start(const Args *a) {
        if (a->argc > 0 && streq(a->argv[0], "sh") && !no_shell)
                return start_shell(a);
        Process *p = new_process();

        if (!p || a->argc == 0 || start_machine_program(a->argv[0]))
                return NULL;

        memset(p, 0, offsetof(Process, text));
        if (p - processes >= processes_used)
                processes_used = (unsigned) (p - processes) + 1;
        if (!start_short_program(p, a) && !start_long_program(p, a)) {
                p->program = PROGRAM_NONE;
                return NULL;
        }
        p->pid = next_pid++;
        memcpy(p->name, a->argv[0], MIN(strlen(a->argv[0]) + 1, sizeof(p->name) - 1));
        return p;
}

Process *process_nth(unsigned n) {
        for (Process *p = processes; p < processes + processes_used; p++)
                if (p->program != PROGRAM_NONE && n-- == 0)
                        return p;
        return NULL;
}

Process *process_find(uint32_t pid) {
        for (Process *p = processes; p < processes + processes_used; p++)
                if (p->program != PROGRAM_NONE && p->pid == pid)
                        return p;
        return NULL;
}

uint32_t process_pid(const Process *p) {
        return p->pid;
}

const char *process_name(const Process *p) {
        return p->name;
}

bool process_exited(const Process *p, uint32_t *ret_code, uint32_t *ret_signal) {
        *ret_code = p->code;
        *ret_signal = p->signal;
        return p->exited;
}

void process_signal(Process *p, unsigned signal) {
        if (p->exited || signal == 0)
                return;
        p->exited = true;
        p->signal = signal;
        p->bulk_left = 0;
        p->ring_used = 0;
}

bool process_attach(Process *p, unsigned stream, Conn *c) {
        if (stream >= ELEMENTSOF(p->streams) || p->streams[stream])
                return false;
        p->streams[stream] = c;
        return true;
}

bool process_attach_wait(Process *p, Conn *c) {
        if (p->waiter)
                return false;
        p->waiter = c;
        p->waiter_told = false;
        return true;
}

void process_detach(Process *p, Conn *c) {
        for (unsigned i = 0; i < ELEMENTSOF(p->streams); i++)
                if (p->streams[i] == c)
                        p->streams[i] = NULL;
        if (p->waiter == c)
                p->waiter = NULL;
        /* Nobody will ever read it: like SIGPIPE. */
        if (c->stream == AGENT_STREAM_STDOUT && c->role == ROLE_STREAM &&
            (p->program == PROGRAM_BULK || p->program == PROGRAM_CAT))
                process_signal(p, 13);
}

static void abandon(Conn **c) {
        if (*c)
                (*c)->process = NULL;
        *c = NULL;
}

void processes_abandon(void) {
        Process *p;

        for (unsigned i = 0; (p = process_nth(i)); i++) {
                for (unsigned k = 0; k < ELEMENTSOF(p->streams); k++)
                        abandon(&p->streams[k]);
                abandon(&p->waiter);
                /* Input that was not taken is lost, and counts for no other connection. */
                p->ring_used = 0;
        }
}

void process_input(Process *p, Conn *c, const uint8_t *data, uint32_t len) {
        p->count += len;
        if (p->program != PROGRAM_CAT || p->exited) {
                vsock_consumed(c, len);
                return;
        }

        /* It fits: the window that the host keeps to is as large as the ring. */
        len = MIN(len, VSOCK_WINDOW - p->ring_used);
        uint32_t at = (p->ring_start + p->ring_used) % VSOCK_WINDOW;
        uint32_t first = MIN(len, VSOCK_WINDOW - at);
        memcpy(p->ring + at, data, first);
        memcpy(p->ring, data + first, len - first);
        p->ring_used += len;
}

void process_input_end(Process *p) {
        char number[24];

        p->input_ended = true;
        if (p->program == PROGRAM_WC && !p->exited) {
                uint32_t n = (uint32_t) format_number(number, p->count);

                number[n++] = '\n';
                add_text(p, 0, number, n);
                finish(p, 0);
        }
}

static bool move_text(Process *p, unsigned which) {
        Conn *c = p->streams[AGENT_STREAM_STDOUT + which];
        uint32_t n = p->text_len[which] - p->text_done[which];

        if (!c || c->done || n == 0)
                return false;
        n = MIN(n, vsock_room(c));
        if (n == 0)
                return false;
        vsock_send(c, p->text[which] + p->text_done[which], n);
        p->text_done[which] += n;
        return true;
}

static bool move_bulk(Process *p) {
        Conn *c = p->streams[AGENT_STREAM_STDOUT];

        if (!c || c->done || p->bulk_left == 0)
                return false;
        uint32_t n = MIN(vsock_room(c), BULK_BYTES);
        n = (uint32_t) MIN((uint64_t) n, p->bulk_left);
        /* Whole lines. */
        if (n > 1 && n < p->bulk_left)
                n &= ~1U;
        if (n == 0)
                return false;
        vsock_send(c, bulk, n);
        if (p->bulk_left != ENDLESS)
                p->bulk_left -= n;
        return true;
}

static bool move_ring(Process *p) {
        Conn *c = p->streams[AGENT_STREAM_STDOUT];

        if (!c || c->done || p->ring_used == 0)
                return false;
        uint32_t n = MIN(MIN(p->ring_used, VSOCK_WINDOW - p->ring_start), vsock_room(c));
        if (n == 0)
                return false;
        vsock_send(c, p->ring + p->ring_start, n);
        p->ring_start = (p->ring_start + n) % VSOCK_WINDOW;
        p->ring_used -= n;
        if (p->streams[AGENT_STREAM_STDIN])
                vsock_consumed(p->streams[AGENT_STREAM_STDIN], n);
        return true;
}

static bool move_panic(const Process *p) {
        if (clock_monotonic() >= p->start_nsec)
                machine_panic();
        return true;
}

/* True when it has something to say about that. */
static bool check_end(Process *p) {
        if ((p->program == PROGRAM_BULK && p->bulk_left == 0) ||
            (p->program == PROGRAM_CAT && p->input_ended && p->ring_used == 0) ||
            (p->program == PROGRAM_SLEEP && timer_ticks() >= p->wake_tick))
                finish(p, 0);
        if (p->program == PROGRAM_TIMER && timer_ticks() >= p->wake_tick) {
                add_number(p, clock_monotonic() - p->start_nsec, "\n");
                finish(p, 0);
                return true;
        }
        return false;
}

/* An output stream ends with its process, once all is out. */
static bool end_streams(Process *p) {
        bool moved = false;

        for (unsigned i = 0; i < 2; i++) {
                Conn *c = p->streams[AGENT_STREAM_STDOUT + i];

                if (c && !c->done && p->text_done[i] == p->text_len[i]) {
                        vsock_shutdown(c, true);
                        moved = true;
                }
        }
        if (p->streams[AGENT_STREAM_STDIN] && !p->streams[AGENT_STREAM_STDIN]->done) {
                vsock_shutdown(p->streams[AGENT_STREAM_STDIN], true);
                moved = true;
        }
        return moved;
}

static bool move_calm_counter(Process *p) {
        if (timer_ticks() == p->wake_tick)
                return false;
        p->wake_tick = timer_ticks();
        for (unsigned i = 0; i < CALM_COUNTS; i++)
                (void) counter_move();
        return true;
}

static bool wants_ticks(const Process *p) {
        return (p->program == PROGRAM_SLEEP || p->program == PROGRAM_NET_ASK || p->program == PROGRAM_CALM_COUNTER) && !p->exited;
}

static bool run(Process *p) {
        bool moved = move_text(p, 0);

        moved |= move_text(p, 1);
        if (!p->exited) {
                if (p->program == PROGRAM_BULK)
                        moved |= move_bulk(p);
                else if (p->program == PROGRAM_CAT)
                        moved |= move_ring(p);
                else if (p->program == PROGRAM_COUNTER)
                        moved |= counter_move();
                else if (p->program == PROGRAM_CALM_COUNTER)
                        moved |= move_calm_counter(p);
                else if (p->program == PROGRAM_PANIC)
                        moved |= move_panic(p);
                else if (p->program == PROGRAM_REGISTERS)
                        moved |= counter_move_registers();
                else if (p->program == PROGRAM_NET_ECHO)
                        moved |= net_echo();
                else if (p->program == PROGRAM_NET_SERVE)
                        moved |= net_serve();
                else if (p->program == PROGRAM_NET_ASK)
                        moved |= move_ask(p);
                else if (p->program == PROGRAM_GAP)
                        moved |= move_gap();
                else if (p->program == PROGRAM_EXTRA)
                        moved |= move_extra(p);
                moved |= check_end(p);
        }
        if (!p->exited)
                return moved;

        moved |= end_streams(p);
        if (p->waiter && !p->waiter_told) {
                p->waiter_told = true;
                report_exit(p->waiter, p->code, p->signal);
                moved = true;
        }
        return moved;
}

bool processes_run(void) {
        bool moved = false, asleep = false;
        static bool was_asleep;

        for (Process *p = processes; p < processes + processes_used; p++) {
                if (p->program == PROGRAM_NONE)
                        continue;
                moved |= run(p);
                asleep |= wants_ticks(p);
        }
        if (was_asleep && !asleep)
                timer_set(0);
        was_asleep = asleep;
        return moved;
}
