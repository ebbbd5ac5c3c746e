/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A route: what haproxy has to know of a sandbox to pass requests on to it, as ingress.cfg reads it:
 * ADDRESS|TRAFFIC TOKEN|ENVD TOKEN|HOST|port|REST OF HOST, where all but the address may be empty, and |PORT:PORT... behind it of
 * ports that speak TLS themselves. Pure. */

#include <json-c/json.h>
#include <stdbool.h>
#include <sys/types.h>

#include "gateway/token.h"

/* maskRequestHost in a client's request; "${PORT}" stands in it once at most. */
#define MASK_HOST_MAX 256U
/* httpsPorts: so many are looked at in ingress.cfg. */
#define HTTPS_PORTS_MAX 8U
#define HTTPS_PORTS_TEXT (HTTPS_PORTS_MAX * sizeof("65535"))
#define ROUTE_MAX (MASK_HOST_MAX + 2U * TOKEN_SIZE + HTTPS_PORTS_TEXT + 64U)

bool mask_host_valid(const char *host);
/* Of the properties that cubed tells of a sandbox; false: there is no way to it. */
bool route_format(json_object *properties, uid_t owner, const HostKey *key, char ret[static ROUTE_MAX]);
