/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-resolver may still do once it has confined itself, tried out in a child. */

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "net/resolver-confine.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

/* flags of openat() -> what comes of it */
static int try_open(int dir_fd, const char *name, int flags) {
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
                if (resolver_confine() < 0)
                        _exit(255);
                _exit(openat(dir_fd, name, flags, 0600) < 0 ? errno : 0);
        }
        assert_true(pid > 0);
        assert_eq(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

TEST(files_are_read_and_neither_made_nor_changed) {
#ifdef __SANITIZE_ADDRESS__
        test_skip("a sanitizer build has no filter");
#endif
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int fd = temp_dir_open(&d, "file", O_RDWR|O_CREAT);

        assert_eq(write(fd, "text", 4), 4);
        assert_eq(try_open(d.fd, "file", O_RDONLY|O_CLOEXEC), 0);
        assert_eq(try_open(d.fd, "none", O_RDONLY|O_CLOEXEC), ENOENT);
        assert_eq(try_open(d.fd, "none", O_RDONLY|O_CREAT|O_CLOEXEC), EPERM);
        assert_eq(try_open(d.fd, "file", O_RDONLY|O_TRUNC|O_CLOEXEC), EPERM);
        assert_eq(try_open(d.fd, "file", O_WRONLY|O_CLOEXEC), EPERM);
        assert_eq(try_open(d.fd, "file", O_RDWR|O_CLOEXEC), EPERM);
        assert_eq(faccessat(d.fd, "none", F_OK, 0), -1);
        assert_eq(lseek(fd, 0, SEEK_END), 4);
}
