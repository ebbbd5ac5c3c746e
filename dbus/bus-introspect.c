/* SPDX-License-Identifier: Apache-2.0 */

/* Prints what the vtables say as introspection XML. libsystemd formats that only in answer to a
 * call, so one is made here: to ourselves, over a socket pair. */

#include <stdio.h>
#include <sys/socket.h>

#include "dbus/bus-front.h"
#include "dbus/bus-objects.h"

static const struct {
        const char *name;
        const sd_bus_vtable *vtable;
} interfaces[] = {
        { CUBE_BUS_MANAGER, bus_manager_vtable },
        { CUBE_BUS_SANDBOX, bus_sandbox_vtable },
        { CUBE_BUS_TEMPLATE, bus_template_vtable },
        { CUBE_BUS_SNAPSHOT, bus_snapshot_vtable },
        { CUBE_BUS_JOB, bus_job_vtable },
};

static int start_peer(int fd, bool server, sd_bus **ret) {
        _cleanup_(sd_bus_unrefp) sd_bus *bus = NULL;
        sd_id128_t id;

        int r = sd_bus_new(&bus);
        if (r >= 0)
                r = sd_bus_set_fd(bus, fd, fd);
        if (r >= 0 && server)
                r = sd_id128_randomize(&id);
        if (r >= 0 && server)
                r = sd_bus_set_server(bus, 1, id);
        if (r >= 0)
                r = sd_bus_set_anonymous(bus, 1);
        if (r >= 0)
                r = sd_bus_start(bus);
        if (r >= 0)
                *ret = TAKE_PTR(bus);
        return r;
}

static int on_answer(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        *(sd_bus_message **) userdata = sd_bus_message_ref(m);
        return 1;
}

static int print_interface(const char *xml, const char *name) {
        _cleanup_free_ char *start = NULL;

        if (asprintf(&start, " <interface name=\"%s\">", name) < 0)
                return -ENOMEM;
        const char *from = strstr(xml, start), *to = from ? strstr(from, "</interface>\n") : NULL;
        if (!to)
                return -EBADMSG;

        puts("<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n"
             "\"https://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>");
        printf("%.*s</node>\n", (int) (to - from + (ptrdiff_t) strlen("</interface>\n")), from);
        return 0;
}

static int introspect(const char *name, const sd_bus_vtable *vtable) {
        _cleanup_(sd_bus_close_unrefp) sd_bus *server = NULL, *client = NULL;
        _cleanup_bus_message_ sd_bus_message *answer = NULL;
        const char *xml;
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        int r = start_peer(fds[0], true, &server);
        if (r < 0)
                return r;
        r = start_peer(fds[1], false, &client);
        if (r >= 0)
                r = sd_bus_add_object_vtable(server, NULL, "/object", name, vtable, NULL);
        if (r >= 0)
                r = sd_bus_call_method_async(client, NULL, NULL, "/object", "org.freedesktop.DBus.Introspectable",
                                             "Introspect", on_answer, &answer, NULL);
        while (r >= 0 && !answer) {
                r = sd_bus_process(server, NULL);
                if (r >= 0)
                        r = sd_bus_process(client, NULL);
        }
        if (r >= 0)
                r = sd_bus_message_read(answer, "s", &xml);
        if (r < 0)
                return r;

        return print_interface(xml, name);
}

int bus_front_introspect(const char *iface) {
        bool found = false;

        for (size_t i = 0; i < ELEMENTSOF(interfaces); i++) {
                if (iface && !streq(iface, interfaces[i].name))
                        continue;

                int r = introspect(interfaces[i].name, interfaces[i].vtable);
                if (r < 0)
                        return r;
                found = true;
        }
        return found ? 0 : -ENOENT;
}
