/* SPDX-License-Identifier: Apache-2.0 */
/* cube-agent without a guest: the same code as an ordinary process, PID 1 of a pid namespace of its
 * own. Unix sockets in the directory given stand for vsock (the test listens on control.sock, the
 * agent on stream.sock), and what the agent would do to its machine is written to machine.log. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/parse.h"
#include "guest/agent.h"
#include "guest/machine.h"
#include "guest/transport.h"

static const char *directory;

static struct sockaddr_un address(const char *name) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", directory, name);
        assert(n > 0 && (size_t) n < sizeof(sa.sun_path));
        return sa;
}

int transport_listen(int *ret_fd) {
        struct sockaddr_un sa = address("stream.sock");

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (bind(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 || listen(fd, SOMAXCONN) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int transport_accept(int listen_fd, int *ret_fd) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int transport_connect(int *ret_fd) {
        struct sockaddr_un sa = address("control.sock");

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 1;
}

static int record(const char *format, ...) _printf_(1, 2);

static int record(const char *format, ...) {
        char path[4096];
        va_list ap;

        snprintf(path, sizeof(path), "%s/machine.log", directory);
        FILE *f = fopen(path, "ae");
        if (!f)
                return -errno;
        va_start(ap, format);
        vfprintf(f, format, ap);
        va_end(ap);
        fclose(f);
        return 0;
}

int machine_set_time(uint64_t realtime_nsec) {
        return record("time %llu\n", (unsigned long long) realtime_nsec);
}

int machine_add_entropy(const void *data, size_t size) {
        return record("entropy %zu\n", size);
}

int machine_set_hostname(const char *name) {
        return record("hostname %s\n", name);
}

int machine_set_nameservers(const char *text) {
        return record("%s", text);
}

int machine_set_e2b(const char *sandbox, const char *template) {
        return record("e2b %s %s\n", sandbox, template);
}

int machine_set_cpus(uint32_t n, char ret_message[static MACHINE_MESSAGE_MAX]) {
        if (n > 16) {
                snprintf(ret_message, MACHINE_MESSAGE_MAX, "CPU 16 of %u did not come online", n);
                return -ENOENT;
        }
        return record("cpus %u\n", n);
}

int machine_grow_disk(uint64_t max_bytes) {
        return record("disk %llu\n", (unsigned long long) max_bytes);
}

int machine_disk_fd(void) {
        return -EBADF;
}

/* A file freeze-error makes it fail with what is in it; a FIFO freeze-wait holds it until somebody writes. */
int machine_freeze(bool disk) {
        char path[4096], text[16] = "";

        record("freeze %d\n", disk);
        snprintf(path, sizeof(path), "%s/freeze-wait", directory);
        _cleanup_close_ int wait_fd = open(path, O_RDONLY|O_CLOEXEC);
        if (wait_fd >= 0)
                (void) !read(wait_fd, text, 1);

        snprintf(path, sizeof(path), "%s/freeze-error", directory);
        _cleanup_close_ int error_fd = open(path, O_RDONLY|O_CLOEXEC);
        if (error_fd < 0 || read(error_fd, text, sizeof(text) - 1) <= 0)
                return 0;
        return -atoi(text);
}

int machine_thaw(void) {
        return record("thaw\n");
}

void machine_poweroff(void) {
        record("poweroff\n");
        exit(EXIT_SUCCESS);
}

/* What root has in his home on this machine is not a guest's: his shells may wait for what one left that a test has killed, and
 * what a guest writes there would stay. In our own mount namespace, and not where a test took the right away, nor where its
 * own files lie in there. */
static void hide_home(void) {
        if (!startswith(directory, "/root/"))
                (void) mount("tmpfs", "/root", "tmpfs", MS_NODEV, "mode=0700");
}

/* So long that no hook is ended by it, but where the test says how long. */
static uint64_t hooks_usec(void) {
        const char *text = getenv("CUBE_HOOKS_SEC");
        uint64_t sec = 60;

        if (text && parse_u64(text, &sec) < 0)
                abort();
        return sec * USEC_PER_SEC;
}

int main(int argc, char *argv[]) {
        /* It signals every process that it can see when it powers off. */
        if (getpid() != 1 || argc < 2) {
                fprintf(stderr, "usage: unshare --fork --pid --mount-proc %s DIRECTORY [loopback]\n", argv[0]);
                return EXIT_FAILURE;
        }

        directory = argv[1];
        hide_home();
        char hooks[4096];
        snprintf(hooks, sizeof(hooks), "%s/fork.d", directory);
        int r = agent_run(hooks, hooks_usec(), argc > 2 && streq(argv[2], "loopback"));
        if (r < 0) {
                fprintf(stderr, "agent: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        machine_poweroff();
}
