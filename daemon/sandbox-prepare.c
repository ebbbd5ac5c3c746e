/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox needs before its VMM can start, as far as that takes no waiting: the directory
 * under /run, the control socket, the console's memory, /dev/kvm; its disk is sandbox-overlay.c's. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

static const char *const file_names[] = { "ctl", "exit", "state.json", "state.json.new" };

char *sandbox_path(const Sandbox *s, const char *name) {
        char *path;

        return asprintf(&path, "%s/%s", s->priv->dir, name) < 0 ? NULL : path;
}

void sandbox_remove_files(const char *dir) {
        _cleanup_close_ int fd = open(dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
        if (fd < 0)
                return;
        for (size_t i = 0; i < ELEMENTSOF(file_names); i++)
                (void) unlinkat(fd, file_names[i], 0);
        (void) rmdir(dir);
}

static int fail(sd_bus_error *error, int r, const char *what, const char *path) {
        return sd_bus_error_setf(error, bus_error_of_errno(r), "Can't make %s %s: %s", what, path, strerror(-r));
}

static int prepare_directory(Sandbox *s, sd_bus_error *error) {
        _cleanup_free_ char *parent = NULL;

        if (asprintf(&parent, "%s/sandbox", s->manager->config.runtime_directory) < 0)
                return -ENOMEM;
        if (mkdir(parent, 0700) < 0 && errno != EEXIST)
                return fail(error, -errno, "directory", parent);
        if (mkdir(s->priv->dir, 0700) < 0)
                return fail(error, -errno, "directory", s->priv->dir);
        return 0;
}

static int prepare_socket(Sandbox *s, sd_bus_error *error) {
        union {
                struct sockaddr sa;
                struct sockaddr_un un;
        } addr = { .un.sun_family = AF_UNIX };
        _cleanup_free_ char *path = sandbox_path(s, "ctl");

        if (!path)
                return -ENOMEM;
        if (strlen(path) >= sizeof(addr.un.sun_path))
                return fail(error, -ENAMETOOLONG, "socket", path);
        memcpy(addr.un.sun_path, path, strlen(path) + 1);

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return fail(error, -errno, "socket", path);
        if (bind(fd, &addr.sa, sizeof(addr.un)) < 0 || chmod(path, 0600) < 0 || listen(fd, 8) < 0)
                return fail(error, -errno, "socket", path);
        s->priv->listen_fd = TAKE_FD(fd);
        return 0;
}

static int prepare_exit_file(Sandbox *s, sd_bus_error *error) {
        _cleanup_free_ char *path = sandbox_path(s, "exit");

        if (!path)
                return -ENOMEM;
        _cleanup_close_ int fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);
        return fd < 0 ? fail(error, -errno, "file", path) : 0;
}

static int prepare_console(Sandbox *s, sd_bus_error *error) {
        _cleanup_close_ int fd = memfd_create("cube-console", MFD_CLOEXEC|MFD_ALLOW_SEALING);

        /* Sealed in size: who reads it maps it, and must not be cut off by its writer. */
        if (fd < 0 || ftruncate(fd, CONSOLE_BYTES) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_SEAL) < 0)
                return fail(error, -errno, "memory for the", "console");
        s->priv->console_fd = TAKE_FD(fd);
        return 0;
}

static int prepare_kvm(Sandbox *s, sd_bus_error *error) {
        int fd = open("/dev/kvm", O_RDWR|O_CLOEXEC|O_NOCTTY);

        if (fd < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
                return sd_bus_error_setf(error, BUS_ERROR_HOST_UNSUPPORTED,
                                         "This host has no /dev/kvm: load kvm_intel or kvm_amd, and switch virtualization "
                                         "on in the firmware (or nested virtualization for this VM); \"cubectl check\" "
                                         "tells more");
        if (fd < 0)
                return sd_bus_error_setf(error, BUS_ERROR_HOST_UNSUPPORTED, "Can't open /dev/kvm: %s", strerror(errno));
        s->priv->kvm_fd = fd;
        return 0;
}

int sandbox_prepare(Sandbox *s, sd_bus_error *error) {
        /* In this order: what fails first has nothing to undo. */
        int r = prepare_kvm(s, error);
        if (r >= 0)
                r = prepare_console(s, error);
        if (r < 0)
                return r;

        r = sandbox_prepare_overlay(s, error);
        if (r >= 0)
                r = prepare_directory(s, error);
        if (r >= 0)
                r = prepare_socket(s, error);
        if (r >= 0)
                r = prepare_exit_file(s, error);
        if (r < 0) {
                sandbox_remove_files(s->priv->dir);
                sandbox_unlink_overlay(s);
        }
        if (r < 0 && !sd_bus_error_is_set(error))
                return sd_bus_error_set_errno(error, r);
        return r;
}
