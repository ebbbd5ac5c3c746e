/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Log lines of cube-gateway, and its audit trail: one structured entry of the journal for each request that a key was
 * known for or refused, found by journalctl -u cube-gateway CUBE_KEY=ID.
 *
 * In a service they go to the journal, else to stderr, an entry as one line of its fields. What clients send is escaped,
 * and what looks like a key is made unreadable in it; a key itself, bodies, metadata and environment never get in here. */

#include <syslog.h>

#include "base/macros.h"

/* As a 128-bit id in units/cubed.catalog. */
#define AUDIT_ID_REQUEST "6d1b0e5f3c1b4b5c9f0f3a7d52c84e90"
#define AUDIT_ID_KEY "b0c94d2c68a5437c93d7c1f2b6fe0a31"

void log_open(void);
/* Returns -abs(error). The format says %m where the error's text shall stand. */
int log_full_errno(int level, int error, const char *format, ...) _printf_(3, 4);
#define log_info(...) ((void) log_full_errno(LOG_INFO, 0, __VA_ARGS__))
#define log_error_errno(r, ...) log_full_errno(LOG_ERR, (r), __VA_ARGS__)

typedef struct AuditRequest {
        const char *key, *tenant;        /* "" when no key was known */
        const char *method, *path;       /* as the client sent it */
        const char *sandbox;             /* "" for none */
        unsigned status;                 /* 499: its client left before it was answered */
} AuditRequest;

void audit_request(const AuditRequest *a);
/* So many more that were refused, with 401 or 429: of a key, of those without a valid one (""), or of several (NULL). */
void audit_refused(const char *key, uint32_t count);
/* what is "created" or "revoked" */
void audit_key(const char *what, const char *id, const char *tenant, const char *name, uid_t actor);
