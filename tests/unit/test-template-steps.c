/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "daemon/template-steps.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

/* The scripts are run by the shell of this host, as root, below a directory of their own. */

#define STEP(t, ...) ((TemplateStep) { (char *) t, (char *[]) { __VA_ARGS__, NULL } })
#define S(x) ((char *) x)

static int run(const TemplateStep *s, StepState *state, char *ret_output, size_t size) {
        _cleanup_(step_command_done) StepCommand c = {};
        size_t n = 0;
        int fds[2], status;

        assert_true(!template_step_fault(s));
        assert_ok(step_command_make(s, state, &c));
        assert_ok(pipe2(fds, O_CLOEXEC));
        pid_t pid = fork();
        if (pid == 0) {
                (void) dup2(fds[1], STDOUT_FILENO);
                for (char **e = c.with_env ? state->env : NULL; e && *e; e++)
                        (void) putenv(*e);
                if (chdir(c.cwd) == 0)
                        (void) execvp(c.argv[0], c.argv);
                _exit(127);
        }
        close(fds[1]);
        for (ssize_t k; n < size && (k = read(fds[0], ret_output + n, size - n)) > 0;)
                n += (size_t) k;
        close(fds[0]);
        assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        if (WEXITSTATUS(status) == 0)
                assert_ok(step_state_apply(state, s, ret_output, c.captured ? n : 0));
        ret_output[MIN(n, size - 1)] = 0;
        return WEXITSTATUS(status);
}

TEST(what_is_wrong_is_said) {
        const TemplateStep wrong[] = {
                STEP("ADD", S("x"), S("y")),
                STEP("RUN", S("")),
                STEP("RUN", S("true"), S("us er")),
                STEP("COPY", S("a"), S("p"), S("t")),
                STEP("COPY", S("/a"), S("../p"), S("t")),
                STEP("COPY", S("/a"), S("x/.."), S("t")),
                STEP("COPY", S("/a"), S("/p"), S("t")),
                STEP("COPY", S("/a"), S("p"), S("")),
                STEP("COPY", S("/a"), S("p"), S("t"), S("-R")),
                STEP("COPY", S("/a"), S("p"), S("t"), S(""), S("0888")),
                STEP("COPY", S("/a"), S("p")),
                STEP("ENV", S("A")),
                STEP("ENV", S("A"), S("1"), S("B")),
                STEP("ENV", S("A=B"), S("1")),
                STEP("ENV", S("1A"), S("1")),
                STEP("WORKDIR", S("")),
                STEP("USER", S("-x")),
                STEP("USER", S("$(id)")),
        };
        char *none[] = { NULL };

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
                assert_true(template_step_fault(&wrong[i]));
        assert_true(template_step_fault(&(TemplateStep) { S("RUN"), none }));
        assert_true(template_step_fault(&(TemplateStep) { S("RUN"), NULL }));
        assert_true(!template_step_fault(&STEP("COPY", S("/a"), S("a..b/c"), S("."), S("u:g"), S("0644"))));
}

TEST(a_command_is_run_where_and_as_the_steps_before_say) {
        _cleanup_(step_state_done) StepState state = {};
        _cleanup_(step_command_done) StepCommand c = {};
        const TemplateStep plain = STEP("RUN", S("true")), named = STEP("RUN", S("true"), S("www")), empty = STEP("RUN", S("true"), S(""));
        char out[256];

        assert_ok(step_command_make(&plain, &state, &c));
        assert_streq(c.user, "root");
        assert_ok(step_state_set(&state, "user", "/tmp", NULL));
        assert_ok(step_command_make(&plain, &state, &c));
        assert_true(streq(c.user, "user") && streq(c.cwd, "/tmp") && c.with_env && !c.captured);
        assert_ok(step_command_make(&named, &state, &c));
        assert_streq(c.user, "www");
        assert_ok(step_command_make(&empty, &state, &c));
        assert_streq(c.user, "user");
        assert_eq(run(&STEP("RUN", S("pwd; echo \"$0\"; exit 7")), &state, out, sizeof(out)), 7);
        assert_true(startswith(out, "/tmp\n"));
}

