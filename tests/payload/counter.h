/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the program "counter" counts: each number is left in a page of memory and in a sector, and has to be there when
 * their turn comes again. */

#include <stdbool.h>
#include <stdint.h>

/* One further. true: there is more to be done. */
bool counter_move(void);
/* The same, but it is left in a register of the serial port: each access is an exit of its own, whose answer a snapshot must
 * not lose. */
bool counter_move_registers(void);
uint64_t counter_value(void);
/* How many were not what they were left as. */
uint64_t counter_errors(void);
