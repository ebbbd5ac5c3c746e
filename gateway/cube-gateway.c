/* SPDX-License-Identifier: Apache-2.0 */

/* cube-gateway: main. Speaks E2B's protocol to clients on one socket that systemd passes in, and D-Bus to cubed. */

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>

#include "gateway/builds.h"
#include "gateway/bus-keys.h"
#include "gateway/cubed.h"
#include "gateway/endings.h"
#include "gateway/image-fetch.h"
#include "gateway/ingress.h"
#include "gateway/log.h"
#include "gateway/refusals.h"
#include "gateway/uploads.h"

#define KEYS_FILE "keys.json"
#define HOST_KEY_NAME "host-key"
#define INGRESS_CONTROL "/run/cube-ingress/control"

typedef struct Arguments {
        const char *config, *state, *host_key, *new_host_key, *ingress, *fetch, *fetch_relay;
} Arguments;

static const char usage[] =
        "usage: cube-gateway [OPTION..]\n"
        "Serves E2B's API for the sandboxes of this host. Started by cube-gateway.socket; see cube-gateway(8).\n"
        "  --config=PATH        (/etc/cubed/gateway.conf)\n"
        "  --state=DIRECTORY    where the keys are ($STATE_DIRECTORY)\n"
        "  --host-key=PATH      what tokens are derived from ($CREDENTIALS_DIRECTORY/" HOST_KEY_NAME ")\n"
        "  --ingress=PATH       where haproxy is told the routes to sandboxes (" INGRESS_CONTROL ")\n"
        "  --fetch=PATH, --fetch-relay=PATH   who is asked for images (" FETCH_SOCKET "[-relay])\n"
        "  --new-host-key=PATH  makes one there, unless there is one, and ends\n"
        "  --version, --help\n";

/* 1: go on; 0: it has been answered. */
static int read_arguments(int argc, char *argv[], Arguments *ret) {
        enum { ARG_CONFIG = 256, ARG_STATE, ARG_HOST_KEY, ARG_NEW_HOST_KEY, ARG_INGRESS, ARG_FETCH, ARG_FETCH_RELAY, ARG_VERSION };
        static const struct option options[] = {
                { "config", required_argument, NULL, ARG_CONFIG },
                { "state", required_argument, NULL, ARG_STATE },
                { "host-key", required_argument, NULL, ARG_HOST_KEY },
                { "new-host-key", required_argument, NULL, ARG_NEW_HOST_KEY },
                { "ingress", required_argument, NULL, ARG_INGRESS },
                { "fetch", required_argument, NULL, ARG_FETCH },
                { "fetch-relay", required_argument, NULL, ARG_FETCH_RELAY },
                { "version", no_argument, NULL, ARG_VERSION },
                { "help", no_argument, NULL, 'h' },
                {},
        };
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                switch (c) {
                case ARG_CONFIG:
                        ret->config = optarg;
                        break;
                case ARG_STATE:
                        ret->state = optarg;
                        break;
                case ARG_HOST_KEY:
                        ret->host_key = optarg;
                        break;
                case ARG_NEW_HOST_KEY:
                        ret->new_host_key = optarg;
                        break;
                case ARG_INGRESS:
                        ret->ingress = optarg;
                        break;
                case ARG_FETCH:
                        ret->fetch = optarg;
                        break;
                case ARG_FETCH_RELAY:
                        ret->fetch_relay = optarg;
                        break;
                case ARG_VERSION:
                        puts("cube-gateway " CUBED_VERSION);
                        return 0;
                case 'h':
                        fputs(usage, stdout);
                        return 0;
                default:
                        return -EINVAL;
                }
        if (optind < argc) {
                fprintf(stderr, "cube-gateway: \"%s\" is no option; see cube-gateway --help\n", argv[optind]);
                return -EINVAL;
        }
        return 1;
}

static int make_host_key(const char *path) {
        int r = host_key_make(path);

        if (r < 0 && r != -EEXIST)
                return log_error_errno(r, "A key of this host could not be made at %s: %m", path);
        return 0;
}

