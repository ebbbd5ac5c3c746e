/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>

#include "base/fd-util.h"
#include "fetch/socks.h"

#define VERSION 5
#define NO_PASSWORD 0
#define COMMAND_CONNECT 1

enum { ADDRESS_IPV4 = 1, ADDRESS_NAME = 3, ADDRESS_IPV6 = 4 };

static int greet(int fd) {
        static const uint8_t answer[] = { VERSION, NO_PASSWORD };
        uint8_t head[2], methods[255];

        int r = read_full(fd, head, sizeof(head));
        if (r < 0)
                return r;
        if (head[0] != VERSION)
                return -EBADMSG;
        r = read_full(fd, methods, head[1]);
        if (r < 0)
                return r;
        return memchr(methods, NO_PASSWORD, head[1]) ? write_full(fd, answer, sizeof(answer)) : -EBADMSG;
}

static int read_name(int fd, char ret[static SOCKS_HOST_MAX]) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:";
        uint8_t size;

        int r = read_full(fd, &size, 1);
        if (r >= 0)
                r = read_full(fd, ret, size);
        if (r < 0)
                return r;
        ret[size] = 0;
        return size > 0 && strspn(ret, set) == size ? 0 : -EBADMSG;
}

static int read_address(int fd, int family, size_t size, char ret[static SOCKS_HOST_MAX]) {
        uint8_t bytes[16];

        int r = read_full(fd, bytes, size);
        if (r < 0)
                return r;
        return inet_ntop(family, bytes, ret, SOCKS_HOST_MAX) ? 0 : -errno;
}

int socks_accept(int fd, SocksTarget *ret) {
        uint8_t head[4], port[2];

        int r = greet(fd);
        if (r >= 0)
                r = read_full(fd, head, sizeof(head));
        if (r < 0)
                return r;
        if (head[0] != VERSION || head[1] != COMMAND_CONNECT)
                return -EBADMSG;
        switch (head[3]) {
        case ADDRESS_IPV4:
                r = read_address(fd, AF_INET, 4, ret->host);
                break;
        case ADDRESS_IPV6:
                r = read_address(fd, AF_INET6, 16, ret->host);
                break;
        case ADDRESS_NAME:
                r = read_name(fd, ret->host);
                break;
        default:
                r = -EBADMSG;
        }
        if (r >= 0)
                r = read_full(fd, port, sizeof(port));
        if (r < 0)
                return r;
        ret->port = (uint16_t) (port[0] << 8 | port[1]);
        return ret->port > 0 ? 0 : -EBADMSG;
}

int socks_answer(int fd, SocksReply reply) {
        const uint8_t answer[] = { VERSION, (uint8_t) reply, 0, ADDRESS_IPV4, 0, 0, 0, 0, 0, 0 };

        return write_full(fd, answer, sizeof(answer));
}
