/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Snapshots on disk and in memory: saved states of sandboxes, and the layers they stand on.
 *
 * A snapshot is the directory /var/lib/cubed/snapshots/<id>/ with snapshot.json and the files below.
 * Memory and disk are layers: each holds what differs from the layer beneath it, down to the template's
 * files. The files of a snapshot are never changed once it is published; flattening replaces them by
 * others with the same content seen from above (and snapshot.json names which).
 *
 * The SnapshotStore owns all Snapshots. Who stands on one (a sandbox that runs on its layers or is paused
 * in it, another snapshot above it) holds a use of it; one with uses keeps its files. Those that nobody
 * asked for (SNAPSHOT_FORK, _PAUSE, _LAYER) go by themselves with their last use.
 *
 * Directories that begin with a dot are works in progress; they are removed when cubed starts. Nothing in
 * here logs or knows the bus. */

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"
#include "base/snapshot-format.h"
#include "base/vmm-proto.h"
#include "daemon/store-client.h"

/* Memory layers that a machine can have: SNAPSHOT_LAYERS_MAX. Disk layers: VMM_DISK_LAYERS_MAX. */
/* From this many layers on, a snapshot is flattened in the background. */
#define SNAPSHOT_FLATTEN_AT 4U

typedef enum SnapshotKind {
        SNAPSHOT_TEMPLATE,       /* the warmed guest of a template, from which its sandboxes start; goes with it */
        SNAPSHOT_USER,           /* somebody asked for it */
        SNAPSHOT_CHECKPOINT,     /* taken by itself, numbered; goes with its sandbox */
        SNAPSHOT_PAUSE,          /* what a paused sandbox is */
        SNAPSHOT_FORK,           /* what forks started from, or what a rollback can go back to */
        SNAPSHOT_LAYER,          /* was removed, but something stands on it: no state any more */
        _SNAPSHOT_KIND_MAX,
        _SNAPSHOT_KIND_INVALID = -EINVAL,
} SnapshotKind;

const char *snapshot_kind_to_string(SnapshotKind k);
SnapshotKind snapshot_kind_from_string(const char *s);

typedef enum SnapshotFileKind {
        SNAPSHOT_FILE_STATE,     /* absent without memory */
        SNAPSHOT_FILE_MEMORY,    /* absent without memory */
        SNAPSHOT_FILE_DISK,      /* overlay of what was written since the layer beneath */
        _SNAPSHOT_FILE_MAX,
} SnapshotFileKind;

typedef struct SnapshotStore SnapshotStore;
typedef struct Snapshot Snapshot;

struct Snapshot {
        char id[21];
        SnapshotKind kind;
        char *name;              /* may be NULL */
        uid_t owner_uid;
        uint64_t created_usec;   /* CLOCK_REALTIME */
        char *sandbox_id;        /* of which it is */
        char *template_id;
        char *template_name;     /* may be NULL */
        uint64_t number;         /* of a checkpoint */
        bool durable;            /* it outlives a crash of the host */

        bool has_memory;
        uint8_t uuid[SNAPSHOT_ID_BYTES]; /* of its state and memory file */
        Snapshot *parent;        /* on whose disk layer this one's lies; NULL: on the template's disk */
        Snapshot *memory_parent; /* NULL: memory that is in no layer is zeros */

        /* The sandbox as it was: SandboxSpec's fields of the same names. */
        uint64_t mem_bytes, boot_mem_bytes, plug_bytes, disk_bytes, cpu_quota_usec;
        uint32_t cpus;

        uint64_t file_bytes[_SNAPSHOT_FILE_MAX]; /* that it takes on disk */

        unsigned n_users;
        SnapshotStore *store;
        struct SnapshotPrivate *priv;
};

