/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-resolver reads of cube-netd: packets with descriptors, policies in pieces, names.
 *
 * Input: { u8 op, u8 flags, u16 length, bytes }... flags: 1 without a header, 2 the length lies, 4 descriptors of the kind
 * that START brings, 8 odd ones. */

#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "fuzz.h"
#include "net/resolver-private.h"
#include "net/resolver-proto.h"

#define PACKETS_MAX 32U
#define BYTES_MAX KIB(16)
#define SOCKETS 2U

static char path[64];
static int listener;

static int accept_resolver(sd_event *event) {
        for (unsigned i = 0; i < 100; i++) {
                int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
                if (fd >= 0)
                        return fd;
                (void) sd_event_run(event, USEC_PER_MSEC);
        }
        FUZZ_CHECK(!"it connects");
        return -EBADF;
}

static size_t open_fds(uint8_t flags, int fds[static 2 + SOCKETS]) {
        size_t n = 0;

        if (flags & 4)
                for (; n < 2; n++)
                        fds[n] = memfd_create("map", MFD_CLOEXEC);
        for (size_t i = 0; (flags & 4) && i < SOCKETS; i++)
                fds[n++] = socket(AF_UNIX, i == 0 ? SOCK_DGRAM|SOCK_CLOEXEC : SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (flags & 8 && n > 0)
                safe_close(fds[--n]);
        return n;
}

static void say(int fd, FuzzInput *in) {
        static struct {
                PacketHeader head;
                uint8_t body[BYTES_MAX];
        } packet;
        int fds[2 + SOCKETS];

        uint8_t op = fuzz_u8(in), flags = fuzz_u8(in);
        size_t size = fuzz_bytes(in, packet.body, MIN((size_t) fuzz_u16(in), BYTES_MAX));
        packet.head = (PacketHeader) {
                .magic = RESOLVER_PROTO_MAGIC, .version = RESOLVER_PROTO_VERSION, .op = op,
                .len = (uint32_t) size + !!(flags & 2),
        };
        struct iovec iov = { flags & 1 ? packet.body : (uint8_t *) &packet, size + (flags & 1 ? 0 : sizeof(packet.head)) };
        size_t n_fds = open_fds(flags, fds);
        (void) send_packet(fd, &iov, 1, fds, n_fds);
        close_many(fds, n_fds);
}

static void check_policies(const Resolver *r) {
        for (uint32_t id = 0; id < 8; id++) {
                const NameTable *t = resolver_policies_get(r->policies, id);

                if (t)
                        (void) name_table_allows(t, "www.web.example");
        }
}

static void clean_up(void) {
        (void) unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        (void) snprintf(path, sizeof(path), "/tmp/fuzz-resolver-link.%d", (int) getpid());
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        clean_up();
        FUZZ_CHECK(atexit(clean_up) == 0);
        listener = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        FUZZ_CHECK(listener >= 0 && bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0);
        FUZZ_CHECK(listen(listener, 8) == 0 && freopen("/dev/null", "w", stdout));
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        Resolver r = { .config.socket = path, .maps = { -EBADF, -EBADF } };

        FUZZ_CHECK(sd_event_new(&r.event) >= 0 && resolver_policies_new(&r.policies) == 0);
        r.sandboxes = calloc(NET_SLOTS_MAX, sizeof(r.sandboxes[0]));
        FUZZ_CHECK(r.sandboxes && resolver_link_new(&r, &r.link) >= 0);
        int fd = accept_resolver(r.event);
        for (unsigned i = 0; i < PACKETS_MAX && in.left > 0; i++) {
                say(fd, &in);
                (void) sd_event_run(r.event, 0);
        }
        check_policies(&r);
        resolver_link_free(r.link);
        resolver_listener_free(r.listener);
        resolver_policies_free(r.policies);
        safe_close(r.maps.names);
        safe_close(r.maps.entries);
        safe_close(fd);
        free(r.sandboxes);
        sd_event_unref(r.event);
        return 0;
}
