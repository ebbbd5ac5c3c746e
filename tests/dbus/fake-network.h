/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network of a host without one: rules are read by the code that cube-netd reads them with, and what becomes of them
 * is only kept.
 *
 * Loading and setting a policy take a turn of the loop each, so that others come in between. A policy is forgotten as soon
 * as nobody holds it. A rule for "slow.example" is loaded when the file that $FAKE_NETWORK_HOLD names is not there, and
 * "network load waits" is said before; one for "lost.example" is never loaded, as if cube-netd had gone, and one for
 * "stuck.example" can't be set. */

#include "daemon/host-network.h"

int fake_network_new(Manager *m, HostNetwork **ret);
void fake_network_free(HostNetwork *n);
/* Of a new sandbox: its place, and the policy of spec or of its template. */
int fake_network_join(Sandbox *s, const SandboxSpec *spec);
void fake_network_leave(Sandbox *s);
void fake_network_limit(Sandbox *s, const NetLimits *limits);
