/* SPDX-License-Identifier: Apache-2.0 */

/* cube-vmm's end of its control socket, with a cubed that says anything: packets with descriptors, and the records of
 * BUILD and LOAD, of which no machine comes, since their /dev/kvm is none.
 *
 * Input: { u8 op, u8 flags, u8 files, u16 length, bytes }... flags: 1 without a header, 2 another peer first, 4 the op is
 * a u16 of the bytes, 8 the length lies. files: how many, of which the first is to be written, the others not. */

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "base/vmm-proto.h"
#include "fuzz.h"
#include "tests/unit/virtio-driver.h"
#include "vmm/control.h"

#define PACKETS_MAX 16U
#define BYTES_MAX KIB(8)

static Stepper stepper;
static struct sockaddr_un address;
static socklen_t address_size = sizeof(sa_family_t);

static int connect_peer(void) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        FUZZ_CHECK(fd >= 0 && connect(fd, (struct sockaddr *) &address, address_size) == 0);
        stepper_run(&stepper, 1);
        return fd;
}

/* Hung up, which the machine notices. */
static void leave(int fd) {
        safe_close(fd);
        stepper_run(&stepper, 2);
}

static size_t open_files(int fds[static VMM_FDS_MAX], size_t n) {
        for (size_t i = 0; i < n; i++) {
                fds[i] = memfd_create("file", MFD_CLOEXEC);
                FUZZ_CHECK(fds[i] >= 0);
                if (i > 0) {
                        char path[32];

                        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
                        int fd = open(path, O_RDONLY|O_CLOEXEC);
                        safe_close(fds[i]);
                        fds[i] = fd;
                }
        }
        return n;
}

static void say(int fd, FuzzInput *in) {
        static struct {
                VmmMessage head;
                uint8_t body[BYTES_MAX];
        } packet;
        int fds[VMM_FDS_MAX];

        uint8_t op = fuzz_u8(in), flags = fuzz_u8(in);
        size_t n_fds = open_files(fds, fuzz_u8(in) % (VMM_FDS_MAX + 1));
        size_t n = fuzz_bytes(in, packet.body, MIN((size_t) fuzz_u16(in), BYTES_MAX));
        packet.head = (VmmMessage) {
                .magic = VMM_PROTO_MAGIC, .version = VMM_PROTO_VERSION, .op = op % (VMM_OP_ROLLBACK + 2), .seq = op,
                .len = (uint32_t) n + !!(flags & 8),
        };
        if (flags & 4)
                memcpy(&packet.head.op, packet.body, sizeof(packet.head.op));
        struct iovec iov = { flags & 1 ? packet.body : (uint8_t *) &packet, n + (flags & 1 ? 0 : sizeof(packet.head)) };
        VmmMessage said;
        memcpy(&said, iov.iov_base, sizeof(said));
        /* It would do as it is told. */
        if (said.op != VMM_OP_KILL || iov.iov_len < sizeof(said))
                (void) send_packet(fd, &iov, 1, fds, n_fds);
        close_many(fds, n_fds);
}

static void listen_to(int fd) {
        uint8_t data[KIB(64)];
        int fds[VMM_FDS_MAX];
        VmmMessage head;
        size_t n_fds;

        for (;;) {
                ssize_t n = recv_packet(fd, data, sizeof(data), fds, ELEMENTSOF(fds), &n_fds);
                if (n < (ssize_t) sizeof(head))
                        return;
                close_many(fds, n_fds);
                memcpy(&head, data, sizeof(head));
                FUZZ_CHECK(head.magic == VMM_PROTO_MAGIC && head.error <= 0 && head.len == (size_t) n - sizeof(head));
        }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        static Control *control;
        static Machine *machine;

        stepper_init(&stepper);
        address.sun_family = AF_UNIX;
        int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        FUZZ_CHECK(fd >= 0 && bind(fd, (struct sockaddr *) &address, address_size) == 0 && listen(fd, 8) == 0);
        address_size = sizeof(address);
        FUZZ_CHECK(getsockname(fd, (struct sockaddr *) &address, &address_size) == 0);
        FUZZ_CHECK(machine_new(stepper.loop, &machine) == 0);
        FUZZ_CHECK(control_new(stepper.loop, machine, fd, getuid(), &control, NULL) == 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        int fd = connect_peer();

        for (unsigned i = 0; i < PACKETS_MAX && in.left > 0; i++) {
                if (in.left > 1 && in.data[1] & 2) {
                        leave(fd);
                        fd = connect_peer();
                }
                say(fd, &in);
                stepper_run(&stepper, 1);
                listen_to(fd);
        }
        leave(fd);
        return 0;
}
