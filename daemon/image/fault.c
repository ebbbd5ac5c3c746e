/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "daemon/image/fault.h"

int fault_set(Fault *f, int r, const char *format, ...) {
        va_list ap;

        if (f->text[0])
                return r;
        va_start(ap, format);
        (void) vsnprintf(f->text, sizeof(f->text), format, ap);
        va_end(ap);
        return r;
}
