/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the root file system of a template comes from: what stands behind `--from`, opened. cubed
 * opens nothing by name for us: what we may not read it does not read. */

#include "ctl/skopeo.h"

typedef struct TemplateSource {
        int fd;
        char *image;       /* fd is an OCI image layout, and this the name in it, or ""; NULL: a root file system */
        char *directory;   /* that we have made for it; removed at the end */
} TemplateSource;

#define TEMPLATE_SOURCE_INIT ((TemplateSource) { .fd = -EBADF })

/* skopeo is needed for it. */
bool template_source_is_foreign(const char *from);
/* Says what is wrong. SIGINT and SIGTERM are blocked from here on when something was made that has to go. */
int template_source_open(const char *from, const SkopeoOptions *options, TemplateSource *ret);
void template_source_done(TemplateSource *s);
