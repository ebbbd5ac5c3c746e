/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs of the guest's that give a copy what the agent can't, e.g. new seeds for generators in user
 * space. Run at each epoch but that of the boot, as root, one by one in the order of their names, with
 * CUBE_EPOCH in the environment. All together have limit_usec; who still runs then is killed. What fails is
 * told and harms nothing. */

#include "guest/helper.h"
#include "guest/loop.h"

#define HOOKS_MAX 64U
#define HOOKS_MESSAGE_MAX 1024U
#define HOOK_TAIL_MAX 160U

typedef struct Hooks {
        const char *path;
        uint64_t limit_usec;
        char **names;           /* NULL while none run */
        unsigned n_names;
        unsigned next;
        uint64_t epoch;
        void (*done)(Agent *a, const char *failures);

        Helper helper;
        LoopSource timer;
        int output_fd;          /* of the one that runs */
        LoopSource output;
        char tail[HOOK_TAIL_MAX + 1];
        size_t tail_size;
        char failures[HOOKS_MESSAGE_MAX];
} Hooks;

/* done hears what failed, NULL when nothing did; it may be called at once. */
void hooks_start(Agent *a, uint64_t epoch, void (*done)(Agent *a, const char *failures));
/* Kills those that run; done is not called. */
void hooks_stop(Agent *a);
