/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "vmm/error.h"

int error_set(ErrorText *e, int error, const char *format, ...) {
        va_list ap;

        assert(error < 0);
        assert(format);

        if (!e)
                return error;

        va_start(ap, format);
        (void) vsnprintf(e->text, sizeof(e->text), format, ap);
        va_end(ap);
        return error;
}

int error_set_errno(ErrorText *e, int error, const char *format, ...) {
        va_list ap;

        assert(error < 0);
        assert(format);

        if (!e)
                return error;

        va_start(ap, format);
        int n = vsnprintf(e->text, sizeof(e->text), format, ap);
        va_end(ap);

        /* strerrordesc_np() neither translates nor allocates: nothing to open in the jail. */
        if (n >= 0 && (size_t) n < sizeof(e->text))
                (void) snprintf(e->text + n, sizeof(e->text) - (size_t) n, ": %s",
                                strerrordesc_np(-error) ?: "unknown error");
        return error;
}
