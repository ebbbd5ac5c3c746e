/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "base/macros.h"
#include "guest/transport.h"

int transport_peer_gone(int fd) {
        /* A vsock socket shows the same poll events for a peer that half-closed and one that went
         * away. Sending nothing tells them apart: it fails when nobody would read. */
        return send(fd, "", 0, MSG_NOSIGNAL|MSG_DONTWAIT) < 0 && errno != EAGAIN;
}
