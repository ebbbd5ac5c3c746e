/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A store with everything that a build takes, run by an event loop of its own. A test has one, and ends with it. */

#include <dirent.h>

#include "daemon/template-build.h"
#include "make-agent.h"
#include "make-elf.h"
#include "temp-dir.h"
#include "test.h"

typedef struct Lab {
        TempDir dir;
        TemplateStore *store;
        sd_event *event;
        TemplateTools tools;
        char cube_image[128], agent[128], boot[128], modules[128], small[128], slow[128];

        TemplateBuild *build;
        bool done;
        int r;
        char message[4096];
        Template *template;
        unsigned percent;
        unsigned n_progress;
        size_t logged;
        const char *cancel_at;

        /* The step of the caller's: what it was given, and how it shall end. */
        Template *warm;
        bool warm_canceled, name_was_there;
        int warm_result;
        sd_event_source *warm_source;
} Lab;

static inline void lab_load(Lab *lab) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/store", lab->dir.path);
        assert_ok(template_store_load(&lab->store, path));
        lab->store->tools.cube_image = lab->cube_image;
        lab->store->tools.agent = lab->agent;
        lab->store->tools.boot_dir = lab->boot;
        lab->store->tools.modules_dir = lab->modules;
        lab->store->tools.small_kernel = lab->small;
}

/* Beside the rest, where users other than root may run it: the build can lie where they may not go. */
static inline void copy_cube_image(Lab *lab) {
        _cleanup_free_ char *image = NULL;
        size_t size;

        assert_ok(read_file(AT_FDCWD, TEST_CUBE_IMAGE, MIB(64), &image, &size));
        temp_dir_write(&lab->dir, "cube-image", image, size);
        (void) snprintf(lab->cube_image, sizeof(lab->cube_image), "%s/cube-image", lab->dir.path);
        assert_ok(chmod(lab->dir.path, 0711));
        assert_ok(chmod(lab->cube_image, 0755));
}

static inline void lab_init(Lab *lab) {
        _cleanup_free_ MadeElf *e = make_elf();
        MadeAgent agent = make_agent();

        if (access(TEST_CUBE_IMAGE, X_OK) < 0 || access("/usr/bin/mksquashfs", X_OK) < 0 ||
            access("/usr/sbin/mkfs.ext4", X_OK) < 0)
                test_skip("cube-image, mksquashfs or mkfs.ext4 is missing");
        *lab = (Lab) { .dir = temp_dir_make() };
        copy_cube_image(lab);
        (void) snprintf(lab->agent, sizeof(lab->agent), "%s/agent", lab->dir.path);
        (void) snprintf(lab->boot, sizeof(lab->boot), "%s/boot", lab->dir.path);
        (void) snprintf(lab->modules, sizeof(lab->modules), "%s/modules", lab->dir.path);
        (void) snprintf(lab->small, sizeof(lab->small), "%s/vmlinux-small", lab->dir.path);
        assert_true(mkdirat(lab->dir.fd, "boot", 0755) == 0 && mkdirat(lab->dir.fd, "modules", 0755) == 0);
        temp_dir_write(&lab->dir, "agent", &agent, sizeof(agent));
        temp_dir_write(&lab->dir, "boot/vmlinuz-6.1.0-test-amd64", e, MADE_ELF_SIZE);
        assert_ok(sd_event_new(&lab->event));
        lab_load(lab);
}

static inline void lab_done(Lab *lab) {
        template_build_free(lab->build);
        template_store_free(lab->store);
        sd_event_unref(lab->event);
        temp_dir_done(&lab->dir);
}
#define _cleanup_lab_ _cleanup_(lab_done)

static inline void on_progress(TemplateBuild *b, const char *step, unsigned percent, void *userdata) {
        Lab *lab = userdata;

        assert(percent >= lab->percent && percent <= 100);
        lab->percent = percent;
        lab->n_progress++;
        if (lab->cancel_at && strstr(step, lab->cancel_at) && b)
                template_build_cancel(b);
}

static inline void on_log(TemplateBuild *b, const char *text, size_t size, void *userdata) {
        Lab *lab = userdata;
        lab->logged += size;
}

