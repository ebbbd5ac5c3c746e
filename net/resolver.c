/* SPDX-License-Identifier: Apache-2.0 */

/* cube-resolver: the DNS server of all guests.
 *
 * One thread on sd-event, without privileges. It listens on sockets that cube-netd gave it, asks the host's own name
 * servers, and writes the addresses that an allowed name led to into a map of the filter before it lets the answer
 * out. cube-netd may come and go meanwhile. */

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <systemd/sd-daemon.h>

#include "base/parse.h"
#include "net/resolver-confine.h"
#include "net/resolver-private.h"
#include "net/resolver-proto.h"

#define GIVE_UP_MAX_USEC (3600 * USEC_PER_SEC)

static const ResolverConfig defaults = {
        .socket = RESOLVER_SOCKET,
        .upstream = {
                .resolv_conf = "/etc/resolv.conf",
                .port = 53,
                .try_usec = 2 * USEC_PER_SEC,
                .give_up_usec = 8 * USEC_PER_SEC,
        },
        .ttl_min = 60,
        .ttl_max = 3600,
        .rate = 200,
        .queries_max = 2048,
        .sandbox_queries_max = 64,
        .tcp_max = 512,
        .sandbox_tcp_max = 8,
        .tcp_idle_usec = 10 * USEC_PER_SEC,
};

static const char usage[] =
        "usage: cube-resolver [OPTION..]\n"
        "The DNS server of sandboxes. Started by cube-resolver.service; see cube-resolver(8).\n"
        "  --socket=PATH        of cube-netd (" RESOLVER_SOCKET ")\n"
        "  --resolv-conf=PATH   names the servers that are asked (/etc/resolv.conf)\n"
        "  --ttl-min=SECONDS    an answer opens its addresses so long at least (60)\n"
        "  --ttl-max=SECONDS    and so long at most (3600)\n"
        "  --rate=N             queries a second of one sandbox (200)\n"
        "  --try-timeout=TIME   for one server to answer (2s)\n"
        "  --timeout=TIME       for all of them together (8s)\n"
        "  --version, --help\n";

enum { OPTION_SOCKET = 256, OPTION_RESOLV_CONF, OPTION_TTL_MIN, OPTION_TTL_MAX, OPTION_RATE, OPTION_TRY, OPTION_TIMEOUT,
       OPTION_VERSION };

static const struct option options[] = {
        { "socket", required_argument, NULL, OPTION_SOCKET },
        { "resolv-conf", required_argument, NULL, OPTION_RESOLV_CONF },
        { "ttl-min", required_argument, NULL, OPTION_TTL_MIN },
        { "ttl-max", required_argument, NULL, OPTION_TTL_MAX },
        { "rate", required_argument, NULL, OPTION_RATE },
        { "try-timeout", required_argument, NULL, OPTION_TRY },
        { "timeout", required_argument, NULL, OPTION_TIMEOUT },
        { "version", no_argument, NULL, OPTION_VERSION },
        { "help", no_argument, NULL, 'h' },
        {},
};

static int read_option(ResolverConfig *c, int option) {
        switch (option) {
        case OPTION_SOCKET:
                c->socket = optarg;
                return 0;
        case OPTION_RESOLV_CONF:
                c->upstream.resolv_conf = optarg;
                return 0;
        case OPTION_TTL_MIN:
                return parse_u32(optarg, &c->ttl_min);
        case OPTION_TTL_MAX:
                return parse_u32(optarg, &c->ttl_max);
        case OPTION_RATE:
                return parse_u32(optarg, &c->rate);
        case OPTION_TRY:
                return parse_usec(optarg, &c->upstream.try_usec);
        case OPTION_TIMEOUT:
                return parse_usec(optarg, &c->upstream.give_up_usec);
        }
        return -EINVAL;
}

static int _printf_(1, 2) complain(const char *format, ...) {
        va_list ap;

        fputs("cube-resolver: ", stderr);
        va_start(ap, format);
        (void) vfprintf(stderr, format, ap);
        va_end(ap);
        fputs("; see cube-resolver --help\n", stderr);
        return -EINVAL;
}

static int check_config(const ResolverConfig *c) {
        if (c->rate == 0)
                return complain("--rate=0 lets nobody ask; a sandbox needs one query a second at least");
        if (c->ttl_max == 0)
                return complain("--ttl-max=0 opens nothing; give a second or more");
        if (c->ttl_min > c->ttl_max)
                return complain("--ttl-min=%u is more than --ttl-max=%u", c->ttl_min, c->ttl_max);
        if (c->upstream.give_up_usec > GIVE_UP_MAX_USEC)
                return complain("--timeout= is an hour at most");
        return 0;
}

/* 1: it has been answered. */
static int read_options(int argc, char *argv[], ResolverConfig *c) {
        int option, i;

        while ((option = getopt_long(argc, argv, "h", options, &i)) >= 0) {
                if (option == 'h' || option == OPTION_VERSION) {
                        fputs(option == 'h' ? usage : "cube-resolver " CUBED_VERSION "\n", stdout);
                        return 1;
                }
                if (option == '?')
                        return complain("not all options were understood");
                if (read_option(c, option) < 0)
                        return complain("--%s=%s is not a %s", options[i].name, optarg,
                                        option == OPTION_TRY || option == OPTION_TIMEOUT ? "time like 2s" : "number");
        }
        return optind < argc ? complain("\"%s\" is no option", argv[optind]) : check_config(c);
}

static int start(Resolver *r) {
        int k = sd_event_new(&r->event);

        if (k >= 0)
                k = sd_event_set_signal_exit(r->event, true);
        if (k >= 0)
                k = sd_event_set_watchdog(r->event, true);
        if (k >= 0)
                k = resolver_policies_new(&r->policies);
        if (k >= 0)
                k = resolver_sandboxes_start(r);
        if (k >= 0)
                k = upstream_new(r->event, &r->config.upstream, &r->upstream);
        if (k >= 0)
                k = resolver_link_new(r, &r->link);
        return k < 0 ? k : resolver_confine();
}

static void stop(Resolver *r) {
        r->listener = resolver_listener_free(r->listener);
        query_forget_all(r);
        r->link = resolver_link_free(r->link);
        resolver_sandboxes_done(r);
        upstream_free(r->upstream);
        resolver_policies_free(r->policies);
        safe_close(r->maps.names);
        safe_close(r->maps.entries);
        sd_event_unref(r->event);
}

int main(int argc, char *argv[]) {
        Resolver r = { .config = defaults, .maps = RESOLVER_MAPS_INIT };

        int k = read_options(argc, argv, &r.config);
        if (k != 0)
                return k < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        k = start(&r);
        if (k >= 0) {
                (void) sd_notify(false, "READY=1");
                k = sd_event_loop(r.event);
        }
        stop(&r);
        if (k < 0)
                fprintf(stderr, "cube-resolver: %s\n", strerror(-k));
        return k == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
