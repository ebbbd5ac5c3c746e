/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <time.h>
#include <wchar.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "ctl/text.h"

/* Of two bytes: C1. Of three: marks that turn the direction of text, and separators of lines and paragraphs. */
static bool is_command(const uint8_t *p, size_t n) {
        switch (n) {
        case 1:
                return *p < 0x20 || *p == 0x7f;
        case 2:
                return p[0] == 0xc2 && p[1] <= 0x9f;
        case 3:
                return p[0] == 0xe2 && ((p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
                                        (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
        default:
                return false;
        }
}

char *text_printable(const char *s, size_t size, bool lines) {
        const uint8_t *p = (const uint8_t *) s;
        char *buf = malloc(size * 4 + 1), *q = buf;
        if (!buf)
                return NULL;

        for (size_t i = 0; i < size;) {
                size_t n = utf8_sequence(p + i, size - i);
                bool kept = (n > 0 && !is_command(p + i, n)) || (lines && (p[i] == '\n' || p[i] == '\t'));

                for (n = MAX(n, (size_t) 1); n > 0; n--, i++)
                        if (kept)
                                *q++ = (char) p[i];
                        else
                                q += sprintf(q, "\\x%02x", p[i]);
        }
        *q = 0;
        return buf;
}

/* Of one, two or three bytes. */
static unsigned code_point(const uint8_t *p, size_t n) {
        return n == 1 ? p[0] : n == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu) :
                (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
}

/* out: NULL to count alone. */
static size_t put_json(const uint8_t *p, size_t size, char *out) {
        size_t total = 0;
        char escape[8];

        for (size_t i = 0, n; i < size; i += n) {
                n = MAX(utf8_sequence(p + i, size - i), (size_t) 1);
                bool command = is_command(p + i, n) && p[i] != '\n';
                int k = command ? snprintf(escape, sizeof(escape), "\\u%04x", code_point(p + i, n)) : (int) n;
                if (out)
                        memcpy(out + total, command ? (const void *) escape : p + i, (size_t) k);
                total += (size_t) k;
        }
        return total;
}

char *text_json(const char *s) {
        const uint8_t *p = (const uint8_t *) s;
        size_t size = strlen(s), n = put_json(p, size, NULL);
        char *buf = malloc(n + 1);

        if (!buf)
                return NULL;
        (void) put_json(p, size, buf);
        buf[n] = 0;
        return buf;
}

size_t text_whole(const char *s, size_t size) {
        for (size_t n = 1; n < UTF8_MAX && n <= size; n++) {
                uint8_t first = (uint8_t) s[size - n];

                if ((first & 0xc0) != 0x80)
                        return utf8_length(first) > n ? size - n : size;
        }
        return size;
}

size_t text_width(const char *s) {
        wchar_t wide[512];

        size_t n = mbstowcs(wide, s, ELEMENTSOF(wide));
        if (n == (size_t) -1)
                return strlen(s);
        int w = wcswidth(wide, n);
        return w < 0 ? strlen(s) : (size_t) w;
}

char *text_timestamp(char buf[static TEXT_TIME_MAX], uint64_t realtime_usec) {
        time_t t = (time_t) (realtime_usec / USEC_PER_SEC);
        struct tm tm;

        if (realtime_usec == 0 || realtime_usec == UINT64_MAX || !localtime_r(&t, &tm) ||
            strftime(buf, TEXT_TIME_MAX, "%a %Y-%m-%d %H:%M:%S %Z", &tm) == 0)
                strcpy(buf, "-");
        return buf;
}

char *text_relative(char buf[static TEXT_TIME_MAX], uint64_t realtime_usec) {
        char span[FORMAT_USEC_MAX];

        if (realtime_usec == 0 || realtime_usec == UINT64_MAX)
                return strcpy(buf, "-");
        uint64_t now = wall_usec();
        bool past = realtime_usec <= now;
        uint64_t diff = past ? now - realtime_usec : realtime_usec - now;

        /* Nobody wants to read milliseconds here. */
        format_usec(span, diff < USEC_PER_SEC ? diff / USEC_PER_MSEC * USEC_PER_MSEC
                                              : diff / USEC_PER_SEC * USEC_PER_SEC);
        snprintf(buf, TEXT_TIME_MAX, past ? "%s ago" : "in %s", span);
        return buf;
}

char *text_user(char buf[static TEXT_USER_MAX], uid_t uid) {
        char space[4096];
        struct passwd pw, *found = NULL;

        if (getpwuid_r(uid, &pw, space, sizeof(space), &found) == 0 && found && strlen(found->pw_name) < TEXT_USER_MAX)
                return strcpy(buf, found->pw_name);
        snprintf(buf, TEXT_USER_MAX, "%u", (unsigned) uid);
        return buf;
}

static int stdout_terminal = -1;

bool text_stdout_is_terminal(void) {
        if (stdout_terminal < 0)
                stdout_terminal = isatty(STDOUT_FILENO) > 0;
        return stdout_terminal > 0;
}

static bool want_colors(void) {
        const char *e = getenv("SYSTEMD_COLORS"), *term = getenv("TERM");

        if (e) {
                int b = parse_bool(e);
                if (b >= 0)
                        return b;
        }
        if (getenv("NO_COLOR") || !term || streq(term, "dumb"))
                return false;
        return text_stdout_is_terminal();
}

const char *text_color(TextColor c) {
        static const char *const codes[] = {
                [TEXT_NORMAL] = "\033[0m",       [TEXT_BOLD] = "\033[1m", [TEXT_GREEN] = "\033[32m",
                [TEXT_YELLOW] = "\033[33m",      [TEXT_RED] = "\033[31m", [TEXT_GREY] = "\033[90m",
                [TEXT_UNDERLINE] = "\033[4m",
        };
        return want_colors() ? codes[c] : "";
}

char **text_strv_free(char **l) {
        for (char **i = l; i && *i; i++)
                free(*i);
        free(l);
        return NULL;
}

int text_strv_add(char ***l, const char *s) {
        size_t n = 0;
        while (*l && (*l)[n])
                n++;

        char **grown = realloc(*l, (n + 2) * sizeof(char *));
        if (!grown)
                return -ENOMEM;
        *l = grown;
        grown[n + 1] = NULL;
        grown[n] = strdup(s);
        return grown[n] ? 0 : -ENOMEM;
}
