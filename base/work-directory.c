/* SPDX-License-Identifier: Apache-2.0 */
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "base/work-directory.h"

const char *work_directory_above(void) {
        const char *above = getenv("TMPDIR");

        return isempty(above) ? "/var/tmp" : above;
}

int work_directory_make(const char *prefix, char **ret) {
        char *path;

        if (asprintf(&path, "%s/%s-XXXXXX", work_directory_above(), prefix) < 0)
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

char *work_directory_remove(char *path) {
        FTS *tree = path ? open_tree(path) : NULL;
        FTSENT *e;

        while (tree && (e = fts_read(tree)))
                if (e->fts_info != FTS_D)
                        (void) remove(e->fts_accpath);
        if (tree)
                (void) fts_close(tree);
        free(path);
        return NULL;
}
