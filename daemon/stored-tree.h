/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files and trees beneath a directory, which no path leads out of, nor through a symbolic link. Stateless; paths
 * are cut to pieces. */

/* A missing one is no error. */
int tree_remove(int root_fd, char *path);
/* And fsync of both directories. When that fails, both names are as before: who asked may throw away what was to be new. Where
 * the file system takes no change any more, or can't exchange two names, a file that there was stays replaced. */
int tree_rename(int root_fd, char *from, char *to);
