/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cubed's side of cube-netd: asks, and is called back on the loop.
 *
 * Owned by the Manager, which starts and restarts the process behind it (daemon/helper.h) and
 * hands over the socket with net_client_attach(). Requests without a connection fail with
 * -ENOTCONN, those under way when it breaks with -ECONNRESET. */

#include <systemd/sd-event.h>

#include "base/macros.h"

typedef struct NetClient NetClient;

int net_client_new(sd_event *event, NetClient **ret);
NetClient *net_client_free(NetClient *c);
DEFINE_CLEANUP(NetClient *, net_client_free);
/* Takes fd on success. What was connected before is dropped. */
int net_client_attach(NetClient *c, int fd);
void net_client_detach(NetClient *c);

/* error: 0 or negative errno, then message is text for people (never NULL). Take *fd by TAKE_FD. */
typedef void (*NetnsDone)(int error, const char *message, int *fd, void *userdata);
int net_client_new_netns(NetClient *c, NetnsDone done, void *userdata);
/* Forgets a request: its callback won't run. */
void net_client_cancel(NetClient *c, void *userdata);
