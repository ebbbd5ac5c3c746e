/* SPDX-License-Identifier: Apache-2.0 */

/* haproxy in front of cube-gateway and of its sandboxes: sets it up, says how it is, and what clients have to be told. */

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/ingress-files.h"
#include "ctl/program.h"

#define HTTP_PORT 3000
#define HTTPS_PORT 8443
#define CONTROL "/run/cube-ingress/control"
#define ROUTES_MAX (64U * 1024U * 1024U)

enum { INGRESS_DOMAIN = CTL_OPTION_VERB, INGRESS_LISTEN, INGRESS_LISTEN_PLAIN, INGRESS_ROOT, INGRESS_HEADERS };

typedef struct Options {
        IngressSpec spec;
        const char *root;          /* "": this host */
        bool headers;
} Options;

/* Options, each for some of the words. */

static int take_domain(Options *o, const char *s) {
        if (!ingress_domain_valid(s))
                return ctl_usage("'%s' is no domain that sandboxes can have names below: small letters, digits, - and at least one dot.", s);
        strcpy(o->spec.domain, s);
        return 0;
}

static int take_address(char ret[static INGRESS_ADDRESS_MAX], const char *s, uint16_t port) {
        return ingress_address_parse(s, port, ret) < 0 ? ctl_usage("'%s' is no address: ADDRESS[:PORT], [ADDRESS6][:PORT] or PORT.", s) : 0;
}

static int take_root(Options *o, const char *s) {
        if (*s != '/')
                return ctl_usage("--root= takes a path from /.");
        o->root = streq(s, "/") ? "" : s;
        return 0;
}

static int take_option(Options *o, int c, const char *word) {
        bool setup = streq(word, "setup");

        if (c == INGRESS_DOMAIN && setup)
                return take_domain(o, optarg);
        if (c == INGRESS_LISTEN && setup)
                return take_address(o->spec.https, optarg, HTTPS_PORT);
        if (c == INGRESS_LISTEN_PLAIN && setup)
                return take_address(o->spec.http, optarg, HTTP_PORT);
        if (c == INGRESS_HEADERS && streq(word, "env")) {
                o->headers = true;
                return 0;
        }
        if (c == INGRESS_ROOT && !streq(word, "status"))
                return take_root(o, optarg);
        return c >= INGRESS_DOMAIN && c <= INGRESS_HEADERS ? ctl_usage("'ingress %s' has no such option.", word) : ctl_global_option(c);
}

static int parse(int argc, char **argv, Options *o) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "domain", required_argument, NULL, INGRESS_DOMAIN },
                { "listen", required_argument, NULL, INGRESS_LISTEN },
                { "listen-plain", required_argument, NULL, INGRESS_LISTEN_PLAIN },
                { "root", required_argument, NULL, INGRESS_ROOT },
                { "headers", no_argument, NULL, INGRESS_HEADERS },
                {},
        };
        int c;

        *o = (Options) { .root = "" };
        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                int r = take_option(o, c, argv[0]);
                if (r < 0)
                        return r;
        }
        return ctl_check_arguments(argc, argv, 0, 0);
}

static int read_spec(Options *o) {
        int r = ingress_files_read(o->root, &o->spec);

        if (r == -ENOENT)
                return ctl_fail_text(r, "there is none here; make one: cubectl ingress setup", "find the ingress");
        if (r >= 0 && !*o->spec.http)
                (void) ingress_address_parse("127.0.0.1", HTTP_PORT, o->spec.http);
        return r;
}

/* For clients. */

static void print_host(const char *address) {
        int n = (int) (ingress_address_port(address) - address) - 1;

        /* One that listens everywhere does so here. */
        if (startswith(address, "0.0.0.0:") || startswith(address, "[::]:"))
                printf("127.0.0.1");
        else
                printf("%.*s", n, address);
        printf(":%s\n", ingress_address_port(address));
}

