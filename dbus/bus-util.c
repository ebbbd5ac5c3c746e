/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/utf8.h"
#include "dbus/bus-util.h"

char *bus_text(const void *text, size_t size) {
        const uint8_t *p = text;

        assert(text || size == 0);

        if (size > (SIZE_MAX - 1) / 4)
                return NULL;
        char *s = malloc(size * 4 + 1), *q = s;
        if (!s)
                return NULL;

        for (size_t i = 0; i < size;) {
                size_t n = utf8_sequence(p + i, size - i);
                if (n > 0 && !utf8_is_noncharacter(p + i, n)) {
                        memcpy(q, p + i, n);
                        q += n;
                        i += n;
                } else
                        q += sprintf(q, "\\x%02x", p[i++]);
        }
        *q = 0;
        return s;
}

char **strv_free(char **l) {
        for (char **i = l; i && *i; i++)
                free(*i);
        free(l);
        return NULL;
}

const char *bus_path_put(char buf[static CUBE_BUS_PATH_MAX], const char *prefix, const char *id) {
        snprintf(buf, CUBE_BUS_PATH_MAX, "%s/%s", prefix, id);
        return buf;
}

const char *bus_path_id(const char *path, const char *prefix) {
        const char *p = startswith(path, prefix);
        return p && *p == '/' ? p + 1 : NULL;
}

void bus_reply_error(sd_bus_message *call, const sd_bus_error *error, int r) {
        if (sd_bus_error_is_set(error))
                (void) sd_bus_reply_method_error(call, error);
        else
                (void) sd_bus_reply_method_errno(call, r < 0 ? r : -EIO, NULL);
}

int bus_keep_call(sd_bus_message *call, int r) {
        if (r < 0) {
                sd_bus_message_unref(call);
                return r;
        }
        return 1;
}
