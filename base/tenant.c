/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"
#include "base/tenant.h"

bool tenant_name_valid(const char *s) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

        if (!s || !*s || strchr("._-", *s))
                return false;
        size_t n = strspn(s, set);
        return s[n] == 0 && n < TENANT_NAME_MAX;
}

void tenant_name_copy(char ret[static TENANT_NAME_MAX], const char *name) {
        (void) snprintf(ret, TENANT_NAME_MAX, "%s", strempty(name));
}

const char *tenant_dir_format(char ret[static TENANT_DIR_MAX], uid_t uid, const char *name) {
        (void) snprintf(ret, TENANT_DIR_MAX, "%" PRIu32 "%s%s", (uint32_t) uid, isempty(name) ? "" : ".", strempty(name));
        return ret;
}

int tenant_dir_parse(const char *dir, uid_t *ret_uid, char ret_name[static TENANT_NAME_MAX]) {
        size_t n = strcspn(dir, ".");
        char number[12];
        uint32_t uid;

        if (n >= sizeof(number))
                return -EINVAL;
        memcpy(number, dir, n);
        number[n] = 0;
        int r = parse_u32(number, &uid);
        if (r < 0)
                return r;
        if (uid == (uid_t) -1 || (dir[n] && !tenant_name_valid(dir + n + 1)))
                return -EINVAL;
        *ret_uid = uid;
        tenant_name_copy(ret_name, dir[n] ? dir + n + 1 : NULL);
        return 0;
}
