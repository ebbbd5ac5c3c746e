/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/json-strict.h"
#include "daemon/sandbox-policy.h"

/* As cube-netd has them: net/policy.h. */
#define RULES_MAX 4096U
#define RULE_TEXT_MAX 400U

static void free_list(char **list) {
        for (char **l = list; l && *l; l++)
                free(*l);
        free(list);
}

void sandbox_policy_done(SandboxPolicy *p) {
        free_list(p->allow);
        free_list(p->deny);
        free_list(p->inbound);
        *p = SANDBOX_POLICY_INIT;
}

size_t sandbox_policy_count(char *const *rules) {
        size_t n = 0;

        while (rules && rules[n])
                n++;
        return n;
}

/* One without rules is NULL. */
static int copy_list(char *const *list, char ***ret) {
        size_t n = sandbox_policy_count(list);

        if (n == 0)
                return 0;
        *ret = new0(char *, n + 1);
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                (*ret)[i] = strdup(list[i]);
                if (!(*ret)[i])
                        return -ENOMEM;
        }
        return 0;
}

int sandbox_policy_copy(const SandboxPolicy *p, SandboxPolicy *ret) {
        _cleanup_(sandbox_policy_done) SandboxPolicy c = { .internet = p->internet };

        int r = copy_list(p->allow, &c.allow);
        if (r >= 0)
                r = copy_list(p->deny, &c.deny);
        if (r >= 0)
                r = copy_list(p->inbound, &c.inbound);
        if (r < 0)
                return r;
        *ret = c;
        c = SANDBOX_POLICY_INIT;
        return 0;
}

