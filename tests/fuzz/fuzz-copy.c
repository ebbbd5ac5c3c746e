/* SPDX-License-Identifier: Apache-2.0 */

/* A copy into a guest, from both sides: what cubed reads of a cube-image that does as it likes, with a guest that answers
 * as it likes; and what cube-image reads of cubed.
 *
 * Input: u8, 1: cube-image's side. cubed's: steps, u8: 0 a packet of cube-image's (u32 type, u16 length, bytes), 1 any
 * packet, 2 cube-image ends, else a step of guest.h. cube-image's: answers, { u8 flags, i32 error, u8 length, text }...,
 * flags: 1 with a stream, 2 a short packet; what is behind 1 KiB of them comes out of the streams. */

#include <fcntl.h>
#include <signal.h>

#include "daemon/copy-proto.h"
#include "daemon/guest-copy.h"
#include "daemon/image/copy-in.h"
#include "daemon/tool.h"
#include "guest.h"

#define STEPS_MAX 64U
#define ANSWERS_MAX 16U
#define COPY_FD 3

/* cube-image, of which there is none: linked with --wrap=tool_start and so on. */

static struct {
        int fd;
        bool killed;
        ToolDone done;
        void *userdata;
} image;

int __wrap_tool_start(sd_event *e, const ToolSpec *spec, ToolDone done, ToolLog log, void *userdata, Tool **ret);
void __wrap_tool_kill(Tool *t);
Tool *__wrap_tool_free(Tool *t);

int __wrap_tool_start(sd_event *e, const ToolSpec *spec, ToolDone done, ToolLog log, void *userdata, Tool **ret) {
        image.fd = fcntl(spec->fds[COPY_FD], F_DUPFD_CLOEXEC, 3);
        image.killed = false;
        image.done = done;
        image.userdata = userdata;
        *ret = (Tool *) &image;
        return image.fd < 0 ? -errno : fd_set_nonblock(image.fd, true);
}

void __wrap_tool_kill(Tool *t) {
        image.killed = true;
}

Tool *__wrap_tool_free(Tool *t) {
        return NULL;
}

static void image_ends(int r) {
        ToolDone done = image.done;

        image.fd = safe_close(image.fd);
        image.done = NULL;
        if (done)
                done((Tool *) &image, r, "cube-image ended", image.userdata);
}

static void on_done(GuestCopy *c, int r, const char *message, void *userdata) {
        FUZZ_CHECK(r <= 0 && (r == 0 || message));
        guest_copy_free(c);
        *(GuestCopy **) userdata = NULL;
}

static void image_says(FuzzInput *in, bool whole) {
        static struct {
                CopyRequest head;
                uint8_t body[GUEST_BODY_MAX];
        } packet;

        packet.head = (CopyRequest) { .type = whole ? fuzz_u32(in) : 0 };
        size_t n = guest_body(in, packet.body);
        const uint8_t *data = whole ? (const uint8_t *) &packet : packet.body;
        if (image.fd >= 0)
                (void) !send(image.fd, data, n + (whole ? sizeof(packet.head) : 0), MSG_NOSIGNAL|MSG_DONTWAIT);
}

/* An answer is a whole packet. */
static void image_listens(void) {
        uint8_t data[sizeof(CopyAnswer) + COPY_TEXT_MAX];
        size_t n_fds;
        int fd;

        for (;;) {
                ssize_t n = image.fd < 0 ? -EAGAIN : recv_packet(image.fd, data, sizeof(data), &fd, 1, &n_fds);
                if (n <= 0)
                        return;
                FUZZ_CHECK(n >= (ssize_t) sizeof(CopyAnswer));
                safe_close(fd);
        }
}

static void cubeds_side(FuzzInput *in) {
        static const TemplateTools tools = { .cube_image = "cube-image", .uid = (uid_t) -1 };
        static FuzzGuest g;
        GuestCopy *c = NULL;

        guest_new(&g);
        FUZZ_CHECK(guest_copy_start(&g.sandbox, &(GuestCopySpec) { .tools = &tools, .fd = -EBADF, .path = "/f" }, on_done, &c,
                                    &c) == 0);
        for (unsigned i = 0; i < STEPS_MAX && in->left > 0 && c; i++) {
                switch (fuzz_u8(in)) {
                case 0: image_says(in, true); break;
                case 1: image_says(in, false); break;
                case 2: image_ends(0); break;
                default: guest_step(&g, in);
                }
                guest_run(&g);
                image_listens();
                /* It does what it is told, but for that. */
                if (image.killed && image.done)
                        image_ends(-EIO);
        }
        guest_copy_free(c);
        if (image.done)
                image_ends(-EIO);
        guest_free(&g);
}

/* cube-image's */

static int stream_of(const FuzzInput *in) {
        int ends[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends) == 0);
        (void) !send(ends[1], in->data, MIN(in->left, (size_t) KIB(16)), MSG_NOSIGNAL|MSG_DONTWAIT);
        safe_close(ends[1]);
        return ends[0];
}

static void answer(int fd, FuzzInput *in, const FuzzInput *streams) {
        struct {
                CopyAnswer head;
                char text[UINT8_MAX];
        } packet;

        uint8_t flags = fuzz_u8(in);
        packet.head.error = (int32_t) fuzz_u32(in);
        size_t n = fuzz_u8(in);
        (void) fuzz_bytes(in, packet.text, n);
        int stream = flags & 1 ? stream_of(streams) : -EBADF;
        struct iovec iov = { &packet, flags & 2 ? n % sizeof(packet.head) : sizeof(packet.head) + n };
        (void) send_packet(fd, &iov, 1, &stream, stream >= 0 ? 1 : 0);
        safe_close(stream);
}

static void images_side(FuzzInput *in) {
        FuzzInput streams = { in->data + MIN(in->left, (size_t) KIB(1)), in->left - MIN(in->left, (size_t) KIB(1)) };
        Fault fault = {};
        int ends[2];

        in->left -= streams.left;
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) == 0);
        for (unsigned i = 0; i < ANSWERS_MAX && in->left > 0; i++)
                answer(ends[1], in, &streams);
        FUZZ_CHECK(shutdown(ends[1], SHUT_WR) == 0);
        int r = copy_in(fuzz_file("contents of a file", 18), ends[0], "/some/where", &fault);
        FUZZ_CHECK(r == 0 || (r < 0 && *fault.text && memchr(fault.text, 0, sizeof(fault.text))));
        safe_close(ends[0]);
        safe_close(ends[1]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        /* As the programs do. */
        FUZZ_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        if (fuzz_u8(&in) & 1)
                images_side(&in);
        else
                cubeds_side(&in);
        return 0;
}
