/* SPDX-License-Identifier: Apache-2.0 */

/* What is freed, and what never: a real store, the real cube-image, and a manager that knows who uses what. */

#include "daemon/manager-private.h"
#include "dbus/bus-errors.h"
#include "make-template.h"
#include "test.h"

#define SUM "aaaa"

typedef struct Lab {
        TempDir dir;
        SnapshotStore snapshots;
        struct ManagerPrivate priv;
        Manager manager;
        bool done;
        char text[1024];       /* "template:ID kernel:SUM ..." of the last collection */
        char note[512];
        uint64_t bytes;
        char *error;
} Lab;

static void lab_init(Lab *lab) {
        if (access(TEST_CUBE_IMAGE, X_OK) < 0)
                test_skip("cube-image is missing");
        *lab = (Lab) { .dir = temp_dir_make() };
        assert_ok(sd_event_new(&lab->manager.event));
        lab->manager.priv = &lab->priv;
        lab->manager.snapshots = &lab->snapshots;
        assert_true(mkdirat(lab->dir.fd, ".kernels", 0755) == 0);
}

static void lab_load(Lab *lab) {
        assert_ok(template_store_load(&lab->manager.templates, lab->dir.path));
        lab->manager.templates->tools.cube_image = TEST_CUBE_IMAGE;
}

static void lab_done(Lab *lab) {
        garbage_free(lab->priv.garbage);
        template_store_free(lab->manager.templates);
        sd_event_unref(lab->manager.event);
        free(lab->error);
        temp_dir_done(&lab->dir);
}
#define _cleanup_lab_ _cleanup_(lab_done)

static void on_done(Manager *m, const sd_bus_error *error, const GarbageItem *items, size_t n, const char *note, void *userdata) {
        Lab *lab = userdata;
        size_t at = 0;

        lab->done = true;
        lab->bytes = 0;
        lab->text[0] = 0;
        free(lab->error);
        lab->error = error ? strdup(error->message) : NULL;
        (void) snprintf(lab->note, sizeof(lab->note), "%s", note);
        for (size_t i = 0; i < n; i++) {
                at += (size_t) snprintf(lab->text + at, sizeof(lab->text) - at, "%s%s:%s", at > 0 ? " " : "", items[i].kind,
                                        items[i].name);
                lab->bytes += items[i].bytes;
        }
}

static const char *collect(Lab *lab, uid_t actor, bool dry_run) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        lab->done = false;
        assert_ok(manager_collect_garbage(&lab->manager, actor, dry_run, on_done, lab, &e));
        while (!lab->done)
                assert_ok(sd_event_run(lab->manager.event, 60 * USEC_PER_SEC));
        if (lab->error)
                test_stop(TEST_FAILED, __LINE__, "%s", lab->error);
        return lab->text;
}

/* Its root image with that many bytes of data; its kernel shared or its own. */
static void add_template(const Lab *lab, const char *id, uid_t owner, bool shared) {
        char kernel[64], path[64];
        char data[4096];

        make_template(&lab->dir, id, "python", owner);
        memset(data, 'x', sizeof(data));
        (void) snprintf(path, sizeof(path), "%s/root.img", id);
        temp_dir_write(&lab->dir, path, data, sizeof(data));
        if (!shared)
                return;
        (void) snprintf(kernel, sizeof(kernel), "%s/vmlinux", id);
        if (linkat(lab->dir.fd, kernel, lab->dir.fd, ".kernels/" SUM, 0) == 0)
                return;
        assert_true(unlinkat(lab->dir.fd, kernel, 0) == 0);
        assert_true(linkat(lab->dir.fd, ".kernels/" SUM, lab->dir.fd, kernel, 0) == 0);
}

