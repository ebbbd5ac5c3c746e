/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ctl/create-options.h"
#include "ctl/ctl.h"

int verb_create(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, CREATE_OPTIONS, {} };
        _cleanup_(create_options_done) CreateOptions o = {};
        char id[SANDBOX_ID_MAX];
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = create_option(&o, c);
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 0, 1);
        if (r >= 0 && optind < argc) {
                r = create_source(&o, argv[optind]);
                if (r == 0)
                        r = ctl_usage("'%s' is nothing to start from: snapshot:ID or template:NAME.", argv[optind]);
        }
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r >= 0)
                r = create_sandbox(bus, &o, id);
        if (r < 0)
                return r;

        puts(id);
        return fflush(stdout) == 0 ? 0 : -EIO;
}
