/* SPDX-License-Identifier: Apache-2.0 */

/* What happens below a directory, by a loop whose turns are counted. */
#include <stdio.h>
#include <sys/stat.h>

#include "guest/watch.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

#define WIDE 24U
/* Of directories and files that a turn may go through, with room for what else it does. */
#define PER_TURN_MAX 200U

typedef struct Heard {
        Watch *watch;
        unsigned armed, created, failed;
        bool full, frees;
        char last[256];
} Heard;

static void on_armed(void *userdata) {
        Heard *h = userdata;
        h->armed++;
}

static void on_event(void *userdata, WatchEvent event, const char *name) {
        Heard *h = userdata;

        h->created += event == WATCH_CREATE;
        (void) snprintf(h->last, sizeof(h->last), "%s", name);
        if (h->frees)
                h->watch = watch_free(h->watch);
}

static void on_failed(void *userdata, int error) {
        Heard *h = userdata;
        h->failed++;
}

static bool on_full(void *userdata) {
        const Heard *h = userdata;
        return h->full;
}

static const WatchListener listener = { on_armed, on_event, on_failed, on_full };

/* Whether there was anything to do. */
static bool turn(Loop *l) {
        struct epoll_event e;

        if (epoll_wait(l->epoll_fd, &e, 1, 50) != 1)
                return false;
        LoopSource *s = e.data.ptr;
        s->callback(s, e.events);
        return true;
}

static void settle(Loop *l) {
        while (turn(l))
                ;
}

static void make_directory(const char *path) {
        assert_true(mkdir(path, 0755) >= 0);
}

/* WIDE directories, each with as many. */
static void make_tree(const char *top) {
        char path[512];

        make_directory(top);
        for (unsigned i = 0; i < WIDE; i++) {
                (void) snprintf(path, sizeof(path), "%s/%u", top, i);
                make_directory(path);
                for (unsigned k = 0; k < WIDE; k++) {
                        (void) snprintf(path, sizeof(path), "%s/%u/%u", top, i, k);
                        make_directory(path);
                }
        }
}

/* How many directories it watches. */
static unsigned n_watched(void) {
        unsigned n = 0;

        for (int fd = 3; fd < 64; fd++) {
                char path[64], line[512];

                (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
                FILE *f = fopen(path, "re");
                while (f && fgets(line, sizeof(line), f))
                        n += startswith(line, "inotify wd:") != NULL;
                if (f)
                        fclose(f);
        }
        return n;
}

TEST(a_large_tree_is_gone_through_in_steps) {
        _cleanup_temp_dir_ TempDir dir = temp_dir_make();
        _cleanup_free_ char *top = NULL, *file = NULL;
        Heard h = {};
        Loop l;

        assert_true(asprintf(&top, "%s/tree", dir.path) > 0 && asprintf(&file, "%s/tree/%u/%u/file", dir.path, WIDE - 1, WIDE - 1) > 0);
        make_tree(top);
        assert_ok(loop_init(&l));
        assert_eq(watch_new(&l, top, true, &listener, &h, &h.watch), 0);
        unsigned before = n_watched();
        assert_true(before < PER_TURN_MAX);
        while (!h.armed) {
                assert_true(turn(&l));
                unsigned now = n_watched();
                assert_true(now - before < PER_TURN_MAX);
                before = now;
        }
        assert_eq(n_watched(), WIDE * WIDE + WIDE + 1);
        settle(&l);
        assert_eq(h.armed, 1);
        assert_eq(h.created, 0);

        fclose(fopen(file, "we"));
        settle(&l);
        assert_eq(h.created, 1);
        assert_streq(h.last, "23/23/file");
        watch_free(h.watch);
        loop_done(&l);
}

TEST(a_tree_that_comes_is_told_in_steps_that_its_listener_can_take) {
        _cleanup_temp_dir_ TempDir dir = temp_dir_make(), other = temp_dir_make();
        _cleanup_free_ char *from = NULL, *to = NULL, *late = NULL;
        Heard h = {};
        Loop l;

        assert_true(asprintf(&from, "%s/tree", other.path) > 0 && asprintf(&to, "%s/tree", dir.path) > 0 &&
                    asprintf(&late, "%s/late", dir.path) > 0);
        make_tree(from);
        assert_ok(loop_init(&l));
        assert_eq(watch_new(&l, dir.path, true, &listener, &h, &h.watch), 0);
        settle(&l);
        assert_eq(h.armed, 1);
        assert_true(rename(from, to) >= 0);
        for (unsigned before = 0; h.created <= WIDE * WIDE / 2; before = h.created) {
                assert_true(turn(&l));
                assert_true(h.created - before < PER_TURN_MAX);
        }
        /* What happens meanwhile comes behind it. */
        fclose(fopen(late, "we"));
        h.full = true;
        (void) turn(&l);
        unsigned told = h.created;
        settle(&l);
        assert_eq(h.created, told);
        h.full = false;
        watch_resume(h.watch);
        settle(&l);
        assert_eq(h.created, WIDE * WIDE + WIDE + 2);
        assert_streq(h.last, "late");
        assert_eq(h.armed, 1);
        assert_eq(h.failed, 0);
        watch_free(h.watch);
        loop_done(&l);
}

TEST(a_listener_may_end_it_in_the_middle) {
        _cleanup_temp_dir_ TempDir dir = temp_dir_make(), other = temp_dir_make();
        _cleanup_free_ char *from = NULL, *to = NULL;
        Heard h = {};
        Loop l;

        assert_true(asprintf(&from, "%s/tree", other.path) > 0 && asprintf(&to, "%s/tree", dir.path) > 0);
        make_tree(from);
        assert_ok(loop_init(&l));
        assert_eq(watch_new(&l, dir.path, true, &listener, &h, &h.watch), 0);
        settle(&l);
        assert_true(rename(from, to) >= 0);
        while (h.created < 10)
                assert_true(turn(&l));
        h.frees = true;
        settle(&l);
        assert_true(!h.watch);
        assert_eq(n_watched(), 0);

        /* And before it is armed. */
        h = (Heard) {};
        assert_eq(watch_new(&l, dir.path, true, &listener, &h, &h.watch), 0);
        assert_true(turn(&l));
        h.watch = watch_free(h.watch);
        assert_true(!turn(&l));
        assert_eq(h.armed, 0);
        loop_done(&l);
}

TEST(one_level_is_armed_at_once) {
        _cleanup_temp_dir_ TempDir dir = temp_dir_make();
        Heard h = {};
        Loop l;

        assert_ok(loop_init(&l));
        assert_eq(watch_new(&l, dir.path, false, &listener, &h, &h.watch), 1);
        assert_eq(h.armed, 0);
        watch_free(h.watch);
        loop_done(&l);
}
