/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs: their log's readers, what is kept, and what a restart finds. */

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "daemon/job.h"
#include "daemon/manager.h"
#include "dbus/bus-errors.h"
#include "tests/unit/test.h"

static char dir[] = "/tmp/cubed-test-job-XXXXXX";
static Manager manager;
static unsigned n_canceled;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static void setup(void) {
        if (!manager.event) {
                assert_ok(sd_event_new(&manager.event));
                assert_true(mkdtemp(dir));
                manager.config.runtime_directory = dir;
        }
        while (manager.n_jobs > 0)
                job_free(manager.jobs[0]);
        manager.tenant_waits_usec = 0;
        (void) nftw(dir, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
        (void) mkdir(dir, 0700);
        assert_ok(manager_load_jobs(&manager));
}

static void on_cancel(Job *j, void *userdata) {
        n_canceled++;
        job_canceled(j);
}

static void turn(void) {
        while (sd_event_run(manager.event, 0) > 0)
                ;
}

static ssize_t read_some(int fd, char *buf, size_t size) {
        turn();
        ssize_t n = read(fd, buf, size - 1);
        buf[n > 0 ? n : 0] = 0;
        return n < 0 ? -errno : n;
}

TEST(a_reader_gets_all_and_follows_to_the_end) {
        char buf[4096];
        Job *j;
        int fd;

        setup();
        assert_ok(job_new(&manager, "build-template", "a:b", 1000, on_cancel, NULL, &j));
        job_log(j, "one\n", 4);
        assert_ok(job_open_log(j, &fd, NULL));
        assert_ok(fd_set_nonblock(fd, true));
        assert_eq(read_some(fd, buf, sizeof(buf)), 4);
        assert_eq(read_some(fd, buf, sizeof(buf)), -EAGAIN);
        job_logf(j, "%s\n", "two");
        assert_eq(read_some(fd, buf, sizeof(buf)), 4);
        assert_streq(buf, "two\n");
        job_set_step(j, "half way", 50);
        job_done(j, "tttttttttttt");
        assert_eq(read_some(fd, buf, sizeof(buf)), 0);
        close(fd);
        assert_eq(j->progress, 100);
        assert_ok(job_open_log(j, &fd, NULL));
        assert_eq(read_some(fd, buf, sizeof(buf)), 8);
        assert_eq(read_some(fd, buf, sizeof(buf)), 0);
        close(fd);
}

TEST(a_reader_that_does_not_read_holds_up_nothing) {
        static char line[1000];
        char buf[65536];
        size_t total = 0;
        ssize_t n;
        Job *j;
        int fd;

        setup();
        memset(line, 'x', sizeof(line));
        assert_ok(job_new(&manager, "build-template", "a:b", 0, on_cancel, NULL, &j));
        assert_ok(job_open_log(j, &fd, NULL));
        for (unsigned i = 0; i < 2000; i++) {
                job_log(j, line, sizeof(line));
                (void) sd_event_run(manager.event, 0);
        }
        job_done(j, NULL);
        while ((n = read_some(fd, buf, sizeof(buf))) > 0)
                total += (size_t) n;
        assert_eq(n, 0);
        assert_true(total > JOB_LOG_MAX && total < JOB_LOG_MAX + 100);
        close(fd);

        /* One that left. */
        assert_ok(job_new(&manager, "build-template", "a:b", 0, on_cancel, NULL, &j));
        signal(SIGPIPE, SIG_IGN);
        assert_ok(job_open_log(j, &fd, NULL));
        close(fd);
        job_log(j, "x", 1);
        turn();
        job_done(j, NULL);
}

TEST(cancel_once) {
        sd_bus_error e = SD_BUS_ERROR_NULL;
        Job *j;

        setup();
        assert_ok(job_new(&manager, "build-template", "a:b", 0, on_cancel, NULL, &j));
        assert_ok(job_cancel(j, NULL));
        assert_eq(n_canceled, 1);
        assert_eq(j->state, JOB_CANCELED);
        assert_true(job_cancel(j, &e) < 0 && sd_bus_error_has_name(&e, BUS_ERROR_BUSY));
        sd_bus_error_free(&e);
}

TEST(only_the_last_ones_are_kept) {
        Job *j, *first;

        setup();
        assert_ok(job_new(&manager, "build-template", "runs:on", 0, on_cancel, NULL, &first));
        for (unsigned i = 0; i < JOBS_KEPT + 10; i++) {
                assert_ok(job_new(&manager, "build-template", "a:b", 0, on_cancel, NULL, &j));
                job_done(j, NULL);
        }
        assert_eq(manager.n_jobs, JOBS_KEPT + 1);
        assert_true(manager_find_job(&manager, first->id) == first);
        job_done(first, NULL);
        assert_eq(manager.n_jobs, JOBS_KEPT);
        assert_true(manager_find_job(&manager, first->id) == first);
}

static Job *begin(uid_t owner, const char *tenant) {
        Job *j;

        if (job_may_begin(&manager, owner, tenant, NULL) < 0)
                return NULL;
        assert_ok(job_new(&manager, "build-template", "a:b", owner, on_cancel, NULL, &j));
        job_set_tenant(j, tenant);
        return j;
}

TEST(one_tenant_leaves_room_for_the_others_and_all_of_them_for_the_host) {
        setup();
        Job *first = begin(1000, "acme");
        assert_true(first && begin(1000, "acme") && !begin(1000, "acme"));
        assert_true(begin(1000, "evil") && !begin(1000, "other"));
        assert_true(begin(0, NULL) && !begin(0, NULL));
        job_done(first, "tttttttttttt");
        assert_true(!begin(1000, "acme") && !begin(1000, "other") && begin(0, NULL));
}

TEST(two_tenants_do_not_keep_the_others_waiting) {
        setup();
        Job *one = begin(1000, "acme"), *two = begin(1000, "acme"), *three = begin(1000, "evil");
        assert_true(one && two && three && !begin(1000, "other"));
        /* Who asks most often does not win. */
        job_done(one, "tttttttttttt");
        assert_true(!begin(1000, "acme") && !begin(1000, "evil") && begin(1000, "other"));
        job_done(two, "tttttttttttt");
        assert_true(!begin(1000, "evil") && begin(1000, "acme"));
        /* Later one that is alone has what he had. */
        job_done(three, "tttttttttttt");
        assert_true(!begin(1000, "acme"));
        while (manager.n_jobs > 0)
                job_free(manager.jobs[0]);
        manager.tenant_waits_usec = now_usec() - JOBS_WAIT_USEC;
        assert_true(begin(1000, "acme") && begin(1000, "acme"));
}

TEST(a_tenant_that_has_one_waits_behind_nobody) {
        setup();
        assert_true(begin(1000, "acme") && begin(1000, "acme") && !begin(1000, "acme"));
        assert_true(begin(1000, "other") && !begin(1000, "other"));
        while (manager.n_jobs > 0)
                job_free(manager.jobs[0]);
        assert_true(begin(1000, "acme") && begin(1000, "acme"));
}

TEST(who_is_no_tenant_may_have_all) {
        setup();
        for (unsigned i = 0; i < JOBS_RUNNING_MAX; i++)
                assert_true(begin(1000, NULL));
        assert_true(!begin(1000, NULL) && !begin(1000, "acme"));
}

static void touch(const char *name) {
        _cleanup_free_ char *path = NULL;

        assert_ok(asprintf(&path, "%s/jobs/%s", dir, name));
        int fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600);
        assert_ok(fd);
        close(fd);
}

