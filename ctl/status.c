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

/* "MemoryCurrent" and the like; what is not known is left out. */
static void print_statistics(sd_bus *bus, const char *id) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char size[FORMAT_SIZE_MAX], span[FORMAT_USEC_MAX];
        const char *name, *type;
        uint64_t v;

        int r = ctl_call_sandbox(bus, NULL, id, "GetStatistics", &reply, &error, NULL);
        if (r >= 0)
                r = sd_bus_message_enter_container(reply, 'a', "{sv}");
        while (r >= 0 && (r = sd_bus_message_enter_container(reply, 'e', "sv")) > 0) {
                r = sd_bus_message_read_basic(reply, 's', &name);
                if (r >= 0)
                        r = sd_bus_message_peek_type(reply, NULL, &type);
                if (r < 0 || !streq(type, "t"))
                        return;
                r = sd_bus_message_read(reply, "v", "t", &v);
                if (r >= 0 && streq(name, "MemoryCurrent"))
                        printf("%12s: %s used on the host\n", "Memory", format_size(size, v));
                if (r >= 0 && streq(name, "CPUUsageUSec"))
                        printf("%12s: %s used\n", "CPU", format_usec(span, v));
                if (r >= 0)
                        r = sd_bus_message_exit_container(reply);
        }
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
}

static void print_present(json_object *o, const char *id) {
        char memory[FORMAT_SIZE_MAX], disk[FORMAT_SIZE_MAX], user[TEXT_USER_MAX];
        const char *state = properties_string(o, "State");
        TextColor color = streq(state, "running") ? TEXT_GREEN : streq(state, "failed") ? TEXT_RED :
                streq(state, "paused") ? TEXT_YELLOW : TEXT_NORMAL;

        printf("%s●%s %s - %s\n", text_color(color), text_color(TEXT_NORMAL), id, properties_string(o, "Hostname"));
        printf("%12s: %s%s%s\n", "State", text_color(color), state, text_color(TEXT_NORMAL));
        print_since("Since", properties_u64(o, "StateChangedTimestamp"));
        print_since("Ends", properties_u64(o, "Deadline"));
        print_idle(o);
        print_line("Template", properties_string(o, "TemplateName"));
        print_line("Start", properties_string(o, "Start"));
        print_line("Stands on", properties_string(o, "BaseSnapshot"));
        print_line("Owner", text_user(user, (uid_t) properties_u64(o, "Owner")));
        printf("%12s: %s memory, %llu CPU, %s disk\n", "Size", format_size(memory, properties_u64(o, "Memory")),
               (unsigned long long) properties_u64(o, "CPUs"), format_size(disk, properties_u64(o, "Disk")));
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
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        return show_status(bus, argv[optind], lines);
}
