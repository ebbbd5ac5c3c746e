/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which sandboxes can be reached from outside: follows what cubed says of them, and has haproxy (ingress.cfg) know the same.
 *
 * What it keeps is cubed's truth, asked for whole whenever cubed appears and then followed by its signals. Those of a change
 * come before the answer to the call that made it, so an answer to a client that waits for haproxy tells nothing that is not
 * so there. Owned by the gateway. */

#include "gateway/gateway.h"

/* control: haproxy's socket. */
int ingress_new(Gateway *g, const char *control, Ingress **ret);
/* Behind the HTTP server: requests that wait here are its. */
Ingress *ingress_free(Ingress *in);

/* Whether the answer to r has to wait for haproxy; then request_release() follows. */
bool ingress_holds(Ingress *in, Request *r);
