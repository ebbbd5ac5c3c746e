/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/journal.h"
#include "ctl/pager.h"
#include "ctl/text.h"

/* A ring has nothing to wait on. */
#define CONSOLE_POLL_NSEC (200 * 1000 * 1000)

typedef struct Logs {
        bool follow, console;
        uint32_t lines; /* UINT32_MAX: all */
} Logs;

static int follow_journal(sd_journal *j) {
        for (;;) {
                int r = sd_journal_next(j);
                if (r == 0) {
                        fflush(stdout);
                        r = sd_journal_wait(j, (uint64_t) -1);
                        if (r < 0)
                                return r;
                        continue;
                }
                if (r >= 0)
                        r = journal_print(j);
                if (r < 0)
                        return r;
                if (ferror(stdout))
                        return 0;
        }
}

static int show_journal(const char *id, const Logs *l) {
        _cleanup_(sd_journal_closep) sd_journal *j = NULL;
        int r;

        r = journal_open(id, &j);
        if (r >= 0 && !l->follow)
                pager_open();
        if (r >= 0)
                r = journal_print_last(j, MIN(l->lines, (uint32_t) INT32_MAX));
        if (r == 0 && !l->follow)
                ctl_note("The journal has nothing about sandbox %s (or you may not read it: group systemd-journal).", id);
        if (r >= 0 && l->follow)
                r = follow_journal(j);
        return r < 0 ? ctl_fail(r, NULL, "read the journal") : 0;
}

static int write_text(const uint8_t *data, size_t size) {
        if (!text_stdout_is_terminal())
                return write_full(STDOUT_FILENO, data, size);

        /* A carriage return before each line end is the console's way, not a command to hide text. */
        _cleanup_free_ char *clean = malloc(size + 1);
        if (!clean)
                return -ENOMEM;
        size_t n = 0;
        for (size_t i = 0; i < size; i++)
                if (data[i] != '\r')
                        clean[n++] = (char) data[i];
        _cleanup_free_ char *text = text_printable(clean, n, true);
        return text ? write_full(STDOUT_FILENO, text, strlen(text)) : -ENOMEM;
}

/* What came since *position; older bytes may be gone from the ring. Up to the last whole character, but for the last time. */
static int print_ring(const ConsoleRing *ring, uint64_t *position, bool last) {
        uint8_t buf[CONSOLE_RING_BYTES];

        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (head < *position)
                return 0;
        uint64_t from = MAX(*position, head > CONSOLE_RING_BYTES ? head - CONSOLE_RING_BYTES : 0);
        for (uint64_t i = from; i < head; i++)
                buf[i - from] = ring->data[i % CONSOLE_RING_BYTES];
        size_t size = (size_t) (head - from);
        if (!last)
                size = text_whole((const char *) buf, size);
        *position = from + size;
        return write_text(buf, size);
}

static bool sandbox_there(sd_bus *bus, const char *id) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        return ctl_call(bus, NULL, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "GetSandbox", NULL, &error, "s", id) >= 0 ||
               !sd_bus_error_has_name(&error, BUS_ERROR_NO_SUCH_SANDBOX);
}

static int follow_ring(sd_bus *bus, const char *id, const ConsoleRing *ring, bool follow) {
        uint64_t position = 0;
        unsigned polls = 0;

        int r = print_ring(ring, &position, !follow);
        while (r >= 0 && follow) {
                (void) nanosleep(&(struct timespec) { .tv_nsec = CONSOLE_POLL_NSEC }, NULL);
                bool there = ++polls % 5 != 0 || sandbox_there(bus, id);
                r = print_ring(ring, &position, !there);
                if (!there)
                        break;
        }
        return r;
}

static int show_console(const char *id, const Logs *l) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct stat st;
        sd_bus *bus;
        int fd;

        int r = ctl_connect_local(&bus);
        if (r < 0)
                return r;
        r = ctl_call_sandbox(bus, NULL, id, "OpenConsole", &reply, &error, NULL);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &fd);
        if (r < 0)
                return ctl_fail(r, &error, "open the console of sandbox %s", id);
        if (fstat(fd, &st) < 0 || st.st_size < (off_t) sizeof(ConsoleRing))
                return ctl_fail(-EBADMSG, NULL, "read the console of sandbox %s", id);

        const ConsoleRing *ring = mmap(NULL, sizeof(ConsoleRing), PROT_READ, MAP_SHARED, fd, 0);
        if (ring == MAP_FAILED)
                return ctl_fail(-errno, NULL, "read the console of sandbox %s", id);
        r = follow_ring(bus, id, ring, l->follow);
        (void) munmap((void *) ring, sizeof(ConsoleRing));
        return r == -EPIPE ? 0 : r < 0 ? ctl_fail(r, NULL, "print the console") : 0;
}

int verb_logs(int argc, char **argv) {
        enum { LOGS_CONSOLE = CTL_OPTION_VERB };
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "follow", no_argument, NULL, 'f' },
                { "lines", required_argument, NULL, 'n' },
                { "console", no_argument, NULL, LOGS_CONSOLE },
                {},
        };
        Logs l = { .lines = UINT32_MAX };
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT "fn:", options, NULL)) >= 0) {
                r = 0;
                if (c == 'f')
                        l.follow = true;
                else if (c == LOGS_CONSOLE)
                        l.console = true;
                else if (c == 'n') {
                        if (parse_u32(optarg, &l.lines) < 0)
                                r = ctl_usage("--lines=%s is not a number.", optarg);
                } else
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r < 0)
                return r;
        return l.console ? show_console(argv[optind], &l) : show_journal(argv[optind], &l);
}
