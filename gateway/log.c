/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>
#include <systemd/sd-journal.h>

#include "gateway/key-file.h"
#include "gateway/log.h"

#define LINE_MAX_BYTES 2048U
#define TEXT_MAX 256U

static bool in_journal;

void log_open(void) {
        in_journal = getenv("JOURNAL_STREAM");
}

/* Who puts a key into a path has told it, but not to everybody who reads the log. */
static void mask_keys(char *text) {
        for (char *s = text; (s = strstr(s, KEY_PREFIX));) {
                s += strlen(KEY_PREFIX);
                for (; isxdigit((unsigned char) *s); s++)
                        *s = '*';
        }
}

/* It may tell of what a client sent. */
static void make_printable(char *line) {
        for (char *s = line; *s; s++)
                if (*s < 0x20 || *s >= 0x7f)
                        *s = '?';
        mask_keys(line);
}

int log_full_errno(int level, int error, const char *format, ...) {
        char line[LINE_MAX_BYTES];
        va_list ap;

        error = abs(error);
        errno = error;
        va_start(ap, format);
        int n = vsnprintf(line, sizeof(line), format, ap);
        va_end(ap);
        if (n >= 0)
                make_printable(line);
        if (n >= 0 && in_journal)
                fprintf(stderr, "<%d>%s\n", level, line);
        else if (n >= 0)
                fprintf(stderr, "%s\n", line);
        return -error;
}

/* Everything but printable ASCII as \xNN, and cut off: a field is one line. */
static const char *escape(char buf[static TEXT_MAX * 4 + 1], const char *s) {
        static const char hex[] = "0123456789abcdef";
        char *t = buf;

        for (size_t i = 0; s[i] && i < TEXT_MAX; i++) {
                unsigned char c = (unsigned char) s[i];
                if (c >= 0x20 && c < 0x7f && c != '\\') {
                        *t++ = (char) c;
                        continue;
                }
                *t++ = '\\';
                *t++ = 'x';
                *t++ = hex[c >> 4];
                *t++ = hex[c & 15];
        }
        *t = 0;
        mask_keys(buf);
        return buf;
}

void audit_request(const AuditRequest *a) {
        char method[TEXT_MAX * 4 + 1], path[TEXT_MAX * 4 + 1], sandbox[TEXT_MAX * 4 + 1];

        (void) escape(method, a->method);
        (void) escape(path, a->path);
        (void) escape(sandbox, a->sandbox);
        if (!in_journal) {
                fprintf(stderr, "CUBE_KEY=%s CUBE_TENANT=%s CUBE_SANDBOX=%s CUBE_STATUS=%u CUBE_REQUEST=%s %s\n", a->key,
                        a->tenant, sandbox, a->status, method, path);
                return;
        }
        (void) sd_journal_send("MESSAGE=Key %s: %s %s: %u", isempty(a->key) ? "unknown" : a->key, method, path, a->status,
                               "MESSAGE_ID=" AUDIT_ID_REQUEST, "PRIORITY=%d", LOG_INFO, "CUBE_KEY=%s", a->key,
                               "CUBE_TENANT=%s", a->tenant, "CUBE_SANDBOX=%s", sandbox, "CUBE_REQUEST=%s %s", method, path,
                               "CUBE_STATUS=%u", a->status, NULL);
}

void audit_refused(const char *key, uint32_t count) {
        if (!in_journal) {
                fprintf(stderr, "CUBE_KEY=%s CUBE_COUNT=%u more requests were refused\n", strempty(key), count);
                return;
        }
        (void) sd_journal_send("MESSAGE=Key %s: %u more requests were refused", !key ? "of several" : isempty(key) ? "unknown" : key,
                               count, "MESSAGE_ID=" AUDIT_ID_REQUEST, "PRIORITY=%d", LOG_NOTICE, "CUBE_KEY=%s", strempty(key),
                               "CUBE_REQUEST=several", "CUBE_COUNT=%u", count, NULL);
}

void audit_key(const char *what, const char *id, const char *tenant, const char *name, uid_t actor) {
        char text[TEXT_MAX * 4 + 1];

        (void) escape(text, name);
        if (!in_journal) {
                fprintf(stderr, "CUBE_KEY=%s CUBE_TENANT=%s CUBE_ACTOR=%u key %s: %s\n", id, tenant, (unsigned) actor, what,
                        text);
                return;
        }
        (void) sd_journal_send("MESSAGE=API key %s (%s) of tenant %s was %s by uid %u", id, text, tenant, what, (unsigned) actor,
                               "MESSAGE_ID=" AUDIT_ID_KEY, "PRIORITY=%d", LOG_NOTICE, "CUBE_KEY=%s", id, "CUBE_TENANT=%s",
                               tenant, "CUBE_ACTOR=%u", (unsigned) actor, NULL);
}
