/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/spec.h"

static int split(const char *s, size_t at, char **ret_left, char **ret_right) {
        _cleanup_free_ char *left = strndup(s, at), *right = strdup(s + at + 1);
        if (!left || !right)
                return -ENOMEM;
        if (!*left || !*right)
                return -EINVAL;

        *ret_left = TAKE_PTR(left);
        *ret_right = TAKE_PTR(right);
        return 0;
}

int spec_parse_in(const char *s, char **ret_file, char **ret_path) {
        const char *at = NULL;

        for (const char *p = s; (p = strstr(p, ":/")); p++)
                at = p;
        if (!at)
                return -EINVAL;
        return split(s, (size_t) (at - s), ret_file, ret_path);
}

int spec_parse_out(const char *s, char **ret_path, char **ret_file) {
        const char *at = strchr(s, ':');
        if (*s != '/' || !at)
                return -EINVAL;
        return split(s, (size_t) (at - s), ret_path, ret_file);
}

int spec_parse_copy(const char *s, char **ret_id, char **ret_path) {
        const char *at = strchr(s, ':');
        _cleanup_free_ char *id = at ? strndup(s, (size_t) (at - s)) : NULL;

        if (at && !id)
                return -ENOMEM;
        if (id && sandbox_id_valid(id)) {
                if (at[1] != '/')
                        return -EINVAL;
                return split(s, (size_t) (at - s), ret_id, ret_path);
        }

        if (!*s)
                return -EINVAL;
        *ret_path = strdup(s);
        if (!*ret_path)
                return -ENOMEM;
        *ret_id = NULL;
        return 0;
}

static int parse_port(const char *s, uint16_t *ret) {
        uint32_t v;

        int r = parse_u32(s, &v);
        if (r < 0)
                return r;
        if (v > UINT16_MAX)
                return -ERANGE;
        *ret = (uint16_t) v;
        return 0;
}

int spec_parse_forward(const char *s, uint16_t *ret_local, uint16_t *ret_port) {
        const char *at = strchr(s, ':');
        uint16_t local, port;

        int r = parse_port(at ? at + 1 : s, &port);
        if (r < 0)
                return r;
        if (port == 0)
                return -ERANGE;

        local = port;
        if (at) {
                _cleanup_free_ char *left = strndup(s, (size_t) (at - s));
                if (!left)
                        return -ENOMEM;
                r = parse_port(left, &local);
                if (r < 0)
                        return r;
        }
        *ret_local = local;
        *ret_port = port;
        return 0;
}

int path_join(const char *dir, const char *name, char **ret) {
        size_t n = strlen(dir);
        const char *slash = n > 0 && dir[n - 1] == '/' ? "" : "/";

        char *s = NULL;
        if (asprintf(&s, "%s%s%s", dir, slash, name) < 0)
                return -ENOMEM;
        *ret = s;
        return 0;
}

char *path_last(const char *path) {
        size_t n = strlen(path);
        while (n > 0 && path[n - 1] == '/')
                n--;

        size_t start = n;
        while (start > 0 && path[start - 1] != '/')
                start--;
        _cleanup_free_ char *name = strndup(path + start, n - start);
        return name && filename_valid(name) ? TAKE_PTR(name) : NULL;
}

bool filename_valid(const char *name) {
        return *name && !streq(name, ".") && !streq(name, "..") && !strchr(name, '/') && strlen(name) <= NAME_MAX;
}
