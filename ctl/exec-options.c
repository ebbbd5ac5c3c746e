/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/exec-options.h"
#include "ctl/text.h"

int exec_option_env(ExecOptions *o, const char *s) {
        _cleanup_free_ char *ours = NULL;

        if (!strchr(s, '=')) {
                const char *value = getenv(s);
                if (!value)
                        return ctl_usage("--env=%s: there is no such variable here.", s);
                if (asprintf(&ours, "%s=%s", s, value) < 0) {
                        ours = NULL;
                        return -ENOMEM;
                }
                s = ours;
        }

        /* The value may be secret: it is not repeated. */
        if (!env_assignment_valid(s))
                return ctl_usage("--env= takes NAME=VALUE, with letters, digits and _ in NAME.");
        int r = text_strv_add(&o->env, s);
        return r < 0 ? r : 1;
}

/* Everybody can read the arguments of our process, which may run for as long as the guest's program:
 * what was taken out of them goes. */
static int take_env_argument(ExecOptions *o, char *s) {
        int r = exec_option_env(o, s);
        char *value = strchr(s, '=');

        if (value)
                memset(value + 1, '*', strlen(value + 1));
        return r;
}

int exec_option(ExecOptions *o, int c) {
        switch (c) {
        case 'e':
                return take_env_argument(o, optarg);
        case 'u':
                o->user = optarg;
                return 1;
        case 'C':
                if (*optarg != '/')
                        return ctl_usage("--cwd=%s is not an absolute path.", optarg);
                o->cwd = optarg;
                return 1;
        case 't':
                o->pty = true;
                return 1;
        case EXEC_TIMEOUT:
                if (parse_usec(optarg, &o->timeout_usec) < 0)
                        return ctl_usage("--exec-timeout=%s is not a time; give one like 30s or 5min.", optarg);
                if (o->timeout_usec == 0)
                        return ctl_usage("--exec-timeout= can't be 0; for no end say infinity.");
                return 1;
        }
        return 0;
}

void exec_options_done(ExecOptions *o) {
        o->env = text_strv_free(o->env);
}
