/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed knows templates of tenants by, and which one a client means. Pure.
 *
 * All of them belong to one user, so a tenant's template NAME with TAG is TENANT..NAME:TAG there, and each build of it
 * TENANT..NAME:BUILD, a UUID, which no tag can be. Nothing else is kept: names, builds and what stands for what is cubed's.
 * Clients see an id of a template that stays the same whatever is built: it is made of tenant and name. */

#include <json-c/json.h>
#include <stdint.h>

#include "gateway/key-file.h"
#include "gateway/template-ref.h"

#define TEMPLATE_ID_SIZE 21U
#define BUILD_ID_SIZE 37U
#define DEFAULT_TAG "default"
/* TENANT..NAME:TAG */
#define CUBED_NAME_MAX 136U

/* E2B's rules, which are narrower than cubed's. */
bool template_client_name_valid(const char *s, const char *tenant);
bool template_client_tag_valid(const char *s);
bool build_id_valid(const char *s);
void build_id_new(char ret[static BUILD_ID_SIZE]);

void template_public_id(const char *tenant, const char *name, char ret[static TEMPLATE_ID_SIZE]);
/* tag: of a client's, DEFAULT_TAG and "" as well, or a build. */
void template_cubed_name(const char *tenant, const char *name, const char *tag, char ret[static CUBED_NAME_MAX]);

/* One of cubed's names. */
typedef struct TemplateName {
        char name[TEMPLATE_REF_MAX];
        char tag[TEMPLATE_REF_MAX];     /* as clients say it */
        bool own, host;                 /* the tenant's, or root's, whose every tenant may use; else not to be seen */
        bool is_build;                  /* tag is a build's id */
        const char *cubed_id;           /* borrowed */
} TemplateName;

/* Of an entry of ListTemplateNames as JSON, [name, uid, id]. uid: the gateway's own. */
bool template_name_parse(json_object *entry, const char *tenant, uint32_t uid, TemplateName *ret);

/* Of an entry ["", uid, id, tenant] of that tenant's; NULL: it is none. Borrowed. */
const char *template_nameless_id(json_object *entry, const char *tenant, uint32_t uid);
/* Templates of the tenant's among the names, with and without one. What one is called stands together. */
void template_names_count(json_object *names, const char *tenant, uint32_t uid, size_t *ret_named, size_t *ret_nameless);

typedef struct TemplateFound {
        char name[TEMPLATE_REF_MAX];
        char cubed_id[24];              /* "": there is none, or none with this tag */
        bool own;                       /* else the host's */
        bool name_is_known;             /* with this tag or with others; else the rest is not set */
} TemplateFound;

/* The one that ref means: of the tenant first, by name or id; then of the host. -ENOENT. */
int template_names_find(json_object *names, const char *tenant, uint32_t uid, const TemplateRef *ref, TemplateFound *ret);
/* Of a build or "". */
void template_names_build(json_object *names, const char *tenant, uint32_t uid, const char *cubed_id, char ret[static BUILD_ID_SIZE]);