static bool is_there(const char *name) {
        _cleanup_free_ char *path = NULL;

        assert_ok(asprintf(&path, "%s/jobs/%s", dir, name));
        return access(path, F_OK) >= 0;
}

TEST(a_restart_takes_away_what_was_half_made) {
        setup();
        /* killed before it was written down; while it was; and one that can't be read, which is kept for who looks for it */
        touch("aaaaaaaaaaaaaaaa.log");
        touch("bbbbbbbbbbbbbbbb.log");
        touch("bbbbbbbbbbbbbbbb.json.new");
        touch("cccccccccccccccc.log");
        touch("cccccccccccccccc.json");
        assert_ok(manager_load_jobs(&manager));
        assert_eq(manager.n_jobs, 0);
        assert_true(!is_there("aaaaaaaaaaaaaaaa.log"));
        assert_true(!is_there("bbbbbbbbbbbbbbbb.log"));
        assert_true(!is_there("bbbbbbbbbbbbbbbb.json.new"));
        assert_true(is_there("cccccccccccccccc.log"));
        assert_true(is_there("cccccccccccccccc.json"));
}

TEST(a_restart_finds_the_running_one_failed) {
        sd_bus_error e = SD_BUS_ERROR_NULL;
        char id[21], other[21], buf[100];
        Job *j;
        int fd;

        setup();
        assert_ok(job_new(&manager, "build-template", "a:b", 1000, on_cancel, NULL, &j));
        job_set_tenant(j, "acme");
        job_log(j, "log\n", 4);
        memcpy(id, j->id, sizeof(id));
        assert_ok(job_new(&manager, "build-template", "c:d", 1000, on_cancel, NULL, &j));
        sd_bus_error_set(&e, BUS_ERROR_TEMPLATE_INVALID, "no \"kernel\"");
        job_fail(j, &e);
        sd_bus_error_free(&e);
        memcpy(other, j->id, sizeof(other));
        while (manager.n_jobs > 0)
                job_free(manager.jobs[0]);
        assert_ok(manager_load_jobs(&manager));
        assert_eq(manager.n_jobs, 2);

        j = manager_find_job(&manager, id);
        assert_true(j);
        assert_eq(j->state, JOB_FAILED);
        assert_eq(j->owner_uid, 1000);
        assert_streq(j->tenant, "acme");
        assert_streq(j->error_message, "cubed ended while the job ran; start it again");
        assert_ok(job_open_log(j, &fd, NULL));
        assert_eq(read_some(fd, buf, sizeof(buf)), 4);
        close(fd);
        j = manager_find_job(&manager, other);
        assert_streq(j->tenant, "");
        assert_streq(j->error_name, BUS_ERROR_TEMPLATE_INVALID);
        assert_streq(j->error_message, "no \"kernel\"");

        setup();
        (void) nftw(dir, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
        sd_event_unref(manager.event);
        free(manager.jobs);
}
