/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the journal has about a sandbox: entries with CUBE_SANDBOX=<id>. */

#include <systemd/sd-journal.h>

#include "base/macros.h"

int journal_open(const char *id, sd_journal **ret);
/* A field of the present entry; "" when it has none. Fresh, NULL without memory. */
char *journal_field(sd_journal *j, const char *name);
/* The present entry on one line. */
int journal_print(sd_journal *j);
/* The last n entries; leaves the journal behind them. Returns how many. */
int journal_print_last(sd_journal *j, unsigned n);
