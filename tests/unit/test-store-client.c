/* SPDX-License-Identifier: Apache-2.0 */

/* The store client with a real cube-stored behind it: CUBE_STORED names the program. */

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/unit/real-stored.h"
#include "tests/unit/test.h"

static RealStored stored;
static int result;

static void make(const char *path, bool directory) {
        char full[256];

        (void) snprintf(full, sizeof(full), "%s/%s", stored.root, path);
        if (directory)
                assert_ok(mkdir(full, 0700));
        else
                close(open(full, O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
}

static bool there(const char *path) {
        char full[256];

        (void) snprintf(full, sizeof(full), "%s/%s", stored.root, path);
        return faccessat(AT_FDCWD, full, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void start(void) {
        if (!stored.client && real_stored_start(&stored) < 0)
                test_skip("cube-stored is not built");
}

/* One call and its answer. */
static int wait_answer(int r) {
        result = 1;
        return real_stored_wait(&stored, r, &result);
}

static void on_answer(int error, void *userdata) {
        result = error;
}

static int remove_path(const char *path) {
        return wait_answer(store_client_remove(stored.client, path, on_answer, NULL));
}

static int rename_path(const char *from, const char *to) {
        return wait_answer(store_client_rename(stored.client, from, to, on_answer, NULL));
}

TEST(files_and_trees_are_removed) {
        start();
        make("f", false);
        make("t", true);
        make("t/a", true);
        make("t/a/b", true);
        make("t/a/b/x", false);
        make("t/y", false);
        assert_ok(remove_path("f"));
        assert_ok(remove_path("t"));
        assert_true(!there("f") && !there("t"));
        assert_ok(remove_path("f"));
        assert_ok(remove_path("none/at/all"));
}

TEST(a_symbolic_link_is_removed_and_never_followed) {
        char link[256];

        start();
        make("keep", true);
        make("keep/x", false);
        make("t", true);
        (void) snprintf(link, sizeof(link), "%s/t/out", stored.root);
        assert_ok(symlink("../keep", link));
        assert_true(remove_path("t/out/x") < 0);
        assert_ok(remove_path("t"));
        assert_true(there("keep/x") && !there("t"));
        assert_ok(remove_path("keep"));
}

TEST(nothing_outside_is_reached) {
        start();
        assert_true(remove_path("../etc") < 0);
        assert_true(remove_path("/etc/passwd") < 0);
        assert_true(remove_path("..") < 0);
        assert_true(remove_path(".") < 0);
        assert_true(remove_path("") < 0);
}

TEST(renames) {
        start();
        make("a", false);
        make("d", true);
        assert_ok(rename_path("a", "d/b"));
        assert_true(there("d/b") && !there("a"));
        assert_eq(rename_path("a", "d/b"), -ENOENT);
        assert_ok(remove_path("d"));
}

TEST(what_is_under_way_when_it_dies_is_answered) {
        start();
        assert_ok(kill(stored.pid, SIGSTOP));
        assert_ok(store_client_remove(stored.client, "x", on_answer, NULL));
        assert_ok(kill(stored.pid, SIGKILL));
        assert_eq(wait_answer(0), -ECONNRESET);
        assert_eq(store_client_remove(stored.client, "x", on_answer, NULL), -ENOTCONN);
        real_stored_stop(&stored);
}
