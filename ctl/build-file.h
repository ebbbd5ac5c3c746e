/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cube.json: the options of `template build` in a file, so that a template can lie in a repository. Its keys are the
 * names of the options, see cube.json(5); each is handed to build_option() as if it stood on the command line.
 *
 * The BuildFile owns the words that the options point to, so it lives as long as they do. */

#include <json-c/json.h>

#include "ctl/build-options.h"

typedef struct BuildFile {
        json_object *root;
        char **words;         /* values that were put together */
        const char *name;     /* "name" of the file; NULL: it has none */
} BuildFile;

/* given: what stands on the command line, as getopt names it; keys of these are checked, but not taken. Negative once
 * it was said what is wrong. */
int build_file_load(BuildFile *f, const char *path, const int *given, size_t n_given, BuildOptions *o);
void build_file_done(BuildFile *f);
