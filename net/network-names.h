/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What names opened, when the policy of a sandbox becomes another one. */

#include "net/datapath.h"
#include "net/slot.h"

/* What names opened for a slot under one policy is opened under the other as well, as far as that has these names. */
void network_names_carry(Datapath *d, unsigned slot, uint32_t from, uint32_t to, const PolicyTable *table, const SlotPlan *plan);
/* The name table of a policy. */
struct NameTable;
int network_name_table(const PolicyTable *table, struct NameTable **ret);
/* A name that opened the address under the policy that the slot has; "" when there is none. */
void network_name_of(Datapath *d, unsigned slot, uint8_t tag, const NetAddr *addr, char ret[static NET_NAME_MAX]);
