/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "dbus/policy-change.h"

/* Sorted, so that what is compared with a list of thousands does not halt the loop. */
typedef struct Sorted {
        const char **rules;
        size_t n;
} Sorted;

static void sorted_done(Sorted *s) {
        free(s->rules);
}

static int compare(const void *a, const void *b) {
        return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static int sorted_init(Sorted *s, char **l) {
        while (l && l[s->n])
                s->n++;
        s->rules = new0(const char *, s->n + 1);
        if (!s->rules)
                return -ENOMEM;

        for (size_t i = 0; i < s->n; i++)
                s->rules[i] = l[i];
        qsort(s->rules, s->n, sizeof(*s->rules), compare);
        return 0;
}

static bool sorted_have(const Sorted *s, const char *rule) {
        return bsearch(&rule, s->rules, s->n, sizeof(*s->rules), compare);
}

static int push(char **l, size_t *n, const char *rule) {
        l[*n] = strdup(rule);
        return l[(*n)++] ? 0 : -ENOMEM;
}

static int change_list(char **now, char **add, char **remove, char ***ret, const char **ret_missing) {
        _cleanup_(sorted_done) Sorted have = {}, gone = {};
        size_t n = 0, n_add = 0;

        int r = sorted_init(&have, now);
        if (r >= 0)
                r = sorted_init(&gone, remove);
        if (r < 0)
                return r;
        for (size_t i = 0; i < gone.n; i++)
                if (!sorted_have(&have, gone.rules[i])) {
                        *ret_missing = gone.rules[i];
                        return -ESRCH;
                }

        while (add && add[n_add])
                n_add++;
        char **l = *ret = new0(char *, have.n + n_add + 1);
        if (!l)
                return -ENOMEM;
        for (size_t i = 0; r >= 0 && i < have.n; i++)
                if (!sorted_have(&gone, now[i]))
                        r = push(l, &n, now[i]);
        for (size_t i = 0; r >= 0 && i < n_add; i++)
                if (!sorted_have(&have, add[i]) || sorted_have(&gone, add[i]))
                        r = push(l, &n, add[i]);
        return r;
}

int policy_change(const SandboxPolicy *now, const SandboxPolicy *add, const SandboxPolicy *remove, SandboxPolicy *ret,
                  const char **ret_missing) {
        _cleanup_(sandbox_policy_done) SandboxPolicy p = { .internet = now->internet };

        int r = change_list(now->allow, add->allow, remove->allow, &p.allow, ret_missing);
        if (r >= 0)
                r = change_list(now->deny, add->deny, remove->deny, &p.deny, ret_missing);
        if (r >= 0)
                r = change_list(now->inbound, add->inbound, remove->inbound, &p.inbound, ret_missing);
        if (r < 0)
                return r;
        *ret = p;
        p = SANDBOX_POLICY_INIT;
        return 0;
}
