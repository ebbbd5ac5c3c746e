/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "gateway/template-ref.h"

#define DEFAULT_TAG "default"

static int take(char ret[static TEMPLATE_REF_MAX], const char *s, size_t n) {
        if (n == 0 || n >= TEMPLATE_REF_MAX)
                return -EINVAL;
        memcpy(ret, s, n);
        ret[n] = 0;
        return template_name_valid(ret) ? 0 : -EINVAL;
}

int template_ref_parse(const char *text, const char *tenant, TemplateRef *ret) {
        const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : text;
        size_t n = strcspn(name, ":");

        *ret = (TemplateRef) {};
        int r = take(ret->name, name, n);
        if (r >= 0 && name[n])
                r = take(ret->tag, name + n + 1, strlen(name + n + 1));
        if (r < 0)
                return r;
        if (streq(ret->tag, DEFAULT_TAG))
                ret->tag[0] = 0;
        if (!slash)
                return 0;

        char namespace[TEMPLATE_REF_MAX];
        r = take(namespace, text, (size_t) (slash - text));
        if (r < 0)
                return r;
        ret->own = streq(namespace, tenant);
        return ret->own ? 0 : -ENOENT;
}
