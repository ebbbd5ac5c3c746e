/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the verbs of cubectl share: global options, connection, errors, progress.
 *
 * A verb is one function in a file of its own. It parses its options with getopt_long over a table
 * that contains CTL_GLOBAL_OPTIONS and gives what it does not know to ctl_global_option(). It
 * returns an exit status, or a negative errno once the error was printed. */

#include <getopt.h>
#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "dbus/client.h"

typedef enum JsonMode {
        JSON_OFF,
        JSON_SHORT,
        JSON_PRETTY,
} JsonMode;

typedef struct CtlOptions {
        const char *host;
        char **properties;     /* -p, NULL-terminated; NULL: all */
        JsonMode json;
        bool value;
        bool legend;
        bool pager;
        bool quiet;
        bool ask_password;
        bool full;
} CtlOptions;

extern CtlOptions ctl_options;

typedef struct Verb {
        const char *name;
        const char *arguments;
        const char *summary;
        const char *help;      /* its options, one a line, or NULL */
        int (*run)(int argc, char **argv);
        int failure;           /* exit status for a negative result */
} Verb;

enum {
        CTL_OPTION_VERSION = 0x100,
        CTL_OPTION_NO_PAGER,
        CTL_OPTION_NO_LEGEND,
        CTL_OPTION_NO_ASK_PASSWORD,
        CTL_OPTION_VALUE,
        CTL_OPTION_JSON,
        CTL_OPTION_VERB = 0x200, /* verbs number theirs from here */
        CTL_OPTION_CREATE = 0x300,
        CTL_OPTION_EXEC = 0x400,
        CTL_OPTION_LIMIT = 0x500,
        CTL_OPTION_POLICY = 0x600,
        CTL_OPTION_BUILD_POLICY = 0x700,
};

#define CTL_GLOBAL_SHORT "hqjlp:H:"
#define CTL_GLOBAL_OPTIONS                                                              \
        { "help", no_argument, NULL, 'h' },                                             \
        { "version", no_argument, NULL, CTL_OPTION_VERSION },                           \
        { "no-pager", no_argument, NULL, CTL_OPTION_NO_PAGER },                         \
        { "no-legend", no_argument, NULL, CTL_OPTION_NO_LEGEND },                       \
        { "no-ask-password", no_argument, NULL, CTL_OPTION_NO_ASK_PASSWORD },           \
        { "host", required_argument, NULL, 'H' },                                       \
        { "quiet", no_argument, NULL, 'q' },                                            \
        { "full", no_argument, NULL, 'l' },                                             \
        { "property", required_argument, NULL, 'p' },                                   \
        { "value", no_argument, NULL, CTL_OPTION_VALUE },                               \
        { "json", required_argument, NULL, CTL_OPTION_JSON }

/* 0, or negative once it was said what is wrong. Does not return from --help and --version. */
int ctl_global_option(int c);
/* Starts getopt anew for a verb's arguments. */
void ctl_reset_getopt(void);
/* Between least and most arguments (most < 0: any number) from optind on, else says so. */
int ctl_check_arguments(int argc, char **argv, int least, int most);

typedef struct CtlWord {
        const char *name;
        int (*run)(int argc, char **argv); /* argv[0] is the word */
} CtlWord;

/* Runs the word behind a verb. fallback: where there is none; NULL: there has to be one. known: all of them, for people. */
int ctl_word(int argc, char **argv, const CtlWord *words, size_t n, const char *fallback, const char *known);

/* "Failed to WHAT: TEXT" on stderr; returns r, which is negative. */
int ctl_fail(int r, const sd_bus_error *error, const char *format, ...) _printf_(3, 4);
/* The same, with a text that is nobody's error. */
int ctl_fail_text(int r, const char *why, const char *format, ...) _printf_(3, 4);
/* Other words on stderr, one line; returns -EINVAL. */
int ctl_usage(const char *format, ...) _printf_(1, 2);
void ctl_note(const char *format, ...) _printf_(1, 2);

/* The connection, made once, with an agent that asks for passwords where there is a terminal. */
int ctl_connect(sd_bus **ret);
/* For verbs that need descriptors, which do not pass through -H. */
int ctl_connect_local(sd_bus **ret);

/* A call on path, with arguments as for sd_bus_message_append(). While it takes longer than a
 * second, doing ("Creating the sandbox") stands on the terminal; NULL: silently. */
int ctl_call(sd_bus *bus, const char *doing, const char *path, const char *interface, const char *member,
             sd_bus_message **ret_reply, sd_bus_error *error, const char *types, ...);
int ctl_call_message(sd_bus *bus, const char *doing, sd_bus_message *call, sd_bus_message **ret_reply,
                     sd_bus_error *error);
int ctl_call_sandbox(sd_bus *bus, const char *doing, const char *id, const char *member, sd_bus_message **ret_reply,
                     sd_bus_error *error, const char *types, ...);

/* An entry NAME: as of an a{sv}; none when l is NULL. */
int ctl_append_strings(sd_bus_message *m, const char *name, char **l);

int ctl_check_id(const char *id);

int verb_apikey(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_checkpoints(int argc, char **argv);
int verb_code(int argc, char **argv);
int verb_cp(int argc, char **argv);
int verb_create(int argc, char **argv);
int verb_exec(int argc, char **argv);
int verb_fork(int argc, char **argv);
int verb_forward(int argc, char **argv);
int verb_gc(int argc, char **argv);
int verb_ingress(int argc, char **argv);
int verb_kill(int argc, char **argv);
int verb_limit(int argc, char **argv);
int verb_list(int argc, char **argv);
int verb_logs(int argc, char **argv);
int verb_pause(int argc, char **argv);
int verb_policy(int argc, char **argv);
int verb_resume(int argc, char **argv);
int verb_rollback(int argc, char **argv);
int verb_run(int argc, char **argv);
int verb_shell(int argc, char **argv);
int verb_show(int argc, char **argv);
int verb_snapshot(int argc, char **argv);
int verb_snapshots(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_stop(int argc, char **argv);
int verb_template(int argc, char **argv);
