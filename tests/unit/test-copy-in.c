/* SPDX-License-Identifier: Apache-2.0 */

/* "cube-image copy-in" as it is started by cubed, whose part the test plays: it answers each request, and takes the
 * files. */

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/frame.h"
#include "base/tlv.h"
#include "daemon/copy-proto.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

#define TEXT_MAX 8192

/* Where to break it off. */
typedef struct Peer {
        const char *refuse;        /* this path, with these words */
        bool cut_streams;          /* files' streams end at once */
} Peer;

static char asked[TEXT_MAX];       /* a line for each request */
static char told[TEXT_MAX];        /* stderr */

static void note(const char *format, ...) _printf_(1, 2);
static void note(const char *format, ...) {
        size_t n = strlen(asked);
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(asked + n, sizeof(asked) - n, format, ap);
        va_end(ap);
}

/* The file's bytes; the agent's answer at their end. */
static void take_file(int stream) {
        uint8_t header[FRAME_HEADER_SIZE], data[AGENT_DATA_MAX];
        unsigned long long bytes = 0, sum = 0;
        FrameHeader h = {};

        while (h.type != AGENT_END) {
                if (read_full(stream, header, sizeof(header)) < 0) {
                        note(" (cut off)");
                        return;
                }
                frame_header_get(header, &h);
                assert_true(h.len <= sizeof(data));
                assert_ok(read_full(stream, data, h.len));
                bytes += h.len;
                for (uint32_t i = 0; i < h.len; i++)
                        sum += data[i];
        }
        frame_header_put(&(FrameHeader) { .type = AGENT_END }, header);
        (void) write_full(stream, header, sizeof(header));
        note(" %llu %llu", bytes, sum);
}

static void answer(int fd, const Peer *p, const char *path, bool file) {
        CopyAnswer h = { .error = p->refuse && streq(path, p->refuse) ? -ENOSPC : 0 };
        static const char words[] = "No room here";
        struct iovec iov[2] = { { &h, sizeof(h) }, { (void *) words, sizeof(words) - 1 } };
        int ends[2] = { -1, -1 };

        if (file && h.error == 0)
                assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends));
        assert_ok(send_packet(fd, iov, h.error < 0 ? 2 : 1, &ends[1], ends[1] >= 0));
        safe_close(ends[1]);
        if (ends[0] >= 0 && !p->cut_streams)
                take_file(ends[0]);
        safe_close(ends[0]);
}

static void take_request(int fd, const Peer *p, uint8_t *packet, size_t size) {
        _cleanup_free_ char *path = NULL, *link = NULL;
        uint32_t mode = UINT32_MAX, parents = 0;
        CopyRequest h;
        uint64_t bytes;
        Tlv t;

        assert_true(size >= sizeof(h));
        memcpy(&h, packet, sizeof(h));
        TlvReader reader = TLV_READER_INIT(packet + sizeof(h), size - sizeof(h));
        while (tlv_next(&reader, &t) > 0)
                assert_ok(t.tag == AGENT_TAG_PATH ? tlv_get_str(&t, &path) :
                          t.tag == AGENT_TAG_LINK ? tlv_get_str(&t, &link) :
                          t.tag == AGENT_TAG_MODE ? tlv_get_u32(&t, &mode) :
                          t.tag == AGENT_TAG_PARENTS ? tlv_get_u32(&t, &parents) :
                          t.tag == AGENT_TAG_SIZE ? tlv_get_u64(&t, &bytes) : -EBADMSG);
        assert_true(path);
        if (h.type == AGENT_SYMLINK)
                note("link %s %s", path, link);
        else
                note("%s %s %o", h.type == AGENT_MKDIR && parents ? "directory" : "file", path, mode);
        answer(fd, p, path, h.type == AGENT_STREAM_WRITE);
        note("\n");
}

static void child(int source, int socket_fd, int error_fd, const char *to) {
        assert(dup2(source, STDIN_FILENO) >= 0 && dup2(error_fd, STDERR_FILENO) >= 0);
        assert(dup2(socket_fd, 10) >= 0 && dup2(10, 3) >= 0 && fd_set_cloexec(3, false) >= 0);
        (void) execl(TEST_CUBE_IMAGE, "cube-image", "copy-in", to, NULL);
        _exit(127);
}

