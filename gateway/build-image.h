/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds whose image is fetched first: by cube-fetch into a directory of its own, which cubed is then handed to build of. */

#include "gateway/builds.h"

/* body is what s was read from; it and *archives_fd are the build's from then on. See image_fetch_start() for what it fails with. */
int build_fetch(Build *b, json_object *body, const BuildSpec *s, int *archives_fd);
