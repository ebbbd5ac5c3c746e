/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Snapshots on disk and in memory: saved states of sandboxes, and the layers they stand on.
 *
 * A snapshot is the directory /var/lib/cubed/snapshots/<id>/ with snapshot.json and the files below; where
 * they were flattened their names have a number behind them, which snapshot.json knows.
 * Memory and disk are layers: each holds what differs from the layer beneath it, down to the template's
 * files. The files of a snapshot are never changed once it is published; flattening replaces them by
 * others with the same content seen from above (and snapshot.json names which).
 *
 * The SnapshotStore owns all Snapshots. Who stands on one (a sandbox that runs on its layers or is paused
 * in it, another snapshot above it) holds a use of it; one with uses keeps its files. Those that nobody
 * asked for (SNAPSHOT_FORK, _PAUSE, _LAYER) go by themselves with their last use.
 *
 * snapshot.json names the boot in which the snapshot was published until all of it has reached the disk: one
 * of another boot may have lost anything, and is not loaded. Directories that begin with a dot are works in
 * progress and removals; they are removed when cubed starts. Nothing in here logs or knows the bus. */

#include <json-c/json.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"
#include "base/tenant.h"
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
        SNAPSHOT_FORK,           /* what forks started from, what a rollback can go back to, or what was asked for while it is not durable */
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
typedef struct Template Template;

struct Snapshot {
        char id[21];
        SnapshotKind kind;
        char *name;              /* may be NULL */
        uid_t owner_uid;
        char tenant[TENANT_NAME_MAX]; /* as its sandbox's, or its template's */
        uint64_t created_usec;   /* CLOCK_REALTIME */
        char *sandbox_id;        /* of which it is */
        char *template_id;
        char *template_name;     /* may be NULL */
        uint64_t number;         /* of a checkpoint */
        bool forgotten;          /* of a pause: nobody is paused in it any more; it goes once that has reached the disk */
        bool durable;            /* its own files outlive a crash of the host; snapshot_sync() does all it stands on */

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
        char **lost;             /* ids of those that a crash of the host may have damaged */
        size_t n_lost;
        bool starting;           /* who uses what is being found out: nothing goes before snapshot_store_clean() */
        bool stopping;           /* cubed ends, what it runs does not: nothing goes with its last use any more */
        /* Told when one is published, changed (kind, parent, sizes), or gone from the list; may be NULL. */
        void (*added)(Snapshot *s, void *userdata);
        void (*changed)(Snapshot *s, void *userdata);
        void (*removed)(Snapshot *s, void *userdata);
        /* Is the sandbox of a checkpoint, or the template of a SNAPSHOT_TEMPLATE, still there? NULL: yes. For one of a pause:
         * is its sandbox there, but could not be loaded? NULL: no. */
        bool (*owned)(const Snapshot *s, void *userdata);
        void *userdata;
};

/* Creates root when it is missing; it lies directly in the directory that client works in. What stands on
 * something that is not there is not loaded, and warned of. */
int snapshot_store_load(SnapshotStore **ret, const char *root, StoreClient *client);
/* To be called behind store_client_detach(), which ends what is under way, and when nobody has uses any more. */
SnapshotStore *snapshot_store_free(SnapshotStore *s);
DEFINE_CLEANUP(SnapshotStore *, snapshot_store_free);
Snapshot *snapshot_store_find(SnapshotStore *s, const char *id);
/* The SNAPSHOT_TEMPLATE of that template, or NULL. */
Snapshot *snapshot_store_find_template(SnapshotStore *s, const char *template_id);
/* Removes works in progress, and what has no use and no owner: once sandboxes were adopted, before the first
 * snapshot_new(). */
void snapshot_store_clean(SnapshotStore *s);

/* Asks again for the removal of what is gone: once there is another cube-stored. */
void snapshot_store_retry(SnapshotStore *s);

/* Making one. The new one belongs to the caller until it is published: fill its fields (parents with
 * snapshot_set_parents()), create the files, publish. snapshot_free() of one that is not published removes
 * its directory. */
