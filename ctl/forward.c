/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "ctl/ctl.h"
#include "ctl/relay.h"
#include "ctl/spec.h"

/* Connections at once; more wait in the backlog. Bounds descriptors and calls on the bus. */
#define CONNECTIONS_MAX 64U

typedef struct Forward {
        sd_bus *bus;
        sd_event *event;
        const char *id;
        uint16_t local, port;
        int listen_fd;
        sd_event_source *listen_source;
        unsigned n_connections;
        int result;
} Forward;

typedef struct Connecting {
        Forward *forward;
        int fd;
} Connecting;

static void forward_done(Forward *f) {
        sd_event_source_disable_unref(f->listen_source);
        safe_close(f->listen_fd);
        (void) sd_bus_detach_event(f->bus);
        sd_event_unref(f->event);
}

static void on_connection_ended(void *userdata) {
        Forward *f = userdata;
        f->n_connections--;
        (void) sd_event_source_set_enabled(f->listen_source, SD_EVENT_ON);
}

static int on_connected(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Connecting *c = userdata;
        Forward *f = c->forward;
        const sd_bus_error *e = sd_bus_message_get_error(m);
        int fd = TAKE_FD(c->fd), guest = -EBADF, r = 0;

        free(c);
        if (!e) {
                r = sd_bus_message_read(m, "h", &guest);
                guest = r >= 0 ? fcntl(guest, F_DUPFD_CLOEXEC, 3) : r;
        }
        if (guest < 0) {
                ctl_note("Connection to port %u of sandbox %s failed: %s", f->port, f->id, client_error_text(e, guest));
                safe_close(fd);
                on_connection_ended(f);
                if (sd_bus_error_has_name(e, BUS_ERROR_NO_SUCH_SANDBOX) ||
                    sd_bus_error_has_name(e, SD_BUS_ERROR_UNKNOWN_OBJECT)) {
                        f->result = -ENOENT;
                        (void) sd_event_exit(f->event, 0);
                }
                return 1;
        }
        if (relay_start(f->event, fd, guest, on_connection_ended, f) < 0)
                on_connection_ended(f);
        return 1;
}

static int on_accept(sd_event_source *s, int listen_fd, uint32_t revents, void *userdata) {
        Forward *f = userdata;
        char path[CUBE_BUS_PATH_MAX];

        _cleanup_close_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
                return 0;
        Connecting *c = new0(Connecting, 1);
        if (!c)
                return 0;

        *c = (Connecting) { .forward = f, .fd = TAKE_FD(fd) };
        int r = sd_bus_call_method_async(f->bus, NULL, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, f->id),
                                         CUBE_BUS_SANDBOX, "Connect", on_connected, c, "q", f->port);
        if (r < 0) {
                safe_close(c->fd);
                free(c);
                return ctl_fail(r, NULL, "call cubed");
        }
        if (++f->n_connections >= CONNECTIONS_MAX)
                (void) sd_event_source_set_enabled(f->listen_source, SD_EVENT_OFF);
        return 0;
}

static int match_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *id, *reason;
        Forward *f = userdata;

        if (sd_bus_message_read(m, "ssu", &id, &reason, NULL) < 0 || !streq(id, f->id))
                return 0;
        ctl_note("Sandbox %s ended: %s", id, reason);
        f->result = -ENOENT;
        return sd_event_exit(f->event, 0);
}

static int listen_on(Forward *f) {
        struct sockaddr_in sa = {
                .sin_family = AF_INET, .sin_port = htons(f->local), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        socklen_t size = sizeof(sa);

        f->listen_fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (f->listen_fd < 0)
                return -errno;
        (void) setsockopt(f->listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int) { 1 }, sizeof(int));
        if (bind(f->listen_fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 || listen(f->listen_fd, SOMAXCONN) < 0 ||
            getsockname(f->listen_fd, (struct sockaddr *) &sa, &size) < 0)
                return -errno;
        f->local = ntohs(sa.sin_port);
        return 0;
}

/* Says at once, not with the first connection, that there is no such sandbox. */
static int check_sandbox(Forward *f) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        int r = ctl_call(f->bus, NULL, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "GetSandbox", NULL, &error, "s", f->id);
        return r < 0 ? ctl_fail(r, &error, "forward to sandbox %s", f->id) : 0;
}

static int run_forward(Forward *f) {
        int r = listen_on(f);
        if (r < 0)
                return ctl_fail(r, NULL, "listen on 127.0.0.1:%u", f->local);

        r = sd_event_new(&f->event);
        if (r >= 0)
                r = sd_event_set_signal_exit(f->event, 1);
        if (r >= 0)
                r = sd_bus_attach_event(f->bus, f->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_bus_match_signal(f->bus, NULL, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "SandboxRemoved",
                                        match_removed, f);
        if (r >= 0)
                r = sd_event_add_io(f->event, &f->listen_source, f->listen_fd, EPOLLIN, on_accept, f);
        if (r < 0)
                return ctl_fail(r, NULL, "forward to sandbox %s", f->id);

        if (!ctl_options.quiet)
                ctl_note("127.0.0.1:%u leads to port %u of sandbox %s. End with Ctrl-C.", f->local, f->port, f->id);
        r = sd_event_loop(f->event);
        return r < 0 ? r : f->result;
}

int verb_forward(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        Forward f = { .listen_fd = -EBADF };
        sigset_t mask;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 2, 2);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r < 0)
                return r;
        if (spec_parse_forward(argv[optind + 1], &f.local, &f.port) < 0)
                return ctl_usage("'%s' is not [LOCAL:]PORT, with ports up to 65535.", argv[optind + 1]);
        f.id = argv[optind];

        r = ctl_connect_local(&f.bus);
        if (r >= 0)
                r = check_sandbox(&f);
        if (r < 0)
                return r;
        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        r = run_forward(&f);
        forward_done(&f);
        return r < 0 ? r : EXIT_SUCCESS;
}
