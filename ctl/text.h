/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text for people and terminals. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* A copy in which nothing can command a terminal: control characters, and bytes that are no character, become \xNN. Lines
 * and tabs stay when lines is set. For all that comes from a guest. NULL without memory. */
char *text_printable(const char *s, size_t size, bool lines);
/* JSON text, which has none of the old control characters but ends of lines: those that text_printable() takes away besides are
 * \uNNNN in it, which is the same JSON. NULL without memory. */
char *text_json(const char *s);
/* How much of a text that comes in pieces can be printed: the rest is a character whose end is still to come. */
size_t text_whole(const char *s, size_t size);
/* Columns on a terminal. */
size_t text_width(const char *s);

#define TEXT_TIME_MAX 64
/* "Sun 2026-11-29 14:48:02 UTC"; "-" for 0 and UINT64_MAX. */
char *text_timestamp(char buf[static TEXT_TIME_MAX], uint64_t realtime_usec);
/* "5min ago", "in 3min 2s". */
char *text_relative(char buf[static TEXT_TIME_MAX], uint64_t realtime_usec);
/* A user's name, or his number. */
#define TEXT_USER_MAX 64
char *text_user(char buf[static TEXT_USER_MAX], uid_t uid);

/* Colours: "" where the output is no terminal, or nobody wants any. */
typedef enum TextColor {
        TEXT_NORMAL,
        TEXT_BOLD,
        TEXT_GREEN,
        TEXT_YELLOW,
        TEXT_RED,
        TEXT_GREY,
        TEXT_UNDERLINE,
} TextColor;
const char *text_color(TextColor c);
bool text_stdout_is_terminal(void);

char **text_strv_free(char **l);
static inline void text_strv_freep(char ***l) {
        text_strv_free(*l);
}
#define _cleanup_strv_ _cleanup_(text_strv_freep)
/* Appends a copy of s; l may be NULL. */
int text_strv_add(char ***l, const char *s);
