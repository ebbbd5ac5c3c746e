/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>

#include "guest/envd-path.h"

/* Takes "." and "..", and slashes that say nothing, out of an absolute path. */
static void clean(char *path) {
        char *out = path;

        for (const char *p = path; *p;) {
                p += strspn(p, "/");
                size_t n = strcspn(p, "/");

                if (n == 2 && memcmp(p, "..", 2) == 0) {
                        while (out > path && *--out != '/')
                                ;
                } else if (n > 0 && !(n == 1 && *p == '.')) {
                        *out++ = '/';
                        memmove(out, p, n);
                        out += n;
                }
                p += n;
        }
        if (out == path)
                *out++ = '/';
        *out = 0;
}

static char *join(const char *directory, const char *path) {
        char *s = NULL;

        if (asprintf(&s, "/%s/%s", directory, path) < 0)
                return NULL;
        clean(s);
        return s;
}

int envd_path(const Envd *e, const User *u, const char *path, char **ret) {
        if (!*path)
                *ret = e->cwd ? strdup(e->cwd) : strdup(u->home);
        else if (*path == '/')
                *ret = strdup(path);
        else if (*path != '~')
                *ret = join(u->home, path);
        else if (!path[1] || path[1] == '/')
                *ret = join(u->home, path + 1);
        else
                return -EINVAL;
        return *ret ? 0 : -ENOMEM;
}

static int make_one(const char *path, const User *u) {
        if (mkdir(path, 0755) < 0)
                return -errno;
        return lchown(path, u->uid, u->gid) < 0 ? -errno : 0;
}

int envd_make_parents(const char *path, const User *u) {
        _cleanup_free_ char *copy = strdup(path);

        if (!copy)
                return -ENOMEM;
        for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
                *p = 0;
                int r = make_one(copy, u);
                *p = '/';
                if (r < 0 && r != -EEXIST)
                        return r;
        }
        return 0;
}

int envd_make_directory(const char *path, const User *u) {
        int r = envd_make_parents(path, u);

        return r < 0 ? r : make_one(path, u);
}
