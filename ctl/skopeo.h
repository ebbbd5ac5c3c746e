/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* skopeo(1), run as the caller, with his network and his credentials: cubed needs neither. It shows
 * what it does on stderr. */

#include "fetch/skopeo-command.h"

/* Copies the image ref into an OCI image layout, directory/SKOPEO_LAYOUT; what skopeo keeps meanwhile is in directory, too.
 * Says what is wrong; -EINTR after SIGINT or SIGTERM, which the caller has blocked. */
int skopeo_copy(const char *ref, const char *directory, const SkopeoOptions *options);
