/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How clients name what to create from: [NAMESPACE/]NAME[:TAG], where NAME may be an id. The namespace of a tenant, which is
 * called like it, has its snapshots. Pure. */

#include "base/macros.h"

#define TEMPLATE_REF_MAX 64U

typedef struct TemplateRef {
        char name[TEMPLATE_REF_MAX];
        char tag[TEMPLATE_REF_MAX];    /* "": none, or the default one */
        bool own;                      /* a namespace was given, and it is the tenant's */
        bool host;                     /* one of the host's is meant */
} TemplateRef;

/* -EINVAL: no such form; -ENOENT: another's namespace. */
int template_ref_parse(const char *text, const char *tenant, TemplateRef *ret);
