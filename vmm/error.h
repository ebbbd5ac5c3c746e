/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The words that go with a negative errno: what could not be done, to which thing.
 *
 * Whoever can fail in more than one way takes an ErrorText and fills it once, where it knows most.
 * The text ends up in the reply to cubed or in the exit record. */

#include <stdarg.h>

#include "base/macros.h"

typedef struct ErrorText {
        char text[200];
} ErrorText;

/* Sets the text and returns error, so that "return error_set(e, -EINVAL, ...)" reads as one. The name
 * of the errno is not added. e may be NULL. */
int error_set(ErrorText *e, int error, const char *format, ...) _printf_(3, 4);
/* The same with ": <strerror(-error)>" behind the text. */
int error_set_errno(ErrorText *e, int error, const char *format, ...) _printf_(3, 4);
