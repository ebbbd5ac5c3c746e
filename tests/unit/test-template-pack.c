/* SPDX-License-Identifier: Apache-2.0 */

/* Export and import as the manager does them: a real store, cube-image and cube-stored; only whether the guest could go on
 * here is said by a program of the test's. */

#include <dirent.h>

#include "base/clock.h"
#include "daemon/job.h"
#include "daemon/template-pack.h"
#include "dbus/bus-errors.h"
#include "snapshot-fixture.h"
#include "make-template.h"

#define COLD "cccccccccccccccc"

typedef struct Lab {
        Fixture f;
        struct ManagerPrivate priv;
        Manager manager;
        char templates[96], runtime[96];
        unsigned n_added;
} Lab;

static Lab *current;

static void on_template_added(Manager *m, Template *t) {
        current->n_added++;
}

static const ManagerHooks hooks = { .template_added = on_template_added };

static void lab_init(Lab *lab) {
        if (access(TEST_CUBE_IMAGE, X_OK) < 0 || access("/dev/kvm", R_OK|W_OK) < 0)
                test_skip("cube-image is not built, or there is no /dev/kvm");
        *lab = (Lab) { .f = fixture_make() };
        current = lab;
        Manager *m = &lab->manager;

        fixture_load(&lab->f);
        (void) snprintf(lab->templates, sizeof(lab->templates), "%s/templates", lab->f.dir.path);
        (void) snprintf(lab->runtime, sizeof(lab->runtime), "%s/run", lab->f.dir.path);
        assert_true(mkdir(lab->templates, 0755) == 0 && mkdir(lab->runtime, 0755) == 0);
        *m = (Manager) { .event = lab->f.event, .priv = &lab->priv, .snapshots = lab->f.store, .hooks = &hooks };
        m->config.runtime_directory = lab->runtime;
        assert_ok(manager_load_jobs(m));

        TempDir d = { .fd = open(lab->templates, O_RDONLY|O_DIRECTORY|O_CLOEXEC) };
        make_template(&d, MADE_TEMPLATE, "warm", 0);
        make_template(&d, COLD, "cold", 0);
        make_template_name(&d, 0, "warm:latest", MADE_TEMPLATE);
        close(d.fd);
        assert_ok(template_store_load(&m->templates, lab->templates));
        m->templates->tools.cube_image = TEST_CUBE_IMAGE;
        m->templates->tools.state_check = "/bin/true";
        m->templates->tools.uid = (uid_t) -1;

        Snapshot *s = fixture_new(&lab->f, SNAPSHOT_TEMPLATE, NULL, 3, 'x');
        s->disk_bytes = MIB(64);
        assert_ok(snapshot_publish(s));
        snapshot_release(s);
}

/* As manager_free() has it. */
static void lab_done(Lab *lab) {
        Manager *m = &lab->manager;

        lab->f.store->stopping = true;
        m->hooks = NULL;
        manager_end_exports(m);
        manager_end_imports(m);
        while (m->n_jobs > 0)
                job_free(m->jobs[0]);
        free(m->jobs);
        store_client_detach(lab->f.client);
        template_store_free(m->templates);
        fixture_done(&lab->f);
}
#define _cleanup_lab_ _cleanup_(lab_done)

static void turn(Lab *lab) {
        assert_ok(sd_event_run(lab->f.event, 60 * USEC_PER_SEC));
}

/* Runs it to its end. */
static JobState finish(Lab *lab, const Job *j) {
        while (j->state == JOB_RUNNING)
                turn(lab);
        return j->state;
}

static int pack(Lab *lab, const char *id) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        int fd = temp_dir_open(&lab->f.dir, "pack", O_RDWR|O_CREAT|O_TRUNC);
        Job *j;

        assert_ok(manager_export_template(&lab->manager, template_store_find_id(lab->manager.templates, id), 0, fd, &j, &e));
        if (finish(lab, j) != JOB_DONE)
                test_stop(TEST_FAILED, __LINE__, "%s", strempty(j->error_message));
        assert_true(lseek(fd, 0, SEEK_SET) == 0);
        return fd;
}

