/* SPDX-License-Identifier: Apache-2.0 */

/* The way to cube-fetch and its relay, where systemd has as many connections of one of them as it may. */

#include <sys/socket.h>
#include <sys/un.h>

#include "gateway/image-fetch.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

static int full_fd = -EBADF;       /* whose connections are closed as soon as they have come */

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);

/* There is nothing else to connect to, so that one that waits is this one. */
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
        int r = __real_connect(fd, address, size), one = accept4(full_fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);

        if (one >= 0)
                close(one);
        return r;
}

static int make_listener(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        assert_ok(fd);
        strcpy(address.sun_path, path);
        assert_ok(bind(fd, (struct sockaddr *) &address, sizeof(address)));
        assert_ok(listen(fd, 16));
        return fd;
}

static void on_log(const char *text, size_t size, void *userdata) {}

static void on_done(int layout_fd, const char *why, void *userdata) {}

/* full: which of them; NULL: none is. */
static int start(const char *full) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        char fetch[80], relay[80];
        ImageFetchSpec spec = { .socket = fetch, .relay_socket = relay, .networks = "", .timeout_usec = USEC_PER_SEC };
        ImageFetch *f = NULL;
        sd_event *e = NULL;

        (void) snprintf(fetch, sizeof(fetch), "%s/fetch", d.path);
        (void) snprintf(relay, sizeof(relay), "%s/relay", d.path);
        int fetch_fd = make_listener(fetch), relay_fd = make_listener(relay);
        assert_ok(image_ref_parse("python", &spec.ref));
        assert_ok(sd_event_new(&e));
        full_fd = !full ? -EBADF : streq(full, "fetch") ? fetch_fd : relay_fd;
        int r = image_fetch_start(e, &spec, on_log, on_done, NULL, &f);
        assert_true((r >= 0) == (f != NULL));
        if (f)
                image_fetch_free(f);
        sd_event_unref(e);
        close(fetch_fd);
        close(relay_fd);
        return r;
}

TEST(one_that_is_full_is_tried_again) {
        assert_ok(start(NULL));
        assert_eq(start("fetch"), -EAGAIN);
        assert_eq(start("relay"), -EAGAIN);
}