TEST(names_in_values_are_replaced_and_nothing_else_is) {
        _cleanup_(step_state_done) StepState state = {};
        char out[1024];

        assert_eq(run(&STEP("ENV", S("A"), S("one\ntwo"), S("B"), S("$(id) `id` \"x\" \\n $NOTHING.")), &state, out, sizeof(out)), 0);
        assert_streq(state.env[0], "A=one\ntwo");
        assert_streq(state.env[1], "B=$(id) `id` \"x\" \\n .");
        assert_eq(run(&STEP("ENV", S("C"), S("${A}-$A"), S("A"), S("")), &state, out, sizeof(out)), 0);
        assert_streq(state.env[2], "C=one\ntwo-one\ntwo");
        assert_streq(state.env[0], "A=");
        assert_true(!state.env[3]);
}

TEST(what_did_not_come_from_our_shell_changes_nothing) {
        _cleanup_(step_state_done) StepState state = {};
        const TemplateStep s = STEP("ENV", S("A"), S("1"), S("B"), S("2"));

        assert_eq(step_state_apply(&state, &s, "", 0), -EBADMSG);
        assert_eq(step_state_apply(&state, &s, "1\0002", 3), -EBADMSG);
        assert_eq(step_state_apply(&state, &s, "1\0002\0003", 6), -EBADMSG);
}

TEST(a_directory_is_made_and_the_new_part_is_the_users) {
        _cleanup_(step_state_done) StepState state = {};
        _cleanup_(temp_dir_done) TempDir dir = temp_dir_make();
        char out[256], path[256];
        struct stat st;

        if (getuid() != 0)
                test_skip("needs root");
        (void) snprintf(path, sizeof(path), "%s/a", dir.path);
        assert_ok(step_state_set(&state, "games", NULL, NULL));
        assert_eq(run(&STEP("WORKDIR", path), &state, out, sizeof(out)), 0);
        assert_eq(run(&STEP("WORKDIR", S("./b//c/../d")), &state, out, sizeof(out)), 0);
        (void) snprintf(path, sizeof(path), "%s/a/b/d", dir.path);
        assert_streq(state.cwd, path);
        assert_ok(fstatat(dir.fd, "a/b", &st, 0));
        assert_true(st.st_uid != 0);
        assert_ok(fstat(dir.fd, &st));
        assert_eq(st.st_uid, 0);
        assert_eq(run(&STEP("WORKDIR", S("../../../../../..")), &state, out, sizeof(out)), 0);
        assert_streq(state.cwd, "/");
}

/* With users of its own, below dir. */
static int run_with_users(const TempDir *dir, const TemplateStep *s, StepState *state) {
        _cleanup_(step_command_done) StepCommand c = {};
        char script[512];
        int status;

        (void) snprintf(script, sizeof(script), "set -e; [ -d %s/etc ] || cp -a /etc %s/etc; mount --bind %s/etc /etc; "
                        "mkdir -p %s/home; mount --bind %s/home /home; exec \"$@\"", dir->path, dir->path, dir->path, dir->path, dir->path);
        const char *argv[24] = { "unshare", "--mount", "sh", "-c", script, "sh" };
        assert_ok(step_command_make(s, state, &c));
        for (size_t i = 0; c.argv[i]; i++)
                argv[6 + i] = c.argv[i];
        pid_t pid = fork();
        if (pid == 0) {
                (void) execvp(argv[0], (char **) argv);
                _exit(127);
        }
        assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        if (WEXITSTATUS(status) == 0)
                assert_ok(step_state_apply(state, s, NULL, 0));
        return WEXITSTATUS(status);
}

static void shell(const TempDir *dir, const char *command) {
        char text[1024];

        (void) snprintf(text, sizeof(text), "set -e; cd %s; %s", dir->path, command);
        FILE *f = popen(text, "re");
        assert_true(f && pclose(f) == 0);
}

