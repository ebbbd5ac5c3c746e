/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "daemon/log.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "daemon/store-client.h"
#include "dbus/bus-errors.h"

#define OVERLAY_CURRENT ".disk"
#define OVERLAY_NEW ".new"

typedef char OverlayPath[sizeof(SANDBOXES_DIRECTORY "/" OVERLAY_CURRENT) + sizeof(((Sandbox *) NULL)->id)];

static const char *overlay_path(const Sandbox *s, const char *suffix, OverlayPath ret) {
        (void) snprintf(ret, sizeof(OverlayPath), SANDBOXES_DIRECTORY "/%s%s", s->id, suffix);
        return ret;
}

static int create(const Sandbox *s, const char *suffix, int *ret_fd) {
        OverlayPath path;

        (void) overlay_path(s, suffix, path);
        _cleanup_close_ int fd = openat(s->manager->priv->state_fd, path, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        if (ftruncate(fd, (off_t) s->disk_bytes) < 0) {
                int r = -errno;
                (void) unlinkat(s->manager->priv->state_fd, path, 0);
                return r;
        }
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int sandbox_prepare_overlay(Sandbox *s, sd_bus_error *error) {
        const char *state = s->manager->config.state_directory;

        if (mkdirat(s->manager->priv->state_fd, SANDBOXES_DIRECTORY, 0700) < 0 && errno != EEXIST)
                return sd_bus_error_setf(error, bus_error_of_errno(-errno), "Can't make directory %s/" SANDBOXES_DIRECTORY ": %s", state, strerror(errno));
        int r = create(s, OVERLAY_CURRENT, &s->priv->overlay_fd);
        if (r == -EFBIG)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "The file system of %s/" SANDBOXES_DIRECTORY " has no files as large as this disk; ask for a "
                                         "smaller one or move StateDirectory=", state);
        if (r < 0)
                return sd_bus_error_setf(error, bus_error_of_errno(r), "Can't make the disk in %s/" SANDBOXES_DIRECTORY ": %s", state, strerror(-r));
        return 0;
}

int sandbox_new_overlay(const Sandbox *s, int *ret_fd) {
        /* One that a cubed before us made and did not get to use. */
        sandbox_drop_new_overlay(s);
        return create(s, OVERLAY_NEW, ret_fd);
}

static void make_current(const Sandbox *s) {
        int state = s->manager->priv->state_fd;
        OverlayPath from, to;

        if (renameat(state, overlay_path(s, OVERLAY_NEW, from), state, overlay_path(s, OVERLAY_CURRENT, to)) < 0)
                log_warning_errno(errno, "Sandbox %s: failed to rename %s: %m", s->id, from);
}

void sandbox_take_overlay(Sandbox *s, int fd) {
        make_current(s);
        safe_close(s->priv->overlay_fd);
        s->priv->overlay_fd = fd;
}

void sandbox_drop_new_overlay(const Sandbox *s) {
        OverlayPath path;

        (void) unlinkat(s->manager->priv->state_fd, overlay_path(s, OVERLAY_NEW, path), 0);
}

/* -EBADF when it is another file. */
static int open_same(const Sandbox *s, const char *suffix, const struct stat *theirs) {
        OverlayPath path;
        struct stat st;

        _cleanup_close_ int fd = openat(s->manager->priv->state_fd, overlay_path(s, suffix, path), O_RDWR|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != theirs->st_dev || st.st_ino != theirs->st_ino)
                return -EBADF;
        return TAKE_FD(fd);
}

int sandbox_find_overlay(Sandbox *s, int theirs) {
        bool is_new = false;
        struct stat st;

        if (fstat(theirs, &st) < 0)
                return -errno;
        int fd = open_same(s, OVERLAY_CURRENT, &st);
        if (fd < 0) {
                fd = open_same(s, OVERLAY_NEW, &st);
                if (fd < 0)
                        return -ESTALE;
                make_current(s);
                is_new = true;
        }
        safe_close(s->priv->overlay_fd);
        s->priv->overlay_fd = fd;
        return is_new;
}

typedef struct Removal {
        int state_fd; /* the manager's */
        OverlayPath path;
} Removal;

static void on_removed(int error, void *userdata) {
        _cleanup_free_ Removal *v = userdata;

        if (error < 0 && error != -ENOENT)
                (void) unlinkat(v->state_fd, v->path, 0);
}

/* To give back what a large file takes may last. */
static int remove_later(const Manager *m, const OverlayPath path) {
        Removal *v = new0(Removal, 1);
        if (!v)
                return -ENOMEM;

        v->state_fd = m->priv->state_fd;
        memcpy(v->path, path, sizeof(v->path));
        int r = m->store ? store_client_remove(m->store, path, on_removed, v) : -ENOTCONN;
        if (r < 0)
                free(v);
        return r;
}

static void remove_path(const Manager *m, const char *path) {
        OverlayPath copy;

        (void) snprintf(copy, sizeof(copy), "%s", path);
        if (remove_later(m, copy) < 0)
                (void) unlinkat(m->priv->state_fd, path, 0);
}

void sandbox_remove_overlay(const Sandbox *s) {
        OverlayPath path;

        sandbox_drop_new_overlay(s);
        remove_path(s->manager, overlay_path(s, OVERLAY_CURRENT, path));
}

void sandbox_unlink_overlay(const Sandbox *s) {
        OverlayPath path;

        sandbox_drop_new_overlay(s);
        (void) unlinkat(s->manager->priv->state_fd, overlay_path(s, OVERLAY_CURRENT, path), 0);
}

static bool is_left(Manager *m, const char *name) {
        char id[sizeof(((Sandbox *) NULL)->id)];
        const char *dot = strchr(name, '.');

        if (!dot || dot == name || (size_t) (dot - name) >= sizeof(id) || (!streq(dot, OVERLAY_CURRENT) && !streq(dot, OVERLAY_NEW)))
                return false;
        memcpy(id, name, (size_t) (dot - name));
        id[dot - name] = 0;
        return sandbox_id_valid(id) && !manager_find_sandbox(m, id);
}

void manager_remove_left_overlays(Manager *m) {
        int fd = openat(m->priv->state_fd, SANDBOXES_DIRECTORY, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *e;
        char path[300];

        if (!d) {
                safe_close(fd);
                return;
        }
        while ((e = readdir(d)))
                if (is_left(m, e->d_name)) {
                        (void) snprintf(path, sizeof(path), SANDBOXES_DIRECTORY "/%s", e->d_name);
                        log_info("Removing %s/%s, which an earlier cubed left", m->config.state_directory, path);
                        remove_path(m, path);
                }
        closedir(d);
}
