/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of COPY steps, as clients send them: an archive for each hash, below files/TENANT/ of the state directory. They are
 * a cache: a client that finds one missing sends it again. Never read here but for their first bytes. All that a tenant's builds
 * have is still in his directory, so that what it holds is all there is of him.
 *
 * An Upload is one on its way, which takes its place once it is whole; freeing it earlier leaves nothing. */

#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/macros.h"

typedef struct Upload Upload;

typedef struct UploadLimits {
        uint64_t one_max, all_max;  /* bytes; of one, and of all of a tenant */
        size_t n_max;               /* of all of a tenant: the smallest takes an inode, and is looked at each time */
} UploadLimits;

/* Both directories below the state directory, files/ and builds/. What is older than a day goes, but for what builds have; and
 * so do parts of uploads, and directories of builds that nobody has open: they are of a gateway that was killed. */
int uploads_open(const char *state, int *ret_files_fd, int *ret_builds_fd);
/* The same each hour from now on, but for the parts. */
int uploads_sweep_hourly(sd_event *event, int files_fd, int builds_fd, sd_event_source **ret);

/* Is it there? Then for another day. */
bool uploads_have(int files_fd, const char *tenant, const char *hash);
/* The oldest of the tenant's give room, but for those that builds have. -EFBIG: it can't be so large; -EDQUOT: nor is there room
 * for it before a build or another upload has ended. */
int upload_new(int files_fd, const char *tenant, const char *hash, uint64_t bytes, const UploadLimits *limits, Upload **ret);
/* -EFBIG: more than was said. */
int upload_write(Upload *u, const void *data, size_t size);
/* -ENODATA: it ended early; -EBADMSG: neither a tar archive nor one by gzip. */
int upload_finish(Upload *u);
Upload *upload_free(Upload *u);

/* A directory of its own for one build, which no sweep takes while the descriptor or a copy of it is open. */
int build_directory_make(int builds_fd, const char *build, int *ret_fd);
/* The files under another name in there, where nothing takes them away. -ENOENT; -EINVAL: no hash. */
int build_directory_add(int fd, const char *name, int files_fd, const char *tenant, const char *hash);
void build_directory_remove(int builds_fd, const char *build);
