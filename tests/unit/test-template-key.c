/* SPDX-License-Identifier: Apache-2.0 */

/* What makes a build another one, and what does not. */

#include "daemon/template-key.h"
#include "test.h"

#define ROOT "0000000000000000000000000000000000000000000000000000000000000000"
#define OTHER "1111111111111111111111111111111111111111111111111111111111111111"

typedef struct Build {
        Template template;
        TemplateWarmSpec warm;
        TemplateStep steps[3];
        TemplateCopy copies[2];
        char sums[2][SHA256_HEX_SIZE];
        TemplateKeySource source;
        TemplatePoint *points;
        size_t n;
        char key[SHA256_HEX_SIZE];
} Build;

static char *make[] = { (char *) "make", NULL }, *test[] = { (char *) "make test", NULL },
            *copy[] = { (char *) "/archives/1", (char *) "app", (char *) "/srv", NULL };

/* RUN make, COPY of an archive, RUN make test; and a file that is there before all of them. */
static void init(Build *b) {
        free(b->points);
        *b = (Build) { .template = { .root_type = (char *) "tar", .cmdline = (char *) "", .mem_bytes = MIB(512), .cpus = 1,
                                     .disk_bytes = GIB(1) } };
        b->steps[0] = (TemplateStep) { (char *) "RUN", make };
        b->steps[1] = (TemplateStep) { (char *) "COPY", copy };
        b->steps[2] = (TemplateStep) { (char *) "RUN", test };
        b->copies[0] = (TemplateCopy) { -EBADF, "/etc/first" };
        b->copies[1] = (TemplateCopy) { -EBADF, "/archives/1" };
        strcpy(b->sums[0], ROOT);
        strcpy(b->sums[1], ROOT);
        b->warm = (TemplateWarmSpec) { .steps = b->steps, .n_steps = 3, .copies = b->copies, .n_copies = 2 };
        b->source = (TemplateKeySource) { .template = &b->template, .warm = &b->warm,
                                          .copy_sums = (const char (*)[SHA256_HEX_SIZE]) b->sums, .root_sum = ROOT,
                                          .kernel_sum = ROOT, .initramfs_sum = ROOT };
}

static void make_keys(Build *b) {
        free(b->points);
        b->points = NULL;
        assert_ok(template_points_make(&b->source, &b->points, &b->n));
        assert_ok(template_key_make(&b->source, b->points[b->n - 1].key, b->key));
}

static void build_done(Build *b) {
        free(b->points);
}
#define _cleanup_build_ _cleanup_(build_done)

/* How many points from the first on are those of an ordinary build; -1: the template is, too. */
static int same_until(Build *b) {
        _cleanup_build_ Build plain = {};
        int n = 0;

        init(&plain);
        make_keys(&plain);
        make_keys(b);
        while (n < (int) MIN(b->n, plain.n) && streq(b->points[n].key, plain.points[n].key))
                n++;
        return n == (int) plain.n && streq(b->key, plain.key) ? -1 : n;
}

TEST(points_are_the_disk_the_copies_and_each_step) {
        static const TemplatePointKind kinds[] = { TEMPLATE_POINT_DISK, TEMPLATE_POINT_COPIES, TEMPLATE_POINT_STEP,
                                                   TEMPLATE_POINT_STEP, TEMPLATE_POINT_STEP };
        _cleanup_build_ Build b = {};

        init(&b);
        make_keys(&b);
        assert_eq(b.n, ELEMENTSOF(kinds));
        for (size_t i = 0; i < b.n; i++) {
                assert_true(b.points[i].kind == kinds[i] && strlen(b.points[i].key) == SHA256_HEX_SIZE - 1);
                for (size_t j = 0; j < i; j++)
                        assert_true(!streq(b.points[i].key, b.points[j].key));
        }
        assert_eq(b.points[4].n, 2);
        assert_eq(same_until(&b), -1);
        assert_eq(template_copy_step(&b.warm, 0), SIZE_MAX);
        assert_eq(template_copy_step(&b.warm, 1), 1);
}

