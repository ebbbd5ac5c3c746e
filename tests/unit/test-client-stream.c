/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/agent-file.h"
#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "base/frame.h"
#include "base/tlv.h"
#include "dbus/client.h"
#include "tests/unit/test.h"

static int exited(uint32_t tag, uint32_t value, int timed_out, AgentExit *ret) {
        TlvWriter w = TLV_WRITER_INIT(1024);

        tlv_put_u32(&w, (uint16_t) tag, value);
        if (timed_out >= 0)
                tlv_put_u32(&w, AGENT_TAG_TIMED_OUT, (uint32_t) timed_out);
        int r = agent_exit_parse(w.data, w.size, ret);
        tlv_writer_done(&w);
        return r;
}

TEST(exit_statuses) {
        AgentExit e;

        assert_eq(exited(AGENT_TAG_EXIT_CODE, 7, 0, &e), 0);
        assert_eq(client_exit_status(&e), 7);
        assert_eq(exited(AGENT_TAG_EXIT_SIGNAL, 9, -1, &e), 0);
        assert_eq(client_exit_status(&e), 137);
        assert_eq(exited(AGENT_TAG_EXIT_SIGNAL, 15, 1, &e), 0);
        assert_eq(client_exit_status(&e), 124);

        assert_eq(exited(AGENT_TAG_EXIT_CODE, 256, 0, &e), -EBADMSG);
        assert_eq(exited(AGENT_TAG_EXIT_SIGNAL, 128, 0, &e), -EBADMSG);
        assert_eq(exited(AGENT_TAG_PID, 1, 0, &e), -EBADMSG);
        assert_eq(agent_exit_parse(NULL, 0, &e), -EBADMSG);
        assert_eq(agent_exit_parse((const uint8_t *) "short", 5, &e), -EBADMSG);
}

static void put_frame(int fd, AgentFrameType type, const void *body, size_t size) {
        uint8_t header[FRAME_HEADER_SIZE];

        frame_header_put(&(FrameHeader) { .type = (uint16_t) type, .len = (uint32_t) size }, header);
        assert_eq(write_full(fd, header, sizeof(header)), 0);
        assert_eq(write_full(fd, body, size), 0);
}

static void put_end(int fd, uint32_t error, const char *message) {
        TlvWriter w = TLV_WRITER_INIT(1024);

        tlv_put_u32(&w, AGENT_TAG_ERRNO, error);
        if (message)
                tlv_put_str(&w, AGENT_TAG_MESSAGE, message);
        put_frame(fd, AGENT_END, w.data, w.size);
        tlv_writer_done(&w);
}

static int file_of(const char *text) {
        int fd = memfd_create("test", MFD_CLOEXEC);
        assert_true(fd >= 0);
        assert_eq(write_full(fd, text, strlen(text)), 0);
        assert_eq(lseek(fd, 0, SEEK_SET), 0);
        return fd;
}

TEST(receive) {
        char *message = NULL;
        int fds[2], out = file_of("");
        char buf[16] = "";

        assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        put_frame(fds[1], AGENT_DATA, "hello ", 6);
        put_frame(fds[1], AGENT_DATA, "", 0);
        put_frame(fds[1], AGENT_DATA, "you", 3);
        put_end(fds[1], 0, NULL);
        assert_eq(agent_file_receive(fds[0], out, UINT64_MAX, &message), 0);
        assert_true(!message);
        assert_eq(pread(out, buf, sizeof(buf), 0), 9);
        assert_streq(buf, "hello you");
        close(fds[0]);
        close(fds[1]);
        close(out);
}

static int receive_bad(void (*write_it)(int fd), uint64_t max, char **ret_message) {
        int fds[2], out = file_of("");

        assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        write_it(fds[1]);
        close(fds[1]);
        int r = agent_file_receive(fds[0], out, max, ret_message);
        close(fds[0]);
        close(out);
        return r;
}

static void bad_error(int fd) {
        put_end(fd, EIO, "disk broke");
}

static void bad_early_end(int fd) {
        put_frame(fd, AGENT_DATA, "x", 1);
}

static void bad_type(int fd) {
        put_frame(fd, AGENT_EXITED, "", 0);
}

static void bad_length(int fd) {
        uint8_t header[FRAME_HEADER_SIZE];
        frame_header_put(&(FrameHeader) { .type = AGENT_DATA, .len = UINT32_MAX }, header);
        assert_eq(write_full(fd, header, sizeof(header)), 0);
}

static void bad_end_body(int fd) {
        put_frame(fd, AGENT_END, "garbage", 7);
}

static void bad_errno(int fd) {
        put_end(fd, 1U << 31, NULL);
}

TEST(receive_what_a_hostile_guest_sends) {
        char *message = NULL;

        assert_eq(receive_bad(bad_error, UINT64_MAX, &message), -EIO);
        assert_streq(message, "disk broke");
        free(message);
        message = NULL;
        assert_eq(receive_bad(bad_early_end, UINT64_MAX, &message), -ECONNRESET);
        assert_eq(receive_bad(bad_type, UINT64_MAX, &message), -EBADMSG);
        assert_eq(receive_bad(bad_length, UINT64_MAX, &message), -EMSGSIZE);
        assert_eq(receive_bad(bad_end_body, UINT64_MAX, &message), -EBADMSG);
        assert_eq(receive_bad(bad_errno, UINT64_MAX, &message), -EBADMSG);
        assert_eq(receive_bad(bad_early_end, 0, &message), -EFBIG);
        assert_true(!message);
}

typedef struct Guest {
        int fd;
        size_t received;
        bool ended;
        uint32_t error;
} Guest;

/* Takes frames until END, then answers. */
static void *guest_run(void *userdata) {
        Guest *g = userdata;
        uint8_t buf[FRAME_HEADER_SIZE + AGENT_DATA_MAX];
        FrameHeader h;

        while (!g->ended && read_full(g->fd, buf, FRAME_HEADER_SIZE) == 0) {
                frame_header_get(buf, &h);
                if (h.len > AGENT_DATA_MAX || read_full(g->fd, buf, h.len) < 0)
                        break;
                g->received += h.len;
                g->ended = h.type == AGENT_END;
        }
        if (g->ended)
                put_end(g->fd, g->error, g->error ? "no room" : NULL);
        return NULL;
}

static int send_to(Guest *g, int file, uint64_t size, char **ret_message) {
        pthread_t thread;
        int fds[2];

        assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        g->fd = fds[1];
        assert_eq(pthread_create(&thread, NULL, guest_run, g), 0);
        int r = agent_file_send(fds[0], file, size, ret_message);
        close(fds[0]);
        pthread_join(thread, NULL);
        close(fds[1]);
        return r;
}

TEST(send) {
        char *message = NULL;
        Guest g = {};

        int fd = memfd_create("test", MFD_CLOEXEC);
        assert_eq(ftruncate(fd, 300000), 0);
        assert_eq(send_to(&g, fd, 300000, &message), 0);
        assert_eq(g.received, 300000);
        assert_true(g.ended && !message);
        close(fd);
}

TEST(send_reports_what_the_guest_says) {
        char *message = NULL;
        Guest g = { .error = ENOSPC };

        int fd = file_of("abc");
        assert_eq(send_to(&g, fd, UINT64_MAX, &message), -ENOSPC);
        assert_streq(message, "no room");
        free(message);
        close(fd);
}

TEST(send_notices_a_file_that_shrank) {
        char *message = NULL;
        Guest g = {};

        int fd = file_of("abc");
        assert_eq(send_to(&g, fd, 10, &message), -ENODATA);
        assert_true(!g.ended);
        close(fd);
}
