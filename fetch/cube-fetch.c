/* SPDX-License-Identifier: Apache-2.0 */

/* cube-fetch: brings one image from a registry, for cube-gateway. systemd starts one for each connection to its socket, with a
 * user, a /var/tmp and a network of its own that has nothing but loopback.
 *
 * skopeo does the work. Its only way out is a port of that loopback, behind which cube-fetch-relay listens: an image, or a
 * registry, that makes skopeo do something else reaches no more by it. The image goes with the connection. */

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "base/work-directory.h"
#include "fetch/fetch-proto.h"
#include "fetch/fetch-request.h"
#include "fetch/skopeo-command.h"

#define AUTHFILE "auth.json"
#define RELAY_BACKLOG 64
/* So often it is looked at how large the image is by now. */
#define LOOK_MSEC 250
#define REQUEST_MSEC 30000
/* Of Linux, where nobody says otherwise. */
#define PIPE_SIZE 65536U

typedef struct Fetch {
        int link_fd, relay_fd;
        FetchRequest request;
        char *directory;
        int directory_fd;
        uint16_t port;             /* of the relay */
        pid_t pid;                 /* of skopeo; 0: it does not run */
        int pid_fd, output_fd;
} Fetch;

static int say(const Fetch *f, char kind, const char *text, size_t size, int fd) {
        const struct iovec iov[] = { { &kind, 1 }, { (char *) text, size } };

        return send_packet(f->link_fd, iov, ELEMENTSOF(iov), &fd, fd >= 0 ? 1 : 0);
}

/* For whoever wants the image, and for the journal. */
static _printf_(2, 3) int fail(const Fetch *f, const char *format, ...) {
        char text[512];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        fprintf(stderr, "%s\n", text);
        (void) say(f, FETCH_FAILED, text, strlen(text), -EBADF);
        return -EIO;
}

static void end_skopeo(Fetch *f) {
        if (f->pid <= 0)
                return;
        (void) kill(f->pid, SIGKILL);
        (void) waitpid(f->pid, NULL, 0);
        f->pid = 0;
}

static void fetch_done(Fetch *f) {
        end_skopeo(f);
        fetch_request_done(&f->request);
        safe_close(f->pid_fd);
        safe_close(f->output_fd);
        safe_close(f->relay_fd);
        safe_close(f->directory_fd);
        f->directory = work_directory_remove(f->directory);
        safe_close(f->link_fd);
}

static int receive(Fetch *f) {
        _cleanup_free_ char *packet = malloc(FETCH_PACKET_MAX);
        struct pollfd p = { .fd = f->link_fd, .events = POLLIN };
        size_t n_fds = 0;

        if (!packet)
                return -ENOMEM;
        if (poll(&p, 1, REQUEST_MSEC) <= 0)
                return -ETIMEDOUT;
        ssize_t n = recv_packet(f->link_fd, packet, FETCH_PACKET_MAX, &f->relay_fd, 1, &n_fds);
        if (n_fds == 0)
                f->relay_fd = -EBADF;
        if (n <= 0)
                return n < 0 ? (int) n : -ECONNRESET;
        int r = *packet == FETCH_IMAGE && n_fds == 1 ? fetch_request_parse(packet + 1, (size_t) n - 1, &f->request) : -EBADMSG;
        explicit_bzero(packet, (size_t) n);
        return r;
}

/* The port that is the relay's from then on. */
static int give_listener(Fetch *f) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        const struct iovec iov = { (char[]) { FETCH_LISTENER }, 1 };
        socklen_t size = sizeof(address);

        if (fd < 0 || bind(fd, (struct sockaddr *) &address, size) < 0 || listen(fd, RELAY_BACKLOG) < 0 ||
            getsockname(fd, (struct sockaddr *) &address, &size) < 0)
                return -errno;
        f->port = ntohs(address.sin_port);
        return send_packet(f->relay_fd, &iov, 1, &fd, 1);
}

