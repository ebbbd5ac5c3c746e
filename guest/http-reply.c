/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "guest/http-reply.h"
#include "guest/json.h"

#define HEAD_MAX 4096

static const char *reason(unsigned status) {
        static const struct {
                unsigned status;
                const char *text;
        } reasons[] = {
                { 100, "Continue" },
                { 200, "OK" },
                { 204, "No Content" },
                { 206, "Partial Content" },
                { 304, "Not Modified" },
                { 400, "Bad Request" },
                { 401, "Unauthorized" },
                { 403, "Forbidden" },
                { 404, "Not Found" },
                { 405, "Method Not Allowed" },
                { 406, "Not Acceptable" },
                { 409, "Conflict" },
                { 412, "Precondition Failed" },
                { 413, "Content Too Large" },
                { 415, "Unsupported Media Type" },
                { 416, "Range Not Satisfiable" },
                { 429, "Too Many Requests" },
                { 431, "Request Header Fields Too Large" },
                { 499, "Client Closed Request" },
                { 500, "Internal Server Error" },
                { 501, "Not Implemented" },
                { 503, "Service Unavailable" },
                { 504, "Gateway Timeout" },
                { 507, "Insufficient Storage" },
        };

        for (size_t i = 0; i < ELEMENTSOF(reasons); i++)
                if (reasons[i].status == status)
                        return reasons[i].text;
        return "Status";
}

static void put(HttpConn *c, const void *data, size_t size) {
        if (!c->broken && size > 0 && outbox_put(&c->out, data, size) < 0)
                http_conn_break(c);
}

void http_reply_begin(HttpConn *c, unsigned status, const char *fields, uint64_t length) {
        const HttpRequest *q = http_request(c);
        char head[HEAD_MAX], framing[64] = "";

        assert(!c->reply_begun);

        c->reply_begun = true;
        c->reply_headless = q->method == HTTP_HEAD || status == 204 || status == 304;
        if (!q->keep_alive || !q->head)
                c->close = true;
        if (length == HTTP_CHUNKED) {
                c->reply_chunked = !q->http_10 && !c->reply_headless;
                c->close |= q->http_10;
        }
        if (c->reply_chunked)
                snprintf(framing, sizeof(framing), "Transfer-Encoding: chunked\r\n");
        else if (length != HTTP_CHUNKED && status != 204)
                snprintf(framing, sizeof(framing), "Content-Length: %llu\r\n", (unsigned long long) length);

        int n = snprintf(
                head, sizeof(head), "HTTP/1.1 %u %s\r\n%s%s%s%s\r\n", status, reason(status), strempty(fields), framing,
                c->cors ? "Access-Control-Allow-Origin: *\r\n"
                          "Access-Control-Expose-Headers: Location, Cache-Control, X-Content-Type-Options, "
                          "Content-Encoding, Connect-Content-Encoding, Grpc-Status, Grpc-Message\r\n" : "",
                c->close ? "Connection: close\r\n" : "");
        if (n < 0 || (size_t) n >= sizeof(head))
                http_conn_break(c);
        else
                put(c, head, (size_t) n);
}

void http_reply_part(HttpConn *c, const void *data, size_t size) {
        char length[24];

        assert(c->reply_begun && !c->reply_ended);

        if (size == 0 || c->reply_headless)
                return;
        if (c->reply_chunked)
                put(c, length, (size_t) snprintf(length, sizeof(length), "%zx\r\n", size));
        put(c, data, size);
        if (c->reply_chunked)
                put(c, "\r\n", 2);
}

void http_reply_end(HttpConn *c) {
        assert(c->reply_begun && !c->reply_ended);

        if (c->reply_chunked)
                put(c, "0\r\n\r\n", 5);
        c->reply_ended = true;
        /* What is left of the request is dropped as it comes. */
        http_conn_pause(c, false);
        http_conn_wake(c);
}

void http_reply(HttpConn *c, unsigned status, const char *fields, const void *body, size_t size) {
        http_reply_begin(c, status, fields, size);
        http_reply_part(c, body, size);
        http_reply_end(c);
}

void http_reply_error(HttpConn *c, unsigned status, const char *format, ...) {
        _cleanup_json_ json_object *o = json_object_new_object();
        char message[1024];
        va_list ap;

        va_start(ap, format);
        vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);

        json_put_int(o, "code", (int) status);
        json_put_text(o, "message", message);
        const char *text = json_text(o);
        http_reply(c, status, "Content-Type: application/json\r\n", text, strlen(text));
}
