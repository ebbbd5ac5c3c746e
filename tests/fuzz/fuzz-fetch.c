/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-fetch and its relay are sent: a client of SOCKS, a request for an image, networks that are opened. */

#include <sys/socket.h>

#include "base/fd-util.h"
#include "fetch/fetch-request.h"
#include "fetch/reach.h"
#include "fetch/socks.h"
#include "fuzz.h"

/* All of it is there at once, and then its end. */
static void check_socks(const uint8_t *data, size_t size) {
        SocksTarget target;
        int fds[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, fds) == 0);
        FUZZ_CHECK(write_full(fds[0], data, MIN(size, 4096U)) == 0 && shutdown(fds[0], SHUT_WR) == 0);
        if (socks_accept(fds[1], &target) == 0) {
                FUZZ_CHECK(target.port > 0 && *target.host);
                for (const char *p = target.host; *p; p++)
                        FUZZ_CHECK(*p > ' ' && *p < 127 && !strchr("/%@\"'\\", *p));
        }
        close_many(fds, 2);
}

static void check_request(const uint8_t *data, size_t size) {
        FetchRequest r = {};

        if (fetch_request_parse(data, size, &r) < 0)
                return;
        FUZZ_CHECK(r.bytes_max > 0 && *r.name != '-' && !strpbrk(r.name, " \"\\\n") && !strpbrk(r.registry, " \"\\\n"));
        FUZZ_CHECK(!r.user == !r.password);
        fetch_request_done(&r);
}

static void check_networks(const uint8_t *data, size_t size) {
        char *text = strndup((const char *) data, size);
        Reach reach;

        FUZZ_CHECK(text);
        if (reach_parse(text, &reach) == 0) {
                FUZZ_CHECK(reach.n_opened <= FETCH_NETWORKS_MAX);
                (void) reach_allows(&reach, "127.0.0.1");
        }
        (void) reach_allows(&(Reach) {}, text);
        free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        switch (fuzz_u8(&in) % 3) {
        case 0:
                check_socks(in.data, in.left);
                break;
        case 1:
                check_request(in.data, in.left);
                break;
        default:
                check_networks(in.data, in.left);
        }
        return 0;
}
