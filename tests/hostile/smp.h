/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The second CPU, which writes behind the first one's back while the VMM reads: it does a job, again and again, until it
 * is told to stop. Without one it sleeps as before its start, and costs nothing. */

#include "tests/payload/lib.h"

/* False: there is none. */
bool smp_start(void);
/* job(context) over and over on the second CPU, from here until smp_stop(), which waits until the job is done. */
void smp_run(void (*job)(void *context), void *context);
void smp_stop(void);
/* Puts it to sleep, whatever it does. */
void smp_sleep(void);
