/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/exec-defaults.h"
#include "daemon/guest-kernel.h"
#include "daemon/id.h"
#include "daemon/template-params.h"

static bool copy_path_valid(const char *path) {
        size_t n = strlen(path);

        return n > 1 && n < PATH_MAX && path[0] == '/' && path[n - 1] != '/';
}

/* What is written down with the template is as long as it may be when that is read. */
static const char *place_fault(const TemplateWarmSpec *s, const char *base_cwd) {
        if (s->cwd && *s->cwd != '/')
                return "the working directory has to be an absolute path";
        if (template_steps_check_cwd(s->steps, s->n_steps, s->cwd ?: base_cwd) == -ENAMETOOLONG)
                return TEMPLATE_CWD_TOO_LONG;
        return strlen(strempty(s->user)) > EXEC_USER_MAX ? "the name of the user is too long, 255 bytes at most" : NULL;
}

static const char *warm_spec_fault(const TemplateWarmSpec *s, const char *base_cwd) {
        size_t n = 0;

        for (; s->setup && s->setup[n]; n++)
                if (!*s->setup[n])
                        return "a setup command is empty";
        if (n > TEMPLATE_SETUP_MAX)
                return "there are too many setup commands, 64 at most";
        if (s->n_copies > TEMPLATE_COPIES_MAX)
                return "there is too much to copy, 12 files or directories at most";
        for (size_t i = 0; i < s->n_copies; i++)
                if (!copy_path_valid(s->copies[i].path))
                        return "where something is copied to has to be an absolute path, without a slash at its end";
        if (s->n_steps > 0 && s->setup)
                return "setup commands and steps don't go together: a step RUN is one";
        if (s->n_steps > TEMPLATE_STEPS_MAX)
                return "there are too many steps, 256 at most";
        for (size_t i = 0; i < s->n_steps; i++) {
                const char *fault = template_step_fault(&s->steps[i]);
                if (fault)
                        return fault;
        }
        if (s->start && s->no_start)
                return "there is a command to start, and no-start";
        if ((s->start && !*s->start) || (s->ready && !*s->ready))
                return "the command to start or the one that tells when it is ready is empty";
        if (strlen(strempty(s->start)) > TEMPLATE_COMMAND_MAX || strlen(strempty(s->ready)) > TEMPLATE_COMMAND_MAX)
                return "the command to start or the one that tells when it is ready is too long, 65535 bytes at most";
        /* Without the assignment itself: its value may be a secret. */
        for (char **e = s->env; e && *e; e++)
                if (!env_assignment_valid(*e))
                        return "an entry of the environment is not NAME=VALUE";
        return place_fault(s, base_cwd);
}

static const char *aliases_fault(char **aliases) {
        size_t n = 0;

        for (char **a = aliases; a && *a; a++) {
                _cleanup_free_ char *name = NULL, *tag = NULL;
                if (!strchr(*a, ':') || template_ref_parse(*a, &name, &tag) < 0)
                        return "an alias is not NAME:TAG: letters, digits and ._- are allowed, 63 at most each";
                if (++n > TEMPLATE_ALIASES_MAX)
                        return "there are too many aliases, 16 at most";
        }
        return NULL;
}

const char *template_build_params_fault(const TemplateBuildParams *p) {
        if (!p->name || !template_name_valid(p->name))
                return "the template's name is not valid: letters, digits and ._- are allowed, 63 at most";
        if (p->tag && !template_name_valid(p->tag))
                return "the template's tag is not valid: letters, digits and ._- are allowed, 63 at most";
        if (p->rootfs_fd < 0 && !p->base)
                return "there is no root file system";
        if (p->image && strlen(p->image) > TEMPLATE_IMAGE_NAME_MAX)
                return "the name of the image is too long";
        if (p->kernel_name && !guest_kernel_name_valid(p->kernel_name))
                return "by name there are the kernels " GUEST_KERNEL_SMALL " and " GUEST_KERNEL_STOCK " only";
        if (p->kernel_name && p->kernel_fd >= 0)
                return "a kernel is given by name or as a file, not both";
        if (p->kernel_name && streq(p->kernel_name, GUEST_KERNEL_SMALL) && p->modules_fd >= 0)
                return "the small kernel takes no modules";
        if (p->mem_bytes == 0 || p->mem_bytes > TEMPLATE_MEMORY_MAX || p->mem_bytes % MIB(1))
                return "memory has to be a number of MiB, 32 GiB at most";
        if (p->cpus == 0 || p->cpus > TEMPLATE_CPUS_MAX)
                return "1 to 16 CPUs are possible";
        if (p->disk_bytes < MIB(64) || p->disk_bytes > TEMPLATE_DISK_MAX || p->disk_bytes % MIB(1))
                return "the disk has to be a number of MiB, 64 at least and 64 TiB at most";
        for (const char *c = strempty(p->cmdline); *c; c++)
                if (*c < ' ' || *c > '~')
                        return "the kernel command line holds characters other than printable ASCII";
        if (strlen(strempty(p->cmdline)) > TEMPLATE_CMDLINE_MAX)
                return "the kernel command line is too long";
        if (p->force_step > (p->warm ? p->warm->n_steps : 0))
                return "there is no such step to be forced";
        const char *fault = aliases_fault(p->aliases);
        return fault || !p->warm ? fault : warm_spec_fault(p->warm, p->base ? p->base->defaults.cwd : NULL);
}

