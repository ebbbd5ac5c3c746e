/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/work-directory.h"
#include "ctl/build-archives.h"
#include "ctl/spec.h"
#include "ctl/work.h"

/* A directory is one of files that go into the target, a file keeps its name. Links lead where they do here only where they are
 * named. */
static int split_source(const char *source, char **ret_directory, char **ret_name) {
        const char *slash = strrchr(source, '/');
        struct stat st;

        if (stat(source, &st) < 0)
                return ctl_fail(-errno, NULL, "copy %s", source);
        if (S_ISDIR(st.st_mode)) {
                *ret_directory = strdup(source);
                *ret_name = strdup(".");
        } else if (S_ISREG(st.st_mode)) {
                *ret_directory = slash ? strndup(source, (size_t) (slash - source) + 1) : strdup(".");
                *ret_name = path_last(source);
        } else
                return ctl_usage("--step: COPY: %s is neither a file nor a directory.", source);
        return *ret_directory && *ret_name ? 0 : -ENOMEM;
}

/* The same files make the same bytes, whoever's they are. */
static int pack(const BuildArchives *a, unsigned n, BuildStep *step) {
        _cleanup_free_ char *directory = NULL, *file = NULL;

        int r = split_source(step->source, &directory, &step->args[1]);
        if (r < 0)
                return r;
        if (asprintf(&file, "%s/%u", a->directory, n) < 0) {
                file = NULL;
                return -ENOMEM;
        }
        if (asprintf(&step->args[0], BUILD_ARCHIVES "/%u", n) < 0) {
                step->args[0] = NULL;
                return -ENOMEM;
        }
        const char *const argv[] = {
                "tar", "--create", "--file", file, "--directory", directory, "--owner=0", "--group=0", "--numeric-owner",
                streq(step->args[1], ".") ? "--sort=name" : "--dereference", "--", step->args[1], NULL,
        };
        return work_run(argv, a->directory, "copy", step->source);
}

int build_archives_make(BuildOptions *o, BuildArchives *ret) {
        unsigned n = 0;

        for (size_t i = 0; i < o->n_steps; i++) {
                if (!o->steps[i].source)
                        continue;
                int r = ret->directory ? 0 : work_begin(&ret->directory);
                if (r >= 0)
                        r = pack(ret, ++n, &o->steps[i]);
                if (r < 0)
                        return r;
        }
        if (n == 0)
                return 0;
        ret->fd = open(ret->directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        return ret->fd < 0 ? ctl_fail(-errno, NULL, "open %s", ret->directory) : 0;
}

void build_archives_done(BuildArchives *a) {
        a->fd = safe_close(a->fd);
        a->directory = work_directory_remove(a->directory);
}
