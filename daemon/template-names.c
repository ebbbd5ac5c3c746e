/* SPDX-License-Identifier: Apache-2.0 */

/* Names: links in names/UID/ that stand for templates of that uid, and in names/UID.TENANT/ of a tenant of his. The one under which a template was built
 * it knows itself; all others are its aliases. Any of them may come to stand for another template. */

#include <fcntl.h>
#include <stdio.h>

#include "base/parse.h"
#include "base/tenant.h"
#include "daemon/template-private.h"

char **template_aliases_free(char **l) {
        for (char **i = l; i && *i; i++)
                free(*i);
        free(l);
        return NULL;
}

int template_aliases_copy(char **l, char ***ret) {
        char **copy = NULL;
        size_t n = 0;

        while (l && l[n])
                n++;
        copy = n > 0 ? new0(char *, n + 1) : NULL;
        if (n > 0 && !copy)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                copy[i] = strdup(l[i]);
                if (!copy[i]) {
                        template_aliases_free(copy);
                        return -ENOMEM;
                }
        }
        *ret = copy;
        return 0;
}

static size_t count_aliases(char **l) {
        size_t n = 0;

        while (l && l[n])
                n++;
        return n;
}

size_t template_count_aliases(const Template *t) {
        return count_aliases(t->aliases);
}

static bool has_alias(const Template *t, const char *name, const char *tag) {
        size_t n = strlen(name);

        for (char **a = t->aliases; a && *a; a++)
                if (strncmp(*a, name, n) == 0 && (*a)[n] == ':' && streq(*a + n + 1, tag))
                        return true;
        return false;
}

Template *template_store_find_name(const TemplateStore *s, uid_t owner, const char *tenant, const char *name, const char *tag) {
        for (size_t i = 0; i < s->n_templates; i++) {
                Template *t = s->templates[i];
                if (tenant_same(t->owner_uid, t->tenant, owner, tenant) &&
                    ((t->named && streq(t->name, name) && streq(t->tag, tag)) || has_alias(t, name, tag)))
                        return t;
        }
        return NULL;
}

/* Keeps them sorted: a directory has no order. */
static int add_alias(Template *t, const char *name) {
        size_t n = count_aliases(t->aliases);
        char **l = reallocarray(t->aliases, n + 2, sizeof(*l));

        if (!l)
                return -ENOMEM;
        t->aliases = l;
        l[n] = l[n + 1] = NULL;
        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        for (; n > 0 && strcmp(l[n - 1], copy) > 0; n--)
                l[n] = l[n - 1];
        l[n] = copy;
        return 0;
}

/* A link NAME:TAG -> ../../ID. dir: whose names. */
static int settle_name(TemplateStore *s, int dir_fd, const char *dir, const char *link) {
        _cleanup_free_ char *name = NULL, *tag = NULL;
        char target[64], tenant[TENANT_NAME_MAX];
        ssize_t n = readlinkat(dir_fd, link, target, sizeof(target) - 1);
        Template *t;
        uid_t owner;

        if (n < 0 && errno != EINVAL)
                return errno == ENOENT ? 0 : -errno;
        target[n > 0 ? n : 0] = 0;
        if (n <= 0 || !startswith(target, "../../") || !strchr(link, ':') || template_ref_parse(link, &name, &tag) < 0) {
                template_store_warn(s, "name %s of uid %s: not a link to a template", link, dir);
                return 0;
        }
        t = template_store_find_id(s, target + strlen("../../"));
        if (!t || tenant_dir_parse(dir, &owner, tenant) < 0 || !tenant_same(t->owner_uid, t->tenant, owner, tenant)) {
                template_store_warn(s, "name %s of uid %s: leads to no such template", link, dir);
                return 0;
        }
        if (!streq(t->name, name) || !streq(t->tag, tag))
                return add_alias(t, link);
        t->named = true;
        return 0;
}

static int settle_names_of(TemplateStore *s, int names_fd, const char *dir) {
        _cleanup_(closedirp) DIR *d = NULL;
        char tenant[TENANT_NAME_MAX];
        uid_t owner;

        int r = tenant_dir_parse(dir, &owner, tenant) < 0 ? -ENOTDIR : template_store_open_list(names_fd, dir, &d);
        if (r == -ENOTDIR || r == -ELOOP) {
                template_store_warn(s, "names/%s: not a directory of a uid's names", dir);
                return 0;
        }
        struct dirent *de;
        while (r >= 0 && (errno = 0, de = readdir(d)))
                if (de->d_name[0] != '.')
                        r = settle_name(s, dirfd(d), dir, de->d_name);
        return r < 0 ? r : -errno;
}

static int settle_all(TemplateStore *s) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;
        int r;

        r = template_store_open_list(s->root_fd, STORE_NAMES, &d);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        while (r >= 0 && (errno = 0, de = readdir(d)))
                if (de->d_name[0] != '.')
                        r = settle_names_of(s, dirfd(d), de->d_name);
        return r < 0 ? r : -errno;
}

typedef struct OldNames {
        bool named;
        char **aliases;
} OldNames;

static bool same_aliases(char **a, char **b) {
        size_t n = count_aliases(a);

        if (n != count_aliases(b))
                return false;
        for (size_t i = 0; i < n; i++)
                if (!streq(a[i], b[i]))
                        return false;
        return true;
}

static void take_back(Template *t, OldNames *old) {
        template_aliases_free(t->aliases);
        t->named = old->named;
        t->aliases = TAKE_PTR(old->aliases);
}

/* When they can't be read what is known of them stays: a template without a name is garbage to some. */
int template_names_settle(TemplateStore *s) {
        _cleanup_free_ OldNames *old = new0(OldNames, s->n_templates + 1);

        if (!old)
                return -ENOMEM;
        for (size_t i = 0; i < s->n_templates; i++) {
                Template *t = s->templates[i];
                old[i] = (OldNames) { t->named, TAKE_PTR(t->aliases) };
                t->named = false;
        }
        int r = settle_all(s);
        for (size_t i = 0; i < s->n_templates; i++) {
                Template *t = s->templates[i];
                if (r < 0) {
                        take_back(t, &old[i]);
                        continue;
                }
                t->renamed |= t->named != old[i].named || !same_aliases(t->aliases, old[i].aliases);
                template_aliases_free(old[i].aliases);
        }
        return r;
}

int template_store_set_name(sd_event *e, TemplateStore *s, uid_t owner, const char *tenant, const char *name, Template *t,
                            template_removed_t done, void *userdata) {
        char dir[TENANT_DIR_MAX];
        const char *const argv[] = {
                s->tools.cube_image, "name", tenant_dir_format(dir, owner, tenant), name, t ? t->id : NULL, NULL,
        };

        return template_store_run(e, s, STORE_JOB_NAME, t ? t->id : NULL, argv, done, userdata);
}