int snapshot_new(SnapshotStore *store, SnapshotKind kind, Snapshot **ret);
Snapshot *snapshot_free(Snapshot *s);
DEFINE_CLEANUP(Snapshot *, snapshot_free);
/* -E2BIG: those chains are full. */
int snapshot_set_parents(Snapshot *s, Snapshot *parent, Snapshot *memory_parent);
/* An empty file, 0600, open for reading and writing; the caller's. */
int snapshot_create_file(Snapshot *s, SnapshotFileKind file, int *ret_fd);
/* Gives a name to an unnamed file (O_TMPFILE) or to one that is open: the frozen overlay. -ENOENT: it had a
 * name and lost it, from which there is no way back. */
int snapshot_link_file(Snapshot *s, SnapshotFileKind file, int fd);
/* Writes snapshot.json and gives the directory its name; in the list from here, with one use that is the
 * caller's. Does not wait for the disk: a crash of the host may lose it, a crash of cubed does not. -EBADMSG:
 * the files are not those of this uuid and these parents. -EINVAL: fields that would not be loaded again. */
int snapshot_publish(Snapshot *s);
/* Then this: fsync by cube-stored of all of it and of what it stands on, durable from done() on. done may be
 * NULL; else it runs exactly once, later, unless the call failed. One of which the disk has refused anything never becomes
 * durable, nor does what stands on it: -EIO. */
typedef void (*SnapshotDone)(Snapshot *s, int error, void *userdata);
int snapshot_sync(Snapshot *s, SnapshotDone done, void *userdata);
/* And with the same change of snapshot.json it becomes one of that kind: never there without being durable. */
int snapshot_sync_as(Snapshot *s, SnapshotKind kind, SnapshotDone done, void *userdata);

void snapshot_use(Snapshot *s);
/* May free it. */
void snapshot_release(Snapshot *s);

/* The layers it consists of, lowest first, the snapshot itself last; at most n. Memory: none without it.
 * Returns how many, -E2BIG. */
int snapshot_memory_chain(Snapshot *s, Snapshot **ret, size_t n);
int snapshot_disk_chain(Snapshot *s, Snapshot **ret, size_t n);
/* Layers of the longer chain. */
size_t snapshot_depth(Snapshot *s);
/* Is other among the layers of s? A snapshot does not stand on itself. */
bool snapshot_stands_on(const Snapshot *s, const Snapshot *other);
/* Read-only, close-on-exec; -ESTALE when it is not as snapshot.json says. */
int snapshot_open_file(const Snapshot *s, SnapshotFileKind file, int *ret_fd);
/* All files of its own can be. */
bool snapshot_is_whole(const Snapshot *s);

/* Makes its chains short: merges what lies between it and the template's snapshot (or nothing) into files of
 * its own, which is done by cube-stored meanwhile. When it is under way, done waits for that. Done when there
 * is nothing to merge, too. Whoever runs on the old files may go on. */
int snapshot_flatten(Snapshot *s, SnapshotDone done, void *userdata);

/* Of a SNAPSHOT_TEMPLATE, for another host: as in snapshot.json. */
json_object *snapshot_describe(const Snapshot *s);
/* Fills the fields of one that is new, whose files are there, from such a text: the guest of template t.
 * -EBADMSG and a reason. */
int snapshot_adopt(Snapshot *s, const char *text, size_t size, const Template *t, const char **ret_reason);

/* Removal. A SNAPSHOT_USER that snapshots of others stand on: -EBUSY, and they are found by
 * snapshot_next_above(). A SNAPSHOT_TEMPLATE in any use: -EBUSY. What else has uses becomes a SNAPSHOT_LAYER:
 * its state file goes, and so does the rest with the last use. Without uses all goes at once, and done is
 * called when its files are gone; s is valid in there for the last time. Sandboxes that run on it are for
 * the caller to find (snapshot_stands_on() of their tops) and to refuse. */
int snapshot_remove(Snapshot *s, SnapshotDone done, void *userdata);
/* Those that stand on it, directly or by layers, and that people see or that are paused sandboxes (not forgotten
 * ones); but for the checkpoints and the pause of its own sandbox. Starts with NULL. */
Snapshot *snapshot_next_above(const Snapshot *s, const Snapshot *after);
