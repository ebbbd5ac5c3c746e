/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The answer to the request of a connection: at once by http_reply(), or in parts. Lines of fields each end in CRLF. A failure
 * breaks the connection: there is nothing else to tell a client by then. */

#include "guest/http-conn.h"

#define HTTP_CHUNKED UINT64_MAX

void http_reply(HttpConn *c, unsigned status, const char *fields, const void *body, size_t size);
/* {"code":STATUS,"message":"..."}, as all of E2B's servers say it. */
void http_reply_error(HttpConn *c, unsigned status, const char *format, ...) _printf_(3, 4);

void http_reply_begin(HttpConn *c, unsigned status, const char *fields, uint64_t length);
void http_reply_part(HttpConn *c, const void *data, size_t size);
void http_reply_end(HttpConn *c);
