/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replaces a small file as a whole: written beside it, then renamed. Not synced: for a tmpfs. */
int write_file(const char *path, const char *text);
