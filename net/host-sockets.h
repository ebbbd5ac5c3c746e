/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's own sockets. */

#include "net/bpf/net-maps.h"

/* Ends every TCP socket of this namespace that is connected to addr: its owner reads ECONNABORTED, and the other end
 * gets a reset where it still hears. */
int host_sockets_destroy(__u8 tag, const NetAddr *addr, unsigned *ret_ended);
