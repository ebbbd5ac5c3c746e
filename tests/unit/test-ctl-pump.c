/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "ctl/pump.h"
#include "tests/unit/test.h"

/* The guest's end of a stream, and the pipe that its output goes to. */
typedef struct Fixture {
        int guest, stream, reader, writer, done;
        Pump pump;
} Fixture;

static void fixture_init(Fixture *f) {
        int ends[2], pipe_ends[2];

        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends));
        assert_ok(pipe2(pipe_ends, O_CLOEXEC));
        *f = (Fixture) { ends[0], ends[1], pipe_ends[0], pipe_ends[1], eventfd(0, EFD_CLOEXEC), {} };
        assert_ok(f->done);
}

static void fixture_done(Fixture *f) {
        safe_close(f->guest);
        safe_close(f->stream);
        safe_close(f->reader);
        safe_close(f->writer);
        safe_close(f->done);
}

static void wait_done(const Fixture *f) {
        uint64_t n;

        assert_eq(read(f->done, &n, sizeof(n)), (ssize_t) sizeof(n));
}

TEST(a_thread_that_had_no_cpu_yet_has_more) {
        Fixture f;

        fixture_init(&f);
        f.pump = (Pump) { .from = f.stream, .to = f.writer };
        assert_true(!pump_has_more(&f.pump));
        assert_eq(write(f.guest, "word", 4), 4);
        assert_true(pump_has_more(&f.pump));
        fixture_done(&f);
}

TEST(so_has_one_that_has_not_seen_the_end_yet) {
        Fixture f;

        fixture_init(&f);
        f.pump = (Pump) { .from = f.stream, .to = f.writer };
        f.guest = safe_close(f.guest);
        assert_true(pump_has_more(&f.pump));
        assert_ok(pump_start(&f.pump, f.stream, f.writer, false, f.done));
        wait_done(&f);
        assert_true(!pump_has_more(&f.pump));
        fixture_done(&f);
}

TEST(so_has_one_whose_reader_takes_nothing) {
        Fixture f;
        char c;

        fixture_init(&f);
        int room = fcntl(f.writer, F_SETPIPE_SZ, 4096);
        assert_ok(room);
        for (int i = 0; i < room; i++)
                assert_eq(write(f.writer, "x", 1), 1);
        assert_ok(pump_start(&f.pump, f.stream, f.writer, false, f.done));
        assert_eq(write(f.guest, "word", 4), 4);
        while (poll(&(struct pollfd) { .fd = f.stream, .events = POLLIN }, 1, 0) > 0)
                (void) sched_yield();
        assert_true(pump_has_more(&f.pump));
        assert_eq(atomic_load(&f.pump.moved), 0);

        for (int i = 0; i < room + 4; i++)
                assert_eq(read(f.reader, &c, 1), 1);
        while (pump_has_more(&f.pump))
                (void) sched_yield();
        assert_eq(atomic_load(&f.pump.moved), 4);
        f.guest = safe_close(f.guest);
        wait_done(&f);
        fixture_done(&f);
}
