/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent's own messages. As PID 1 they go to /dev/kmsg, since user-space writes to the serial
 * console never come out of a guest without a delivered UART interrupt; before that is open, and in
 * tests, to standard error. Arguments, environment and file contents are never logged. */

#include "base/macros.h"

void log_open_kmsg(void);
void log_info(const char *format, ...) _printf_(1, 2);
void log_warning(const char *format, ...) _printf_(1, 2);
void log_error(const char *format, ...) _printf_(1, 2);
