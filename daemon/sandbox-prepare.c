/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox needs before its VMM can start, as far as that takes no waiting: the directory
 * under /run, the control socket, the console's memory, the overlay of its disk, /dev/kvm. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "daemon/capture.h"
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
        return sd_bus_error_setf(error, r == -ENOSPC || r == -EMFILE || r == -ENFILE ? BUS_ERROR_NO_RESOURCES : BUS_ERROR_INTERNAL,
                                 "Can't make %s %s: %s", what, path, strerror(-r));
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
        if (fd < 0 || ftruncate(fd, sizeof(ConsoleRing)) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_SEAL) < 0)
                return fail(error, -errno, "memory for the", "console");
        s->priv->console_fd = TAKE_FD(fd);
        return 0;
}

static int open_unnamed(const char *dir, const char *id) {
        int fd = open(dir, O_TMPFILE|O_RDWR|O_CLOEXEC, 0600);
        if (fd >= 0)
                return fd;
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
                return -errno;

        /* A file system without O_TMPFILE. */
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s/%s", dir, id) < 0)
                return -ENOMEM;
        fd = open(path, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        (void) unlink(path);
        return fd;
}

static int overlay_directory(const Sandbox *s, char **ret) {
        return asprintf(ret, "%s/sandboxes", s->manager->config.state_directory) < 0 ? -ENOMEM : 0;
}

int sandbox_new_overlay(const Sandbox *s, int *ret_fd) {
        _cleanup_close_ int fd = -EBADF;
        char *dir;

        int r = overlay_directory(s, &dir);
        if (r < 0)
                return r;
        fd = open_unnamed(dir, s->id);
        free(dir);
        if (fd < 0)
                return fd;
        if (ftruncate(fd, (off_t) s->disk_bytes) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int overlay_path(const Sandbox *s, char **ret) {
        return asprintf(ret, "%s/sandboxes/%s", s->manager->config.state_directory, s->id) < 0 ? -ENOMEM : 0;
}

int sandbox_name_overlay(const Sandbox *s) {
        char from[64], *path;

        int r = overlay_path(s, &path);
        if (r < 0)
                return r;
        (void) snprintf(from, sizeof(from), "/proc/self/fd/%d", s->priv->overlay_fd);
        if (linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
                r = -errno;
        free(path);
        return r;
}

void sandbox_unname_overlay(const Sandbox *s) {
        char *path;

        if (overlay_path(s, &path) < 0)
                return;
        (void) unlink(path);
        free(path);
}

static int prepare_overlay(Sandbox *s, sd_bus_error *error) {
        _cleanup_free_ char *dir = NULL;
        int r = overlay_directory(s, &dir);

        if (r < 0) {
                dir = NULL;
                return r;
        }
        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return fail(error, -errno, "directory", dir);
        r = sandbox_new_overlay(s, &s->priv->overlay_fd);
        if (r == -EFBIG)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "The file system of %s has no files as large as this disk; ask for a "
                                         "smaller one or move StateDirectory=", dir);
        return r < 0 ? fail(error, r, "the disk in", dir) : 0;
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
                r = prepare_overlay(s, error);
        if (r >= 0)
                r = prepare_console(s, error);
        if (r < 0)
                return r;

        r = prepare_directory(s, error);
        if (r >= 0)
                r = prepare_socket(s, error);
        if (r >= 0)
                r = prepare_exit_file(s, error);
        if (r < 0)
                sandbox_remove_files(s->priv->dir);
        if (r < 0 && !sd_bus_error_is_set(error))
                return sd_bus_error_set_errno(error, r);
        return r;
}