TEST(a_file_is_copied_to_its_name_or_into_a_directory) {
        _cleanup_(step_state_done) StepState state = {};
        _cleanup_(temp_dir_done) TempDir dir = temp_dir_make();
        char out[256], archive[256], target[256];
        struct stat st;

        if (getuid() != 0)
                test_skip("needs root");
        assert_ok(step_state_set(&state, "games", dir.path, NULL));
        shell(&dir, "mkdir in && echo hi >in/f && tar -czf in.tar -C . in/f");
        (void) snprintf(archive, sizeof(archive), "%s/in.tar", dir.path);
        assert_eq(run(&STEP("COPY", archive, S("in/f"), S("new/name"), S(""), S("0640")), &state, out, sizeof(out)), 0);
        assert_ok(fstatat(dir.fd, "new/name", &st, AT_SYMLINK_NOFOLLOW));
        assert_true((st.st_mode & 07777) == 0640 && st.st_uid != 0 && st.st_size == 3);
        assert_true(access(archive, F_OK) < 0);

        shell(&dir, "tar -cf in.tar -C . in/f");
        (void) snprintf(target, sizeof(target), "%s/other/", dir.path);
        assert_eq(run(&STEP("COPY", archive, S("in/f"), target, S("root:games")), &state, out, sizeof(out)), 0);
        assert_ok(fstatat(dir.fd, "other/f", &st, AT_SYMLINK_NOFOLLOW));
        assert_true(st.st_uid == 0 && st.st_gid != 0);

        shell(&dir, "tar -cf in.tar -C . in/f");
        assert_eq(run(&STEP("COPY", archive, S("in/nothing"), S("x")), &state, out, sizeof(out)), 1);
}

TEST(a_directory_is_merged) {
        _cleanup_(step_state_done) StepState state = {};
        _cleanup_(temp_dir_done) TempDir dir = temp_dir_make();
        char out[256], archive[256];

        if (getuid() != 0)
                test_skip("needs root");
        assert_ok(step_state_set(&state, NULL, dir.path, NULL));
        shell(&dir, "mkdir -p in/lib in/sub to/real && ln -s real to/lib && echo old >to/keep && echo old >to/over");
        shell(&dir, "echo new >in/over && echo new >in/lib/l && ln -s over in/link && tar -cf in.tar in");
        (void) snprintf(archive, sizeof(archive), "%s/in.tar", dir.path);
        assert_eq(run(&STEP("COPY", archive, S("in"), S("to")), &state, out, sizeof(out)), 0);
        shell(&dir, "[ $(cat to/keep) = old ] && [ $(cat to/over) = new ] && [ $(cat to/real/l) = new ] && [ -L to/lib ] && "
              "[ $(readlink to/link) = over ] && [ -d to/sub ] && [ ! -e in.tar.d ]");
}

TEST(a_user_is_made_where_there_is_none) {
        _cleanup_(step_state_done) StepState state = {};
        _cleanup_(temp_dir_done) TempDir dir = temp_dir_make();

        if (getuid() != 0)
                test_skip("needs root");
        assert_eq(run_with_users(&dir, &STEP("USER", S("games")), &state), 0);
        shell(&dir, "cmp -s etc/passwd /etc/passwd");
        assert_streq(state.user, "games");
        assert_eq(run_with_users(&dir, &STEP("USER", S("cube-made")), &state), 0);
        shell(&dir, "grep -q ^cube-made:x:[0-9]*:[0-9]*::/home/cube-made:/bin/bash$ etc/passwd && [ -d home/cube-made ]");
        shell(&dir, "[ ! -e etc/sudoers.d/cube-made ] && ! grep -q ^cube-made: /etc/passwd");
        assert_streq(state.user, "cube-made");
        assert_eq(run_with_users(&dir, &STEP("USER", S("cube-made"), S("true")), &state), 0);
        shell(&dir, "[ \"$(cat etc/sudoers.d/cube-made)\" = 'cube-made ALL=(ALL:ALL) NOPASSWD: ALL' ] && [ $(stat -c %a etc/sudoers.d/cube-made) = 440 ]");
        shell(&dir, "grep -q ^cube-made::: etc/shadow || grep -q ^cube-made:: etc/shadow");
}
