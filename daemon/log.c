/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/fd-util.h"
#include "daemon/log.h"

#define LOG_LINE_MAX 2048U

static int max_level = LOG_INFO;
static bool with_prefix;

void log_open(void) {
        const char *e = getenv("CUBED_LOG_LEVEL");
        struct stat st;

        if (e && streq(e, "debug"))
                max_level = LOG_DEBUG;

        with_prefix = getenv("JOURNAL_STREAM");
        /* A terminal's or file's flags are shared with whoever started us: left alone. */
        if (with_prefix && fstat(STDERR_FILENO, &st) == 0 && S_ISSOCK(st.st_mode))
                (void) fd_set_nonblock(STDERR_FILENO, true);
}

void log_set_max_level(int level) {
        max_level = level;
}

int log_get_max_level(void) {
        return max_level;
}

int log_full_errno(int level, int error, const char *format, ...) {
        char line[LOG_LINE_MAX];
        int saved = errno, n = 0;
        va_list ap;

        if (error < 0)
                error = -error;
        if (level > max_level)
                return -error;

        if (with_prefix)
                n = snprintf(line, sizeof(line), "<%d>", level);

        errno = error;
        va_start(ap, format);
        int m = vsnprintf(line + n, sizeof(line) - 1 - (size_t) n, format, ap);
        va_end(ap);

        if (m >= 0) {
                n = MIN(n + m, (int) sizeof(line) - 2);
                line[n++] = '\n';
                ssize_t k = write(STDERR_FILENO, line, (size_t) n);
                (void) k; /* a full journal socket loses the line: better than to stand still */
        }

        errno = saved;
        return -error;
}

char *escape_text(const void *text, size_t size, size_t max) {
        static const char hex[] = "0123456789abcdef";
        const uint8_t *p = text;

        size = MIN(size, max);
        char *s = malloc(size * 4 + 1), *t = s;
        if (!s)
                return NULL;

        for (size_t i = 0; i < size; i++)
                if (p[i] == '\n') {
                        *t++ = '\\';
                        *t++ = 'n';
                } else if (p[i] == '\\') {
                        *t++ = '\\';
                        *t++ = '\\';
                } else if (p[i] >= 0x20 && p[i] < 0x7f)
                        *t++ = (char) p[i];
                else {
                        *t++ = '\\';
                        *t++ = 'x';
                        *t++ = hex[p[i] >> 4];
                        *t++ = hex[p[i] & 15];
                }
        *t = 0;
        return s;
}
