/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/fd-util.h"
#include "guest/disk.h"
#include "guest/log.h"

#define LOWER "/lower"
#define WRITABLE "/writable"
#define DISK_WAIT_MSEC 30000U
#define VIRTIO_ID_BLOCK 2U

#ifndef EXT4_IOC_RESIZE_FS
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#endif

static int writable_fd = -EBADF;        /* root directory of vdb's file system */

static int fail(int error, char *message, const char *format, ...) _printf_(3, 4);

static int fail(int error, char *message, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        vsnprintf(message, DISK_MESSAGE_MAX, format, ap);
        va_end(ap);
        return error;
}

/* How many block devices the virtio bus has: their nodes may appear a little later. */
static unsigned count_virtio_disks(void) {
        DIR *d = opendir("/sys/bus/virtio/devices");
        struct dirent *de;
        unsigned n = 0;

        if (!d)
                return 0;
        while ((de = readdir(d))) {
                _cleanup_free_ char *path = NULL, *text = NULL;

                if (*de->d_name == '.' || asprintf(&path, "%s/device", de->d_name) < 0)
                        continue;
                if (read_file(dirfd(d), path, 64, &text, NULL) >= 0 && strtoul(text, NULL, 16) == VIRTIO_ID_BLOCK)
                        n++;
        }
        closedir(d);
        return n;
}

static bool wait_for_device(const char *path) {
        const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

        for (unsigned i = 0; i < DISK_WAIT_MSEC / 10; i++) {
                if (access(path, F_OK) == 0)
                        return true;
                (void) nanosleep(&pause, NULL);
        }
        return false;
}

static int mount_lower(char *message) {
        static const char *const types[] = { "squashfs", "erofs" };
        int error = -ENODEV;

        for (size_t i = 0; i < ELEMENTSOF(types); i++) {
                if (mount("/dev/vda", LOWER, types[i], MS_RDONLY, NULL) >= 0)
                        return 0;
                /* A file system that the kernel lacks says less than one that does not recognize it. */
                if (errno != ENODEV || error == -ENODEV)
                        error = -errno;
        }
        return fail(error, message, "root image on /dev/vda is neither squashfs nor erofs: %s", strerror(-error));
}

