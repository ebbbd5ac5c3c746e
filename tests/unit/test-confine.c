/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "daemon/image/confine.h"
#include "test.h"

/* In a process of its own, since there is no way back. 0, or where it went wrong. */
static int in_child(int (*what)(void)) {
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(what());
        assert(waitpid(pid, &status, 0) == pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static bool can_open(int flags) {
        _cleanup_close_ int fd = openat(AT_FDCWD, "/dev/null", flags|O_CLOEXEC);
        return fd >= 0;
}

static int narrows(void) {
        int fd = open("/dev/zero", O_RDONLY|O_CLOEXEC);
        Fault fault = {};
        char c;

        if (fd < 0 || confine(CONFINE_OPENING, false, &fault) < 0)
                return 1;
        if (!can_open(O_RDONLY))
                return 2;
        if (confine_to_streams(&fault) < 0)
                return 3;
        if (can_open(O_RDONLY) || can_open(O_RDWR))
                return 4;
        return read(fd, &c, 1) == 1 ? 0 : 5;
}

static int stays(void) {
        Fault fault = {};

        if (confine(CONFINE_TREE, false, &fault) < 0)
                return 1;
        /* Nothing that could loosen or tighten it is left. */
        return confine_to_streams(&fault) < 0 && *fault.text ? 0 : 2;
}

TEST(what_is_open_is_all_there_is) {
#if defined(__SANITIZE_ADDRESS__)
        test_skip("a sanitizer's system calls don't fit into the filter");
#endif
        assert_eq(in_child(narrows), 0);
        assert_eq(in_child(stays), 0);
}