static Job *start_import(Lab *lab, int fd, const char *name) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        const TemplateImportParams p = {
                .name = name, .tag = name ? "1" : NULL, .aliases = (char *[]) { (char *) "also:1", NULL }, .owner_uid = 1000, .in_fd = fd,
        };
        Job *j;

        assert_ok(manager_import_template(&lab->manager, &p, &j, &e));
        return j;
}

static unsigned count_entries(const char *path) {
        struct dirent *de;
        DIR *d = opendir(path);
        unsigned n = 0;

        assert(d);
        while ((de = readdir(d)))
                n += !streq(de->d_name, ".") && !streq(de->d_name, "..") && !streq(de->d_name, ".kernels");
        closedir(d);
        return n;
}

/* Two templates and the names, one snapshot. */
static void assert_nothing_left(Lab *lab) {
        bool done = false;

        assert_eq(count_entries(lab->templates), 3);
        assert_eq(lab->manager.templates->n_templates, 2);
        assert_eq(lab->f.store->n_snapshots, 1);
        for (uint64_t end = now_usec() + 60 * USEC_PER_SEC; count_entries(lab->f.root) != 1 && now_usec() < end;) {
                assert_ok(store_client_sync(lab->f.client, lab->f.dir.fd, on_flushed, &done));
                for (done = false; !done;)
                        turn(lab);
        }
        assert_eq(count_entries(lab->f.root), 1);
        assert_eq(lab->n_added, 0);
}

static bool same_file(const Snapshot *a, const Snapshot *b, SnapshotFileKind kind) {
        _cleanup_close_ int x = -EBADF, y = -EBADF;
        static uint8_t u[MIB(1)], v[MIB(1)];

        assert_ok(snapshot_open_file(a, kind, &x));
        assert_ok(snapshot_open_file(b, kind, &y));
        ssize_t n = pread(x, u, sizeof(u), 0);
        return n > 0 && pread(y, v, sizeof(v), 0) == n && memcmp(u, v, (size_t) n) == 0;
}

TEST(a_guest_goes_with_its_template) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        _cleanup_close_ int fd = pack(&lab, MADE_TEMPLATE);
        Job *j = start_import(&lab, fd, "copy");
        if (finish(&lab, j) != JOB_DONE)
                test_stop(TEST_FAILED, __LINE__, "%s", strempty(j->error_message));

        Template *t = template_store_find_id(lab.manager.templates, j->result);
        assert_true(t && t->named && t->owner_uid == 1000 && lab.n_added == 1);
        assert_true(template_store_find_name(lab.manager.templates, 1000, NULL, "copy", "1") == t);
        assert_true(template_store_find_name(lab.manager.templates, 1000, NULL, "also", "1") == t);
        Snapshot *was = snapshot_store_find_template(lab.f.store, MADE_TEMPLATE), *is = snapshot_store_find_template(lab.f.store, t->id);
        assert_true(is && is != was && is->owner_uid == 1000 && is->n_users == 0 && is->durable);
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                assert_true(same_file(was, is, (SnapshotFileKind) i));

        /* a new cubed finds it */
        _cleanup_free_ char *id = strdup(t->id);
        fixture_load(&lab.f);
        lab.manager.snapshots = lab.f.store;
        assert_true(lab.f.store->n_warnings == 0 && snapshot_store_find_template(lab.f.store, id));
}

TEST(without_a_guest_and_under_its_own_name) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        lab.manager.templates->tools.state_check = "/bin/false"; /* is not asked */
        _cleanup_close_ int fd = pack(&lab, COLD);
        Job *j = start_import(&lab, fd, NULL);
        if (finish(&lab, j) != JOB_DONE)
                test_stop(TEST_FAILED, __LINE__, "%s", strempty(j->error_message));
        assert_true(template_store_find_name(lab.manager.templates, 1000, NULL, "cold", "latest"));
        assert_eq(lab.f.store->n_snapshots, 1);
}

