/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/url.h"

static int hex_digit(char c) {
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -EINVAL;
}

int url_decode(char *s, bool plus) {
        char *t = s;

        for (; *s; s++) {
                if (*s == '+' && plus) {
                        *t++ = ' ';
                        continue;
                }
                if (*s != '%') {
                        *t++ = *s;
                        continue;
                }
                int high = hex_digit(s[1]), low = high < 0 ? high : hex_digit(s[2]);
                if (low < 0 || (high == 0 && low == 0))
                        return -EINVAL;
                *t++ = (char) (high << 4 | low);
                s += 2;
        }
        *t = 0;
        return 0;
}

static int parse_path(Url *u, char *path) {
        char *segment;

        while ((segment = strsep(&path, "/"))) {
                /* A slash at the end, or two of them, name nothing. */
                if (!*segment)
                        continue;
                if (u->n_segments == URL_SEGMENTS_MAX)
                        return -E2BIG;
                int r = url_decode(segment, false);
                if (r < 0)
                        return r;
                u->segments[u->n_segments++] = segment;
        }
        return 0;
}

static int parse_query(Url *u, char *query) {
        char *pair;

        while ((pair = strsep(&query, "&"))) {
                if (!*pair)
                        continue;
                if (u->n_pairs == URL_PAIRS_MAX)
                        return -E2BIG;
                char *value = pair, *name = strsep(&value, "=");
                int r = url_decode(name, true);
                if (r >= 0 && value)
                        r = url_decode(value, true);
                if (r < 0)
                        return r;
                u->pairs[u->n_pairs++] = (UrlPair) { name, strempty(value) };
        }
        return 0;
}

int url_parse(const char *target, Url *ret) {
        assert(target);
        assert(ret);

        *ret = (Url) {};
        if (target[0] != '/')
                return -EINVAL;
        ret->text = strdup(target);
        if (!ret->text)
                return -ENOMEM;

        char *query = ret->text, *path = strsep(&query, "?");
        int r = parse_path(ret, path);
        if (r >= 0 && query)
                r = parse_query(ret, query);
        if (r < 0)
                url_done(ret);
        return r;
}

void url_done(Url *u) {
        free(u->text);
        *u = (Url) {};
}

const char *url_query(const Url *u, const char *name) {
        for (size_t i = 0; i < u->n_pairs; i++)
                if (streq(u->pairs[i].name, name))
                        return u->pairs[i].value;
        return NULL;
}
