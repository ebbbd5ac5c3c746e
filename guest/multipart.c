/* SPDX-License-Identifier: Apache-2.0 */
#include <strings.h>

#include "guest/multipart.h"

/* One parameter of a field, NULL when it has none of that name: quoted, or up to a semicolon. -EBADMSG without a closing quote. */
static int get_parameter(const char *field, const char *name, char **ret) {
        size_t n_name = strlen(name), n = 0;

        *ret = NULL;
        for (const char *p = field + strcspn(field, ";"); *p == ';';) {
                p += 1 + strspn(p + 1, " \t");
                bool found = strncasecmp(p, name, n_name) == 0 && p[n_name] == '=';
                p += strcspn(p, "=;");
                if (*p != '=')
                        continue;
                p++;

                _cleanup_free_ char *value = malloc(strlen(p) + 1);
                if (!value)
                        return -ENOMEM;
                n = 0;
                if (*p == '"') {
                        for (p++; *p && *p != '"'; p++) {
                                if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
                                        p++;
                                value[n++] = *p;
                        }
                        if (*p++ != '"')
                                return -EBADMSG;
                        p += strcspn(p, ";");
                } else {
                        while (*p && *p != ';')
                                value[n++] = *p++;
                        while (n > 0 && strchr(" \t", value[n - 1]))
                                n--;
                }
                value[n] = 0;
                if (found) {
                        *ret = TAKE_PTR(value);
                        return 0;
                }
        }
        return 0;
}

int multipart_init(Multipart *m, const char *content_type, const MultipartEvents *events, void *userdata) {
        _cleanup_free_ char *boundary = NULL;

        int r = get_parameter(content_type, "boundary", &boundary);
        if (r < 0)
                return r == -EBADMSG ? -EINVAL : r;
        if (isempty(boundary) || strlen(boundary) > MULTIPART_BOUNDARY_MAX || strpbrk(boundary, "\r\n"))
                return -EINVAL;

        /* The first boundary needs no line before it. */
        *m = (Multipart) { .events = events, .userdata = userdata, .matched = 2 };
        memcpy(m->delimiter, "\r\n--", 4);
        memcpy(m->delimiter + 4, boundary, strlen(boundary));
        m->n_delimiter = 4 + strlen(boundary);
        return 0;
}

void multipart_done(Multipart *m) {
        free(TAKE_PTR(m->head));
}

/* Its line in a head, "name: value" each. */
static char *find_field(char *head, const char *name) {
        size_t n = strlen(name);
        char *save;

        for (char *line = strtok_r(head, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
                if (strncasecmp(line, name, n) == 0 && line[n] == ':')
                        return line + n + 1 + strspn(line + n + 1, " \t");
        return NULL;
}

static int end_head(Multipart *m) {
        _cleanup_free_ char *name = NULL, *filename = NULL;

        m->head[m->n_head] = 0;
        if (strlen(m->head) != m->n_head)
                return -EBADMSG;
        const char *field = find_field(m->head, "Content-Disposition");
        if (!field)
                return -EBADMSG;
        int r = get_parameter(field, "name", &name);
        if (r >= 0)
                r = get_parameter(field, "filename", &filename);
        if (r < 0)
                return r;

        free(TAKE_PTR(m->head));
        m->n_head = m->matched = 0;
        m->state = MULTIPART_BODY;
        return m->events->begin(m->userdata, strempty(name), filename);
}

static int put_head(Multipart *m, uint8_t c) {
        if (!m->head)
                m->head = malloc(MULTIPART_HEAD_MAX + 1);
        if (!m->head)
                return -ENOMEM;
        if (m->n_head == MULTIPART_HEAD_MAX)
                return -EBADMSG;
        m->head[m->n_head++] = (char) c;
        bool empty = m->n_head == 2 && memcmp(m->head, "\r\n", 2) == 0;
        return empty || (m->n_head >= 4 && memcmp(m->head + m->n_head - 4, "\r\n\r\n", 4) == 0) ? end_head(m) : 0;
}

/* Two dashes end it all; else the line ends, blanks before that mean nothing. */
static int behind_boundary(Multipart *m, uint8_t c) {
        if (c == '-' && (m->behind == 0 || m->behind == '-')) {
                if (m->behind == '-')
                        m->state = MULTIPART_EPILOGUE;
                m->behind = '-';
                return 0;
        }
        if (c == '\n' && m->behind == '\r') {
                m->state = MULTIPART_HEAD;
                return 0;
        }
        if (m->behind == '-' || m->behind == '\r' || (c != ' ' && c != '\t' && c != '\r'))
                return -EBADMSG;
        m->behind = (char) c;
        return 0;
}

static int put_data(Multipart *m, const void *data, size_t size) {
        return size > 0 && m->state == MULTIPART_BODY ? m->events->data(m->userdata, data, size) : 0;
}

/* Until the delimiter is whole. Its first byte is nowhere else in it, so what broke off can only begin anew. */
static int scan(Multipart *m, const uint8_t **p, const uint8_t *end) {
        const uint8_t *from = *p;

        while (*p < end) {
                if (**p == (uint8_t) m->delimiter[m->matched]) {
                        (*p)++;
                        if (++m->matched < m->n_delimiter)
                                continue;
                        size_t before = (size_t) (*p - from) > m->matched ? (size_t) (*p - from) - m->matched : 0;
                        int r = put_data(m, from, before);
                        if (r >= 0 && m->state == MULTIPART_BODY)
                                r = m->events->end(m->userdata);
                        m->state = MULTIPART_BOUNDARY;
                        m->behind = 0;
                        return r;
                }
                if (m->matched > (size_t) (*p - from)) {
                        /* A part of it came with what was fed before, and was held back. */
                        int r = put_data(m, m->delimiter, m->matched - (size_t) (*p - from));
                        if (r < 0)
                                return r;
                }
                if (m->matched == 0)
                        (*p)++;
                m->matched = 0;
        }
        size_t held = MIN(m->matched, (size_t) (end - from));
        return put_data(m, from, (size_t) (end - from) - held);
}

int multipart_feed(Multipart *m, const uint8_t *data, size_t size) {
        const uint8_t *p = data, *end = data + size;
        int r = 0;

        while (r >= 0 && p < end && m->state != MULTIPART_EPILOGUE) {
                if (m->state == MULTIPART_PREAMBLE || m->state == MULTIPART_BODY)
                        r = scan(m, &p, end);
                else if (m->state == MULTIPART_BOUNDARY)
                        r = behind_boundary(m, *p++);
                else
                        r = put_head(m, *p++);
        }
        return r;
}
