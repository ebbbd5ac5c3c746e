/* SPDX-License-Identifier: Apache-2.0 */
/* The bus front over a fake core, on the bus that $DBUS_SYSTEM_BUS_ADDRESS names. */
#include <signal.h>
#include <stdio.h>

#include "dbus/bus-front.h"
#include "tests/dbus/fake-core.h"

int main(int argc, char *argv[]) {
        sd_event *event = NULL;
        sd_bus *bus = NULL;
        Manager *m = NULL;
        sigset_t mask;

        if (argc != 2) {
                fprintf(stderr, "usage: %s AGENT-HARNESS\n", argv[0]);
                return EXIT_FAILURE;
        }

        sigemptyset(&mask);
        sigaddset(&mask, SIGCHLD);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        (void) signal(SIGPIPE, SIG_IGN);

        int r = sd_event_new(&event);
        if (r >= 0)
                r = sd_event_set_signal_exit(event, 1);
        if (r >= 0)
                r = sd_bus_open_system(&bus);
        if (r >= 0)
                r = sd_bus_attach_event(bus, event, 0);
        if (r >= 0)
                r = sd_bus_set_close_on_exit(bus, 0);
        if (r >= 0)
                r = fake_manager_new(event, bus, argv[1], &m);
        if (r >= 0)
                r = bus_front_attach(m);
        if (r >= 0) {
                puts("ready");
                fflush(stdout);
                r = sd_event_loop(event);
        }
        if (r < 0)
                fprintf(stderr, "fake-cubed: %s\n", strerror(-r));
        if (m) {
                bus_front_detach(m);
                fake_manager_free(m);
        }
        sd_bus_flush_close_unref(bus);
        sd_event_unref(event);
        return r < 0;
}
