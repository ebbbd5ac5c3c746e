/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What sandboxes used, at the moments at which a client asked: of each the last samples, of all together a bounded number.
 *
 * Asking wakes a guest, so nobody is asked whom no client looks at, and nobody more than once a second. That makes a series
 * as dense as a client asks for it, which begins with its first question; E2B's own has one sample in five seconds from the
 * start on. The sandbox that was looked at longest ago is forgotten first. Owned by the Gateway; silent, and without a clock
 * of its own. */

#include <json-c/json.h>
#include <stdint.h>

#include "base/macros.h"

#define METRICS_SANDBOXES_MAX 1024U
#define METRICS_SAMPLES_MAX 120U

typedef struct Metrics Metrics;

int metrics_new(Metrics **ret);
Metrics *metrics_free(Metrics *m);
DEFINE_CLEANUP(Metrics *, metrics_free)

/* Is the last sample less than a second old? */
bool metrics_recent(const Metrics *m, const char *id, uint64_t now_usec);
/* usage: what GetGuestUsage told, which is a guest's word. */
int metrics_add(Metrics *m, const char *id, uint64_t now_usec, json_object *usage);
/* Those from start to end, in seconds, the oldest first; NULL without memory. */
json_object *metrics_to_json(const Metrics *m, const char *id, uint64_t start, uint64_t end);
/* 1: the last one; 0: there is none. */
int metrics_last_to_json(const Metrics *m, const char *id, json_object **ret);
