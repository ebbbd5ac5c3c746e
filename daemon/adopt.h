/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* After a restart: what an earlier cubed left under RuntimeDirectory/sandbox/ is taken over.
 *
 * A VMM that runs goes on, with its sandbox as it was. One that was still being created, or does
 * not speak to us, is ended. One that ended meanwhile is reported by its exit record, which goes
 * with that. The builder of a template is ended: its build went with the cubed before. Nothing is left that
 * has no sandbox. */

#include "daemon/manager.h"

/* Before the API is there: nobody has to be told but the journal. */
int manager_adopt_sandboxes(Manager *m);
