/* SPDX-License-Identifier: Apache-2.0 */

/* create + exec + kill, as one command. The sandbox is bound to our bus connection, so that it goes
 * whatever becomes of us. */

#include "ctl/create-options.h"
#include "ctl/ctl.h"
#include "ctl/process.h"
#include "ctl/spec.h"
#include "ctl/text.h"
#include "ctl/transfer.h"

enum {
        RUN_KEEP = CTL_OPTION_VERB,
        RUN_IN,
        RUN_OUT,
};

typedef struct Run {
        CreateOptions create;
        ExecOptions exec;
        char **in, **out;    /* as given */
        bool keep;
} Run;

static void run_done(Run *x) {
        create_options_done(&x->create);
        exec_options_done(&x->exec);
        text_strv_free(x->in);
        text_strv_free(x->out);
}

/* Checked before there is a sandbox. */
static int add_copy(char ***l, const char *s, const char *option, int (*parse)(const char *, char **, char **)) {
        _cleanup_free_ char *a = NULL, *b = NULL;

        int r = parse(s, &a, &b);
        if (r == -EINVAL)
                return ctl_usage("%s=%s: the path in the sandbox must be absolute (%s).", option, s,
                                 streq(option, "--in") ? "FILE:/PATH" : "/PATH:FILE");
        if (r >= 0)
                r = text_strv_add(l, s);
        return r;
}

static int run_option(Run *x, int c) {
        switch (c) {
        case RUN_KEEP:
                x->keep = true;
                return 0;
        case RUN_IN:
                return add_copy(&x->in, optarg, "--in", spec_parse_in);
        case RUN_OUT:
                return add_copy(&x->out, optarg, "--out", spec_parse_out);
        }

        int r = create_option(&x->create, c);
        if (r == 0)
                r = exec_option(&x->exec, c);
        return r == 0 ? ctl_global_option(c) : r;
}

static int copy_in(Transfer *t, char **l) {
        for (; l && *l; l++) {
                _cleanup_free_ char *file = NULL, *path = NULL;
                int r = spec_parse_in(*l, &file, &path);
                if (r >= 0)
                        r = transfer_to(t, file, path, false);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* All that can be had, also when one fails. */
static int copy_out(Transfer *t, char **l) {
        int result = 0;

        for (; l && *l; l++) {
                _cleanup_free_ char *file = NULL, *path = NULL;
                int r = spec_parse_out(*l, &path, &file);
                if (r >= 0)
                        r = transfer_from(t, path, file, false);
                if (r < 0)
                        result = r;
        }
        return result;
}

static int run_in_sandbox(Run *x, sd_bus *bus, const char *id, char **argv) {
        Transfer t = { .bus = bus, .id = id, .user = x->exec.user, .recursive = true };

        int r = copy_in(&t, x->in);
        if (r < 0)
                return r;
        int status = process_run(bus, id, &x->exec, argv);
        if (status < 0)
                return status;
        r = copy_out(&t, x->out);
        return r < 0 ? r : status;
}

/* Options may stand before and behind it. 1 when there was one. */
static int take_source(Run *x, int argc, char **argv) {
        if (optind >= argc || x->create.source || streq(argv[optind - 1], "--"))
                return 0;

        int r = create_source(&x->create, argv[optind]);
        if (r > 0)
                optind++;
        return r;
}

int verb_run(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                CREATE_OPTIONS,
                EXEC_OPTIONS,
                { "keep", no_argument, NULL, RUN_KEEP },
                { "in", required_argument, NULL, RUN_IN },
                { "out", required_argument, NULL, RUN_OUT },
                {},
        };
        _cleanup_(run_done) Run x = {};
        char id[SANDBOX_ID_MAX];
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        do {
                while ((c = getopt_long(argc, argv, "+" CTL_GLOBAL_SHORT EXEC_SHORT, options, NULL)) >= 0) {
                        r = run_option(&x, c);
                        if (r < 0)
                                return r;
                }
                r = take_source(&x, argc, argv);
        } while (r > 0);
        if (r < 0)
                return r;
        if (optind >= argc)
                return ctl_usage("'run' needs a command: cubectl run [OPTION...] -- COMMAND...");
        r = ctl_connect_local(&bus);
        if (r < 0)
                return r;

        x.create.bind_client = !x.keep;
        r = create_sandbox(bus, &x.create, id);
        if (r < 0)
                return r;
        r = run_in_sandbox(&x, bus, id, argv + optind);
        if (!x.keep)
                end_sandbox(bus, id);
        else if (!ctl_options.quiet)
                ctl_note("Sandbox %s is kept; end it with: cubectl kill %s", id, id);
        return r;
}