/* Its exit status. */
static int copy(const TempDir *d, const char *source, const char *to, const Peer *p) {
        static uint8_t packet[sizeof(CopyRequest) + COPY_BODY_MAX];
        _cleanup_close_ int fd = openat(d->fd, source, O_RDONLY|O_CLOEXEC|O_NONBLOCK);
        int ends[2], errors[2], status;
        size_t n_fds;

        if (access(TEST_CUBE_IMAGE, X_OK) < 0)
                test_skip("cube-image is not built");
        memset(asked, 0, sizeof(asked));
        memset(told, 0, sizeof(told));
        assert_ok(fd);
        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends));
        assert_ok(pipe2(errors, O_CLOEXEC));
        pid_t pid = fork();
        if (pid == 0)
                child(fd, ends[1], errors[1], to);
        safe_close(ends[1]);
        safe_close(errors[1]);
        for (ssize_t n; (n = recv_packet(ends[0], packet, sizeof(packet), NULL, 0, &n_fds)) > 0;)
                take_request(ends[0], p, packet, (size_t) n);
        assert_eq(waitpid(pid, &status, 0), pid);
        assert_true(read(errors[0], told, sizeof(told) - 1) >= 0);
        safe_close(ends[0]);
        safe_close(errors[0]);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool was_asked(const char *line) {
        const char *found = strstr(asked, line);

        return found && (found == asked || found[-1] == '\n') && found[strlen(line)] == '\n';
}

static const Peer peer = {};

TEST(a_file_goes_to_its_path) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        static uint8_t data[200000];

        memset(data, 1, sizeof(data));
        temp_dir_write(&d, "f", data, sizeof(data));
        assert_ok(fchmodat(d.fd, "f", 04750, 0));
        assert_eq(copy(&d, "f", "/opt/tools/f", &peer), 0);
        assert_streq(asked, "directory /opt/tools 755\nfile /opt/tools/f 750 200000 200000\n");
        assert_eq(copy(&d, "f", "/f", &peer), 0);
        assert_streq(asked, "file /f 750 200000 200000\n");
}

TEST(a_tree_goes_with_modes_and_links) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        assert_ok(mkdirat(d.fd, "t", 0755));
        assert_ok(mkdirat(d.fd, "t/empty", 0755));
        assert_ok(mkdirat(d.fd, "t/sticky", 0755));
        assert_ok(fchmodat(d.fd, "t/sticky", 01777, 0));
        temp_dir_write(&d, "t/sticky/f", "ab", 2);
        assert_ok(symlinkat("../nowhere", d.fd, "t/empty/link"));
        assert_ok(symlinkat("sticky", d.fd, "t/to-directory"));
        assert_eq(copy(&d, "t", "/srv/t", &peer), 0);
        assert_true(was_asked("directory /srv 755") && was_asked("directory /srv/t 755"));
        assert_true(was_asked("directory /srv/t/empty 755") && was_asked("directory /srv/t/sticky 1777"));
        assert_true(was_asked("file /srv/t/sticky/f 644 2 195"));
        assert_true(was_asked("link /srv/t/empty/link ../nowhere") && was_asked("link /srv/t/to-directory sticky"));
        /* Not by way of the link. */
        assert_true(!strstr(asked, "to-directory/"));
}

TEST(what_is_no_file_fails_it) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        assert_ok(mkdirat(d.fd, "t", 0755));
        assert_ok(mkfifoat(d.fd, "t/pipe", 0644));
        assert_eq(copy(&d, "t", "/srv/t", &peer), 1);
        assert_streq(told, "cube-image: pipe: neither a file nor a directory nor a symbolic link\n");
        assert_eq(copy(&d, "t/pipe", "/pipe", &peer), 1);
        assert_true(strstr(told, "/pipe: neither"));
}

TEST(directories_without_end_fail_it) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char path[1024] = "";

        for (size_t i = 0; i < 200; i++) {
                strcat(path, i > 0 ? "/d" : "d");
                assert_ok(mkdirat(d.fd, path, 0755));
        }
        assert_eq(copy(&d, "d", "/d", &peer), 1);
        assert_true(strstr(told, "too many directories"));
}

TEST(what_the_guest_refuses_is_told_with_its_words) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        assert_ok(mkdirat(d.fd, "t", 0755));
        assert_ok(mkdirat(d.fd, "t/below", 0755));
        temp_dir_write(&d, "t/below/f", "ab", 2);
        assert_eq(copy(&d, "t", "/srv/t", &(Peer) { .refuse = "/srv/t/below/f" }), 1);
        assert_streq(told, "cube-image: below/f: No room here\n");
        assert_eq(copy(&d, "t", "/srv/t", &(Peer) { .refuse = "/srv/t" }), 1);
        assert_streq(told, "cube-image: /srv/t: No room here\n");
}

TEST(a_stream_that_breaks_fails_it) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        static uint8_t data[1000000];

        temp_dir_write(&d, "f", data, sizeof(data));
        assert_eq(copy(&d, "f", "/f", &(Peer) { .cut_streams = true }), 1);
        assert_true(strstr(told, "cube-image: /f: "));
}
