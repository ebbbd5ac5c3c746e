/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Chains of others that stop what sandboxes send: firewalls (Docker's, ufw's, firewalld's) often drop all that is forwarded,
 * and an accept in our table can't override that. */

#define FORWARD_CHAINS_TEXT_MAX 250U

/* "ip filter FORWARD, inet x y": those that drop or reject by default, and whose table accepts nothing from and to our
 * links; "" for none. */
int forward_chains_find(char ret[static FORWARD_CHAINS_TEXT_MAX]);
