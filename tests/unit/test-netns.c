/* SPDX-License-Identifier: Apache-2.0 */

/* Network namespaces, made for real: needs root. */

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "net/netns.h"
#include "net/nl-util.h"
#include "tests/unit/test.h"

static ino_t own_netns(void) {
        struct stat st;
        assert_ok(stat("/proc/thread-self/ns/net", &st));
        return st.st_ino;
}

TEST(a_new_one_has_loopback_up_and_we_are_back) {
        if (geteuid() != 0)
                test_skip("needs root");

        ino_t before = own_netns();
        struct stat st;
        int fd, status;

        int r = netns_new(&fd);
        if (r == -EPERM)
                test_skip("namespaces are not allowed here");
        assert_ok(r);
        assert_eq(own_netns(), before);
        assert_ok(fstat(fd, &st));
        assert_true(st.st_ino != before);

        pid_t pid = fork();
        if (pid == 0) {
                struct ifreq q = { .ifr_name = "lo" };
                if (setns(fd, CLONE_NEWNET) < 0)
                        _exit(2);
                int sk = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
                _exit(sk < 0 || ioctl(sk, SIOCGIFFLAGS, &q) < 0 ? 3 : !(q.ifr_flags & IFF_UP));
        }
        assert_eq(waitpid(pid, &status, 0), pid);
        assert_eq(status, 0);
        close(fd);
}

TEST(codes_of_libnl_become_errno) {
        assert_eq(nl_to_errno(0), 0);
        assert_eq(nl_to_errno(-NLE_EXIST), -EEXIST);
        assert_eq(nl_to_errno(-NLE_NODEV), -ENODEV);
        assert_eq(nl_to_errno(-NLE_PERM), -EPERM);
        assert_eq(nl_to_errno(-NLE_DUMP_INTR), -EIO);
}
