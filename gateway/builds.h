/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds of templates that clients asked for: from the request that names one to the last page of its log. cubed builds; what
 * is here is what its job does not tell, and the log as it came.
 *
 * Owned by the Gateway. A build that waits for its start, or has ended, may go to make room for others; one under way stays.
 * All of them are lost with the gateway, but what it built is not: see op-build.c. */

#include "gateway/build-log.h"
#include "gateway/build-spec.h"
#include "gateway/gateway.h"
#include "gateway/image-fetch.h"

typedef enum BuildState {
        BUILD_WAITING,
        BUILD_BUILDING,
        BUILD_READY,
        BUILD_ERROR,
} BuildState;

struct Build {
        Builds *builds;
        Gateway *gateway;
        char id[BUILD_ID_SIZE], template_id[TEMPLATE_ID_SIZE], tenant[TENANT_MAX];
        BuildRequest request;
        BuildState state;
        BuildLog log;
        char *reason;              /* of BUILD_ERROR, for people */
        char reason_step[16];
        uint64_t created_usec;

        /* Of an image that is fetched: what the client asked for, until cubed was; see build-image.c. */
        ImageFetch *fetch;         /* NULL: it is of none; stays to the end, for the image's sake */
        json_object *body;
        int archives_fd, layout_fd;
        uint64_t give_up_usec;
        bool asking;               /* a call to cubed is under way, in slot */

        json_object *names;        /* of the tenant's templates, once it is ready, as far as they came */
        char *job;                 /* its object at cubed */
        int log_fd;
        sd_event_source *source;
        sd_bus_slot *slot;
        Build *next;
};

int builds_new(Gateway *g, Builds **ret);
Builds *builds_free(Builds *b);

/* -EBUSY: too many are under way. */
int build_new(Builds *b, const char *tenant, const BuildRequest *request, Build **ret);
/* Of that tenant; template is its id or name, NULL: any. */
Build *build_find(Builds *b, const char *tenant, const char *template, const char *id);
bool build_is_of_template(Builds *b, const char *tenant, const char *template);
/* Of that tenant, and of all, those that have an image fetched. */
void builds_count_fetches(const Builds *b, const char *tenant, size_t *ret_own, size_t *ret_all);
size_t builds_count_building(const Builds *b, const char *tenant);
/* Those of a template that are not ready, as clients see them, onto a list. false: without memory. */
bool builds_append_open(Builds *b, const char *tenant, const char *template_id, json_object *list);
bool builds_is_asking(const Builds *b);
/* What cubed was asked with is not needed any more. */
void build_source_done(Build *b);
/* names: of all of the tenant's templates. Removes those that have none, if nothing stands on them. */
void builds_discard_nameless(Builds *b, const char *tenant, json_object *names);
/* cubed has a job for it. */
void build_follow(Build *b, const char *job);
/* It came to nothing before there was one, or it is known by other ways. */
void build_fail(Build *b, const char *why, const char *step);

const char *build_state_to_string(BuildState s);
