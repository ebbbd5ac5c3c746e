/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The links of a sandbox: a namespace with a tap, and a veth between it and the host.
 *
 * They live as long as the namespace, which lives as long as somebody holds its fd or the tap's: nothing here has
 * to be taken away. Names and numbers of links, MACs and addresses follow from the slot. */

#include "net/datapath.h"

typedef struct SlotPlan {
        Prefix net4, net6;     /* of the sandboxes; net6.tag 0: no IPv6 */
        unsigned mtu;
} SlotPlan;

/* The host has the first address of the network, so slots begin behind it. */
#define SLOT_HOST 1U
#define SLOT_FIRST 2U

/* How many slots the networks have room for. */
unsigned slot_limit(const SlotPlan *plan);
void slot_fill(const SlotPlan *plan, unsigned slot, NetSlot *ret);
void slot_host_name(unsigned slot, char ret[static 16]);

/* Makes everything, programs attached, nothing allowed. The fds keep it. -EEXIST: there is a link with its number.
 * error says what failed. */
int slot_make(Datapath *d, const SlotPlan *plan, unsigned slot, int *ret_netns, int *ret_tap, char error[static 200]);
