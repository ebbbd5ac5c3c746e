/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/share.h"

int share_get(Shares *shares, const char *tenant, Share **ret) {
        Share *s = shares->first;

        while (s && !streq(s->tenant, tenant))
                s = s->next;
        if (!s) {
                s = new0(Share, 1);
                if (!s)
                        return -ENOMEM;
                *s = (Share) { .shares = shares, .next = shares->first };
                memcpy(s->tenant, tenant, strnlen(tenant, TENANT_MAX - 1));
                shares->first = s;
        }
        s->n_requests++;
        shares->n_requests++;
        *ret = s;
        return 0;
}

Share *share_put(Share *s) {
        if (!s)
                return NULL;

        s->shares->n_requests--;
        if (--s->n_requests > 0)
                return NULL;
        assert(s->bodies == 0 && s->n_calls == 0 && s->n_asking == 0);
        Share **at = &s->shares->first;
        while (*at != s)
                at = &(*at)->next;
        *at = s->next;
        free(s);
        return NULL;
}
