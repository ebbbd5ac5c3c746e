/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "guest/boot.h"
#include "guest/log.h"
#include "guest/modules.h"

#define NEW_ROOT "/newroot"

typedef struct MountPoint {
        const char *target, *type, *options;
        unsigned long flags;
        mode_t mode;    /* of the directory, when it has to be made */
        bool optional;
} MountPoint;

static const MountPoint early_mounts[] = {
        { "/dev", "devtmpfs", "mode=0755", MS_NOSUID, 0755, false },
        { "/proc", "proc", NULL, MS_NOSUID|MS_NODEV|MS_NOEXEC, 0555, false },
        { "/sys", "sysfs", NULL, MS_NOSUID|MS_NODEV|MS_NOEXEC, 0555, false },
};

static const MountPoint late_mounts[] = {
        { "/dev/pts", "devpts", "mode=0620,gid=5,ptmxmode=0666", MS_NOSUID|MS_NOEXEC, 0755, false },
        { "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID|MS_NODEV, 01777, false },
        { "/dev/mqueue", "mqueue", NULL, MS_NOSUID|MS_NODEV|MS_NOEXEC, 01777, true },
        { "/run", "tmpfs", "mode=0755,size=20%", MS_NOSUID|MS_NODEV, 0755, false },
        { "/sys/fs/cgroup", "cgroup2", "nsdelegate", MS_NOSUID|MS_NODEV|MS_NOEXEC, 0755, true },
};

static int mount_point(const MountPoint *m) {
        if (mkdir(m->target, m->mode) < 0 && errno != EEXIST && !m->optional)
                return -errno;
        if (mount(m->type, m->target, m->type, m->flags, m->options) < 0 && errno != EBUSY)
                return m->optional ? 0 : -errno;
        return 0;
}

/* The initramfs may have had no /dev/console, and then PID 1 starts without these. */
static void open_standard_fds(void) {
        int fd;

        do
                fd = open("/dev/null", O_RDWR);
        while (fd >= 0 && fd < 3);
        if (fd < 0)
                return;
        for (int i = 0; i < 3; i++)
                (void) dup2(fd, i);
        close(fd);
}

static void write_setting(const char *path, const char *value) {
        int fd = open(path, O_WRONLY|O_CLOEXEC);
        if (fd < 0)
                return;
        (void) !write(fd, value, strlen(value));
        close(fd);
}

static void loopback_up(void) {
        struct ifreq ifr = { .ifr_name = "lo" };

        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &ifr) < 0) {
                log_warning("no loopback interface: %s", strerror(errno));
                return;
        }
        ifr.ifr_flags |= IFF_UP;
        if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
                log_warning("loopback interface not up: %s", strerror(errno));
}

void boot_kernel(void) {
        for (size_t i = 0; i < ELEMENTSOF(early_mounts); i++) {
                int r = mount_point(&early_mounts[i]);
                if (i == 0) {
                        open_standard_fds();
                        log_open_kmsg();
                }
                if (r < 0)
                        log_error("%s not mounted: %s", early_mounts[i].target, strerror(-r));
        }
        /* Again, now that /proc can lift the limit on lines. */
        log_open_kmsg();

        /* The kernel never chooses PID 1, but a process that holds all memory should go first too. */
        write_setting("/proc/self/oom_score_adj", "-1000");
        /* Memory that the host plugs in is used at once; what it can be used for goes by how much of it
         * there is beside the memory that the kernel can use for itself. */
        write_setting("/sys/module/memory_hotplug/parameters/online_policy", "auto-movable");
        write_setting("/sys/devices/system/memory/auto_online_blocks", "online");

        int r = modules_load(MODULES_LIST);
        if (r < 0 && r != -ENOENT)
                log_error("%s: %s", MODULES_LIST, strerror(-r));
        loopback_up();
}

static int delete_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        if (ftw->level > 0)
                (void) remove(path);
        return 0;
}

/* Frees the memory of what only the boot needed. Never anything but an initramfs. */
static void delete_initramfs(void) {
        struct statfs sf;

        if (statfs("/", &sf) < 0 || (sf.f_type != (__typeof__(sf.f_type)) RAMFS_MAGIC &&
                                     sf.f_type != (__typeof__(sf.f_type)) TMPFS_MAGIC))
                return;
        (void) nftw("/", delete_one, 32, FTW_PHYS|FTW_MOUNT|FTW_DEPTH);
}

static int move_mounts(void) {
        char target[64];

        for (size_t i = 0; i < ELEMENTSOF(early_mounts); i++) {
                snprintf(target, sizeof(target), NEW_ROOT "%s", early_mounts[i].target);
                if (mkdir(target, early_mounts[i].mode) < 0 && errno != EEXIST)
                        return -errno;
                if (mount(early_mounts[i].target, target, NULL, MS_MOVE, NULL) < 0)
                        return -errno;
        }
        return 0;
}

static int switch_root(void) {
        int r = move_mounts();
        if (r < 0)
                return r;

        if (chdir(NEW_ROOT) < 0)
                return -errno;
        delete_initramfs();
        if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
                return -errno;
        return 0;
}

/* What devtmpfs leaves to user space, and what any program may expect. */
static void make_links_and_directories(void) {
        static const char *const links[][2] = {
                { "/proc/self/fd", "/dev/fd" },
                { "/proc/self/fd/0", "/dev/stdin" },
                { "/proc/self/fd/1", "/dev/stdout" },
                { "/proc/self/fd/2", "/dev/stderr" },
        };
        static const struct {
                const char *path;
                mode_t mode;
        } directories[] = {
                { "/tmp", 01777 },
                { "/etc", 0755 },
                { "/run/lock", 01777 },
                { "/root", 0700 },
        };

        for (size_t i = 0; i < ELEMENTSOF(links); i++)
                if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
                        log_warning("%s: %s", links[i][1], strerror(errno));
        for (size_t i = 0; i < ELEMENTSOF(directories); i++)
                if (mkdir(directories[i].path, directories[i].mode) >= 0)
                        (void) chmod(directories[i].path, directories[i].mode);
}

int boot_root(char ret_message[static DISK_MESSAGE_MAX]) {
        if (mkdir(NEW_ROOT, 0755) < 0 && errno != EEXIST) {
                snprintf(ret_message, DISK_MESSAGE_MAX, "mount point in the initramfs: %s", strerror(errno));
                return -errno;
        }
        int r = disk_mount_root(NEW_ROOT, ret_message);
        if (r < 0)
                return r;

        r = switch_root();
        if (r < 0) {
                snprintf(ret_message, DISK_MESSAGE_MAX, "switching to the image's root: %s", strerror(-r));
                return r;
        }

        for (size_t i = 0; i < ELEMENTSOF(late_mounts); i++) {
                r = mount_point(&late_mounts[i]);
                if (r < 0) {
                        snprintf(ret_message, DISK_MESSAGE_MAX, "mounting %s: %s", late_mounts[i].target, strerror(-r));
                        return r;
                }
        }
        make_links_and_directories();
        return 0;
}
