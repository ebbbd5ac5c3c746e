/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* /etc/cubed/gateway.conf: KEY=VALUE lines below [Gateway], # and ; begin comments. Each key has a default. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/rate.h"

#define DOMAIN_MAX 262U
#define IMAGE_LIST_MAX 1024U

typedef struct GatewayConfig {
        bool default_internet;       /* DefaultInternetAccess=yes: of a sandbox that says nothing */
        uint64_t timeout_max_usec;   /* TimeoutMaxSec=24h: the longest that a client can ask for */
        RateLimit rate;              /* RequestsPerSecond=20, RequestsBurst=100; of a key */
        size_t body_max;             /* BodyMax=1M */
        uint64_t upload_max;         /* UploadMax=2G: the files of one step */
        uint64_t uploads_max;        /* UploadsMax=8G: all that is kept of a tenant's */
        uint32_t templates_max;      /* TemplatesMax=64: of a tenant, with those under way; as many without a name */
        char image_registries[IMAGE_LIST_MAX]; /* ImageRegistries=docker.io ...: what clients may have fetched; empty: nothing */
        char image_networks[IMAGE_LIST_MAX];   /* ImageNetworks=: special ranges in which registries may be */
        uint64_t image_max;          /* ImageMax=8G: of one, as it comes */
        uint64_t image_usec;         /* ImageTimeoutSec=30min: for one to be there */
        uint32_t connections_max;    /* ConnectionsMax=1024 */
        uint64_t request_usec;       /* RequestTimeoutSec=30s: for a client to send one, and to take the answer */
        uint64_t keepalive_usec;     /* KeepAliveSec=650s */
        char domain[DOMAIN_MAX];     /* Domain=, maybe with a port: below it clients find the ports of sandboxes */
} GatewayConfig;

void config_init(GatewayConfig *c);
/* NULL: there is none. */
static inline const char *config_domain(const GatewayConfig *c) {
        return *c->domain ? c->domain : NULL;
}
/* Says what is wrong in a line, which is then left out; or, as line 0, of what could not be read at all, which then fails. */
typedef void (*ConfigWarn)(void *userdata, const char *path, unsigned line, const char *message);
/* The file, then those of the directory PATH.d, NAME.conf by name; where one is not there it changes nothing. */
int config_load(GatewayConfig *c, const char *path, ConfigWarn warn, void *userdata);
