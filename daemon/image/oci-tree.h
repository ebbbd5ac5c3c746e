/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of a container image, as names alone: what its layers make of each other.
 *
 * Layers are applied from the lowest on, each entry by its number, as the OCI image specification
 * says: an entry replaces what was there, two directories become one, ".wh.NAME" removes NAME of
 * the layers beneath, ".wh..wh..opq" all of a directory. Symbolic links on the way to a name are
 * followed inside the root, as they would be for programs that run in it. No content, mode or owner
 * is in here: whose entry of which layer is left at the end is what oci_tree_find() tells.
 *
 * All names are hostile, and what they may take of memory is bounded. Nothing here touches a file.
 * Owned by the one who merges an image; single-threaded. */

#include "daemon/image/fault.h"

#define OCI_PATH_SIZE 4096U

typedef struct OciTree OciTree;
typedef struct OciNode OciNode;
typedef struct OciFile OciFile;

typedef enum OciType {
        OCI_DIRECTORY,
        OCI_SYMLINK,
        OCI_FILE,       /* all else that a root file system may hold */
        OCI_HARDLINK,   /* one more name of another file */
        OCI_NOTHING,    /* what must not be there: it goes, and what was there too */
} OciType;

typedef struct OciEntry {
        OciType type;
        const char *path;
        const char *target; /* of a link of either kind */
} OciEntry;

/* memory_max: what names and links may take of it. */
int oci_tree_new(size_t memory_max, OciTree **ret, Fault *fault);
OciTree *oci_tree_free(OciTree *t);
DEFINE_CLEANUP(OciTree *, oci_tree_free);

int oci_tree_begin_layer(OciTree *t);
/* The next entry of the layer, also one that is left out. Says what is wrong with it. */
int oci_tree_add(OciTree *t, const OciEntry *e);
/* Makes the directory, and those above it, where they are missing. */
int oci_tree_make_directory(OciTree *t, const char *path);

/* What entry of layer (both from 0) is in the end; NULL when nothing of it is left. */
OciFile *oci_tree_find(const OciTree *t, size_t layer, size_t entry);
/* The names it has, one after the other from NULL on; then NULL. */
OciNode *oci_file_next_name(const OciFile *f, const OciNode *n);
/* All directories that no layer has an entry for, one after the other from NULL on; then NULL. */
OciNode *oci_tree_next_implied(const OciTree *t, const OciNode *n);
void oci_node_path(const OciNode *n, char ret[static OCI_PATH_SIZE]);
