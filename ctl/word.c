/* SPDX-License-Identifier: Apache-2.0 */

/* Verbs that have words of their own: template, policy, apikey. */

#include "ctl/ctl.h"

int ctl_word(int argc, char **argv, const CtlWord *words, size_t n, const char *fallback, const char *known) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, "+" CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                int r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        const char *word = optind < argc ? argv[optind] : fallback;
        if (!word)
                return ctl_usage("'%s' needs a word: %s.", argv[0], known);
        for (size_t i = 0; i < n; i++)
                if (streq(word, words[i].name))
                        return optind < argc ? words[i].run(argc - optind, argv + optind)
                                             : words[i].run(1, (char *[]) { (char *) word, NULL });
        return ctl_usage("'%s %s' is not known: %s.", argv[0], word, known);
}
