/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What only E2B's hosted service has: clients that ask for it are told so, and what there is in its place. */

#include "gateway/url.h"

/* A text, or NULL: nothing is known of this path. */
const char *not_here(const Url *u);
