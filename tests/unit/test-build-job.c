/* SPDX-License-Identifier: Apache-2.0 */

/* Builds as jobs of the manager: what a reload in between sees of them, and what one without a job leaves. */

#include "build-lab.h"
#include "base/parse.h"
#include "daemon/id.h"
#include "daemon/job.h"
#include "daemon/manager-private.h"

static struct ManagerPrivate priv;
static SnapshotStore snapshots;
static Manager manager = { .priv = &priv, .snapshots = &snapshots };

static void setup(Lab *lab) {
        static char runtime[128];

        lab_init(lab);
        make_rootfs(lab, "root.tar");
        (void) snprintf(runtime, sizeof(runtime), "%s/run", lab->dir.path);
        assert_ok(mkdir(runtime, 0700));
        manager.event = lab->event;
        manager.templates = lab->store;
        manager.config.runtime_directory = runtime;
}

static int begin(Lab *lab, Job **ret, sd_bus_error *error) {
        TemplateBuildParams p = lab_params(lab);
        _cleanup_close_ int fd = temp_dir_open(&lab->dir, "root.tar", O_RDONLY);

        p.rootfs_fd = fd;
        return manager_build_template(&manager, &p, ret, error);
}

static void done(Lab *lab) {
        manager_end_builds(&manager);
        while (manager.n_jobs > 0)
                job_free(manager.jobs[0]);
        lab_done(lab);
}

/* The store's only template, once it has its directory; or "". */
static const char *find_committed(const Lab *lab) {
        static char id[ID_SIZE];
        struct dirent *e;
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/store", lab->dir.path);
        DIR *d = opendir(path);
        assert_true(d);
        id[0] = 0;
        while ((e = readdir(d)))
                if (sandbox_id_valid(e->d_name))
                        strcpy(id, e->d_name);
        closedir(d);
        return id;
}

/* Between the commit of a build and its end. */
TEST(a_reload_does_not_take_what_is_being_built) {
        static const char script[] = "#!/bin/sh\nd=$(dirname \"$0\")\n\"$d/cube-image\" \"$@\" || exit\n"
                "if [ \"$1\" = commit ]; then read -r go <\"$d/go\"; fi\n";
        char path[128], fifo[128];
        Lab lab;
        Job *j;

        setup(&lab);
        assert_ok(manager_load_jobs(&manager));
        temp_dir_write(&lab.dir, "waits", script, strlen(script));
        (void) snprintf(path, sizeof(path), "%s/waits", lab.dir.path);
        (void) snprintf(fifo, sizeof(fifo), "%s/go", lab.dir.path);
        assert_true(chmod(path, 0755) == 0 && mkfifo(fifo, 0600) == 0);
        _cleanup_close_ int go = open(fifo, O_RDWR|O_CLOEXEC);
        assert_true(go >= 0);
        lab.store->tools.cube_image = path;

        assert_ok(begin(&lab, &j, NULL));
        while (!*find_committed(&lab) && j->state == JOB_RUNNING)
                assert_ok(sd_event_run(lab.event, 10 * USEC_PER_MSEC));
        assert_eq(j->state, JOB_RUNNING);
        manager_load_new_templates(&manager);
        assert_eq(lab.store->n_templates, 0);
        assert_eq(write(go, "\n", 1), 1);
        while (j->state == JOB_RUNNING)
                assert_ok(sd_event_run(lab.event, 60 * USEC_PER_SEC));
        if (j->state != JOB_DONE)
                test_stop(TEST_FAILED, __LINE__, "%s", strempty(j->error_message));
        assert_true(template_store_find(lab.store, 0, NULL, "python") == template_store_find_id(lab.store, find_committed(&lab)));
        done(&lab);
}

/* There is no directory for its log. */
TEST(a_build_without_a_job_leaves_nothing) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Job *j;
        Lab lab;

        setup(&lab);
        assert_true(begin(&lab, &j, &e) < 0 && sd_bus_error_is_set(&e));
        /* Until nothing happens any more. */
        while (count_entries(&lab) > 0 && sd_event_run(lab.event, 60 * USEC_PER_SEC) > 0)
                ;
        assert_eq(count_entries(&lab), 0);
        assert_eq(manager.n_jobs, 0);
        done(&lab);
}
