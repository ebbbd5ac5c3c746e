/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A gzip stream, taken apart as it comes: what it holds is passed on in pieces and never kept. */

#include "base/macros.h"

typedef struct Inflate Inflate;

/* NULL without memory. */
Inflate *inflate_new(void);
Inflate *inflate_free(Inflate *i);
/* -EBADMSG for what is no gzip or goes on behind its end, -ENOMEM, or what put said. */
int inflate_feed(
        Inflate *i, const uint8_t *data, size_t size, int (*put)(void *userdata, const uint8_t *data, size_t size), void *userdata);
bool inflate_ended(const Inflate *i);
