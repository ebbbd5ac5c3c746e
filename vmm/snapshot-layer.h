/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Layers of the guest's RAM: memory files of snapshots (base/snapshot-format.h), mapped over each other.
 *
 * Only data runs are mapped from files, privately; what no layer has is anonymous memory, since faulting a
 * hole of a file would cost a page of the file as well. A file that is mapped must not change or shrink
 * any more. A LayerStack is opened and checked as a whole before anything is mapped. */

#include "vmm/guest-mem.h"
#include "vmm/snapshot-file.h"

typedef struct Layer {
        int fd;
        SnapshotLayerHeader header;
        SnapshotRun *runs;
} Layer;

typedef struct LayerStack {
        Layer layers[SNAPSHOT_LAYERS_MAX];
        unsigned n;
} LayerStack;

/* Of all layers together. */
#define LAYER_RUNS_MAX (4 * SNAPSHOT_LAYER_RUNS_MAX)

/* fd stays the caller's. Every run lies in m and in the file. */
int layer_open(Layer *l, int fd, const GuestMem *m, ErrorText *e);
void layer_done(Layer *l);
/* Over what is mapped now. */
int layer_map(const Layer *l, GuestMem *m, ErrorText *e);

/* fds, lowest first: each layer stands on the one below, and the last one is the memory of snapshot id. */
int layer_stack_open(LayerStack *s, const int *fds, unsigned n, const uint8_t id[static SNAPSHOT_ID_BYTES],
                     const GuestMem *m, ErrorText *e);
void layer_stack_done(LayerStack *s);
#define _cleanup_layer_stack_ _cleanup_(layer_stack_done)
unsigned layer_stack_runs(const LayerStack *s);
/* All of RAM anew. *ret_touched: whether the old content is, in part, gone; also on error. */
int layer_stack_map(const LayerStack *s, GuestMem *m, bool *ret_touched, ErrorText *e);
