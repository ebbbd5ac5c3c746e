/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Templates as one file each, out of the store and into it, as jobs; image/pack.h says what is in such a file.
 * For the files beside manager.h, which has what clients ask for. */

#include "daemon/manager-private.h"
#include "daemon/pack-files.h"
#include "daemon/tool.h"

/* How far a child is: a memory file that it writes two numbers to. */
typedef struct PackProgress {
        int fd;
        sd_event_source *source;
        Job *job;
        const char *step;
        unsigned from, to;         /* percent of the job */
} PackProgress;

#define PACK_PROGRESS_NONE ((PackProgress) { .fd = -EBADF })

/* job may be set later. */
int pack_progress_start(PackProgress *p, sd_event *e, const char *step, unsigned from, unsigned to);
void pack_progress_done(PackProgress *p);

/* As the tools' user, with what builds may take. */
ToolSpec pack_tool_spec(const Manager *m, const char *const *argv);

/* End them without a word. */
void manager_end_imports(Manager *m);
void manager_end_exports(Manager *m);
