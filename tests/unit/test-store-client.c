/* SPDX-License-Identifier: Apache-2.0 */

/* The store client with a real cube-stored behind it: CUBE_STORED names the program. */

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/store-client.h"
#include "tests/unit/test.h"

static sd_event *event;
static StoreClient *client;
static pid_t pid;
static char root[] = "/tmp/cubed-test-store-XXXXXX";
static int result;

static void make(const char *path, bool directory) {
        char full[256];

        (void) snprintf(full, sizeof(full), "%s/%s", root, path);
        if (directory)
                assert_ok(mkdir(full, 0700));
        else
                close(open(full, O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
}

static bool there(const char *path) {
        char full[256];

        (void) snprintf(full, sizeof(full), "%s/%s", root, path);
        return faccessat(AT_FDCWD, full, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void start(void) {
        const char *program = getenv("CUBE_STORED");
        int ends[2], root_fd;

        if (!program || access(program, X_OK) < 0)
                test_skip("cube-stored is not built");
        if (client)
                return;
        assert_true(mkdtemp(root));
        assert_ok(sd_event_new(&event));
        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends));
        pid = fork();
        if (pid == 0) {
                dup2(ends[1], 3);
                execl(program, program, NULL);
                _exit(127);
        }
        close(ends[1]);
        root_fd = open(root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        assert_ok(store_client_new(event, root_fd, &client));
        close(root_fd);
        assert_ok(store_client_attach(client, ends[0]));
}

/* One call and its answer. */
static int wait_answer(int r) {
        if (r < 0)
                return r;
        result = 1;
        while (result == 1 && sd_event_run(event, 5 * USEC_PER_SEC) > 0)
                ;
        return result;
}

static void on_answer(int error, void *userdata) {
        result = error;
}

static int remove_path(const char *path) {
        return wait_answer(store_client_remove(client, path, on_answer, NULL));
}

static int rename_path(const char *from, const char *to) {
        return wait_answer(store_client_rename(client, from, to, on_answer, NULL));
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
        (void) snprintf(link, sizeof(link), "%s/t/out", root);
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
        assert_ok(kill(pid, SIGSTOP));
        assert_ok(store_client_remove(client, "x", on_answer, NULL));
        assert_ok(kill(pid, SIGKILL));
        assert_eq(wait_answer(0), -ECONNRESET);
        assert_eq(store_client_remove(client, "x", on_answer, NULL), -ENOTCONN);
        assert_eq(waitpid(pid, NULL, 0), pid);
        client = store_client_free(client);
        event = sd_event_unref(event);
        assert_ok(rmdir(root));
}
