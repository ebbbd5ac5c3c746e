/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A forged TCP segment to the sandbox, as from the other end of a flow. */

#include "net/bpf/net-maps.h"

#define POKE_BYTES_MAX 74U

/* Bytes written. */
unsigned poke_build(__u8 packet[POKE_BYTES_MAX], const NetFlowKey *key, const NetSlot *slot);