static bool is_there(const Lab *lab, const char *path) {
        return faccessat(lab->dir.fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

#define NAMED "aaaaaaaaaaaaaaa1"
#define ALIASED "aaaaaaaaaaaaaaa2"
#define USED "aaaaaaaaaaaaaaa3"
#define STOOD_ON "aaaaaaaaaaaaaaa4"
#define DEFAULT "aaaaaaaaaaaaaaa5"
#define UNUSED "aaaaaaaaaaaaaaa6"
#define THEIRS "aaaaaaaaaaaaaaa7"

static void add_all(Lab *lab) {
        add_template(lab, NAMED, 0, true);
        add_template(lab, ALIASED, 0, true);
        add_template(lab, USED, 0, true);
        add_template(lab, STOOD_ON, 0, true);
        add_template(lab, DEFAULT, 0, true);
        add_template(lab, UNUSED, 0, true);
        add_template(lab, THEIRS, 1000, false);
        make_template_name(&lab->dir, 0, "python:latest", NAMED);
        make_template_name(&lab->dir, 0, "other:1", ALIASED);
        lab_load(lab);
        template_use(template_store_find_id(lab->manager.templates, USED));
        lab->manager.config.default_template = (char *) DEFAULT;
}

TEST(what_has_a_name_or_a_use_is_never_taken) {
        static Snapshot standing = { .kind = SNAPSHOT_USER, .id = "sssssssssssss", .template_id = (char *) STOOD_ON };
        Snapshot *list[] = { &standing };
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        add_all(&lab);
        lab.snapshots.snapshots = list;
        lab.snapshots.n_snapshots = 1;

        assert_streq(collect(&lab, 0, true), "template:" UNUSED " template:" THEIRS);
        assert_true(lab.bytes >= 2 * 4096);
        assert_streq(lab.note, "");
        assert_true(is_there(&lab, UNUSED) && is_there(&lab, THEIRS));

        /* others free what is theirs */
        assert_streq(collect(&lab, 1000, false), "template:" THEIRS);
        assert_true(is_there(&lab, UNUSED) && !is_there(&lab, THEIRS));
        assert_streq(collect(&lab, 0, false), "template:" UNUSED);
        assert_true(!is_there(&lab, UNUSED) && !template_store_find_id(lab.manager.templates, UNUSED));
        assert_streq(collect(&lab, 0, false), "");
        assert_eq(lab.manager.templates->n_templates, 5);
        assert_true(is_there(&lab, NAMED) && is_there(&lab, ALIASED) && is_there(&lab, USED) && is_there(&lab, STOOD_ON) &&
                    is_there(&lab, DEFAULT) && is_there(&lab, ".kernels/" SUM));
}

TEST(a_kernel_goes_with_the_last_that_has_it) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        add_template(&lab, NAMED, 0, true);
        add_template(&lab, UNUSED, 0, true);
        make_template_name(&lab.dir, 0, "python:latest", NAMED);
        temp_dir_write(&lab.dir, ".kernels/bbbb", "of nobody", 9);
        lab_load(&lab);

        assert_streq(collect(&lab, 0, true), "template:" UNUSED " kernel:bbbb");
        assert_streq(collect(&lab, 0, false), "template:" UNUSED " kernel:bbbb");
        assert_true(is_there(&lab, ".kernels/" SUM) && !is_there(&lab, ".kernels/bbbb"));

        template_store_find_id(lab.manager.templates, NAMED)->named = false;
        assert_streq(collect(&lab, 0, true), "template:" NAMED " kernel:" SUM);
        assert_streq(collect(&lab, 0, false), "template:" NAMED " kernel:" SUM);
        assert_true(!is_there(&lab, ".kernels/" SUM) && !is_there(&lab, NAMED));
}

TEST(leftovers_and_names_of_nothing) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        add_template(&lab, NAMED, 0, true);
        make_template_name(&lab.dir, 0, "python:latest", NAMED);
        make_template_name(&lab.dir, 1000, "gone:latest", UNUSED);
        assert_true(mkdirat(lab.dir.fd, ".build-" UNUSED, 0700) == 0 && mkdirat(lab.dir.fd, ".remove-" THEIRS, 0700) == 0);
        temp_dir_write(&lab.dir, ".build-" UNUSED "/root.img", "half", 4);
        temp_dir_write(&lab.dir, ".build-no-directory", "an admin's", 10);
        assert_true(symlinkat("/etc", lab.dir.fd, ".remove-link") == 0);
        lab_load(&lab);

        /* they are nobody's, so root's alone */
        assert_streq(collect(&lab, 1000, false), "");
        assert_true(is_there(&lab, ".build-" UNUSED));
        const char *all = collect(&lab, 0, false);
        assert_true(strstr(all, "leftover:.build-" UNUSED) && strstr(all, "leftover:.remove-" THEIRS));
        assert_true(strstr(all, "name:1000/gone:latest") && !strstr(all, "no-directory") && !strstr(all, "link"));
        assert_true(!is_there(&lab, ".build-" UNUSED) && !is_there(&lab, ".remove-" THEIRS));
        assert_true(!is_there(&lab, "names/1000/gone:latest") && is_there(&lab, "names/0/python:latest"));
        assert_true(is_there(&lab, ".build-no-directory") && is_there(&lab, NAMED));
}

