/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The clean tar stream that sqfstar takes, made of the entries of hostile archives.
 *
 * Paths lie below the root, owners are numbers, times fit into squashfs, extended attributes stay,
 * ACLs and file flags go. How much goes into one is bounded. A CleanTar lives on the stack of its
 * one user, who begins with clean_tar_open() and ends with clean_tar_close() and _done(). */

#include <archive.h>
#include <archive_entry.h>
#include <sys/types.h>

#include "daemon/image/fault.h"

typedef struct CleanTar {
        struct archive *in;  /* what entries are read from; owned */
        struct archive *out;
        const char *verb;    /* "reading the tar" */
        const uid_t *map_uid;
        uint64_t bytes;
        uint64_t max_bytes;
        uint64_t xattr_bytes;
        uint64_t entries;
        bool has_files;      /* one that was passed on: the root itself is not */
        bool has_system;     /* something under /usr, /bin, /etc ... */
        bool has_manifest;   /* an image archive of docker save, not a file system */
        uint8_t *buffer;
        Fault *fault;
} CleanTar;

int clean_tar_open(CleanTar *t, int out_fd);
/* The entry that t->in has just given, and its data; e is changed. */
int clean_tar_add(CleanTar *t, struct archive_entry *e);
int clean_tar_close(CleanTar *t);
void clean_tar_done(CleanTar *t);
/* What t->in has to say. */
int clean_tar_in_fault(CleanTar *t);

/* path without leading "/" and "./"; NULL when it leads out of the root. "" is the root itself. */
const char *clean_tar_path(const char *path);