static inline void on_done(TemplateBuild *b, int r, const char *message, Template *t, void *userdata) {
        Lab *lab = userdata;

        assert(!lab->done);
        lab->done = true;
        lab->r = r;
        lab->template = t;
        (void) snprintf(lab->message, sizeof(lab->message), "%s", strempty(message));
        /* Freeing it in here is allowed. */
        lab->build = template_build_free(b);
}

static inline int on_warmed(sd_event_source *source, void *userdata) {
        Lab *lab = userdata;

        lab->warm_source = sd_event_source_disable_unref(lab->warm_source);
        template_build_warmed(lab->build, lab->warm_canceled ? -EIO : lab->warm_result, "the guest said no");
        return 0;
}

static inline int on_warm(TemplateBuild *b, Template *t, const TemplateWarmSpec *spec, void *userdata, char **ret_message) {
        Lab *lab = userdata;
        int fd;

        assert((spec->n_steps > 0 || streq(spec->setup[0], "make install")) && spec->ready_timeout_usec == TEMPLATE_READY_TIMEOUT_USEC);
        assert(streq(t->id, template_build_id(b)));
        /* A sandbox can be made from it, but nobody finds it. */
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                assert_ok(template_open_file(t, (TemplateFile) i, &fd));
                close(fd);
        }
        lab->warm = t;
        lab->name_was_there = template_store_find(lab->store, 0, NULL, "python") || template_store_find(lab->store, 0, NULL, t->id);
        template_build_tell(b, "warming", 50);
        return sd_event_add_defer(lab->event, &lab->warm_source, on_warmed, lab);
}

static inline void on_warm_cancel(TemplateBuild *b, void *userdata) {
        Lab *lab = userdata;
        lab->warm_canceled = true;
}

static const TemplateBuildCallbacks callbacks = { on_progress, on_log, on_warm, on_warm_cancel, on_done };

static inline TemplateBuildParams lab_params(const Lab *lab) {
        TemplateBuildParams p = TEMPLATE_BUILD_PARAMS_INIT;

        p.name = "python";
        p.mem_bytes = MIB(512);
        p.cpus = 1;
        p.disk_bytes = MIB(64);
        p.no_modules = true;
        return p;
}

static inline void make_rootfs(const Lab *lab, const char *tar) {
        char command[512];

        (void) snprintf(command, sizeof(command),
                        "cd %s && mkdir -p r/etc r/usr/bin && echo hi >r/etc/hi && chmod 4755 r/etc/hi && tar -cf %s -C r .",
                        lab->dir.path, tar);
        FILE *f = popen(command, "re");
        assert(f && pclose(f) == 0);
}

static inline int build(Lab *lab, TemplateBuildParams *p) {
        char *message = NULL;
        int r;

        lab->done = false;
        lab->percent = 0;
        r = template_build_start(lab->event, lab->store, p, &callbacks, lab, &lab->build, &message);
        if (r < 0) {
                (void) snprintf(lab->message, sizeof(lab->message), "%s", strempty(message));
                free(message);
                return r;
        }
        for (int i = 0; i < 100000 && !lab->done; i++)
                assert_ok(sd_event_run(lab->event, 60 * USEC_PER_SEC));
        assert_true(lab->done);
        return lab->r;
}

static inline int build_tar(Lab *lab, TemplateBuildParams *p, const char *tar) {
        int r;

        p->rootfs_fd = temp_dir_open(&lab->dir, tar, O_RDONLY);
        r = build(lab, p);
        close(p->rootfs_fd);
        return r;
}

/* What is in a directory of the store's, beside those of its own that every store has. */
static inline unsigned count_in(const Lab *lab, const char *directory) {
        static const char *const own[] = {
                ".", "..", "names", ".kernels", ".initramfs", ".roots", ".inputs", ".layers",
        };
        char path[128];
        unsigned n = 0;
        struct dirent *de;
        DIR *d;

        (void) snprintf(path, sizeof(path), "%s/%s", lab->dir.path, directory);
        d = opendir(path);
        assert(d);
        while ((de = readdir(d))) {
                size_t i = 0;
                while (i < ELEMENTSOF(own) && !streq(de->d_name, own[i]))
                        i++;
                n += i == ELEMENTSOF(own);
        }
        closedir(d);
        return n;
}

static inline unsigned count_entries(const Lab *lab) {
        return count_in(lab, "store");
}

static inline unsigned count_names(const Lab *lab) {
        return count_in(lab, "store/names/0");
}
