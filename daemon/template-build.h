/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds one template: a row of child processes on the event loop, none of which may write
 * anything but the files it was handed.
 *
 *      probe      what the root file system is given as         cube-image probe; image-info
 *      kernel     bzImage or vmlinux -> vmlinux                 cube-image kernel
 *      initramfs  agent and modules                             cube-image initramfs
 *      key        is there a template that is the same?         cube-image digest; reuse in place of all others
 *      root       that of the same input                        cube-image take-root
 *                 tar or directory -> squashfs; images: copied  cube-image rootfs | mksquashfs
 *                 layers of a container image -> squashfs       cube-image image | mksquashfs
 *      disk       as it was behind the steps that are the same  cube-image take-layer
 *                 ext4                                          mkfs.ext4
 *                 on another template: what its guest left      cube-image merge-disk
 *      seal       hashes, fsync, template.json                  cube-image seal
 *      warm       a guest of it is booted, set up and saved     the caller's callback
 *      commit     rename, name                                  cube-image commit
 *
 * On another template the steps before the disk are left out: their files are links to that one's, which are never changed.
 *
 * cubed itself never reads, stats or maps the descriptors that a caller gave: behind one may stand
 * a FUSE file system that never answers.
 *
 * A build that fails or is cancelled leaves nothing on disk but names in the dot namespace, which
 * it deletes too, and its callback gets the step and the end of what the tool printed. The caller
 * owns the TemplateBuild and frees it in or after done(). Freeing it earlier cancels silently. */

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/macros.h"
#include "daemon/template-key.h"
#include "daemon/template-params.h"

typedef struct TemplateBuild TemplateBuild;

typedef struct TemplateBuildCallbacks {
        /* step: a few words, "making the root image". percent of the whole; called for each step and
         * while long ones go on. May be NULL. */
        void (*progress)(TemplateBuild *b, const char *step, unsigned percent, void *userdata);
        /* What tools print, as it comes; not terminated. May be NULL. */
        void (*log)(TemplateBuild *b, const char *text, size_t size, void *userdata);
        /* For params->warm alone: t is whole but for its name; it is in no store and stays the build's, until
         * template_build_warmed(), which has to follow unless this fails (*ret_message: to be freed, may
         * stay NULL). warm_cancel asks for that to be soon. */
        int (*warm)(TemplateBuild *b, Template *t, const TemplateWarmSpec *spec, void *userdata, char **ret_message);
        void (*warm_cancel)(TemplateBuild *b, void *userdata);
        /* Exactly once, from the loop. r = 0 and the template, which the store owns; or a negative
         * errno (-ECANCELED after a cancel) and a message for people: "root: mksquashfs: ...". */
        void (*done)(TemplateBuild *b, int r, const char *message, Template *t, void *userdata);
        /* Has a template of the same files what is not among them? NULL: yes. */
        bool (*usable)(TemplateBuild *b, const Template *t, void *userdata);
} TemplateBuildCallbacks;

/* Checks params (-EINVAL and *ret_message when not NULL, to be freed), duplicates the descriptors
 * and starts the first step. The store must outlive the build. */
int template_build_start(
                sd_event *e,
                TemplateStore *s,
                const TemplateBuildParams *params,
                const TemplateBuildCallbacks *callbacks,
                void *userdata,
                TemplateBuild **ret,
                char **ret_message);
/* The guest is saved and gone, or it came to nothing: the build goes on, or ends. */
void template_build_warmed(TemplateBuild *b, int r, const char *message);
/* How far that is, in percent of its own. */
void template_build_tell(TemplateBuild *b, const char *step, unsigned percent);
/* Was it there already? Once it is done. */
bool template_build_reused(const TemplateBuild *b);
/* How many of the first steps are not run; from the guest's start on. */
size_t template_build_cached_steps(const TemplateBuild *b);
/* Keeps what the disk is at that point for later builds: of the guest's overlay, which nobody writes to until done() is called.
 * Only while the guest is warmed, one at a time. 0: there is nothing to keep, and done() does not follow. */
int template_build_put_layer(TemplateBuild *b, TemplatePointKind kind, size_t n, const StepState *state, int overlay_fd,
                             void (*done)(void *userdata), void *userdata);
bool template_build_keeps(const TemplateBuild *b, TemplatePointKind kind, size_t n);
/* Of the template, from the start on. */
const char *template_build_id(const TemplateBuild *b);
/* Kills what runs; done() follows with -ECANCELED. */
void template_build_cancel(TemplateBuild *b);
TemplateBuild *template_build_free(TemplateBuild *b);
DEFINE_CLEANUP(TemplateBuild *, template_build_free);
