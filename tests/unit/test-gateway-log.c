/* SPDX-License-Identifier: Apache-2.0 */

/* What clients sent, in lines for people at a terminal. */

#include "base/fd-util.h"
#include "gateway/log.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

/* stderr goes to a file meanwhile. */
static char *logged(const char *target, const AuditRequest *a) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_close_ int fd = temp_dir_open(&d, "log", O_RDWR|O_CREAT), saved = dup(STDERR_FILENO);
        char *text = NULL;
        size_t size;

        assert(saved >= 0 && dup2(fd, STDERR_FILENO) >= 0);
        if (a)
                audit_request(a);
        else
                (void) log_full_errno(LOG_WARNING, -ENOENT, "%s could not be done: %m", target);
        assert(dup2(saved, STDERR_FILENO) >= 0);
        assert_ok(read_file(d.fd, "log", KIB(16), &text, &size));
        return text;
}

TEST(a_line_commands_no_terminal_and_is_one_line) {
        _cleanup_free_ char *text = logged("/a\033]0;x\a\n<0>b \x7f \xff", NULL);

        assert_streq(text, "/a?]0;x?\?<0>b ? ? could not be done: No such file or directory\n");
}

TEST(nor_does_an_entry) {
        const AuditRequest a = {
                .key = "k", .tenant = "t", .method = "G\033", .path = "/\n\\", .sandbox = "", .status = 404,
        };
        _cleanup_free_ char *text = logged(NULL, &a);

        assert_streq(text, "CUBE_KEY=k CUBE_TENANT=t CUBE_SANDBOX= CUBE_STATUS=404 CUBE_REQUEST=G\\x1b /\\x0a\\x5c\n");
}