static int copy_string(const char *s, char **ret) {
        if (!s)
                return 0;
        *ret = strdup(s);
        return *ret ? 0 : -ENOMEM;
}

static int copy_strings(char **l, char ***ret) {
        size_t n = 0;
        int r = 0;

        if (!l)
                return 0;
        while (l[n])
                n++;
        *ret = new0(char *, n + 1);
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++)
                r = copy_string(l[i], *ret + i);
        return r;
}

static int set_start(const TemplateWarmSpec *s, TemplateStart *ret) {
        if (!s || !s->start)
                return 0;
        ret->command = strdup(s->start);
        ret->ready = s->ready ? strdup(s->ready) : NULL;
        ret->ready_timeout_usec = s->ready_timeout_usec;
        return ret->command && (ret->ready || !s->ready) ? 0 : -ENOMEM;
}

int template_from_params(const TemplateBuildParams *p, Template **ret) {
        _cleanup_(template_freep) Template *t = new0(Template, 1);
        char id[ID_SIZE];

        if (!t)
                return -ENOMEM;
        id_random(id);
        t->id = strdup(id);
        t->name = strdup(p->name);
        t->tag = strdup(p->tag ? p->tag : TEMPLATE_TAG_DEFAULT);
        t->owner_uid = p->owner_uid;
        tenant_name_copy(t->tenant, p->tenant);
        t->created_usec = wall_usec();
        t->mem_bytes = p->mem_bytes;
        t->cpus = p->cpus;
        t->disk_bytes = p->disk_bytes;
        t->public = p->public;
        t->cmdline = strdup(strempty(p->cmdline));
        t->has_policy = p->policy;
        if ((p->policy && sandbox_policy_copy(p->policy, &t->policy) < 0) || set_start(p->warm, &t->start) < 0)
                return -ENOMEM;
        if (!t->id || !t->name || !t->tag || !t->cmdline || template_aliases_copy(p->aliases, &t->aliases) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(t);
        return 0;
}

int template_default_kernel(const char *boot_dir, char **ret_path) {
        _cleanup_free_ char *best = NULL;
        bool best_cloud = false;
        struct dirent *de;
        DIR *d = opendir(boot_dir);

        if (!d)
                return -errno;
        while ((de = readdir(d))) {
                const char *release = startswith(de->d_name, "vmlinuz-");
                size_t n = strlen(de->d_name), m = strlen("-cloud-amd64");
                bool cloud = n > m && streq(de->d_name + n - m, "-cloud-amd64");
                char *copy;

                if (!release || (best && (cloud < best_cloud ||
                                          (cloud == best_cloud && strverscmp(de->d_name, best) <= 0))))
                        continue;
                copy = strdup(de->d_name);
                if (!copy)
                        continue;
                free(best);
                best = copy;
                best_cloud = cloud;
        }
        (void) closedir(d);
        if (!best)
                return -ENOENT;
        return asprintf(ret_path, "%s/%s", boot_dir, best) < 0 ? -ENOMEM : 0;
}

static int copy_copies(const TemplateWarmSpec *s, TemplateWarmSpec *c) {
        c->copies = new0(TemplateCopy, s->n_copies + 1);
        if (!c->copies)
                return -ENOMEM;
        for (; c->n_copies < s->n_copies; c->n_copies++) {
                const TemplateCopy *from = &s->copies[c->n_copies];
                _cleanup_free_ char *path = strdup(from->path);
                if (!path)
                        return -ENOMEM;

                int fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3);
                if (fd < 0)
                        return -errno;
                c->copies[c->n_copies] = (TemplateCopy) { fd, TAKE_PTR(path) };
        }
        return 0;
}

int template_warm_spec_copy(const TemplateWarmSpec *s, TemplateWarmSpec **ret) {
        _cleanup_(template_warm_spec_freep) TemplateWarmSpec *c = new0(TemplateWarmSpec, 1);
        if (!c)
                return -ENOMEM;

        c->no_start = s->no_start;
        c->ready_timeout_usec = s->ready_timeout_usec > 0 ? s->ready_timeout_usec : TEMPLATE_READY_TIMEOUT_USEC;
        int r = copy_copies(s, c);
        if (r >= 0)
                r = copy_strings(s->setup, &c->setup);
        if (r >= 0)
                r = template_steps_copy(s->steps, s->n_steps, &c->steps);
        if (r >= 0)
                c->n_steps = s->n_steps;
        if (r >= 0)
                r = copy_strings(s->env, &c->env);
        if (r >= 0)
                r = copy_string(s->start, &c->start);
        if (r >= 0)
                r = copy_string(s->ready, &c->ready);
        if (r >= 0)
                r = copy_string(s->user, &c->user);
        if (r >= 0)
                r = copy_string(s->cwd, &c->cwd);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

static void free_secret(char *s) {
        if (s)
                explicit_bzero(s, strlen(s));
        free(s);
}

static void free_secrets(char **l) {
        for (char **i = l; i && *i; i++)
                free_secret(*i);
        free(l);
}

TemplateWarmSpec *template_warm_spec_free(TemplateWarmSpec *s) {
        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_copies; i++) {
                safe_close(s->copies[i].fd);
                free((char *) s->copies[i].path);
        }
        free(s->copies);
        free_secrets(s->setup);
        template_steps_free(s->steps, s->n_steps);
        free_secrets(s->env);
        free_secret(s->start);
        free_secrets(s->image_command);
        free_secret(s->ready);
        free(s->user);
        free(s->cwd);
        step_state_done(&s->done.state);
        free(s);
        return NULL;
}