TEST(a_guest_that_can_not_go_on_here_is_refused) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        lab.manager.templates->tools.state_check = "/bin/false";
        _cleanup_close_ int fd = pack(&lab, MADE_TEMPLATE);
        Job *j = start_import(&lab, fd, "copy");
        assert_eq(finish(&lab, j), JOB_FAILED);
        assert_true(strstr(j->error_message, "false: exit status 1") && streq(j->error_name, BUS_ERROR_TEMPLATE_INVALID));
        assert_nothing_left(&lab);
}

TEST(a_damaged_file_is_refused) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        _cleanup_close_ int fd = pack(&lab, MADE_TEMPLATE);
        assert_true(ftruncate(fd, lseek(fd, 0, SEEK_END) / 2) == 0 && lseek(fd, 0, SEEK_SET) == 0);
        Job *j = start_import(&lab, fd, "copy");
        assert_eq(finish(&lab, j), JOB_FAILED);
        assert_true(strstr(j->error_message, "could not be imported: cube-image: "));
        assert_nothing_left(&lab);
}

TEST(one_that_the_bus_could_not_tell_of_is_refused) {
        static const ExecDefaults unfit[] = { { .user = (char *) "\xef\xb7\x90" }, { .cwd = (char *) "/a\xef\xbf\xbe" } };

        for (size_t i = 0; i < ELEMENTSOF(unfit); i++) {
                _cleanup_lab_ Lab lab;

                lab_init(&lab);
                ExecDefaults *d = &template_store_find_id(lab.manager.templates, COLD)->defaults;
                exec_defaults_done(d);
                assert_ok(exec_defaults_copy(&unfit[i], d));
                _cleanup_close_ int fd = pack(&lab, COLD);
                Job *j = start_import(&lab, fd, "copy");
                assert_eq(finish(&lab, j), JOB_FAILED);
                assert_true(strstr(j->error_message, "its user or working directory has a character that stands for none"));
                assert_nothing_left(&lab);
        }
}

TEST(a_cancelled_one_leaves_nothing) {
        _cleanup_lab_ Lab lab;
        int fds[2];

        lab_init(&lab);
        assert_true(pipe2(fds, O_CLOEXEC) == 0);
        Job *j = start_import(&lab, fds[0], "copy");
        assert_true(!manager_is_importing(&lab.manager, MADE_TEMPLATE));
        assert_ok(job_cancel(j, NULL));
        assert_eq(finish(&lab, j), JOB_CANCELED);
        close(fds[0]);
        close(fds[1]);
        assert_nothing_left(&lab);
}

/* In each of its steps; what a sanitizer does not complain of is what is wanted. */
TEST(cubed_may_end_at_any_time) {
        static const char *const steps[] = { "unpacking", "checking", "writing", "keeping", "naming" };

        for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
                _cleanup_lab_ Lab lab;

                lab_init(&lab);
                _cleanup_close_ int fd = pack(&lab, MADE_TEMPLATE);
                Job *j = start_import(&lab, fd, "copy");
                while (j->state == JOB_RUNNING && !startswith(j->step, steps[i]))
                        turn(&lab);
                assert_eq(j->state, JOB_RUNNING);
        }
}

TEST(no_more_than_four_at_a_time) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_lab_ Lab lab;
        int fds[2];
        Job *j;

        lab_init(&lab);
        assert_true(pipe2(fds, O_CLOEXEC) == 0);
        for (unsigned i = 0; i < 4; i++)
                (void) start_import(&lab, fds[0], "copy");
        assert_true(manager_import_template(&lab.manager, &(TemplateImportParams) { .in_fd = fds[0] }, &j, &e) < 0);
        assert_true(sd_bus_error_has_name(&e, BUS_ERROR_BUSY));
        close(fds[0]);
        close(fds[1]);
}
