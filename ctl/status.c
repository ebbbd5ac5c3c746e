/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/journal.h"
#include "ctl/pager.h"
#include "ctl/properties.h"
#include "ctl/show.h"
#include "ctl/table.h"
#include "ctl/text.h"

#define LINES_DEFAULT 10U
/* As init scripts have it. */
#define STATUS_NOT_RUNNING 3
#define STATUS_UNKNOWN 4

static void print_line(const char *name, const char *value) {
        if (isempty(value))
                return;
        _cleanup_free_ char *text = text_printable(value, strlen(value), false);
        printf("%12s: %s\n", name, strempty(text));
}

static void print_since(const char *name, uint64_t usec) {
        char when[TEXT_TIME_MAX], ago[TEXT_TIME_MAX];

        if (usec == UINT64_MAX)
                printf("%12s: never\n", name);
        else if (usec > 0)
                printf("%12s: %s; %s\n", name, text_timestamp(when, usec), text_relative(ago, usec));
}

static void print_traffic(const char *name, json_object *st, const char *way) {
        char allowed[FORMAT_SIZE_MAX], denied[FORMAT_SIZE_MAX], key[64];
        uint64_t n[4];
        static const char *const counters[] = { "Packets", "Bytes", "DeniedPackets", "DeniedBytes" };

        for (size_t i = 0; i < ELEMENTSOF(counters); i++) {
                (void) snprintf(key, sizeof(key), "Network%s%s", counters[i], way);
                n[i] = properties_u64(st, key);
        }
        printf("%12s: %llu packets, %s", name, (unsigned long long) n[0], format_size(allowed, n[1]));
        if (n[2] > 0)
                printf("; %sdenied %llu packets, %s%s", text_color(TEXT_YELLOW), (unsigned long long) n[2],
                       format_size(denied, n[3]), text_color(TEXT_NORMAL));
        putchar('\n');
}

/* What is not known is left out. */
static void print_statistics(sd_bus *bus, const char *id) {
        char size[FORMAT_SIZE_MAX], span[FORMAT_USEC_MAX];
        json_object *st = NULL;

        if (sandbox_statistics(bus, id, true, &st) < 0)
                return;
        if (json_object_object_get_ex(st, "MemoryCurrent", NULL))
                printf("%12s: %s used on the host\n", "Memory", format_size(size, properties_u64(st, "MemoryCurrent")));
        if (json_object_object_get_ex(st, "CPUUsageUSec", NULL))
                printf("%12s: %s used\n", "CPU", format_usec(span, properties_u64(st, "CPUUsageUSec")));
        if (json_object_object_get_ex(st, "NetworkPacketsOut", NULL)) {
                print_traffic("Sent", st, "Out");
                print_traffic("Received", st, "In");
                printf("%12s: %llu open\n", "Connections", (unsigned long long) properties_u64(st, "NetworkOpenConnections"));
        }
        json_object_put(st);
}

static size_t count_rules(json_object *policy, const char *list) {
        json_object *l;
        return json_object_object_get_ex(policy, list, &l) ? json_object_array_length(l) : 0;
}

/* In a line; `policy show` has the rules. */
static void print_network(json_object *o) {
        static const char *const lists[] = { "allow", "deny", "inbound" };
        const char *address4 = properties_string(o, "NetworkAddress"), *address6 = properties_string(o, "NetworkAddress6");
        json_object *policy;

        if (!isempty(address4) || !isempty(address6))
                printf("%12s: %s%s%s\n", "Address", address4, isempty(address4) || isempty(address6) ? "" : " ", address6);
        if (!json_object_object_get_ex(o, "NetworkPolicy", &policy))
                return;
        printf("%12s: %s", "Network", properties_string(policy, "default"));
        for (size_t i = 0; i < ELEMENTSOF(lists); i++)
                if (count_rules(policy, lists[i]) > 0)
                        printf(", %zu %s", count_rules(policy, lists[i]), lists[i]);
        putchar('\n');
}

static void print_gone(json_object *o, const char *id) {
        printf("%s●%s %s\n", text_color(TEXT_RED), text_color(TEXT_NORMAL), id);
        print_line("State", "gone");
        print_line("Reason", properties_string(o, "Reason"));
        print_line("Status", properties_string(o, "Status"));
        print_since("Ended", properties_u64(o, "EndedTimestamp"));
        print_line("Template", properties_string(o, "TemplateName"));
}

static void print_idle(json_object *o) {
        uint64_t usec = properties_u64(o, "IdleTimeoutUSec");
        char span[FORMAT_USEC_MAX];

        if (usec != UINT64_MAX && usec > 0)
                printf("%12s: after %s without work\n", "Idle end", format_usec(span, usec));
        if (!streq(properties_string(o, "OnTimeout"), "kill"))
                print_line("Then", properties_string(o, "OnTimeout"));
        if (properties_u64(o, "AutoResume") > 0)
                print_line("Resumed by", "connections of this host");
}

