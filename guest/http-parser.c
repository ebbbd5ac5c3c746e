/* SPDX-License-Identifier: Apache-2.0 */
#include <strings.h>

#include "guest/http-parser.h"

static int head_put(HttpParser *p, const char *data, size_t size) {
        HttpRequest *q = &p->request;

        if (q->size + size > HTTP_HEAD_MAX) {
                p->error = -EMSGSIZE;
                return HPE_USER;
        }
        if (q->size + size > q->allocated) {
                size_t allocated = MIN(MAX(q->allocated * 2, q->size + size + 512), (size_t) HTTP_HEAD_MAX);
                char *text = realloc(q->text, allocated);
                if (!text) {
                        p->error = -ENOMEM;
                        return HPE_USER;
                }
                q->text = text;
                q->allocated = allocated;
        }
        memcpy(q->text + q->size, data, size);
        q->size += size;
        return HPE_OK;
}

static int on_message_begin(llhttp_t *l) {
        HttpParser *p = l->data;

        p->request.begun = true;
        return HPE_OK;
}

static int on_text(llhttp_t *l, const char *data, size_t size) {
        return head_put(l->data, data, size);
}

static int on_text_complete(llhttp_t *l) {
        return head_put(l->data, "", 1);
}

static int on_name(llhttp_t *l, const char *data, size_t size) {
        HttpParser *p = l->data;
        HttpRequest *q = &p->request;

        /* A trailer says nothing that anybody here asks for. */
        if (q->head)
                return HPE_OK;
        if (q->n_fields == HTTP_FIELDS_MAX) {
                p->error = -EMSGSIZE;
                return HPE_USER;
        }
        if (q->names[q->n_fields] == 0)
                q->names[q->n_fields] = (uint32_t) q->size;
        return head_put(p, data, size);
}

static int on_name_complete(llhttp_t *l) {
        HttpParser *p = l->data;
        HttpRequest *q = &p->request;

        if (q->head)
                return HPE_OK;
        int r = head_put(p, "", 1);
        q->values[q->n_fields] = (uint32_t) q->size;
        return r;
}

static int on_value(llhttp_t *l, const char *data, size_t size) {
        HttpParser *p = l->data;

        return p->request.head ? HPE_OK : head_put(p, data, size);
}

static int on_value_complete(llhttp_t *l) {
        HttpParser *p = l->data;
        HttpRequest *q = &p->request;

        if (q->head || q->n_fields == HTTP_FIELDS_MAX || q->names[q->n_fields] == 0)
                return HPE_OK;
        q->n_fields++;
        return head_put(p, "", 1);
}

static int on_headers_complete(llhttp_t *l) {
        HttpParser *p = l->data;
        HttpRequest *q = &p->request;

        q->head = true;
        q->method = l->method;
        q->http_10 = l->http_major == 1 && l->http_minor == 0;
        q->length = l->flags & F_CHUNKED ? UINT64_MAX : l->flags & F_CONTENT_LENGTH ? l->content_length : 0;
        q->keep_alive = llhttp_should_keep_alive(l) && !l->upgrade;
        p->on_head(p->userdata);
        return HPE_OK;
}

static int on_body(llhttp_t *l, const char *data, size_t size) {
        HttpParser *p = l->data;

        p->on_body(p->userdata, (const uint8_t *) data, size);
        return HPE_OK;
}

static int on_message_complete(llhttp_t *l) {
        HttpParser *p = l->data;

        p->request.complete = true;
        return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
        .on_message_begin = on_message_begin,
        .on_url = on_text,
        .on_url_complete = on_text_complete,
        .on_header_field = on_name,
        .on_header_field_complete = on_name_complete,
        .on_header_value = on_value,
        .on_header_value_complete = on_value_complete,
        .on_headers_complete = on_headers_complete,
        .on_body = on_body,
        .on_message_complete = on_message_complete,
};

void http_parser_init(
        HttpParser *p, void (*on_head)(void *userdata),
        void (*on_body)(void *userdata, const uint8_t *data, size_t size), void *userdata) {
        *p = (HttpParser) { .on_head = on_head, .on_body = on_body, .userdata = userdata };
        llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
        p->llhttp.data = p;
}

void http_parser_done(HttpParser *p) {
        free(p->request.text);
        p->request = (HttpRequest) {};
}

void http_parser_next(HttpParser *p) {
        http_parser_done(p);
        llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
        p->llhttp.data = p;
}

ssize_t http_parser_feed(HttpParser *p, const uint8_t *data, size_t size) {
        assert(!p->request.complete);

        llhttp_errno_t e = llhttp_execute(&p->llhttp, (const char *) data, size);
        if (e == HPE_OK)
                return (ssize_t) size;
        if (p->request.complete && (e == HPE_PAUSED || e == HPE_PAUSED_UPGRADE))
                return (const uint8_t *) llhttp_get_error_pos(&p->llhttp) - data;
        return p->error < 0 ? p->error : -EBADMSG;
}

const char *http_field(const HttpRequest *q, const char *name) {
        for (unsigned i = 0; i < q->n_fields; i++)
                if (strcasecmp(q->text + q->names[i], name) == 0)
                        return q->text + q->values[i];
        return NULL;
}

bool http_path_is(const HttpRequest *q, const char *path) {
        size_t n = strcspn(q->text, "?");

        return n == strlen(path) && memcmp(q->text, path, n) == 0;
}

static int hex_digit(char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int form_decode(const char *s, size_t size, char **ret) {
        _cleanup_free_ char *out = malloc(size + 1);
        size_t n = 0;

        if (!out)
                return -ENOMEM;
        for (size_t i = 0; i < size; i++) {
                int c = s[i] == '+' ? ' ' : (unsigned char) s[i];

                if (c == '%') {
                        int high = i + 2 < size ? hex_digit(s[i + 1]) : -1;
                        int low = high >= 0 ? hex_digit(s[i + 2]) : -1;
                        c = high >= 0 && low >= 0 ? high << 4 | low : 0;
                        i += 2;
                }
                if (c == 0)
                        return -EBADMSG;
                out[n++] = (char) c;
        }
        out[n] = 0;
        *ret = TAKE_PTR(out);
        return 0;
}

int http_query(const HttpRequest *q, const char *name, char **ret) {
        size_t name_size = strlen(name);

        *ret = NULL;
        for (const char *p = strchr(q->text, '?'); p; p = strchr(p, '&')) {
                size_t size = strcspn(++p, "&");
                if (size >= name_size && memcmp(p, name, name_size) == 0 && (size == name_size || p[name_size] == '='))
                        return form_decode(p + name_size + (size > name_size), size - name_size - (size > name_size), ret);
        }
        return 0;
}
