/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "guest/walk.h"

static void closedirp(DIR **d) {
        if (*d)
                closedir(*d);
}

static void level_done(WalkLevel *l) {
        for (size_t i = 0; i < l->n_names; i++)
                free(l->names[i]);
        free(l->names);
        free(l->path);
        *l = (WalkLevel) {};
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

static int add_name(WalkLevel *l, const char *name) {
        /* Grows by powers of two. */
        if ((l->n_names & (l->n_names + 1)) == 0) {
                char **names = reallocarray(l->names, (l->n_names + 1) * 2, sizeof(char *));
                if (!names)
                        return -ENOMEM;
                l->names = names;
        }
        l->names[l->n_names] = strdup(name);
        return l->names[l->n_names] ? (int) !++l->n_names : -ENOMEM;
}

static int read_names(WalkLevel *l, int fd) {
        _cleanup_(closedirp) DIR *d = fdopendir(fd);
        struct dirent *de;

        if (!d) {
                int r = -errno;
                safe_close(fd);
                return r;
        }
        while ((de = readdir(d)))
                if (!streq(de->d_name, ".") && !streq(de->d_name, "..") && add_name(l, de->d_name) < 0)
                        return -ENOMEM;
        if (l->n_names > 0)
                qsort(l->names, l->n_names, sizeof(char *), compare_names);
        return 0;
}

static int push(Walk *w, const char *path, int flags) {
        if (w->n_levels == w->allocated) {
                WalkLevel *levels = reallocarray(w->levels, w->allocated * 2 + 8, sizeof(WalkLevel));
                if (!levels)
                        return -ENOMEM;
                w->levels = levels;
                w->allocated = w->allocated * 2 + 8;
        }
        int fd = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NONBLOCK|flags);
        if (fd < 0)
                return -errno;

        WalkLevel l = { .path = strdup(path) };
        int r = read_names(&l, fd);
        if (r < 0 || !l.path) {
                level_done(&l);
                return r < 0 ? r : -ENOMEM;
        }
        w->levels[w->n_levels++] = l;
        return 0;
}

int walk_begin(Walk *w, const char *path) {
        *w = (Walk) {};
        int r = push(w, path, 0);
        if (r < 0)
                walk_done(w);
        return r;
}

int walk_descend(Walk *w, const char *path) {
        int r = push(w, path, O_NOFOLLOW);

        return r == -ENOMEM ? r : 0;
}

int walk_next(Walk *w, char **ret_path) {
        while (w->n_levels > 0) {
                WalkLevel *l = &w->levels[w->n_levels - 1];

                if (l->next < l->n_names) {
                        bool slash = l->path[strlen(l->path) - 1] == '/';

                        return asprintf(ret_path, "%s%s%s", l->path, slash ? "" : "/", l->names[l->next++]) < 0 ? -ENOMEM : 1;
                }
                level_done(l);
                w->n_levels--;
        }
        return 0;
}

void walk_done(Walk *w) {
        while (w->n_levels > 0)
                level_done(&w->levels[--w->n_levels]);
        free(w->levels);
        *w = (Walk) {};
}