TEST(a_change_leaves_what_came_before_it) {
        char *changed[] = { (char *) "make check", NULL }, *env[] = { (char *) "A=b", NULL };
        const SandboxPolicy policy = {};
        _cleanup_build_ Build b = {};

        init(&b);
        b.steps[2].args = changed;
        assert_eq(same_until(&b), 4);
        init(&b);
        b.steps[0].args = changed;
        assert_eq(same_until(&b), 2);
        /* an archive is of the step that unpacks it */
        init(&b);
        strcpy(b.sums[1], OTHER);
        assert_eq(same_until(&b), 3);
        init(&b);
        strcpy(b.sums[0], OTHER);
        assert_eq(same_until(&b), 1);
        init(&b);
        b.copies[0].path = "/etc/second";
        assert_eq(same_until(&b), 1);
        init(&b);
        b.copies[1].path = "/archives";
        assert_eq(same_until(&b), 3);
        b.copies[1].path = "/arch";
        assert_eq(template_copy_step(&b.warm, 1), SIZE_MAX);
        /* how commands are run */
        init(&b);
        b.warm.user = (char *) "app";
        assert_eq(same_until(&b), 2);
        init(&b);
        b.warm.env = env;
        assert_eq(same_until(&b), 2);
        init(&b);
        b.template.defaults.env = env;
        assert_eq(same_until(&b), 2);
        init(&b);
        b.source.build_policy = &policy;
        assert_eq(same_until(&b), 2);
        /* which may be what they build something for */
        init(&b);
        b.source.kernel_sum = OTHER;
        assert_eq(same_until(&b), 2);
        init(&b);
        b.source.kernel_command_line = "quiet";
        assert_eq(same_until(&b), 2);
        init(&b);
        b.template.cmdline = (char *) "debug";
        assert_eq(same_until(&b), 2);
}

TEST(what_is_beneath_or_whose_it_is_changes_all) {
        _cleanup_build_ Build b = {};

        init(&b);
        b.source.root_sum = OTHER;
        assert_eq(same_until(&b), 0);
        init(&b);
        b.source.base_id = "taaaaaaaaaaaaaaa";
        assert_eq(same_until(&b), 0);
        init(&b);
        b.template.disk_bytes = GIB(2);
        assert_eq(same_until(&b), 0);
        init(&b);
        b.template.owner_uid = 1000;
        assert_eq(same_until(&b), 0);
        init(&b);
        strcpy(b.template.tenant, "acme");
        assert_eq(same_until(&b), 0);
}

TEST(what_no_step_depends_on_makes_another_template_of_the_same_steps) {
        _cleanup_build_ Build b = {}, c = {};

        init(&b);
        b.template.mem_bytes = GIB(1);
        assert_eq(same_until(&b), 5);
        init(&b);
        b.template.cpus = 2;
        assert_eq(same_until(&b), 5);
        init(&b);
        b.template.public = true;
        assert_eq(same_until(&b), 5);
        init(&b);
        b.source.initramfs_sum = OTHER;
        assert_eq(same_until(&b), 5);
        init(&b);
        b.warm.start = (char *) "serve";
        assert_eq(same_until(&b), 5);
        init(&b);
        b.warm.ready = (char *) "curl localhost";
        assert_eq(same_until(&b), 5);
        /* templates on this one wait as long for what it starts */
        init(&b);
        init(&c);
        b.warm.start = c.warm.start = (char *) "serve";
        b.warm.ready = c.warm.ready = (char *) "curl localhost";
        b.warm.ready_timeout_usec = 5;
        make_keys(&b);
        make_keys(&c);
        assert_true(!streq(b.key, c.key));
        init(&b);
        b.template.has_policy = true;
        assert_eq(same_until(&b), 5);
        /* but names and limits of time of its own are nothing that it is made of */
        init(&b);
        b.template.name = (char *) "other";
        b.warm.ready_timeout_usec = 5;
        assert_eq(same_until(&b), -1);
        /* nor is how the root file system was given */
        b.template.root_type = (char *) "directory";
        assert_eq(same_until(&b), -1);
}

TEST(texts_do_not_run_into_each_other) {
        char *one[] = { (char *) "ab", (char *) "c", NULL }, *two[] = { (char *) "a", (char *) "bc", NULL };
        _cleanup_build_ Build b = {}, c = {};

        init(&b);
        init(&c);
        b.steps[0] = (TemplateStep) { (char *) "ENV", one };
        c.steps[0] = (TemplateStep) { (char *) "ENV", two };
        make_keys(&b);
        make_keys(&c);
        assert_true(!streq(b.points[2].key, c.points[2].key));
}

TEST(an_input_is_its_owners) {
        Template a = { .owner_uid = 1 }, b = { .owner_uid = 2 };
        char x[SHA256_HEX_SIZE], y[SHA256_HEX_SIZE];

        template_input_key(&a, "tar", ROOT, x);
        template_input_key(&b, "tar", ROOT, y);
        assert_true(!streq(x, y));
        template_input_key(&a, "image", ROOT, y);
        assert_true(!streq(x, y));
        template_input_key(&a, "tar", ROOT, y);
        assert_streq(x, y);
}
