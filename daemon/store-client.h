/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cubed's side of cube-stored: file system work that may take long, off the loop.
 *
 * Owned by the Manager, which hands over the socket of each new process behind it with
 * store_client_attach(). done may be NULL; else it runs exactly once, unless the call failed. */

#include <systemd/sd-event.h>

#include "base/macros.h"

typedef struct StoreClient StoreClient;

/* root_fd: the state directory, duplicated. */
int store_client_new(sd_event *event, int root_fd, StoreClient **ret);
StoreClient *store_client_free(StoreClient *c);
DEFINE_CLEANUP(StoreClient *, store_client_free);
int store_client_attach(StoreClient *c, int fd);
void store_client_detach(StoreClient *c);

typedef void (*StoreDone)(int error, void *userdata);
int store_client_sync(StoreClient *c, int fd, StoreDone done, void *userdata);
/* Paths are relative to the root. */
int store_client_rename(StoreClient *c, const char *from, const char *to, StoreDone done, void *userdata);
int store_client_remove(StoreClient *c, const char *path, StoreDone done, void *userdata);
