/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What went wrong, in words for the one who gave the file. The caller owns it; the first text stays. */

#include "base/macros.h"

typedef struct Fault {
        char text[256];
} Fault;

/* Returns r, so that a function can explain and return in one line. */
int fault_set(Fault *f, int r, const char *format, ...) _printf_(3, 4);
