/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A sandbox as E2B's clients want to see it, made of the properties that cubed tells. Pure. Each gives a new object, or NULL
 * without memory. */

#include "gateway/bus-json.h"
#include "gateway/timestamp.h"
#include "gateway/token.h"

/* By it clients decide what they may ask of envd. */
#define ENVD_VERSION "0.6.13"
/* Said in each answer, and nothing any more. */
#define CLIENT_ID "cubed"

/* "running" or "paused" */
const char *sandbox_state(json_object *properties);
uint64_t sandbox_started(json_object *properties);
uint64_t sandbox_end(json_object *properties);
/* Its metadata, borrowed from *hold, which is the caller's to put; NULL: none. */
json_object *sandbox_metadata(json_object *properties, json_object **hold);

/* The answer to create, connect and fork. domain: under which clients find its ports, or NULL. */
json_object *sandbox_to_json(json_object *properties, const HostKey *key, const char *domain);
json_object *sandbox_to_json_detail(json_object *properties, const HostKey *key, const char *domain);
json_object *sandbox_to_json_listed(json_object *properties);
