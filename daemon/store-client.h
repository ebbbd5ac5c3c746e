/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cubed's side of cube-stored: file system work that may take long, off the loop.
 *
 * Owned by the Manager, which hands over the socket of each new process behind it with
 * store_client_attach(). done may be NULL; else it runs exactly once, unless the call failed. Answers come in any
 * order: what must happen in one is asked for one after the other. -ECONNRESET: cube-stored ended in between. */

#include <systemd/sd-event.h>

#include "base/macros.h"
#include "base/snapshot-format.h"
#include "base/vmm-proto.h"

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

/* Copies pages out of the process behind pid_fd into fd, an empty file of ours, as a memory file
 * of base/snapshot-format.h: header, table and pages, zeros left out. runs: by address, from VMM_OP_SAVE.
 * error -ESRCH: the process is gone. */
typedef struct StoreMemory {
        int pid_fd;
        const VmmRun *runs;
        size_t n_runs;
        uint64_t mem_bytes;          /* of the guest, with what can be plugged */
        uint8_t id[SNAPSHOT_ID_BYTES], parent[SNAPSHOT_ID_BYTES];
} StoreMemory;
typedef void (*StoreMemoryDone)(int error, uint64_t data_bytes, uint64_t zero_bytes, void *userdata);
int store_client_save_memory(StoreClient *c, const StoreMemory *m, int fd, StoreMemoryDone done, void *userdata);

/* Several layers into one with the same content, into fd, an empty file; lowest first. Memory: the result is made of
 * those behind the first n_beneath, and has the id of the uppermost and the parent of the lowest of them. Those beneath,
 * down to one without a parent, lend the pages between runs when there would be too many runs; without them that is
 * -E2BIG. Does not hold other requests up. */
int store_client_merge_memory(StoreClient *c, const int *layers, size_t n_layers, size_t n_beneath, int fd,
                              StoreDone done, void *userdata);
int store_client_merge_disk(StoreClient *c, const int *layers, size_t n_layers, int fd, StoreDone done,
                            void *userdata);
