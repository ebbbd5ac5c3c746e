/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the template store share; nobody else includes it. */

#include <dirent.h>

#include "daemon/template.h"

static inline void closedirp(DIR **d) {
        if (*d)
                (void) closedir(*d);
}

void template_store_warn(TemplateStore *s, const char *format, ...) _printf_(2, 3);
/* A directory below parent_fd, to be listed. */
int template_store_open_list(int parent_fd, const char *path, DIR **ret);

/* Reads names/ anew: which names stand for which template. */
int template_names_settle(TemplateStore *s);
