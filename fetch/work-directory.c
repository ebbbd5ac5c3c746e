/* SPDX-License-Identifier: Apache-2.0 */
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "fetch/work-directory.h"

/* Not in /tmp, which may be memory. */
int work_directory_make(char **ret) {
        const char *above = getenv("TMPDIR");
        char *path;

        if (asprintf(&path, "%s/cube-fetch-XXXXXX", isempty(above) ? "/var/tmp" : above) < 0)
                return -ENOMEM;
        if (!mkdtemp(path)) {
                int r = -errno;
                free(path);
                return r;
        }
        *ret = path;
        return 0;
}

static FTS *open_tree(const char *path) {
        return fts_open((char *const[]) { (char *) path, NULL }, FTS_PHYSICAL|FTS_NOCHDIR|FTS_XDEV, NULL);
}

uint64_t work_directory_size(const char *path) {
        FTS *tree = open_tree(path);
        uint64_t bytes = 0;
        FTSENT *e;

        while (tree && (e = fts_read(tree)))
                if (e->fts_info == FTS_F)
                        bytes += (uint64_t) e->fts_statp->st_blocks * 512;
        if (tree)
                (void) fts_close(tree);
        return bytes;
}

void work_directory_remove(const char *path) {
        FTS *tree = open_tree(path);
        FTSENT *e;

        while (tree && (e = fts_read(tree)))
                if (e->fts_info != FTS_D)
                        (void) remove(e->fts_accpath);
        if (tree)
                (void) fts_close(tree);
}
