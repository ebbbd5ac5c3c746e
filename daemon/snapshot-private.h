/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the snapshot store share. */

#include "daemon/json-strict.h"
#include "daemon/snapshot.h"

#define SNAPSHOT_JSON "snapshot.json"
#define SNAPSHOT_JSON_NEW "snapshot.json.new"
#define SNAPSHOT_JSON_VERSION 1U
#define SNAPSHOT_JSON_MAX KIB(64)
#define SNAPSHOT_NEW_PREFIX ".new-"
#define SNAPSHOT_GONE_PREFIX ".gone-"
#define SNAPSHOT_BYTES_MAX (GIB(1024) * 64)
#define SNAPSHOT_CHAIN_MAX 8U /* either chain */
_Static_assert(SNAPSHOT_CHAIN_MAX >= SNAPSHOT_LAYERS_MAX && SNAPSHOT_CHAIN_MAX >= VMM_DISK_LAYERS_MAX, "chains");
#define SNAPSHOT_FILE_NAME_MAX 24
#define SNAPSHOT_BOOT_MAX 33

typedef struct SnapshotFlatten SnapshotFlatten;
typedef struct SnapshotCommit SnapshotCommit;

typedef struct SnapshotFileInfo {
        uint32_t number;         /* behind its name; 0: nothing is */
        uint64_t bytes;          /* its size */
} SnapshotFileInfo;

struct SnapshotPrivate {
        char dir[32];            /* in the root */
        bool published;
        bool damaged;            /* the disk has refused something of it; no fsync() makes it durable any more */
        SnapshotFileInfo files[_SNAPSHOT_FILE_MAX];
        char boot[SNAPSHOT_BOOT_MAX];          /* in which it was published, while it is not durable */
        char *parent_id, *memory_parent_id;    /* while loading */
        uint8_t memory_below[SNAPSHOT_ID_BYTES]; /* id that the memory file says it stands on */
        SnapshotCommit *commits; /* changes of snapshot.json, one after the other */
        SnapshotFlatten *flatten;
};

typedef struct SnapshotPrivate SnapshotPrivate;

/* snapshot.c */
Snapshot *snapshot_alloc(void);
/* Memory alone. */
Snapshot *snapshot_free_memory(Snapshot *s);
DEFINE_CLEANUP(Snapshot *, snapshot_free_memory);
bool snapshot_goes_by_itself(const Snapshot *s);
/* snapshot_set_parents(), also of one that is published. */
int snapshot_link_parents(Snapshot *s, Snapshot *parent, Snapshot *memory_parent);
void snapshot_release_parents(Snapshot *s);

/* snapshot-json.c */
json_object *snapshot_to_json(const Snapshot *s);
int snapshot_parse(const char *text, size_t size, Snapshot *s, const char **ret_reason);
/* -EINVAL: what it would be written as is not what would be loaded. */
int snapshot_check_json(const Snapshot *s);
/* Aside, in its directory; ret_fd may be NULL. */
int snapshot_write_json(const Snapshot *s, const char *name, int *ret_fd);

/* snapshot-file.c */
bool snapshot_has_file(const Snapshot *s, SnapshotFileKind file);
const char *snapshot_file_base(SnapshotFileKind file);
void snapshot_file_name(char ret[static SNAPSHOT_FILE_NAME_MAX], SnapshotFileKind file, uint32_t number);
/* Path for the store client; name may be NULL for the directory. */
char *snapshot_client_path(const SnapshotStore *store, const char *dir, const char *name);
int snapshot_open_directory(const Snapshot *s, int *ret_fd);
/* A file of that number that is not there yet. */
int snapshot_create_numbered(const Snapshot *s, SnapshotFileKind file, uint32_t number, int *ret_fd);
/* A file that is to become its memory: *ret_below is the id that it stands on. */
int snapshot_check_memory(int fd, const uint8_t id[static SNAPSHOT_ID_BYTES],
                          uint8_t ret_below[static SNAPSHOT_ID_BYTES]);
/* Those that it has to have: kind, size and headers. While it is not published, takes the sizes from them. */
int snapshot_check_files(Snapshot *s);
/* Does its memory file stand on that of memory_parent? */
bool snapshot_memory_fits(const Snapshot *s, const Snapshot *memory_parent);
/* file_bytes anew. */
void snapshot_measure(Snapshot *s);

/* snapshot-store.c */
int snapshot_store_attach(SnapshotStore *store, Snapshot *s);
void snapshot_store_detach(Snapshot *s);

/* snapshot-remove.c */
/* In the background. What can't be asked for now goes when cube-stored is there again, or at the next start. */
void snapshot_discard_files(Snapshot *s);
/* One without uses: out of the list, its files go in the background, s is gone. */
void snapshot_drop(Snapshot *s);

/* snapshot-sync.c */
/* Makes a change: to snapshot.json first, durably, then to s. change is called on a copy of the fields, then on
 * s. The caller has a use of s until done, which is called exactly once, later, unless the call failed. */
typedef void (*SnapshotChange)(Snapshot *s, void *userdata);
typedef void (*SnapshotCommitted)(Snapshot *s, int error, void *userdata);
int snapshot_commit(Snapshot *s, SnapshotChange change, SnapshotCommitted done, void *userdata);
