/* SPDX-License-Identifier: Apache-2.0 */

/* Templates that have been built: their names, and how they go. */

#include "build-lab.h"

static bool removed;

static void on_removed(TemplateStore *s, const char *id, int r, const char *message, void *userdata) {
        assert(r == 0);
        removed = true;
}

static void wait_removed(Lab *lab) {
        while (!removed)
                assert_ok(sd_event_run(lab->event, 60 * USEC_PER_SEC));
        removed = false;
}

TEST(remove_and_clean) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *one = lab.template;
        p.no_cache = true;
        p.name = "other";
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *two = lab.template;

        assert_ok(template_store_remove(lab.event, one, on_removed, NULL));
        assert_eq(lab.store->n_templates, 1);
        assert_true(!template_store_find(lab.store, 0, NULL, "python"));
        wait_removed(&lab);
        assert_eq(count_entries(&lab), 1);
        assert_true(faccessat(lab.dir.fd, "store/names/0/python:latest", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
        assert_true(template_store_find(lab.store, 0, NULL, "other") == two);

        /* With the last template its kernel goes from the cache. */
        char path[128];
        (void) snprintf(path, sizeof(path), "store/.kernels/%s", two->file_sha256[TEMPLATE_FILE_KERNEL]);
        assert_true(faccessat(lab.dir.fd, path, F_OK, 0) == 0);
        assert_ok(template_store_remove(lab.event, two, on_removed, NULL));
        wait_removed(&lab);
        assert_eq(count_entries(&lab), 0);
        assert_true(faccessat(lab.dir.fd, path, F_OK, 0) < 0);

        /* Leftovers of a crash */
        assert_eq(template_store_clean(lab.event, lab.store, on_removed, NULL), 0);
        assert_true(mkdirat(lab.dir.fd, "store/.build-abc", 0700) == 0);
        assert_true(mkdirat(lab.dir.fd, "store/.remove-abc", 0700) == 0);
        temp_dir_write(&lab.dir, "store/.build-abc/root.img", "x", 1);
        assert_eq(template_store_clean(lab.event, lab.store, on_removed, NULL), 1);
        wait_removed(&lab);
        assert_eq(count_entries(&lab), 0);
}

static void set_name(Lab *lab, uid_t owner, const char *name, Template *t) {
        assert_ok(template_store_set_name(lab->event, lab->store, owner, NULL, name, t, on_removed, NULL));
        wait_removed(lab);
}

TEST(a_name_stands_for_one_template_and_moves_at_once) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        p.aliases = (char *[]) { (char *) "snake:1", (char *) "snake:latest", NULL };
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *one = lab.template;
        p.aliases = NULL;
        p.no_cache = true;
        assert_ok(build_tar(&lab, &p, "root.tar"));
        Template *two = lab.template;

        /* the name moved with the second build, the aliases stay where they were put */
        assert_true(template_store_find(lab.store, 0, NULL, "python") == two);
        assert_true(!one->named && template_store_find(lab.store, 0, NULL, "snake") == one);
        assert_true(template_store_find(lab.store, 0, NULL, "snake:1") == one);

        set_name(&lab, 0, "snake:1", two);
        assert_true(template_store_find(lab.store, 0, NULL, "snake:1") == two && one->renamed && two->renamed);
        /* back to the older one by the name under which both were built */
        set_name(&lab, 0, "python:latest", one);
        assert_true(one->named && !two->named && template_store_find(lab.store, 0, NULL, "python") == one);
        set_name(&lab, 0, "snake:latest", NULL);
        assert_true(!template_store_find(lab.store, 0, NULL, "snake"));
        /* nothing is left beside the names */
        assert_true(faccessat(lab.dir.fd, "store/names/0/snake:latest", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
        assert_eq(count_names(&lab), 2);

        /* while it is being named it stays */
        assert_ok(template_store_set_name(lab.event, lab.store, 0, NULL, "other:1", two, on_removed, NULL));
        assert_eq(template_store_remove(lab.event, two, on_removed, NULL), -EBUSY);
        wait_removed(&lab);
        assert_true(template_store_find(lab.store, 0, NULL, "other:1") == two);
        /* and all its names go with it */
        assert_ok(template_store_remove(lab.event, two, on_removed, NULL));
        wait_removed(&lab);
        assert_true(!template_store_find(lab.store, 0, NULL, "other:1") && !template_store_find(lab.store, 0, NULL, "snake:1"));
        assert_eq(count_names(&lab), 1);
}

TEST(each_tenant_has_names_of_its_own) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        char *shared = strdup(lab.template->id);
        p.tenant = "acme";
        assert_ok(build_tar(&lab, &p, "root.tar"));
        char *theirs = strdup(lab.template->id);
        assert_true(lab.template->named);
        assert_streq(lab.template->tenant, "acme");
        assert_ok(template_store_set_name(lab.event, lab.store, 0, "acme", "snake:1", lab.template, on_removed, NULL));
        wait_removed(&lab);

        template_store_free(lab.store);
        lab_load(&lab);
        assert_eq(lab.store->n_warnings, 0);
        assert_streq(template_store_find(lab.store, 0, NULL, "python")->id, shared);
        assert_streq(template_store_find(lab.store, 0, "acme", "python")->id, theirs);
        assert_streq(template_store_find(lab.store, 0, "acme", "snake:1")->id, theirs);
        assert_true(!template_store_find(lab.store, 0, NULL, "snake:1") && !template_store_find(lab.store, 0, "evil", "snake:1"));
        assert_streq(template_store_find(lab.store, 0, "evil", "python")->id, shared);

        /* A link in another tenant's directory leads nowhere, whatever put it there. */
        assert_true(mkdirat(lab.dir.fd, "store/names/0.evil", 0755) == 0);
        char target[64];
        (void) snprintf(target, sizeof(target), "../../%s", theirs);
        assert_true(symlinkat(target, lab.dir.fd, "store/names/0.evil/mine:latest") == 0);
        template_store_free(lab.store);
        lab_load(&lab);
        assert_eq(lab.store->n_warnings, 1);
        assert_true(!template_store_find(lab.store, 0, "evil", "mine"));
        free(shared);
        free(theirs);
}

/* As if the disk had said no amid the naming. */
TEST(a_build_that_fails_while_it_is_named_takes_no_name_away) {
        _cleanup_lab_ Lab lab;

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        assert_ok(build_tar(&lab, &p, "root.tar"));
        char *id = strdup(lab.template->id);
        assert_true(mkdirat(lab.dir.fd, "store/names/0/snake:1", 0755) == 0);

        p.aliases = (char *[]) { (char *) "new:1", (char *) "snake:1", NULL };
        for (int i = 0; i < 2; i++) {
                /* With a template of its own, and as one that is there already. */
                p.no_cache = i == 0;
                assert_true(build_tar(&lab, &p, "root.tar") < 0);
                assert_eq(count_names(&lab), 2);
        }
        template_store_free(lab.store);
        lab_load(&lab);
        Template *t = template_store_find(lab.store, 0, NULL, "python");
        assert_true(t && streq(t->id, id) && !template_store_find(lab.store, 0, NULL, "new:1"));
        free(id);
}

TEST(bad_aliases) {
        _cleanup_lab_ Lab lab;
        char *many[18] = {};

        lab_init(&lab);
        make_rootfs(&lab, "root.tar");
        TemplateBuildParams p = lab_params(&lab);
        for (size_t i = 0; i < 17; i++)
                many[i] = (char *) "a:1";
        p.aliases = many;
        assert_eq(build_tar(&lab, &p, "root.tar"), -EINVAL);
        assert_true(strstr(lab.message, "too many aliases"));
        p.aliases = (char *[]) { (char *) "../x:1", NULL };
        assert_eq(build_tar(&lab, &p, "root.tar"), -EINVAL);
        assert_true(strstr(lab.message, "alias is not NAME:TAG"));
}
