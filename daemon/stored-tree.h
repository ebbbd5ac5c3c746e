/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files and trees beneath a directory, which no path leads out of, nor through a symbolic link. Stateless; paths
 * are cut to pieces. */

/* A missing one is no error. */
int tree_remove(int root_fd, char *path);
/* And fsync of both directories. */
int tree_rename(int root_fd, char *from, char *to);
