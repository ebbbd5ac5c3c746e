/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A template's first guest: booted from files that have no name yet, set up, warmed, and saved as the
 * snapshot that the template's sandboxes start from.
 *
 *      boot       a sandbox like any other, but a builder: see struct Sandbox
 *      copy       files and directories of the caller, but for those that steps unpack: they come just before these
 *      setup      commands, one after the other
 *      steps      those of E2B's clients and Dockerfiles (template-steps.h), one after the other
 *                 behind all copies, each command and each step the disk is kept for later builds; what such a one has done is
 *                 not done again (spec->done)
 *      start      a program that stays, in the saved state too
 *      ready      a command, again and again until it succeeds
 *      exec       programs that do nothing, a file that is nothing: what the first exec in a sandbox would have to fetch is there
 *      freeze     the agent writes everything to disk and gives back what is not needed
 *      save       SNAPSHOT_TEMPLATE, durable
 *      end        the builder is killed
 *
 * The owner frees it in or after done(), which comes once the builder is gone. Freeing it earlier ends
 * the builder silently. When it fails a snapshot may be there all the same; that goes with the template. */

#include "daemon/manager.h"
#include "daemon/template-key.h"

typedef struct TemplateWarm TemplateWarm;

typedef struct TemplateWarmCallbacks {
        void (*progress)(const char *step, unsigned percent, void *userdata);
        /* Of spec's steps that one begins, from 1 on; one more than there are: all are done. */
        void (*step)(size_t n, void *userdata);
        /* What the commands print; not terminated. */
        void (*log)(const char *text, size_t size, void *userdata);
        /* Is what the disk is at that point to be kept for later builds? Then keep() is called, with the guest's disk at rest and
         * its overlay: 1: template_warm_kept() follows, 0: it does not. Both may be NULL. */
        bool (*keeps)(TemplatePointKind kind, size_t n, void *userdata);
        int (*keep)(TemplatePointKind kind, size_t n, const StepState *state, int overlay_fd, void *userdata);
        /* Once, from the loop. r = 0, or a negative errno (-ECANCELED after a cancel) and why, for people. */
        void (*done)(int r, const char *message, void *userdata);
} TemplateWarmCallbacks;

/* t and spec are borrowed for as long as it lives. */
int template_warm_start(Manager *m, Template *t, const TemplateWarmSpec *spec, LoadedPolicy *policy, const TemplateWarmCallbacks *callbacks,
                        void *userdata, TemplateWarm **ret, sd_bus_error *error);
void template_warm_cancel(TemplateWarm *w);
void template_warm_kept(TemplateWarm *w);
TemplateWarm *template_warm_free(TemplateWarm *w);

/* How long to wait behind a try of the ready command that took so long. One that is slow, in a guest that has little CPU,
 * must not keep that from what is awaited: it gets a third at most, unless it takes very long. */
uint64_t template_warm_ready_pause(uint64_t took_usec);