static int make_directory(Fetch *f) {
        int r = work_directory_make("cube-fetch", &f->directory);

        if (r < 0)
                return r;
        f->directory_fd = open(f->directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
        return f->directory_fd < 0 ? -errno : fetch_request_write_auth(&f->request, f->directory_fd, AUTHFILE);
}

static void child_environment(const Fetch *f) {
        static const char *const ways[] = { "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy" };
        static const char *const exceptions[] = { "NO_PROXY", "no_proxy" };
        char proxy[40];

        (void) snprintf(proxy, sizeof(proxy), "socks5://127.0.0.1:%u", f->port);
        for (size_t i = 0; i < ELEMENTSOF(ways); i++)
                (void) setenv(ways[i], proxy, true);
        for (size_t i = 0; i < ELEMENTSOF(exceptions); i++)
                (void) unsetenv(exceptions[i]);
        /* One that is killed leaves something; and settings of its user's there are none. */
        (void) setenv("TMPDIR", f->directory, true);
        (void) setenv("HOME", f->directory, true);
}

static _noreturn_ void child_run(const Fetch *f, const char *const *argv, int output_fd, pid_t parent) {
        /* One file alone does not get past it between two looks. */
        const struct rlimit limit = { f->request.bytes_max, f->request.bytes_max };
        int null = open("/dev/null", O_RDONLY|O_CLOEXEC);

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (getppid() == parent && dup2(null, STDIN_FILENO) >= 0 && dup2(output_fd, STDOUT_FILENO) >= 0 &&
            dup2(output_fd, STDERR_FILENO) >= 0 && setrlimit(RLIMIT_FSIZE, &limit) >= 0) {
                child_environment(f);
                (void) execvp(argv[0], (char *const *) argv);
                fprintf(stderr, "%s: %s\n", argv[0], errno == ENOENT ? "not found: install the package of this name" : strerror(errno));
        }
        _exit(127);
}

static char *join(const char *a, const char *b) {
        char *s;

        return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

static int start_skopeo(Fetch *f) {
        _cleanup_(skopeo_command_done) SkopeoCommand command = {};
        _cleanup_free_ char *ref = join("docker://", f->request.name), *auth = join(f->directory, "/" AUTHFILE);
        _cleanup_close_ int write_fd = -EBADF;
        pid_t self = getpid();
        int fds[2];

        if (!ref || !auth)
                return -ENOMEM;
        int r = skopeo_command_init(&command, ref, f->directory, &(SkopeoOptions) { .authfile = auth });
        if (r < 0)
                return r;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        f->output_fd = fds[0];
        write_fd = fds[1];
        pid_t pid = fork();
        if (pid == 0)
                child_run(f, command.argv, write_fd, self);
        if (pid < 0)
                return -errno;
        f->pid = pid;
        f->pid_fd = (int) syscall(SYS_pidfd_open, f->pid, 0);
        return f->pid_fd < 0 ? -errno : 0;
}

static bool too_large(const Fetch *f) {
        return work_directory_size(f->directory) > f->request.bytes_max;
}

static int fail_too_large(const Fetch *f) {
        char most[FORMAT_SIZE_MAX];

        return fail(f, "%s has more than %s, which is the most that this host takes (ImageMax=)", f->request.name,
                    format_size(most, f->request.bytes_max));
}

/* Of what it prints. 0: that was the last of it. */
static ssize_t pass_output(const Fetch *f) {
        char text[FETCH_TEXT_MAX];
        ssize_t n = read(f->output_fd, text, sizeof(text));

        if (n > 0 && say(f, FETCH_LOG, text, (size_t) n, -EBADF) < 0)
                return -ECONNRESET;
        return n;
}

/* What is still in the pipe, and no more: who was started by skopeo and is not gone with it may write on, or say nothing. */
static int pass_rest(const Fetch *f) {
        int r = fd_set_nonblock(f->output_fd, true);

        for (unsigned i = 0; r >= 0 && i < PIPE_SIZE / FETCH_TEXT_MAX && pass_output(f) > 0; i++)
                ;
        return r;
}

static int skopeo_ended(Fetch *f) {
        int status, r = pass_rest(f);

        if (r < 0)
                return r;
        pid_t pid = f->pid;
        f->pid = 0;
        if (waitpid(pid, &status, 0) < 0)
                return -errno;
        if (too_large(f))
                return fail_too_large(f);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return fail(f, "%s could not be fetched, the log says why", f->request.name);
        return 0;
}

/* Until it has ended, or nobody wants the image any more. */
static int follow_skopeo(Fetch *f) {
        struct pollfd p[] = {
                { .fd = f->link_fd, .events = POLLIN }, { .fd = f->pid_fd, .events = POLLIN }, { .fd = f->output_fd, .events = POLLIN },
        };

        for (;;) {
                int n = poll(p, ELEMENTSOF(p), LOOK_MSEC);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0 && p[0].revents)
                        return -ECONNRESET;
                if (n > 0 && p[1].revents)
                        return skopeo_ended(f);
                if (n > 0 && p[2].revents && pass_output(f) <= 0)
                        p[2].fd = -EBADF;
                if (too_large(f))
                        return fail_too_large(f);
        }
}

static int hand_over(Fetch *f) {
        _cleanup_close_ int layout_fd = openat(f->directory_fd, SKOPEO_LAYOUT, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
        struct pollfd p = { .fd = f->link_fd, .events = POLLIN };

        if (layout_fd < 0)
                return -errno;
        int r = say(f, FETCH_DONE, "", 0, layout_fd);
        while (r >= 0 && poll(&p, 1, -1) < 0)
                if (errno != EINTR)
                        r = -errno;
        return r;
}

static int bring(Fetch *f) {
        int r = make_directory(f);

        if (r >= 0)
                r = give_listener(f);
        if (r >= 0)
                r = start_skopeo(f);
        if (r < 0)
                return fail(f, "skopeo could not be started: %s", strerror(-r));
        r = follow_skopeo(f);
        (void) unlinkat(f->directory_fd, AUTHFILE, 0);
        /* It has nothing left to do. */
        f->relay_fd = safe_close(f->relay_fd);
        return r < 0 ? r : hand_over(f);
}

int main(int argc, char *argv[]) {
        _cleanup_(fetch_done) Fetch f = { .link_fd = SD_LISTEN_FDS_START, .relay_fd = -EBADF, .directory_fd = -EBADF, .pid_fd = -EBADF,
                                          .output_fd = -EBADF };

        if (sd_listen_fds(true) != 1 || sd_is_socket_unix(f.link_fd, SOCK_SEQPACKET, 0, NULL, 0) <= 0) {
                fprintf(stderr, "One connection is to be passed in: start cube-fetch.socket; see cube-fetch(8)\n");
                f.link_fd = -EBADF;
                return EXIT_FAILURE;
        }
        (void) fd_set_cloexec(f.link_fd, true);
        /* What it brings is read by whoever is given it. */
        (void) umask(0022);
        int r = receive(&f);
        if (r < 0) {
                fprintf(stderr, "What was asked for could not be read: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        /* One that failed is told to who asked, and is nothing that this service has done wrong. */
        (void) bring(&f);
        return EXIT_SUCCESS;
}
