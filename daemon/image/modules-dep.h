/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which kernel modules a guest has to load, and in which order.
 *
 * Reads the text of modules.dep ("path: dependency dependency ...") and modules.builtin (a path a
 * line), as depmod and the kernel build write them. Paths are relative to /lib/modules/RELEASE and
 * end in .ko, .ko.xz or .ko.zst. Works on text; opens nothing. */

#include "daemon/image/fault.h"

#define MODULES_PLAN_MAX 128U

typedef struct ModuleWish {
        const char *name;   /* either spelling of - and _ */
        const char *params; /* NULL: none */
        const char *needed; /* what does not work without it; NULL: nothing, it is left out */
        const char *or;     /* one that serves as well; NULL: none */
} ModuleWish;

/* What a guest of ours needs, pvpanic first: a panic before it is loaded has no name. */
extern const ModuleWish module_wishes[];
extern const size_t n_module_wishes;

typedef struct PlannedModule {
        char *path;         /* relative, checked: no "..", no empty component */
        const char *params; /* borrowed from the wish */
} PlannedModule;

typedef struct ModulesPlan {
        PlannedModule modules[MODULES_PLAN_MAX]; /* in load order, each once */
        size_t n_modules;
} ModulesPlan;

void modules_plan_done(ModulesPlan *p);

/* -ENOENT when a needed one is neither a module nor built in, -EBADMSG for text that depmod did
 * not write, -E2BIG. builtin may be empty. */
int modules_plan_make(
                const char *dep,
                const char *builtin,
                const ModuleWish *wishes,
                size_t n_wishes,
                ModulesPlan *ret,
                Fault *fault);

/* Whether path names module: its last component without suffix, - and _ alike. */
bool module_path_is(const char *path, size_t path_size, const char *name);
