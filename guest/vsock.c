/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/vm_sockets.h>
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "guest/transport.h"

/* Control streams come from a privileged port, so that the host can tell the agent from a program
 * of an unprivileged guest user. Several, since one stays taken for a while after a broken stream. */
#define CONTROL_PORT_FIRST AGENT_CONTROL_GUEST_PORT_MAX
#define CONTROL_PORT_LAST 1000U

int transport_listen(int *ret_fd) {
        struct sockaddr_vm sa = {
                .svm_family = AF_VSOCK,
                .svm_cid = VMADDR_CID_ANY,
                .svm_port = AGENT_STREAM_PORT,
        };

        _cleanup_close_ int fd = socket(AF_VSOCK, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (bind(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 || listen(fd, SOMAXCONN) < 0)
                return -errno;

        *ret_fd = TAKE_FD(fd);
        return 0;
}

int transport_accept(int listen_fd, int *ret_fd) {
        struct sockaddr_vm sa = {};
        socklen_t size = sizeof(sa);

        _cleanup_close_ int fd = accept4(listen_fd, (struct sockaddr *) &sa, &size, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (fd < 0)
                return -errno;
        /* With vsock_loopback any program in the guest can connect too. */
        if (sa.svm_cid != VMADDR_CID_HOST)
                return -EPERM;

        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int bind_privileged(int fd) {
        struct sockaddr_vm sa = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };

        for (sa.svm_port = CONTROL_PORT_FIRST; sa.svm_port >= CONTROL_PORT_LAST; sa.svm_port--) {
                if (bind(fd, (struct sockaddr *) &sa, sizeof(sa)) >= 0)
                        return 0;
                if (errno != EADDRINUSE)
                        return -errno;
        }
        return -EADDRINUSE;
}

int transport_connect(int *ret_fd) {
        struct sockaddr_vm sa = {
                .svm_family = AF_VSOCK,
                .svm_cid = VMADDR_CID_HOST,
                .svm_port = AGENT_CONTROL_PORT,
        };

        _cleanup_close_ int fd = socket(AF_VSOCK, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        int r = bind_privileged(fd);
        if (r < 0)
                return r;

        r = connect(fd, (struct sockaddr *) &sa, sizeof(sa));
        if (r < 0 && errno != EINPROGRESS)
                return -errno;

        *ret_fd = TAKE_FD(fd);
        return r == 0;
}
