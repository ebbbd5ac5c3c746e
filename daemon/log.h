/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Plain log lines of a daemon, for the admin: stderr, which is the journal in a service.
 *
 * Never waits: a line that the journal does not take at once is lost and counted. Text from
 * guests goes through escape_text() first. */

#include <stdarg.h>
#include <syslog.h>

#include "base/macros.h"

/* Makes stderr non-blocking where that is a socket of our own; debug from $CUBED_LOG_LEVEL. */
void log_open(void);
void log_set_max_level(int level);
int log_get_max_level(void);

/* Returns -abs(error), so that a function can log and return in one line. */
int log_full_errno(int level, int error, const char *format, ...) _printf_(3, 4);
#define log_debug(...) ((void) log_full_errno(LOG_DEBUG, 0, __VA_ARGS__))
#define log_info(...) ((void) log_full_errno(LOG_INFO, 0, __VA_ARGS__))
#define log_notice(...) ((void) log_full_errno(LOG_NOTICE, 0, __VA_ARGS__))
#define log_warning(...) ((void) log_full_errno(LOG_WARNING, 0, __VA_ARGS__))
#define log_error(...) ((void) log_full_errno(LOG_ERR, 0, __VA_ARGS__))
/* The format says %m where the error's text shall stand. */
#define log_debug_errno(r, ...) log_full_errno(LOG_DEBUG, (r), __VA_ARGS__)
#define log_warning_errno(r, ...) log_full_errno(LOG_WARNING, (r), __VA_ARGS__)
#define log_error_errno(r, ...) log_full_errno(LOG_ERR, (r), __VA_ARGS__)
#define log_oom() log_full_errno(LOG_ERR, ENOMEM, "Out of memory")

/* A bounded copy with everything but printable ASCII as \xNN (lines end as \n); at most max bytes
 * of text are taken, the end cut off. NULL without memory. */
char *escape_text(const void *text, size_t size, size_t max);