static void print_present(json_object *o, const char *id) {
        char memory[FORMAT_SIZE_MAX], disk[FORMAT_SIZE_MAX], user[TEXT_USER_MAX];
        const char *state = properties_string(o, "State");
        TextColor color = streq(state, "running") ? TEXT_GREEN : streq(state, "failed") ? TEXT_RED :
                streq(state, "paused") ? TEXT_YELLOW : TEXT_NORMAL;

        const char *name = properties_string(o, "Hostname");
        _cleanup_free_ char *hostname = text_printable(name, strlen(name), false);
        printf("%s●%s %s - %s\n", text_color(color), text_color(TEXT_NORMAL), id, strempty(hostname));
        printf("%12s: %s%s%s\n", "State", text_color(color), state, text_color(TEXT_NORMAL));
        print_since("Since", properties_u64(o, "StateChangedTimestamp"));
        print_since("Ends", properties_u64(o, "Deadline"));
        print_idle(o);
        print_line("Template", properties_string(o, "TemplateName"));
        print_line("Start", properties_string(o, "Start"));
        print_line("Stands on", properties_string(o, "BaseSnapshot"));
        print_line("Owner", text_user(user, (uid_t) properties_u64(o, "Owner")));
        print_line("Tenant", properties_string(o, "Tenant"));
        printf("%12s: %s memory, %llu CPU, %s disk\n", "Size", format_size(memory, properties_u64(o, "Memory")),
               (unsigned long long) properties_u64(o, "CPUs"), format_size(disk, properties_u64(o, "Disk")));
        print_network(o);
        print_line("Kernel", properties_string(o, "KernelRelease"));
        print_line("Scope", properties_string(o, "Scope"));
        printf("%12s: %llu (cube-vmm)\n", "Main PID", (unsigned long long) properties_u64(o, "VMMPID"));
}

static void print_log(const char *id, unsigned lines) {
        _cleanup_(sd_journal_closep) sd_journal *j = NULL;

        if (lines == 0 || journal_open(id, &j) < 0)
                return;
        putchar('\n');
        (void) journal_print_last(j, lines);
}

static int show_status(sd_bus *bus, const char *id, unsigned lines) {
        json_object *o;

        int r = sandbox_properties(bus, id, &o);
        if (r < 0)
                return r == -ENOENT ? STATUS_UNKNOWN : r;
        if (ctl_options.json != JSON_OFF)
                return json_print(o);

        bool gone = streq(properties_string(o, "State"), "gone");
        bool running = streq(properties_string(o, "State"), "running");
        pager_open();
        if (gone)
                print_gone(o, id);
        else {
                print_present(o, id);
                print_statistics(bus, id);
        }
        print_log(id, lines);
        json_object_put(o);
        return running ? EXIT_SUCCESS : STATUS_NOT_RUNNING;
}

/* Without an id: the service itself. */
static int show_service(sd_bus *bus) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        json_object *o;

        int r = properties_get(bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, &o, &error);
        if (r < 0)
                return ctl_fail(r, &error, "look at cubed");
        if (ctl_options.json != JSON_OFF)
                return json_print(o);

        const char *fault = properties_string(o, "NetworkError"), *uplink = properties_string(o, "Uplink");
        TextColor color = isempty(fault) ? TEXT_GREEN : TEXT_RED;
        printf("%s●%s cubed %s\n", text_color(color), text_color(TEXT_NORMAL), properties_string(o, "Version"));
        printf("%12s: %llu\n", "Sandboxes", (unsigned long long) properties_u64(o, "NSandboxes"));
        if (!isempty(fault)) {
                _cleanup_free_ char *text = text_printable(fault, strlen(fault), false);
                printf("%12s: %s%s%s\n", "Network", text_color(TEXT_RED), strempty(text), text_color(TEXT_NORMAL));
        } else {
                const char *net6 = properties_string(o, "Network6");
                printf("%12s: %s%s%s\n", "Network", properties_string(o, "Network4"), isempty(net6) ? "" : " ", net6);
                print_line("Uplink", isempty(uplink) ? "none: sandboxes can't leave this host" : uplink);
                printf("%12s: %llu ready\n", "Slots", (unsigned long long) properties_u64(o, "NetworkFreeSlots"));
        }
        json_object_put(o);
        return ferror(stdout) ? -EIO : EXIT_SUCCESS;
}

int verb_status(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "lines", required_argument, NULL, 'n' },
                {},
        };
        uint32_t lines = LINES_DEFAULT;
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT "n:", options, NULL)) >= 0) {
                r = 0;
                if (c != 'n')
                        r = ctl_global_option(c);
                else if (parse_u32(optarg, &lines) < 0 || lines > 100000)
                        r = ctl_usage("--lines=%s is not a number up to 100000.", optarg);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 0, 1);
        if (r >= 0 && optind < argc)
                r = ctl_check_id(argv[optind]);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        if (optind == argc)
                return show_service(bus);
        return show_status(bus, argv[optind], lines);
}
