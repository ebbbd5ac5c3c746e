/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"
#include "ctl/process.h"

/* Options may stand before and behind the id; the first word after both is the command's. */
static int parse(int argc, char **argv, ExecOptions *o, const char **ret_id) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, EXEC_OPTIONS, {} };
        bool separated = false;
        int c, r;

        ctl_reset_getopt();
        for (;;) {
                while ((c = getopt_long(argc, argv, "+" CTL_GLOBAL_SHORT EXEC_SHORT, options, NULL)) >= 0) {
                        r = exec_option(o, c);
                        if (r == 0)
                                r = ctl_global_option(c);
                        if (r < 0)
                                return r;
                }
                separated = optind > 1 && streq(argv[optind - 1], "--");
                if (*ret_id || optind >= argc || separated)
                        break;
                *ret_id = argv[optind++];
        }

        if (!*ret_id && optind < argc)
                *ret_id = argv[optind++];
        if (!*ret_id)
                return ctl_usage("'%s' needs a sandbox id; 'cubectl list' shows them.", argv[0]);
        return ctl_check_id(*ret_id);
}

int verb_exec(int argc, char **argv) {
        _cleanup_(exec_options_done) ExecOptions o = {};
        const char *id = NULL;
        sd_bus *bus;

        int r = parse(argc, argv, &o, &id);
        if (r < 0)
                return r;
        if (optind >= argc)
                return ctl_usage("'exec' needs a command: cubectl exec %s -- COMMAND...", id);
        r = ctl_connect_local(&bus);
        if (r < 0)
                return r;
        return process_run(bus, id, &o, argv + optind);
}

/* The login shell of the user, as the guest's own passwd has it; without one, plain sh. */
static const char shell_script[] =
        "s=$(while IFS=: read -r n p u g c h s; do [ \"$n\" = \"$1\" ] || [ \"$u\" = \"$1\" ] && echo \"$s\" && break; "
        "done </etc/passwd); exec \"${s:-/bin/sh}\" -l";

int verb_shell(int argc, char **argv) {
        _cleanup_(exec_options_done) ExecOptions o = { .pty = true };
        const char *id = NULL;
        sd_bus *bus;

        int r = parse(argc, argv, &o, &id);
        if (r >= 0)
                r = ctl_check_arguments(argc, argv, 0, 0);
        if (r >= 0 && getenv("TERM"))
                r = exec_option_env(&o, "TERM");
        if (r >= 0)
                r = ctl_connect_local(&bus);
        if (r < 0)
                return r;

        char *shell[] = { (char *) "/bin/sh", (char *) "-c", (char *) shell_script, (char *) "sh",
                          (char *) (o.user ? o.user : "root"), NULL };
        return process_run(bus, id, &o, shell);
}