static void print_environment(const Options *o) {
        const char *port = ingress_address_port(o->spec.https);

        if (*o->spec.domain && !o->headers) {
                printf("export E2B_DOMAIN=%s%s%s\n", o->spec.domain, streq(port, "443") ? "" : ":", streq(port, "443") ? "" : port);
                printf("export SSL_CERT_FILE=%s%s\n", o->root, INGRESS_CA);
                printf("export NODE_EXTRA_CA_CERTS=%s%s\n", o->root, INGRESS_CA);
                return;
        }
        printf("export E2B_API_URL=http://");
        print_host(o->spec.http);
        printf("export E2B_SANDBOX_URL=http://");
        print_host(o->spec.http);
}

static int ingress_env(int argc, char **argv) {
        Options o;

        int r = parse(argc, argv, &o);
        if (r >= 0)
                r = read_spec(&o);
        if (r < 0)
                return r;
        print_environment(&o);
        return fflush(stdout) == 0 ? 0 : -EIO;
}

/* A port that another program has: haproxy does not start then. */

static bool address_is_taken(const char *address) {
        const struct addrinfo hints = {
                .ai_flags = AI_NUMERICHOST|AI_NUMERICSERV|AI_PASSIVE, .ai_socktype = SOCK_STREAM,
        };
        char host[INGRESS_ADDRESS_MAX];
        struct addrinfo *a;
        int on = 1;

        bool v6 = *address == '[';
        (void) snprintf(host, sizeof(host), "%.*s", (int) (ingress_address_port(address) - address) - 1 - 2 * v6, address + v6);
        if (getaddrinfo(host, ingress_address_port(address), &hints, &a) != 0)
                return false;
        _cleanup_close_ int fd = socket(a->ai_family, SOCK_STREAM|SOCK_CLOEXEC, 0);
        bool taken = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) >= 0 &&
                     bind(fd, a->ai_addr, a->ai_addrlen) < 0 && errno == EADDRINUSE;
        freeaddrinfo(a);
        return taken;
}

static void tell_taken(const char *address) {
        if (*address && address_is_taken(address))
                ctl_note("Another program listens on %s: 'ss -ltnp sport = :%s' shows which. End it, or take another port with 'cubectl "
                         "ingress setup', and start again: systemctl restart cube-ingress", address, ingress_address_port(address));
}

static void tell_all_taken(const IngressSpec *s) {
        tell_taken(s->http);
        tell_taken(s->https);
}

/* Setting it up. */

static int start_services(void) {
        static const char *const enable[] = {
                "systemctl", "--quiet", "enable", "cube-gateway.socket", "cube-ingress.service", NULL,
        };
        static const char *const forget[] = {
                "systemctl", "reset-failed", "cube-gateway.socket", "cube-gateway.service", "cube-ingress.service", NULL,
        };
        static const char *const again[] = { "systemctl", "try-restart", "cube-gateway.service", NULL };
        static const char *const listen[] = { "systemctl", "start", "cube-gateway.socket", NULL };
        static const char *const start[] = { "systemctl", "restart", "cube-ingress.service", NULL };

        int r = program_run(enable);
        /* They may have been given up, by limits that would count on. */
        if (r >= 0)
                r = program_run(forget);
        if (r >= 0)
                r = program_run(listen);
        if (r >= 0)
                r = program_run(again);
        return r < 0 ? r : program_run(start);
}

static void tell(const IngressSpec *s) {
        if (!ingress_address_is_loopback(s->http))
                ctl_note("Without TLS keys and all else can be read and changed on the way to %s.", s->http);
        if (*s->domain)
                ctl_note("The names %s and *.%s have to lead to where %s is.", s->domain, s->domain, s->https);
}

static int ingress_setup(int argc, char **argv) {
        Options o;

        int r = parse(argc, argv, &o);
        if (r < 0)
                return r;
        if (*o.spec.https && !*o.spec.domain)
                return ctl_usage("TLS is for names: --listen= needs --domain=.");
        if (!*o.spec.http)
                r = take_address(o.spec.http, "127.0.0.1", HTTP_PORT);
        if (r >= 0 && *o.spec.domain && !*o.spec.https)
                r = take_address(o.spec.https, "127.0.0.1", HTTPS_PORT);
        if (r >= 0 && ingress_addresses_collide(o.spec.http, o.spec.https))
                r = ctl_usage("%s and %s collide: --listen= (TLS) and --listen-plain= (without) need a port each.", o.spec.https, o.spec.http);
        /* The gateway and clients, which are not root, read what is made here. */
        (void) umask(0022);
        if (r >= 0)
                r = ingress_files_write(o.root, &o.spec);
        if (r >= 0 && *o.spec.domain)
                r = ingress_certificate_make(o.root, o.spec.domain);
        if (r >= 0 && !*o.root) {
                r = start_services();
                if (r < 0)
                        tell_all_taken(&o.spec);
        }
        if (r < 0)
                return r;
        tell(&o.spec);
        print_environment(&o);
        return fflush(stdout) == 0 ? 0 : -EIO;
}

