/* SPDX-License-Identifier: Apache-2.0 */

/* A copy into a guest that is dropped half-way, with a real cube-image at work. */

#include <fcntl.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "daemon/guest-copy.h"
#include "daemon/manager.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

static void on_done(GuestCopy *c, int r, const char *message, void *userdata) {
        (*(unsigned *) userdata)++;
}

/* 1: there is one, running or to be reaped, 0: there is none. */
static int has_child(void) {
        siginfo_t si;

        return waitid(P_ALL, 0, &si, WEXITED|WNOHANG|WNOWAIT) == 0;
}

TEST(who_drops_it_does_not_wait_for_the_end_of_cube_image) {
        static const TemplateTools tools = { .cube_image = TEST_CUBE_IMAGE, .uid = (uid_t) -1 };
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        unsigned n_done = 0;
        Manager manager = {};
        Sandbox sandbox = { .manager = &manager };
        GuestCopy *c;

        if (access(TEST_CUBE_IMAGE, X_OK) < 0)
                test_skip("cube-image is not built");
        temp_dir_write(&d, "f", "text", 4);
        _cleanup_close_ int fd = openat(d.fd, "f", O_RDONLY|O_CLOEXEC);
        assert_ok(fd);
        assert_ok(sd_event_new(&manager.event));

        /* It waits for an answer that it does not get, and would be there for ever. */
        assert_ok(guest_copy_start(&sandbox, &(GuestCopySpec) { .tools = &tools, .fd = fd, .path = "/f" }, on_done, &n_done, &c));
        c = guest_copy_free(c);
        assert_eq(has_child(), 1);

        /* Its end is seen from the loop, and nobody is told of it. */
        while (has_child())
                assert_true(sd_event_run(manager.event, 60 * USEC_PER_SEC) > 0);
        assert_eq(n_done, 0);
        sd_event_unref(manager.event);
}
