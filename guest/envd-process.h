/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* envd's service process.Process: programs (program.h), as its clients ask for them. */

#include "guest/connect.h"

/* The last has no path. */
extern const ConnectMethod process_methods[];
