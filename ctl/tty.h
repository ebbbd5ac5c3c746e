/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Our own terminal while a guest's program has it: raw, and put right again on every way out. */

#include <stdint.h>

#include "base/macros.h"

/* Nothing happens when stdin is no terminal. */
int tty_raw(void);
void tty_restore(void);
/* 80 x 24 when there is no terminal. */
void tty_size(uint32_t *ret_rows, uint32_t *ret_cols);