static int ingress_remove(int argc, char **argv) {
        static const char *const stop[] = { "systemctl", "--quiet", "disable", "--now", "cube-ingress.service", NULL };
        static const char *const again[] = { "systemctl", "try-restart", "cube-gateway.service", NULL };
        Options o;

        int r = parse(argc, argv, &o);
        if (r >= 0 && !*o.root)
                r = program_run(stop);
        if (r >= 0)
                r = ingress_files_remove(o.root);
        return r < 0 || *o.root ? r : program_run(again);
}

/* How it is. */

static int ask_haproxy(char **ret) {
        const struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = CONTROL };
        static const char question[] = "show map /dev/null\n";

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *) &sa, sizeof(sa)) < 0)
                return -errno;
        int r = write_full(fd, question, strlen(question));
        return r < 0 ? r : read_whole(fd, ROUTES_MAX, ret, NULL);
}

static void print_routes(void) {
        _cleanup_free_ char *text = NULL;
        bool ready = false;
        unsigned n = 0;

        int r = ask_haproxy(&text);
        if (r < 0) {
                printf("   Routes: not known (%s)\n", strerror(-r));
                return;
        }
        for (char *at = text, *line; (line = strsep(&at, "\n"));) {
                if (strstr(line, " -ready "))
                        ready = true;
                else if (*line)
                        n++;
        }
        explicit_bzero(text, strlen(strempty(text)));
        if (ready)
                printf("   Routes: %u\n", n);
        else
                printf("   Routes: none was told yet, by cube-gateway.service\n");
}

/* Is it up? */
static bool print_state(sd_bus *bus, const char *what, const char *unit, const char *unit_path) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *state = NULL;

        int r = sd_bus_get_property_string(bus, "org.freedesktop.systemd1", unit_path, "org.freedesktop.systemd1.Unit", "ActiveState",
                                           &error, &state);
        printf("%s %s", what, r < 0 ? "not known" : state);
        if (r >= 0 && (streq(state, "failed") || streq(state, "activating")))
                printf(" ('journalctl -u %s' says why)", unit);
        printf("\n");
        return r >= 0 && streq(state, "active");
}

static int ingress_status(int argc, char **argv) {
        sd_bus *bus;
        Options o;

        int r = parse(argc, argv, &o);
        if (r >= 0)
                r = read_spec(&o);
        if (r >= 0)
                r = ctl_connect_local(&bus);
        if (r < 0)
                return r;
        printf("   Domain: %s\n", *o.spec.domain ? o.spec.domain : "none, by headers only");
        printf("     HTTP: %s\n", o.spec.http);
        if (*o.spec.https)
                printf("    HTTPS: %s\n", o.spec.https);
        bool up = print_state(bus, "  haproxy:", "cube-ingress", "/org/freedesktop/systemd1/unit/cube_2dingress_2eservice");
        (void) print_state(bus, "  Gateway:", "cube-gateway", "/org/freedesktop/systemd1/unit/cube_2dgateway_2eservice");
        print_routes();
        if (!up)
                tell_all_taken(&o.spec);
        return fflush(stdout) == 0 ? 0 : -EIO;
}

int verb_ingress(int argc, char **argv) {
        static const CtlWord words[] = {
                { "setup", ingress_setup },
                { "env", ingress_env },
                { "status", ingress_status },
                { "remove", ingress_remove },
        };

        return ctl_word(argc, argv, words, ELEMENTSOF(words), "status", "setup, env, status or remove");
}
