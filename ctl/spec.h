/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How files and ports are written on the command line. Pure; the results are fresh strings. */

#include <stdint.h>

#include "base/macros.h"

/* "FILE:PATH" of --in: PATH is absolute, FILE may contain colons. -EINVAL. */
int spec_parse_in(const char *s, char **ret_file, char **ret_path);
/* "PATH:FILE" of --out: PATH is absolute, FILE may contain colons. -EINVAL. */
int spec_parse_out(const char *s, char **ret_path, char **ret_file);
/* "ID:PATH" is in a sandbox (*ret_id set), all else a file here; "./a:b" is one. -EINVAL when PATH is
 * not absolute. */
int spec_parse_copy(const char *s, char **ret_id, char **ret_path);
/* "[LOCAL:]PORT"; LOCAL 0 lets the kernel choose. -EINVAL, -ERANGE. */
int spec_parse_forward(const char *s, uint16_t *ret_local, uint16_t *ret_port);

/* dir/name; name must not contain one that leads elsewhere. */
int path_join(const char *dir, const char *name, char **ret);
/* The last component, without trailing slashes; NULL when there is none ("/", ".", ".."). Fresh. */
char *path_last(const char *path);
/* A name that a guest gave and that becomes a file here: one component, neither "." nor "..". */
bool filename_valid(const char *name);
