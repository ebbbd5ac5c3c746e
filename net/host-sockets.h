/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's own sockets. */

#include <stdbool.h>

#include "net/bpf/net-maps.h"

/* Ends every TCP socket of this namespace that is connected to addr: its owner reads ECONNABORTED, and the other end
 * gets a reset where it still hears. spare_new: but for those that have had no answer yet, and ask again. */
int host_sockets_destroy(__u8 tag, const NetAddr *addr, bool spare_new, unsigned *ret_ended);
