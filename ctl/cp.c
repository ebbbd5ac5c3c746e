/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "ctl/ctl.h"
#include "ctl/spec.h"
#include "ctl/transfer.h"

typedef struct Place {
        char *id, *path;
} Place;

static void place_done(Place *p) {
        free(p->id);
        free(p->path);
}

static int parse_place(const char *s, Place *ret) {
        int r = spec_parse_copy(s, &ret->id, &ret->path);
        if (r == -EINVAL)
                return ctl_usage("'%s': a path in a sandbox must be absolute.", s);
        return r;
}

static bool is_local_directory(const char *path) {
        struct stat st;
        return stat(path, &st) >= 0 && S_ISDIR(st.st_mode);
}

static int copy_one(Transfer *t, const char *source, const Place *to, bool into) {
        _cleanup_(place_done) Place from = {};

        int r = parse_place(source, &from);
        if (r < 0)
                return r;
        if (from.id && to->id)
                return ctl_usage("cp copies between a sandbox and here, not from one sandbox to another.");
        if (!from.id && !to->id)
                return ctl_usage("Neither '%s' nor '%s' is in a sandbox; write ID:PATH.", source, to->path);

        if (!from.id)
                return transfer_to(t, from.path, to->path, into);
        t->id = from.id;
        r = transfer_from(t, from.path, to->path, into);
        t->id = NULL;
        return r;
}

static int copy_all(Transfer *t, int n, char **sources, const Place *to) {
        int r = ctl_connect_local(&t->bus);
        if (r < 0)
                return r;

        t->id = to->id;
        int into = to->id ? transfer_is_directory(t, to->path) : is_local_directory(to->path);
        if (into < 0)
                return into;
        if (n > 1 && !into)
                return ctl_usage("Several files go into a directory, and '%s' is not one.", to->path);

        for (int i = 0; i < n; i++) {
                r = copy_one(t, sources[i], to, into > 0);
                if (r < 0)
                        return r;
        }
        return t->n_skipped > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int verb_cp(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "recursive", no_argument, NULL, 'r' },
                { "user", required_argument, NULL, 'u' },
                {},
        };
        _cleanup_(place_done) Place to = {};
        Transfer t = {};
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT "ru:", options, NULL)) >= 0) {
                r = 0;
                if (c == 'r')
                        t.recursive = true;
                else if (c == 'u')
                        t.user = optarg;
                else
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 2, -1);
        if (r >= 0)
                r = parse_place(argv[argc - 1], &to);
        if (r < 0)
                return r;
        return copy_all(&t, argc - optind - 1, argv + optind, &to);
}
