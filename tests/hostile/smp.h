/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The second CPU, which writes behind the first one's back while the VMM reads. It is started once, and then does a
 * job, again and again, until it is told to stop. */

#include "tests/payload/lib.h"

/* False: there is none. */
bool smp_start(void);
/* job(context) over and over on the second CPU, from here until smp_stop(), which waits for it to come to rest. */
void smp_run(void (*job)(void *context), void *context);
void smp_stop(void);
/* Somebody has stopped it: it is to be started anew. */
void smp_forget(void);
/* How often the job was done. */
uint64_t smp_rounds(void);
