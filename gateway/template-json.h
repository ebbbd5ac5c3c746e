/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Templates as clients see them, of the properties that cubed tells. Pure. */

#include "gateway/template-names.h"

/* What one template is called by whoever may see it. */
typedef struct Called {
        json_object *names, *aliases;   /* NAME:TAG, as cubed has it for the host's; NAME */
        char name[TEMPLATE_REF_MAX];    /* the first */
        char build[BUILD_ID_SIZE];      /* of a tenant's */
        bool own, is_default;
} Called;

/* false: not to be seen, or without memory; then *ret_failed. To be done in any case. */
bool template_called(json_object *p, const char *tenant, uint32_t uid, Called *ret, bool *ret_failed);
void called_done(Called *c);
/* Its names onto a list of entries as template_name_parse() reads them; without any one of template_nameless_id(). */
bool template_add_names(json_object *p, json_object *names);

/* NULL without memory. */
json_object *template_to_json(const char *tenant, json_object *p, const Called *c);
json_object *template_build_to_json(json_object *p, const Called *c);
