/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "fetch/reach.h"

#define CONNECT_MSEC 10000

int reach_parse(const char *text, Reach *ret) {
        char word[INET6_ADDRSTRLEN + 4];

        *ret = (Reach) {};
        for (;;) {
                text += strspn(text, " ");
                size_t n = strcspn(text, " ");
                if (n == 0)
                        return 0;
                if (n >= sizeof(word))
                        return -EINVAL;
                if (ret->n_opened == FETCH_NETWORKS_MAX)
                        return -E2BIG;
                memcpy(word, text, n);
                word[n] = 0;
                int r = prefix_parse(word, &ret->opened[ret->n_opened]);
                if (r < 0)
                        return r;
                ret->n_opened++;
                text += n;
        }
}

/* One of this host's: what would be sent there is sent from there. */
static bool is_own(const struct sockaddr *address, socklen_t size) {
        _cleanup_close_ int fd = socket(address->sa_family, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        struct sockaddr_storage from = {};
        socklen_t from_size = sizeof(from);

        if (fd < 0 || connect(fd, address, size) < 0 || getsockname(fd, (struct sockaddr *) &from, &from_size) < 0)
                return false;
        if (address->sa_family == AF_INET)
                return ((struct sockaddr_in *) &from)->sin_addr.s_addr == ((const struct sockaddr_in *) address)->sin_addr.s_addr;
        return memcmp(&((struct sockaddr_in6 *) &from)->sin6_addr, &((const struct sockaddr_in6 *) address)->sin6_addr,
                      sizeof(struct in6_addr)) == 0;
}

static bool is_opened(const Reach *r, const Prefix *p) {
        for (size_t i = 0; i < r->n_opened; i++)
                if (prefix_covers(&r->opened[i], p))
                        return true;
        return false;
}

bool reach_allows(const Reach *r, const char *address) {
        Prefix p;

        return !strchr(address, '/') && prefix_parse(address, &p) >= 0 && (is_opened(r, &p) || !prefix_is_special(&p));
}

static bool allowed(const Reach *r, const struct addrinfo *a) {
        char text[INET6_ADDRSTRLEN];
        Prefix p;

        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) != 0 || !reach_allows(r, text))
                return false;
        return (prefix_parse(text, &p) >= 0 && is_opened(r, &p)) || !is_own(a->ai_addr, a->ai_addrlen);
}

static int connect_to(const struct addrinfo *a, int *ret_fd) {
        _cleanup_close_ int fd = socket(a->ai_family, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        socklen_t size = sizeof(int);
        int error = 0;

        if (fd < 0)
                return -errno;
        if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
                if (errno != EINPROGRESS)
                        return -errno;
                if (poll(&p, 1, CONNECT_MSEC) <= 0)
                        return -ETIMEDOUT;
                if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0)
                        return error != 0 ? -error : -errno;
        }
        int r = fd_set_nonblock(fd, false);
        if (r < 0)
                return r;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int reach_connect(const Reach *r, const char *host, uint16_t port, int *ret_fd) {
        const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
        struct addrinfo *found;
        char service[8];
        int k = -EACCES;

        (void) snprintf(service, sizeof(service), "%u", port);
        if (getaddrinfo(host, service, &hints, &found) != 0)
                return -EHOSTUNREACH;
        for (struct addrinfo *a = found; a; a = a->ai_next) {
                if (!allowed(r, a))
                        continue;
                k = connect_to(a, ret_fd);
                if (k >= 0)
                        break;
        }
        freeaddrinfo(found);
        return k;
}