static int compare_texts(const void *a, const void *b) {
        return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static const char **sort_list(char *const *list, size_t n) {
        const char **sorted = new0(const char *, n + 1);

        if (!sorted)
                return NULL;
        for (size_t i = 0; i < n; i++)
                sorted[i] = list[i];
        qsort(sorted, n, sizeof(*sorted), compare_texts);
        return sorted;
}

/* Of n rules each. */
static bool same_in_order(const char *const *a, const char *const *b, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (!streq(a[i], b[i]))
                        return false;
        return true;
}

static bool same_list(char *const *a, char *const *b) {
        size_t n = sandbox_policy_count(a);

        if (n != sandbox_policy_count(b))
                return false;
        /* As nearly always: a list of thousands is not sorted for each sandbox that has it. */
        if (same_in_order((const char *const *) a, (const char *const *) b, n))
                return true;
        _cleanup_free_ const char **x = sort_list(a, n), **y = sort_list(b, n);
        /* Without memory they count as different, which costs a table but no packet. */
        return x && y && same_in_order(x, y, n);
}

bool sandbox_policy_equal(const SandboxPolicy *a, const SandboxPolicy *b) {
        return a->internet == b->internet && same_list(a->allow, b->allow) && same_list(a->deny, b->deny) &&
                same_list(a->inbound, b->inbound);
}

/* FNV-1a of each rule, the sum of all: order does not count. */
static uint64_t hash_list(char *const *list, uint64_t seed) {
        uint64_t sum = 0;

        for (; list && *list; list++) {
                uint64_t h = seed;
                for (const char *c = *list; *c; c++)
                        h = (h ^ (unsigned char) *c) * 0x100000001b3ULL;
                sum += h;
        }
        return sum;
}

uint64_t sandbox_policy_hash(const SandboxPolicy *p) {
        /* Each list begins elsewhere, so that a rule does not count the same in two of them. */
        return p->internet + hash_list(p->allow, 0xcbf29ce484222325ULL) + hash_list(p->deny, 0x84222325cbf29ce4ULL) +
                hash_list(p->inbound, 0x9ce484222325cbf2ULL);
}

bool sandbox_policy_is_deny(const SandboxPolicy *p) {
        return !p->internet && sandbox_policy_count(p->allow) == 0 && sandbox_policy_count(p->inbound) == 0;
}

/* Sorted, so that what is compared with a list of thousands does not halt the loop. */
typedef struct SortedList {
        const char **rules;
        size_t n;
} SortedList;

static void sorted_done(SortedList *s) {
        free(s->rules);
}

static int sorted_init(SortedList *s, char *const *list) {
        s->n = sandbox_policy_count(list);
        s->rules = sort_list(list, s->n);
        return s->rules ? 0 : -ENOMEM;
}

static bool sorted_have(const SortedList *s, const char *rule) {
        return bsearch(&rule, s->rules, s->n, sizeof(*s->rules), compare_texts);
}

static int push(char **list, size_t *n, const char *rule) {
        list[*n] = strdup(rule);
        return list[(*n)++] ? 0 : -ENOMEM;
}

static int change_list(char *const *now, char *const *add, char *const *remove, char ***ret, const char **ret_missing) {
        _cleanup_(sorted_done) SortedList have = {}, gone = {};
        size_t n = 0, n_add = sandbox_policy_count(add);

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

        char **list = *ret = new0(char *, have.n + n_add + 1);
        if (!list)
                return -ENOMEM;
        for (size_t i = 0; r >= 0 && i < have.n; i++)
                if (!sorted_have(&gone, now[i]))
                        r = push(list, &n, now[i]);
        for (size_t i = 0; r >= 0 && i < n_add; i++)
                if (!sorted_have(&have, add[i]) || sorted_have(&gone, add[i]))
                        r = push(list, &n, add[i]);
        return r;
}

int sandbox_policy_change(const SandboxPolicy *now, const SandboxPolicy *add, const SandboxPolicy *remove, SandboxPolicy *ret,
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

static int add_list(json_object *o, const char *key, char *const *list) {
        if (sandbox_policy_count(list) == 0)
                return 0;
        json_object *a = json_object_new_array();
        int r = json_add(o, key, a);

        for (char *const *l = list; r >= 0 && *l; l++) {
                json_object *item = json_object_new_string(*l);
                if (!item || json_object_array_add(a, item) < 0) {
                        json_object_put(item);
                        r = -ENOMEM;
                }
        }
        return r;
}

int sandbox_policy_to_json(const SandboxPolicy *p, json_object **ret) {
        _cleanup_json_ json_object *o = json_object_new_object();

        int r = o ? json_add_string(o, "default", p->internet ? "internet" : "deny") : -ENOMEM;
        if (r >= 0)
                r = add_list(o, "allow", p->allow);
        if (r >= 0)
                r = add_list(o, "deny", p->deny);
        if (r >= 0)
                r = add_list(o, "inbound", p->inbound);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static int read_rule(json_object *item, char **ret) {
        if (!json_object_is_type(item, json_type_string))
                return -EBADMSG;
        const char *text = json_object_get_string(item);
        size_t n = (size_t) json_object_get_string_len(item);

        if (n == 0 || n > RULE_TEXT_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++)
                if (((unsigned char) text[i] < ' ' && text[i] != '\t') || (unsigned char) text[i] >= 0x7f)
                        return -EBADMSG;
        *ret = strdup(text);
        return *ret ? 0 : -ENOMEM;
}

static int read_list(json_object *o, const char *key, char ***ret) {
        json_object *a;

        if (!json_object_object_get_ex(o, key, NULL))
                return 0;
        int r = json_get(o, key, json_type_array, &a);
        if (r < 0)
                return r;
        size_t n = json_object_array_length(a);
        if (n == 0 || n > RULES_MAX)
                return -EBADMSG;
        *ret = new0(char *, n + 1);
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++)
                r = read_rule(json_object_array_get_idx(a, i), *ret + i);
        return r;
}

int sandbox_policy_from_json(json_object *o, SandboxPolicy *ret) {
        static const char *const keys[] = { "default", "allow", "deny", "inbound", NULL };
        _cleanup_(sandbox_policy_done) SandboxPolicy p = SANDBOX_POLICY_INIT;
        const char *text;

        if (!json_object_is_type(o, json_type_object))
                return -EBADMSG;
        int r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_string(o, "default", 16, &text);
        if (r >= 0 && !streq(text, "deny") && !streq(text, "internet"))
                r = -EBADMSG;
        if (r < 0)
                return r;
        p.internet = streq(text, "internet");
        r = read_list(o, "allow", &p.allow);
        if (r >= 0)
                r = read_list(o, "deny", &p.deny);
        if (r >= 0)
                r = read_list(o, "inbound", &p.inbound);
        if (r < 0)
                return r;
        *ret = p;
        p = SANDBOX_POLICY_INIT;
        return 0;
}
