/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whole files over HTTP, /files of envd: GET reads one, POST writes one or more. Both are done as root; the user of the query
 * says whose home a relative path is in, and whose a written file becomes. Who may is told by the token in X-Access-Token, or
 * by a signature in the query that the token was needed for. */

#include "guest/agent.h"
#include "guest/http-conn.h"
#include "guest/user.h"

typedef struct FileTarget {
        char *path;             /* as the query has it, NULL when it has none */
        User user;
} FileTarget;

/* 0, or it has answered. operation: what was signed, "read" or "write". */
int file_target_get(const Envd *e, HttpConn *c, const char *operation, FileTarget *ret);
void file_target_done(FileTarget *t);
#define _cleanup_file_target_ _cleanup_(file_target_done)

void files_begin_read(Agent *a, HttpConn *c);
void files_begin_write(Agent *a, HttpConn *c);
