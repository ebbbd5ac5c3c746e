/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Templates on disk and in memory.
 *
 * A template is the directory /var/lib/cubed/templates/<id>/ with template.json and the files
 * below; it is never changed once it is there. names/<uid>/NAME:TAG is a symbolic link to the
 * directory that the name of that owner stands for now; building a name again moves the link. A template may have
 * any number of names, and none.
 * Names that begin with a dot are works in progress and the cache of kernels.
 *
 * The TemplateStore owns all Templates. Whoever starts a sandbox from one brackets its use with
 * template_use() and template_release(); one in use is not removed. Nothing here logs; what was
 * refused while loading stands in store->warnings. */

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"
#include "base/tenant.h"
#include "daemon/exec-defaults.h"
#include "daemon/kernel-info.h"
#include "daemon/sandbox-policy.h"
#include "daemon/template-files.h"

#define TEMPLATE_TAG_DEFAULT "latest"
#define TEMPLATE_CPUS_MAX 16U
#define TEMPLATE_MEMORY_MAX GIB(32)
#define TEMPLATE_DISK_MAX (GIB(1024) * 64)
#define TEMPLATE_CMDLINE_MAX 2047U
/* Of what is started, and of what says when that is ready. */
#define TEMPLATE_COMMAND_MAX 65535U

typedef struct Template Template;
typedef struct TemplateStore TemplateStore;

/* What its build was told to start, and to wait for. */
typedef struct TemplateStart {
        char *command, *ready;   /* command NULL: nothing, or what an image starts by itself; ready NULL: no wait */
        uint64_t ready_timeout_usec; /* 0: the default */
} TemplateStart;

struct Template {
        char *id;
        char *name;
        char *tag;
        bool building;           /* its files still lie in the directory of its build */
        bool named;              /* NAME:TAG of its owner still stands for this one */
        char **aliases;          /* "NAME:TAG": what else of its owner's names stands for it; NULL: nothing */
        bool renamed;            /* these two changed; to be cleared by whoever has told it */
        uid_t owner_uid;
        char tenant[TENANT_NAME_MAX]; /* of the owner's; "": he himself */
        uint64_t created_usec;   /* CLOCK_REALTIME */
        char *root_type;         /* "squashfs", "erofs" */
        KernelInfo kernel;
        char *cmdline;
        uint64_t mem_bytes;   /* defaults of its sandboxes */
        uint32_t cpus;
        uint64_t disk_bytes;
        bool has_policy;
        SandboxPolicy policy; /* of its sandboxes, where they are given none; without it as DefaultPolicy= says */
        ExecDefaults defaults; /* of its sandboxes' programs */
        TemplateStart start;   /* of builds on it, where they say nothing else */
        bool public;           /* all may create sandboxes from it; it stays its owner's */
        char key[SHA256_HEX_SIZE]; /* of all that it was built from (template-key.h); "": that is not known */
        uint64_t file_bytes[_TEMPLATE_FILE_MAX];
        char file_sha256[_TEMPLATE_FILE_MAX][SHA256_HEX_SIZE]; /* of disk.img: see image/hash-file.h */

        unsigned n_users;
        TemplateStore *store;
};

/* The programs that builds and removals run, and as whom. Set to what the build was configured
 * with; a test or the configuration may put others in. Borrowed strings. */
typedef struct TemplateTools {
        const char *cube_image;
        const char *agent;       /* becomes /init of the initramfs */
        const char *state_check; /* can a saved guest go on here? */
        const char *mksquashfs;
        const char *mkfs;
        const char *boot_dir;    /* where default kernels are looked for: /boot */
        const char *small_kernel; /* see guest-kernel.h */
        const char *modules_dir; /* /lib/modules */
        uid_t uid;               /* whom they run as; (uid_t) -1: as ourselves */
        gid_t gid;
} TemplateTools;

struct TemplateStore {
        char *root;
        int root_fd;
        Template **templates;    /* in no particular order */
        size_t n_templates;
        TemplateTools tools;
        struct StoreJob *jobs;   /* children that remove and name things */
        char **warnings;         /* one for each directory or name that was not loaded, and why */
        size_t n_warnings;
};