/* What they stand on is not known. */
TEST(while_snapshots_could_not_be_loaded_templates_stay) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        add_template(&lab, UNUSED, 0, true);
        lab_load(&lab);
        lab.snapshots.n_warnings = 2;
        lab.snapshots.n_lost = 1;
        assert_streq(collect(&lab, 0, false), "");
        assert_true(strstr(lab.note, "could not be loaded") && is_there(&lab, UNUSED));
        lab.snapshots.n_lost = 2;
        assert_streq(collect(&lab, 0, false), "template:" UNUSED " kernel:" SUM);
}

static void on_named(TemplateStore *s, const char *id, int r, const char *message, void *userdata) {
        assert_ok(r);
}

/* Measured as garbage, but in use when its turn comes. */
TEST(what_is_used_meanwhile_stays) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        add_template(&lab, UNUSED, 0, true);
        add_template(&lab, USED, 0, true);
        add_template(&lab, THEIRS, 0, true);
        lab_load(&lab);
        assert_ok(manager_collect_garbage(&lab.manager, 0, false, on_done, &lab, &e));
        template_use(template_store_find_id(lab.manager.templates, USED));
        assert_ok(template_store_set_name(lab.manager.event, lab.manager.templates, 0, NULL, "python:latest",
                                          template_store_find_id(lab.manager.templates, THEIRS), on_named, NULL));

        /* one at a time */
        assert_true(manager_collect_garbage(&lab.manager, 0, false, on_done, &lab, &e) < 0);
        assert_true(sd_bus_error_has_name(&e, BUS_ERROR_BUSY));
        while (!lab.done)
                assert_ok(sd_event_run(lab.manager.event, 60 * USEC_PER_SEC));
        assert_streq(lab.text, "template:" UNUSED);
        assert_true(is_there(&lab, USED) && is_there(&lab, THEIRS) && is_there(&lab, ".kernels/" SUM));
}

static void on_alias(Manager *m, const sd_bus_error *error, void *userdata) {
        unsigned *left = userdata;

        assert_true(!sd_bus_error_is_set(error));
        (*left)--;
}

static int name_template(Lab *lab, unsigned number, unsigned *left, sd_bus_error *error) {
        char name[32];

        (void) snprintf(name, sizeof(name), "other:%u", number);
        return manager_name_template(&lab->manager, name, template_store_find_id(lab->manager.templates, NAMED), false, 0, on_alias,
                                     left, error);
}

TEST(names_are_bounded_and_so_are_those_being_given) {
        _cleanup_(sd_bus_error_free) sd_bus_error busy = SD_BUS_ERROR_NULL, full = SD_BUS_ERROR_NULL;
        _cleanup_lab_ Lab lab;
        unsigned left = 0;

        lab_init(&lab);
        add_template(&lab, NAMED, 0, false);
        for (unsigned i = 100; i < 100 + 240; i++) {
                char name[32];
                (void) snprintf(name, sizeof(name), "other:%u", i);
                make_template_name(&lab.dir, 0, name, NAMED);
        }
        lab_load(&lab);
        for (; left < 16; left++)
                assert_ok(name_template(&lab, left, &left, &busy));
        assert_true(name_template(&lab, 16, &left, &busy) < 0 && sd_bus_error_has_name(&busy, BUS_ERROR_BUSY));
        while (left > 0)
                assert_ok(sd_event_run(lab.manager.event, 60 * USEC_PER_SEC));
        assert_true(name_template(&lab, 16, &left, &full) < 0 && sd_bus_error_has_name(&full, BUS_ERROR_NO_RESOURCES));
}