static int cannot_start(int error, const char *format, ...) _printf_(2, 3);

/* It is the unit's status as well, by which cubectl learns why nobody answers. */
static int cannot_start(int error, const char *format, ...) {
        char why[1024];
        va_list ap;

        errno = abs(error);
        va_start(ap, format);
        (void) vsnprintf(why, sizeof(why), format, ap);
        va_end(ap);
        (void) sd_notifyf(false, "STATUS=%s", why);
        return log_full_errno(LOG_ERR, error, "%s", why);
}

static void warn_config(void *userdata, const char *path, unsigned line, const char *message) {
        if (line == 0)
                (void) cannot_start(0, "The configuration %s %s", path, message);
        else
                (void) log_full_errno(LOG_WARNING, 0, "%s:%u: %s, ignored", path, line, message);
}

static int path_in(const char *directory, const char *what, const char *name, char **ret) {
        if (isempty(directory))
                return cannot_start(-EINVAL, "There is no %s: start cube-gateway.service, or see cube-gateway --help", what);
        if (asprintf(ret, "%s/%s", directory, name) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int load_host_key(Gateway *g, const Arguments *a) {
        _cleanup_free_ char *path = NULL;

        int r = a->host_key ? (path = strdup(a->host_key)) ? 0 : -ENOMEM
                            : path_in(getenv("CREDENTIALS_DIRECTORY"), "credential " HOST_KEY_NAME, HOST_KEY_NAME, &path);
        if (r < 0)
                return r;
        r = host_key_load(path, &g->host_key);
        if (r < 0)
                return cannot_start(r, "The key of this host could not be read from %s: %m (put /var/lib/cubed/gateway.key back from "
                                       "a copy, or remove it: another one is made then, and all tokens change)", path);
        return 0;
}

/* Without keys it serves all the same, and lets nobody in: an end would only be followed by another start, for as long as
 * clients knock, and cubectl could not learn why. */
static int load_keys(Gateway *g, const Arguments *a) {
        _cleanup_free_ char *path = NULL;

        int r = path_in(a->state ?: getenv("STATE_DIRECTORY"), "state directory", KEYS_FILE, &path);
        if (r < 0)
                return r;
        r = keys_load(path, &g->keys);
        if (r >= 0)
                return 0;
        if (asprintf(&g->keys_error, "%s %s%s: %s; then 'systemctl restart cube-gateway'", path,
                     r == -EBADMSG ? "is damaged" : "could not be read: ", r == -EBADMSG ? "" : strerror(-r),
                     r == -EACCES ? "make it readable for user cube-gateway"
                                  : "put it back from a copy, or remove it and make new keys") < 0) {
                g->keys_error = NULL;
                return cannot_start(-ENOMEM, "The API keys could not be read from %s: %m", path);
        }
        (void) log_full_errno(LOG_ERR, 0, "Nobody is let in: %s", g->keys_error);
        return 0;
}

static int open_uploads(Gateway *g, const Arguments *a) {
        const char *state = a->state ?: getenv("STATE_DIRECTORY");

        int r = uploads_open(state, &g->files_fd, &g->builds_fd);
        return r < 0 ? cannot_start(r, "What clients upload could not be kept in %s: %m", state) : 0;
}

static int load_all(Gateway *g, const Arguments *a) {
        config_init(&g->config);
        int r = config_load(&g->config, a->config, warn_config, NULL);
        if (r >= 0)
                r = load_host_key(g, a);
        if (r >= 0)
                r = load_keys(g, a);
        return r < 0 ? r : open_uploads(g, a);
}

static int passed_socket(int *ret) {
        int n = sd_listen_fds(true);

        if (n != 1 || sd_is_socket(SD_LISTEN_FDS_START, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
                return cannot_start(-EINVAL, "One listening socket is to be passed in, %d were: start cube-gateway.socket", n);
        *ret = SD_LISTEN_FDS_START;
        return 0;
}

static int start(Gateway *g, int listen_fd, const char *ingress) {
        int r = sd_event_new(&g->event);

        if (r >= 0)
                r = sd_event_set_signal_exit(g->event, true);
        if (r >= 0)
                r = sd_event_set_watchdog(g->event, true);
        if (r >= 0)
                r = sd_bus_open_system(&g->bus);
        if (r >= 0)
                r = sd_bus_attach_event(g->bus, g->event, 0);
        /* stop() has something left to say. */
        if (r >= 0)
                r = sd_bus_set_close_on_exit(g->bus, false);
        /* Without a bus there is nothing to do: systemd starts us again. */
        if (r >= 0)
                r = sd_bus_set_exit_on_disconnect(g->bus, true);
        if (r >= 0)
                r = cubed_new(g->bus, &g->cubed);
        if (r >= 0)
                r = endings_new(g->bus, &g->endings);
        if (r >= 0)
                r = refusals_new(g->event, &g->refusals);
        if (r >= 0)
                r = metrics_new(&g->metrics);
        if (r >= 0)
                r = builds_new(g, &g->builds);
        if (r >= 0)
                r = uploads_sweep_hourly(g->event, g->files_fd, g->builds_fd, &g->sweep);
        if (r < 0) {
                safe_close(listen_fd);
                return cannot_start(r, "The system bus could not be reached: %m");
        }
        r = bus_keys_new(g, &g->bus_keys);
        if (r < 0) {
                safe_close(listen_fd);
                return cannot_start(r, "The name " GATEWAY_BUS_NAME " could not be taken on the bus: %m");
        }
        r = ingress_new(g, ingress, &g->ingress);
        if (r < 0) {
                safe_close(listen_fd);
                return cannot_start(r, "What becomes of sandboxes could not be followed: %m");
        }
        r = gateway_listen(g, listen_fd);
        return r < 0 ? cannot_start(r, "HTTP could not be served on the socket: %m") : 0;
}

static void stop(Gateway *g) {
        http_server_free(g->http);
        refusals_free(g->refusals);
        ingress_free(g->ingress);
        bus_keys_free(g->bus_keys);
        builds_free(g->builds);
        endings_free(g->endings);
        cubed_free(g->cubed);
        metrics_free(g->metrics);
        keys_free(g->keys);
        free(g->keys_error);
        sd_bus_flush_close_unref(g->bus);
        sd_event_source_disable_unref(g->sweep);
        sd_event_unref(g->event);
        safe_close(g->files_fd);
        safe_close(g->builds_fd);
        explicit_bzero(&g->host_key, sizeof(g->host_key));
}

static int run(const Arguments *a) {
        Gateway g = { .uid = geteuid(), .files_fd = -EBADF, .builds_fd = -EBADF, .fetch_socket = a->fetch,
                      .fetch_relay_socket = a->fetch_relay };
        int listen_fd = -EBADF;

        int r = load_all(&g, a);
        if (r >= 0)
                r = passed_socket(&listen_fd);
        /* Another start would come to the same. */
        int status = r < 0 ? EX_CONFIG : EXIT_FAILURE;
        if (r >= 0)
                r = start(&g, listen_fd, a->ingress);
        if (r >= 0) {
                (void) sd_notifyf(false, "READY=1\nSTATUS=%s", g.keys_error ?: "");
                r = sd_event_loop(g.event);
        }
        (void) sd_notify(false, "STOPPING=1");
        stop(&g);
        /* A bus that has gone ends the loop with a status of its own. */
        return r != 0 ? status : EXIT_SUCCESS;
}

int main(int argc, char *argv[]) {
        Arguments a = { .config = "/etc/cubed/gateway.conf", .ingress = INGRESS_CONTROL, .fetch = FETCH_SOCKET,
                        .fetch_relay = FETCH_RELAY_SOCKET };

        log_open();
        (void) signal(SIGPIPE, SIG_IGN);
        int r = read_arguments(argc, argv, &a);
        if (r <= 0)
                return r < 0 ? EX_USAGE : EXIT_SUCCESS;
        if (!a.new_host_key)
                return run(&a);
        return make_host_key(a.new_host_key) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
