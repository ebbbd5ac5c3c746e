/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "temp-dir.h"
#include "test.h"
#include "vmm/landlock.h"

/* Made before, by somebody whom nothing was denied. */
static int file_fd, listener, tcp_listener;
static struct sockaddr_un abstract;
static socklen_t abstract_len;
static struct sockaddr_in loopback;
static pid_t outsider;

/* What a child with landlock does: 0, or the errno it got. */
typedef int (*Attempt)(void);

static int result(int r) {
        return r < 0 ? errno : 0;
}

static int to_open(void) {
        return result(open("file", O_RDONLY|O_CLOEXEC));
}
static int to_create(void) {
        return result(open("new", O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
}
static int to_list(void) {
        return result(open(".", O_RDONLY|O_DIRECTORY|O_CLOEXEC));
}
static int to_run(void) {
        char *argv[] = { (char *) "true", NULL };

        return result(execv("/bin/true", argv));
}
static int to_remove(void) {
        return result(unlink("removed"));
}
static int to_rename(void) {
        return result(rename("renamed", "other"));
}
static int to_link(void) {
        return result(link("file", "directory/link"));
}
static int to_make_a_directory(void) {
        return result(mkdir("more", 0700));
}
static int to_truncate(void) {
        return result(truncate("file", 0));
}
static int to_bind(void) {
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

        return result(bind(fd, (struct sockaddr *) &a, sizeof(a)));
}
static int to_connect(void) {
        int fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

        return result(connect(fd, (struct sockaddr *) &loopback, sizeof(loopback)));
}
static int to_connect_to_an_abstract_socket(void) {
        int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

        return result(connect(fd, (struct sockaddr *) &abstract, abstract_len));
}
static int to_signal_others(void) {
        return result(kill(outsider, 0));
}
static int to_signal_itself(void) {
        return result(kill(getpid(), 0));
}
static int to_use_what_it_has(void) {
        char byte = 'x';

        return pwrite(file_fd, &byte, 1, 0) == 1 && ftruncate(file_fd, 2) == 0 && pread(file_fd, &byte, 1, 0) == 1 ? 0 : errno;
}

static int in_child(Attempt attempt, bool denied) {
        int status = 0;

        pid_t pid = fork();
        if (pid == 0) {
                if (denied && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || landlock_deny_all(NULL) < 0))
                        _exit(255);
                _exit(attempt());
        }
        assert_eq(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) != 255);
        return WEXITSTATUS(status);
}

static int version(void) {
        int status = 0;

        pid_t pid = fork();
        if (pid == 0)
                _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? 255 : MAX(landlock_deny_all(NULL), 0));
        assert_eq(waitpid(pid, &status, 0), pid);
        return WEXITSTATUS(status);
}

static void make_things(const TempDir *dir) {
        socklen_t len = sizeof(loopback);

        temp_dir_write(dir, "renamed", "", 0);
        temp_dir_write(dir, "removed", "", 0);
        file_fd = open("file", O_RDWR|O_CREAT|O_CLOEXEC, 0600);
        assert_ok(file_fd);
        assert_ok(mkdir("directory", 0700));

        listener = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        abstract.sun_family = AF_UNIX;
        abstract_len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 +
                                    (size_t) snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "cubed-test-%d", (int) getpid()));
        assert_ok(bind(listener, (struct sockaddr *) &abstract, abstract_len));
        assert_ok(listen(listener, 8));

        tcp_listener = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        loopback = (struct sockaddr_in) { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        assert_ok(bind(tcp_listener, (struct sockaddr *) &loopback, sizeof(loopback)));
        assert_ok(getsockname(tcp_listener, (struct sockaddr *) &loopback, &len));
        assert_ok(listen(tcp_listener, 8));

        outsider = getpid();
}

/* Each is possible without landlock, so that it is landlock that denies it. */
TEST(everything_is_denied_that_this_kernel_can_deny) {
        static const struct {
                const char *what;
                Attempt attempt;
                int since;       /* version of landlock; 0: never denied */
                int error;
        } cases[] = {
                { "to open a file", to_open, 1, EACCES },
                { "to list a directory", to_list, 1, EACCES },
                { "to create a file", to_create, 1, EACCES },
                { "to run a program", to_run, 1, EACCES },
                { "to make a directory", to_make_a_directory, 1, EACCES },
                { "to truncate a file", to_truncate, 3, EACCES },
                { "to bind a port", to_bind, 4, EACCES },
                { "to connect to a port", to_connect, 4, EACCES },
                { "to connect to an abstract socket", to_connect_to_an_abstract_socket, 6, EPERM },
                { "to signal others", to_signal_others, 6, EPERM },
                { "to signal itself", to_signal_itself, 0, 0 },
                { "to use what it has", to_use_what_it_has, 0, 0 },
                { "to link a file elsewhere", to_link, 1, EACCES },
                { "to rename a file", to_rename, 1, EACCES },
                { "to remove a file", to_remove, 1, EACCES },
        };
        _cleanup_temp_dir_ TempDir dir = temp_dir_make();
        int here = version();

        if (here == 0)
                test_skip("this kernel has no landlock");
        assert_ok(fchdir(dir.fd));
        make_things(&dir);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                int r = in_child(cases[i].attempt, true);
                int wanted = cases[i].since > 0 && here >= cases[i].since ? cases[i].error : 0;
                if (r != wanted)
                        test_stop(TEST_FAILED, __LINE__, "landlock %d: %s gives %d, not %d", here, cases[i].what, r, wanted);
        }
        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (in_child(cases[i].attempt, false) != 0)
                        test_stop(TEST_FAILED, __LINE__, "%s fails without landlock", cases[i].what);
        assert_ok(chdir("/"));
}

TEST(it_needs_no_new_privs) {
        ErrorText e = {};
        int status = 0;

        if (version() == 0)
                test_skip("this kernel has no landlock");
        pid_t pid = fork();
        if (pid == 0) {
                if (setresuid(65534, 65534, 65534) < 0)
                        _exit(2);
                _exit(landlock_deny_all(&e) == -EPERM && strstr(e.text, "landlock") ? 0 : 1);
        }
        assert_eq(waitpid(pid, &status, 0), pid);
        if (WEXITSTATUS(status) == 2)
                test_skip("not root");
        assert_eq(status, 0);
}
