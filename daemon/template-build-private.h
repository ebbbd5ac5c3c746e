/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of a template's build share: template-build.c has the row of steps, the
 * template-*.c that are named here some of them. Nobody else includes it. */

#include "daemon/id.h"
#include "daemon/template-build.h"
#include "daemon/tool.h"

#define BUILD_NAME_MAX 32U

/* A descriptor that tools get beside standard streams and report. */
#define TOOL_EXTRA_FD 4
#define TOOL_EXTRA_PATH "/proc/self/fd/4"

typedef enum BuildStep {
        STEP_PROBE,
        STEP_KERNEL,
        STEP_INITRAMFS,
        STEP_KEY,
        STEP_TAKE_ROOT,
        STEP_ROOT,
        STEP_SUM,
        STEP_LAYER,
        STEP_DISK,
        STEP_SEAL,
        STEP_WARM,   /* not by tools: the caller's guest */
        STEP_COMMIT,
        STEP_REUSE, /* only in place of all behind the key */
        STEP_CLEAN, /* only after a failure */
        _STEP_MAX,
} BuildStep;

struct TemplateBuild {
        sd_event *event;
        TemplateStore *store;
        TemplateBuildCallbacks callbacks;
        void *userdata;

        Template *template;  /* in the making; the store loads its own from what was committed */
        char name[BUILD_NAME_MAX]; /* of the directory */
        int dir_fd;
        int rootfs_fd, kernel_fd, modules_fd;
        bool no_modules;
        char *image;         /* the name in a layout; then its digest; NULL: rootfs_fd is none */
        int position_fd;     /* a file whose position says how much of rootfs_bytes is done, while an image is read */
        bool on_base;
        int base_disk_fds[1 + TEMPLATE_BASE_LAYERS_MAX]; /* of the other template, lowest first */
        size_t n_base_disks;
        gid_t owner_gid;
        uint64_t root_max_bytes;
        uint64_t timeout_usec;
        uint64_t rootfs_bytes;
        TemplateWarmSpec *warm;
        sd_event_source *deadline; /* of all of it; NULL: none */

        /* What it has in common with others (template-cache.c); texts are empty where they are not known. */
        bool no_cache, cacheable;
        uint32_t force_step;
        char *base_id;       /* of the template below */
        char *kernel_command_line;
        bool has_build_rules;
        SandboxPolicy build_rules;
        char input_key[SHA256_HEX_SIZE]; /* of a root image that is made here */
        char root_sum[SHA256_HEX_SIZE], kernel_sum[SHA256_HEX_SIZE], initramfs_sum[SHA256_HEX_SIZE];
        char (*copy_sums)[SHA256_HEX_SIZE];
        TemplatePoint *points;
        size_t n_points, n_layer_keys, begun_at;
        Template *same;      /* in use by us: it is what this would come to */
        Template *added;     /* the store's, once it is committed */
        bool naming;         /* names were given, or may have been */
        const char *layer_key, *next_layer_key; /* one of points, the last that was kept; NULL: none is any more */
        char layer_id[ID_SIZE], next_layer_id[ID_SIZE];
        Tool *layer_tool;
        void (*layer_done)(void *userdata);
        void *layer_userdata;

        BuildStep step;
        int output_fd;       /* the file that this step makes */
        Tool *tools[2];      /* the second reads from the first */
        int results[2];
        char *messages[2];
        size_t n_tools, n_running;
        sd_event_source *progress;

        int result;
        char *message;
};

/* The first failure stays. Returns r. */
int build_fail(TemplateBuild *b, int r, const char *format, ...) _printf_(3, 4);
/* So much of all that this step has to do is done. */
void build_tell_part(TemplateBuild *b, uint64_t done, uint64_t all);

/* The file that this step makes: only root can come near it, and the tools are handed its
 * descriptor; by /proc/self/fd they may open it anew as whoever they are. */
int build_output_create(TemplateBuild *b, TemplateFile file);
/* Takes it away from the tools. */
int build_output_close(TemplateBuild *b, TemplateFile file);

ToolSpec build_tool_spec(const TemplateBuild *b, const char *const *argv);
/* Reads what a caller gave by its own path: with the caller's rights. */
void build_run_as_owner(const TemplateBuild *b, ToolSpec *spec);
int build_run(TemplateBuild *b, ToolSpec *spec);
/* Of the first tool, once all have ended well. */
int build_parse_report(TemplateBuild *b, json_object **ret);

/* COMMIT and REUSE: cube-image gives the template id the names that the build is to give. */
int build_run_naming(TemplateBuild *b, const char *verb, const char *id);

/* template-cache.c. 1 of a start: there is nothing to do. */
int build_key_start(TemplateBuild *b);
int build_key_finish(TemplateBuild *b);
int build_take_root_start(TemplateBuild *b);
int build_take_root_finish(TemplateBuild *b);
int build_sum_start(TemplateBuild *b);
int build_sum_finish(TemplateBuild *b);
int build_layer_start(TemplateBuild *b);
int build_layer_finish(TemplateBuild *b);
int build_reuse_start(TemplateBuild *b);
int build_reuse_finish(TemplateBuild *b);
void build_cache_done(TemplateBuild *b);

/* template-base.c: on another template. */
int build_base_prepare(TemplateBuild *b, const TemplateBuildParams *p);
/* What both have, once there is a directory. */
int build_base_link(TemplateBuild *b, const Template *t);
void build_base_unlink(TemplateBuild *b);
int build_base_disk_start(TemplateBuild *b);
void build_base_done(TemplateBuild *b);

/* template-root.c: what the root file system is given as, and the image of it. */
int build_probe_start(TemplateBuild *b);
int build_probe_finish(TemplateBuild *b);
int build_root_start(TemplateBuild *b);
int build_root_finish(TemplateBuild *b);
/* It is what images are. */
int build_root_typed(TemplateBuild *b);
