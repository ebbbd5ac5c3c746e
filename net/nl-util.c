/* SPDX-License-Identifier: Apache-2.0 */
#include <netlink/errno.h>

#include "net/nl-util.h"

int nl_to_errno(int nle) {
        if (nle >= 0)
                return nle;

        switch (-nle) {
        case NLE_INTR:
                return -EINTR;
        case NLE_BAD_SOCK:
                return -ENOTSOCK;
        case NLE_AGAIN:
                return -EAGAIN;
        case NLE_NOMEM:
                return -ENOMEM;
        case NLE_EXIST:
                return -EEXIST;
        case NLE_INVAL:
                return -EINVAL;
        case NLE_RANGE:
                return -ERANGE;
        case NLE_MSGSIZE:
        case NLE_MSG_TOOSHORT:
        case NLE_MSG_TRUNC:
                return -EMSGSIZE;
        case NLE_OPNOTSUPP:
                return -EOPNOTSUPP;
        case NLE_OBJ_NOTFOUND:
                return -ENOENT;
        case NLE_NODEV:
                return -ENODEV;
        case NLE_NOADDR:
                return -EADDRNOTAVAIL;
        case NLE_PERM:
        case NLE_NOACCESS:
                return -EPERM;
        case NLE_BUSY:
                return -EBUSY;
        default:
                return -EIO;
        }
}

int nl_open_route(struct nl_sock **ret) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = nl_socket_alloc();

        if (!sk)
                return -ENOMEM;
        int r = nl_connect(sk, NETLINK_ROUTE);
        if (r < 0)
                return nl_to_errno(r);
        *ret = TAKE_PTR(sk);
        return 0;
}
