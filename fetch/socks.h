/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of SOCKS 5 (RFC 1928) as far as skopeo speaks it: no password, CONNECT alone. What comes is hostile. */

#include <stdint.h>

#include "base/macros.h"

#define SOCKS_HOST_MAX 256U

typedef struct SocksTarget {
        char host[SOCKS_HOST_MAX]; /* a name or an address, of letters, digits and -._: */
        uint16_t port;
} SocksTarget;

typedef enum SocksReply {
        SOCKS_CONNECTED = 0,
        SOCKS_FAILED = 1,
        SOCKS_NOT_ALLOWED = 2,
        SOCKS_UNREACHABLE = 4,
        SOCKS_REFUSED = 5,
} SocksReply;

/* From a blocking socket, with its first answer. -EBADMSG: it is none. */
int socks_accept(int fd, SocksTarget *ret);
int socks_answer(int fd, SocksReply reply);
