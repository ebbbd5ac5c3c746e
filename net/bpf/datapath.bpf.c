/* SPDX-License-Identifier: Apache-2.0 */

/* All programs in one object, since they share their maps. */

#include "filter.h"
#include "sweep.h"
#include "translate.h"

char _license[] SEC("license") = "GPL";