static int mount_writable(bool have_disk, char *message) {
        if (!have_disk)
                return mount("tmpfs", WRITABLE, "tmpfs", 0, "mode=0755,size=80%") < 0 ?
                        fail(-errno, message, "memory for what is written: %s", strerror(errno)) : 0;

        /* Zeroing the inode tables in the background would write to each sandbox's overlay what nobody reads. */
        if (mount("/dev/vdb", WRITABLE, "ext4", MS_NOATIME, "noinit_itable") < 0)
                return fail(-errno, message, "writable disk /dev/vdb as ext4: %s", strerror(errno));

        writable_fd = open(WRITABLE, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (writable_fd < 0)
                return fail(-errno, message, "writable disk: %s", strerror(errno));

        int r = disk_grow(UINT64_MAX);
        if (r < 0)
                log_warning("writable disk not grown: %s", strerror(-r));
        return 0;
}

static int mount_overlay(const char *root, char *message) {
        static const char options[] = "lowerdir=" LOWER ",upperdir=" WRITABLE "/upper,"
                                      "workdir=" WRITABLE "/work,redirect_dir=on";
        struct stat st;

        /* The overlay's root directory takes its mode and owner from the upper layer. */
        if (stat(LOWER, &st) < 0)
                return fail(-errno, message, "root image: %s", strerror(errno));
        if (mkdir(WRITABLE "/upper", 0755) >= 0) {
                if (chown(WRITABLE "/upper", st.st_uid, st.st_gid) < 0 ||
                    chmod(WRITABLE "/upper", st.st_mode & 07777) < 0)
                        return fail(-errno, message, "upper layer: %s", strerror(errno));
        } else if (errno != EEXIST)
                return fail(-errno, message, "upper layer: %s", strerror(errno));
        if (mkdir(WRITABLE "/work", 0700) < 0 && errno != EEXIST)
                return fail(-errno, message, "overlay's work directory: %s", strerror(errno));

        if (mount("overlay", root, "overlay", 0, options) < 0)
                return fail(-errno, message, "overlay of image and writable disk: %s", strerror(errno));
        return 0;
}

/* Container engines need a real file system beneath their own overlays. */
static int bind_container_storage(const char *root, char *message) {
        static const struct {
                const char *from, *to;
                mode_t mode;
        } binds[] = {
                { WRITABLE "/docker", "var/lib/docker", 0710 },
                { WRITABLE "/containers", "var/lib/containers", 0755 },
        };
        static const char *const parents[] = { "var", "var/lib" };
        char path[64];

        for (size_t i = 0; i < ELEMENTSOF(parents); i++) {
                snprintf(path, sizeof(path), "%s/%s", root, parents[i]);
                if (mkdir(path, 0755) < 0 && errno != EEXIST)
                        return fail(-errno, message, "/%s: %s", parents[i], strerror(errno));
        }
        for (size_t i = 0; i < ELEMENTSOF(binds); i++) {
                snprintf(path, sizeof(path), "%s/%s", root, binds[i].to);
                if ((mkdir(path, binds[i].mode) < 0 && errno != EEXIST) ||
                    (mkdir(binds[i].from, binds[i].mode) < 0 && errno != EEXIST) ||
                    mount(binds[i].from, path, NULL, MS_BIND, NULL) < 0)
                        return fail(-errno, message, "/%s: %s", binds[i].to, strerror(errno));
        }
        return 0;
}

int disk_mount_root(const char *root, char ret_message[static DISK_MESSAGE_MAX]) {
        if (!wait_for_device("/dev/vda"))
                return fail(-ENODEV, ret_message, "no root disk: /dev/vda did not appear");
        bool have_disk = count_virtio_disks() > 1 && wait_for_device("/dev/vdb");

        if ((mkdir(LOWER, 0755) < 0 && errno != EEXIST) || (mkdir(WRITABLE, 0755) < 0 && errno != EEXIST))
                return fail(-errno, ret_message, "mount points in the initramfs: %s", strerror(errno));

        int r = mount_lower(ret_message);
        if (r >= 0)
                r = mount_writable(have_disk, ret_message);
        if (r >= 0)
                r = mount_overlay(root, ret_message);
        if (r >= 0)
                r = bind_container_storage(root, ret_message);
        if (r < 0)
                return r;

        /* The overlay keeps both layers; nobody needs to see them. */
        (void) umount2(LOWER, MNT_DETACH);
        (void) umount2(WRITABLE, MNT_DETACH);
        return 0;
}

static int device_bytes(uint64_t *ret) {
        _cleanup_close_ int fd = open("/dev/vdb", O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return ioctl(fd, BLKGETSIZE64, ret) < 0 ? -errno : 0;
}

int disk_grow(uint64_t max_bytes) {
        struct statfs sf;
        uint64_t bytes;

        if (writable_fd < 0)
                return 0;
        int r = device_bytes(&bytes);
        if (r < 0)
                return r;
        if (fstatfs(writable_fd, &sf) < 0)
                return -errno;

        uint64_t blocks = MIN(bytes, max_bytes) / (uint64_t) sf.f_bsize;
        if (blocks <= sf.f_blocks)
                return 0;
        /* f_blocks leaves the file system's own out: what is asked for may be what it has (0), or
         * less (EINVAL), since a file system does not shrink. */
        if (ioctl(writable_fd, EXT4_IOC_RESIZE_FS, &blocks) < 0 && errno != EINVAL)
                return -errno;
        return 0;
}

int disk_fd(void) {
        return writable_fd;
}

int disk_freeze(void) {
        return writable_fd >= 0 && ioctl(writable_fd, FIFREEZE, 0) < 0 ? -errno : 0;
}

int disk_thaw(void) {
        /* EINVAL: it isn't frozen. */
        return writable_fd >= 0 && ioctl(writable_fd, FITHAW, 0) < 0 && errno != EINVAL ? -errno : 0;
}
