/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One child process that does a piece of work: cube-image, mksquashfs, mkfs.
 *
 * It runs in a process group of its own, as the uid that it is given and without any privilege of
 * ours, with the descriptors listed and no others; it dies with us. What it prints to stderr is
 * passed on, and its end kept for the error. What it reports on its report descriptor is kept up
 * to a ceiling. Owned by whoever started it. */

#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"

#define TOOL_FDS_MAX 20U
#define TOOL_TAIL_MAX 2048U
#define TOOL_REPORT_MAX (64U * 1024U)
#define TOOL_REPORT_FD 3

typedef struct Tool Tool;

typedef struct ToolSpec {
        const char *const *argv;  /* argv[0]: absolute path */
        int fds[TOOL_FDS_MAX];    /* descriptor i of the child; negative: /dev/null for 0-2, else none. Borrowed */
        bool report;              /* make TOOL_REPORT_FD a pipe to us */
        uid_t uid;                /* (uid_t) -1: as we are */
        gid_t gid;
        uint64_t file_bytes_max;  /* RLIMIT_FSIZE; 0: none */
        uint64_t timeout_usec;    /* then it is killed; 0: never */
} ToolSpec;

#define TOOL_SPEC_INIT ((ToolSpec) { .fds = { [0 ... TOOL_FDS_MAX - 1] = -1 }, .uid = (uid_t) -1, .gid = (gid_t) -1 })

/* r: 0 after exit status 0, -ETIMEDOUT, -EPIPE after SIGPIPE, -EIO otherwise; then message says how it ended, with the
 * end of its stderr ("mkfs.ext4: exit status 1: No space left"). Once, from the loop. The Tool may be
 * freed in it. */
typedef void (*ToolDone)(Tool *t, int r, const char *message, void *userdata);
typedef void (*ToolLog)(Tool *t, const char *text, size_t size, void *userdata);

int tool_start(sd_event *e, const ToolSpec *spec, ToolDone done, ToolLog log, void *userdata, Tool **ret);
/* Ends it soon; done follows. */
void tool_kill(Tool *t);
/* What came on the report descriptor; valid in done. *ret_size is 0 when it was too much. */
const char *tool_report(const Tool *t, size_t *ret_size);
/* Kills and reaps what still runs. */
Tool *tool_free(Tool *t);
DEFINE_CLEANUP(Tool *, tool_free);
