/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What templates share: files with the hash of what they hold as their name, each in the directory of its kind in the store.
 *
 * A template has a hard link to one, so that it is one file, in the page cache too. Those that no template has any more are
 * removed with the next template, or by gc. An object whose bytes are not those of its name is never linked again: it is taken
 * away, and the next one that is right takes its place.
 *
 * An input is a link from the hash of what a file was made of to the object that came of it (see template-key.h).
 *
 * The names in these directories and in names/ are changed under store_lock() alone: who looks whether something is still of
 * use and removes it must not meet one who just begins to use it. */

#include <stdbool.h>
#include <sys/stat.h>

#include "daemon/image/fault.h"
#include "daemon/template-files.h"

/* Of the whole store; released by closing it. Waits. */
int store_lock(int store_fd, int *ret_fd);

/* The directory of such files, or NULL: they are shared otherwise, or not at all. */
const char *object_directory(TemplateFile file);
/* Lets file of directory dir_fd, which has that hash, be the object or come to be it. */
int object_share(int store_fd, int dir_fd, TemplateFile file, const char *sum);
/* The other way round: file of dir_fd becomes a link to the object. -ENOENT: there is none that is right. */
int object_take(int store_fd, int dir_fd, TemplateFile file, const char *sum);

int input_set(int store_fd, const char *key, const char *sum);

/* Whether nobody has a file of the store any more. */
bool object_unused(const struct stat *st);
/* Removes those that are unused, of all kinds. Under the lock. */
int objects_sweep(int store_fd);
