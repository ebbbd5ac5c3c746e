/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A build as cubed is asked for it: the options that DeriveTemplate and BuildTemplate have in common. */

#include "gateway/builds.h"

/* That an image is given before the client's: the user whom E2B's have. */
#define IMAGE_STEPS 2U

/* A directory of the build's own with the files of its COPY steps; *ret_fd is left alone when there are none. -EINVAL with error. */
int build_call_archives(const Build *b, const BuildSpec *s, int *ret_fd, ErrorText *error);
/* Into an open a{sv}; archives_fd may be negative. */
int build_call_append(sd_bus_message *m, const Build *b, const BuildSpec *s, int archives_fd);
