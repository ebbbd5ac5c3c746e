/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the steps of builds came to: in .layers/ of the store, by the key of all that led there (daemon/template-key.h).
 *
 *      KEY.json   {"id": ID, "parent": KEY, "parent-id": ID, "delta": SHA256, "whole": SHA256, "state": {...}}
 *      KEY.delta  what differs from the parent's disk: { le64 offset, le64 bytes, data }..., ascending
 *      KEY.whole  the disk itself, sparse; the same file as disk.img of the templates that began with it
 *
 * A disk is a whole one, or the deltas from it up to its key. The same steps come to another disk when they are run again, so
 * that each run has an id of its own, and a delta belongs to one run of its parent's. Templates have hard links to the deltas that led to them
 * ("layer-KEY"), and so a layer is there as long as one of them is, or until nothing refers to it and something is removed.
 * Nothing of this is synced: what a crash of the host damaged has another hash, and is taken away when somebody wants it. */

#include <json-c/json.h>

#include "daemon/image/fault.h"

#define LAYER_KEYS_MAX 330U

#define LAYER_ID_MAX 20U

/* Of the build's disk.img, just sealed, with that hash. */
int layer_put_disk(int store_fd, int build_fd, const char *key, const char *id, const char *sum);

typedef struct LayerPlace {
        const char *key, *id, *parent, *parent_id;
} LayerPlace;

/* What overlay has beyond the last layer that this build put, or beyond its disk.img. Takes state over. */
int layer_put(int store_fd, const char *build, const LayerPlace *place, int overlay_fd, json_object *state, Fault *fault);
/* What a build no longer needs once it puts no more of them. */
int layer_drop_unused(int store_fd, const char *build);
/* Makes disk.img of the build from the first of the keys that there is a layer of. *ret: its description with "taken", which of
 * them that is; NULL when there is none. All keys are of one chain, the uppermost first. */
int layer_take(int store_fd, const char *build, uint64_t disk_bytes, char *const *keys, size_t n_keys, json_object **ret,
               Fault *fault);

/* Under the lock. */
int layers_sweep(int store_fd);
