/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A template as one file: a tar, compressed with zstd as a whole, with pack.json in front and the members below
 * behind it, in this order and nothing else. Runs of zeros that are holes on disk are holes in the tar.
 *
 *      {"format": "cubed-template", "version": 1, "template": template.json, "guest": snapshot.json,
 *       "members": {NAME: {"bytes": size, "sha256": ..., "runs_sha256": ...}}}
 *
 * "guest" and its members are there when one is saved. sha256 is that of hash-file.h: of a sparse member over its
 * blocks that are not zeros. runs_sha256, of sparse members, is that over where its data lies: begin and length of
 * each run, 8 bytes little-endian each. Of a disk's layer a zero that is data is not the same as a hole.
 *
 * Both ways run in an unprivileged child that has nothing but descriptors. */

#include <json-c/json.h>
#include <stdint.h>

#include "daemon/image/fault.h"
#include "daemon/pack-files.h"
#include "daemon/template-files.h"

typedef struct PackMember {
        const char *name;
        bool sparse, guest;
        uint64_t max_bytes;
} PackMember;
extern const PackMember pack_members[_PACK_MEMBER_MAX];

typedef struct PackSum {
        uint64_t bytes;
        char sha256[SHA256_HEX_SIZE];
        char runs_sha256[SHA256_HEX_SIZE]; /* of a sparse one */
} PackSum;

/* Where data lies in a file, hashed as it comes, in order; what meets is one run. */
typedef struct PackRuns {
        struct PackRunsState *state;
        uint64_t begin, end;
} PackRuns;
int pack_runs_new(PackRuns *r);
void pack_runs_add(PackRuns *r, uint64_t offset, uint64_t bytes);
void pack_runs_finish(PackRuns *r, char ret[static SHA256_HEX_SIZE]);
void pack_runs_done(PackRuns *r);

/* The next run of data at or behind *offset: 1, or 0 when there is none. */
int pack_next_run(int fd, uint64_t *offset, uint64_t *ret_bytes);

typedef struct PackFds {
        int in;                  /* pack.json but for "members"; of a pack_read() the pack */
        int out;                 /* the pack; of a pack_read() its pack.json */
        int progress;
        int members[_PACK_MEMBER_MAX];
} PackFds;

/* done and total bytes, 8 each, into a file that somebody looks at now and then. */
void pack_tell(int progress_fd, uint64_t done, uint64_t total);

int pack_sum_to_json(const PackSum *s, const PackMember *m, json_object **ret);
int pack_sum_from_json(json_object *members, const PackMember *m, PackSum *ret);

int pack_write(const PackFds *fds, Fault *fault);
/* max_bytes: of data in all members. Whatever is wrong with the pack, nothing but the members was written to. */
int pack_read(const PackFds *fds, uint64_t max_bytes, Fault *fault);