struct SnapshotStore {
        char *root;
        int root_fd;
        Snapshot **snapshots;    /* published ones, in no particular order */
        size_t n_snapshots;
        StoreClient *client;     /* borrowed */
        char **warnings;         /* one for each directory that was not loaded, and why */
        size_t n_warnings;
        /* Told when one is published, changed (kind, parent, sizes), or gone from the list; may be NULL. */
        void (*added)(Snapshot *s, void *userdata);
        void (*changed)(Snapshot *s, void *userdata);
        void (*removed)(Snapshot *s, void *userdata);
        void *userdata;
};

/* Creates root when it is missing. What stands on something that is not there is not loaded, and warned of. */
int snapshot_store_load(SnapshotStore **ret, const char *root, StoreClient *client);
SnapshotStore *snapshot_store_free(SnapshotStore *s);
DEFINE_CLEANUP(SnapshotStore *, snapshot_store_free);
Snapshot *snapshot_store_find(SnapshotStore *s, const char *id);
/* The SNAPSHOT_TEMPLATE of that template, or NULL. */
Snapshot *snapshot_store_find_template(SnapshotStore *s, const char *template_id);
/* Removes works in progress, and what has no use and no owner: once sandboxes were adopted. */
void snapshot_store_clean(SnapshotStore *s);

/* Making one. The new one belongs to the caller until it is published: fill its fields (parents with
 * snapshot_set_parents()), create the files, publish. snapshot_free() of one that is not published removes
 * its directory. */
int snapshot_new(SnapshotStore *s, SnapshotKind kind, Snapshot **ret);
Snapshot *snapshot_free(Snapshot *s);
DEFINE_CLEANUP(Snapshot *, snapshot_free);
int snapshot_set_parents(Snapshot *s, Snapshot *parent, Snapshot *memory_parent);
/* An empty file, 0600, open for reading and writing; the caller's. */
int snapshot_create_file(Snapshot *s, SnapshotFileKind file, int *ret_fd);
/* Gives a name to an unnamed file (O_TMPFILE) or to one that is open: the frozen overlay. */
int snapshot_link_file(Snapshot *s, SnapshotFileKind file, int fd);
/* Writes snapshot.json and gives the directory its name; in the list from here, with one use that is the
 * caller's. Does not wait for the disk: a crash of the host may lose it, a crash of cubed does not. */
int snapshot_publish(Snapshot *s);
/* Then this: fsync of all of it by cube-stored, durable from done() on. */
typedef void (*SnapshotDone)(Snapshot *s, int error, void *userdata);
int snapshot_sync(Snapshot *s, SnapshotDone done, void *userdata);

void snapshot_use(Snapshot *s);
/* May free it. */
void snapshot_release(Snapshot *s);

/* The layers it consists of, lowest first; at most n. For memory: from memory_parent on down, the snapshot
 * itself last; for disks: from parent on. Returns how many, -E2BIG. */
int snapshot_memory_chain(Snapshot *s, Snapshot **ret, size_t n);
int snapshot_disk_chain(Snapshot *s, Snapshot **ret, size_t n);
/* Read-only, close-on-exec; -ESTALE when it is not as snapshot.json says. */
int snapshot_open_file(const Snapshot *s, SnapshotFileKind file, int *ret_fd);

/* Makes its chains short: merges what lies between it and the template's snapshot (or nothing) into files of
 * its own, which is done by cube-stored meanwhile. -EALREADY when it is under way; done then waits too. */
int snapshot_flatten(Snapshot *s, SnapshotDone done, void *userdata);
size_t snapshot_depth(const Snapshot *s);

/* Owner's removal. What others stand on: -EBUSY, and they are found by snapshot_next_above(). With uses by
 * its own sandbox alone (of which the id is given, NULL: none) it becomes a SNAPSHOT_LAYER and leaves the
 * list of what people see; else its files go, and done is called once they are gone. */
int snapshot_remove(Snapshot *s, SnapshotDone done, void *userdata);
/* Snapshots that people see or that are paused sandboxes, which stand on it, directly or by layers. Starts
 * with NULL. */
Snapshot *snapshot_next_above(const Snapshot *s, const Snapshot *after);
