/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include "base/macros.h"

static inline void archive_read_freep(struct archive **a) {
        if (*a)
                (void) archive_read_free(*a);
}

static inline void archive_write_freep(struct archive **a) {
        if (*a)
                (void) archive_write_free(*a);
}

static inline void archive_entry_freep(struct archive_entry **e) {
        if (*e)
                archive_entry_free(*e);
}
