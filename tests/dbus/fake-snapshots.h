/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The snapshot store and the calls on it, without files: what stands on what, and nothing in it.
 * A snapshot named "broken" can't be taken; of a fork only the first FAKE_FORKS_MAX succeed. */

#include "daemon/manager.h"

#define FAKE_FORKS_MAX 3U

/* Of a sandbox that starts from one, and of one that is gone. */
void fake_snapshots_stand(Sandbox *s, Snapshot *snapshot);
void fake_snapshots_gone(Sandbox *s);
/* Before each exec. */
void fake_snapshots_checkpoint(Sandbox *s);
void fake_snapshots_free(SnapshotStore *store);
