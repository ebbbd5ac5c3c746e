/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A tenant: whom a sandbox, template or snapshot belongs to. It is a uid and a name that a client which may do so gave
 * (DelegateTo= of cubed.conf); "" and NULL, which are the same: no name, the uid is the tenant. Pure. */

#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"

/* With the NUL. */
#define TENANT_NAME_MAX 64U
#define TENANT_DIR_MAX (TENANT_NAME_MAX + 12U)

/* [A-Za-z0-9][A-Za-z0-9._-]*: it becomes a part of a file's name. */
bool tenant_name_valid(const char *s);

static inline bool tenant_same(uid_t a_uid, const char *a_name, uid_t b_uid, const char *b_name) {
        return a_uid == b_uid && streq(strempty(a_name), strempty(b_name));
}

/* "" for NULL. The name is valid. */
void tenant_name_copy(char ret[static TENANT_NAME_MAX], const char *name);

/* The directory of what it owns: "UID" or "UID.NAME". */
const char *tenant_dir_format(char ret[static TENANT_DIR_MAX], uid_t uid, const char *name);
int tenant_dir_parse(const char *dir, uid_t *ret_uid, char ret_name[static TENANT_NAME_MAX]);
