/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests about single files that are done at once: stat, rename, mkdir, symlink. */

#include <sys/stat.h>

#include "base/tlv.h"
#include "guest/agent.h"
#include "guest/request.h"

/* Appends one AGENT_TAG_FILE record; name is below dirfd, and shown as it is. */
int file_record_put(TlvWriter *w, int dirfd, const char *name, const char *shown, const struct stat *st);
/* The last component of a path. */
const char *file_base_name(const char *path);

void handle_stat(Agent *a, Request *q, Reply reply);
void handle_rename(Agent *a, Request *q, Reply reply);
void handle_mkdir(Agent *a, Request *q, Reply reply);
void handle_symlink(Agent *a, Request *q, Reply reply);