/* Creates root when it is missing. */
int template_store_load(TemplateStore **ret, const char *root);
TemplateStore *template_store_free(TemplateStore *s);
DEFINE_CLEANUP(TemplateStore *, template_store_free);

/* One template's directory; *ret_reason says in a word or two what was wrong with it. */
int template_load(int store_fd, const char *id, Template **ret, const char **ret_reason);
Template *template_free(Template *t);
DEFINE_CLEANUP(Template *, template_free);
/* template.json without "files", which cube-image adds. */
json_object *template_to_json(const Template *t);
/* With them, as it lies in the store. */
json_object *template_to_json_whole(const Template *t);
/* From such a text; *ret_reason as above. Its files are for others to look at. */
int template_parse(const char *text, size_t size, Template **ret, const char **ret_reason);
/* Makes it one of this host, made now. name and tag: NULL for those that it has. */
int template_readdress(Template *t, const char *id, uid_t owner, const char *tenant, const char *name, const char *tag);

/* By id, or by NAME[:TAG] among the names of owner's tenant (NULL: his own), then those of root (which all may use).
 * Whether the caller may see what an id finds is the caller's business. NULL when there is none. */
Template *template_store_find(TemplateStore *s, uid_t owner, const char *tenant, const char *ref);
/* Loads one directory anew, after a build has put it there, and settles which names stand. */
int template_store_add(TemplateStore *s, const char *id, Template **ret);

/* The template that NAME:TAG of that owner's tenant stands for, or NULL. */
Template *template_store_find_name(const TemplateStore *s, uid_t owner, const char *tenant, const char *name, const char *tag);
Template *template_store_find_id(const TemplateStore *s, const char *id);
char **template_aliases_free(char **l);
int template_aliases_copy(char **l, char ***ret);

/* Splits "name[:tag]"; -EINVAL when either is not valid. */
int template_ref_parse(const char *ref, char **ret_name, char **ret_tag);

/* Takes the template out of the store at once and deletes its files in a child. done runs once
 * from the loop, with 0 or a negative errno and text for people; the Template is gone by then.
 * -EBUSY while somebody uses it or it is being named. */
typedef void (*template_removed_t)(TemplateStore *s, const char *id, int r, const char *message, void *userdata);
int template_store_remove(sd_event *e, Template *t, template_removed_t done, void *userdata);
/* Lets name ("NAME:TAG") of owner's tenant stand for t, of the same, at once and whatever it stood for before; t NULL: for
 * nothing. In a child; done as above, with the names settled. While that goes on t is not removed. */
int template_store_set_name(sd_event *e, TemplateStore *s, uid_t owner, const char *tenant, const char *name, Template *t,
                            template_removed_t done, void *userdata);
/* Is a child at work on that template? */
typedef enum StoreJobKind {
        STORE_JOB_REMOVE,
        STORE_JOB_CLEAN,
        STORE_JOB_NAME,
} StoreJobKind;
/* Runs cube-image as root with the store as its descriptor 3. id and done may be NULL. */
int template_store_run(sd_event *e, TemplateStore *s, StoreJobKind kind, const char *id, const char *const *argv,
                       template_removed_t done, void *userdata);
bool template_store_is_busy(const TemplateStore *s, StoreJobKind kind, const char *id);
size_t template_store_count_jobs(const TemplateStore *s, StoreJobKind kind);
size_t template_count_aliases(const Template *t);
/* Deletes what crashed builds and removals left: for the start, when none is on its way. done may be
 * NULL and gets no id. 0 when there is nothing to do, and then it is not called; else 1. */
int template_store_clean(sd_event *e, TemplateStore *s, template_removed_t done, void *userdata);

void template_use(Template *t);
void template_release(Template *t);

/* Read-only and close-on-exec; -ESTALE when the file is not as large as template.json says. */
int template_open_file(const Template *t, TemplateFile file, int *ret_fd);
const char *template_file_name(TemplateFile file);
/* Least memory a sandbox of this template may have. */
uint64_t template_floor(const Template *t);
