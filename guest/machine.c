/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd-util.h"
#include "guest/disk.h"
#include "guest/entropy.h"
#include "guest/log.h"
#include "guest/machine.h"

int machine_set_time(uint64_t realtime_nsec) {
        struct timespec ts = {
                .tv_sec = (time_t) (realtime_nsec / NSEC_PER_SEC),
                .tv_nsec = (long) (realtime_nsec % NSEC_PER_SEC),
        };
        return clock_settime(CLOCK_REALTIME, &ts) < 0 ? -errno : 0;
}

int machine_add_entropy(const void *data, size_t size) {
        return entropy_add(data, size);
}

static int write_text(const char *path, int flags, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY|flags, 0644);
        if (fd < 0)
                return -errno;
        return write_full(fd, text, strlen(text));
}

static int write_file(const char *path, const char *text) {
        return write_text(path, O_CREAT|O_TRUNC, text);
}

static int write_existing(const char *path, const char *text) {
        return write_text(path, 0, text);
}

void machine_set_memory_pressure(void) {
        /* The multi-generational LRU (6.1) keeps what was used in the last min_ttl_ms, or calls the
         * OOM killer. Kernels without it go on as they do. */
        if (write_existing("/sys/kernel/mm/lru_gen/enabled", "y") >= 0)
                (void) write_existing("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000");
}

/* An image's own file is left alone; one that the agent wrote follows the name. */
static void write_if_ours(const char *path, bool *ours, const char *text) {
        struct stat st;

        if (!*ours && lstat(path, &st) >= 0 && (st.st_size > 0 || !S_ISREG(st.st_mode)))
                return;
        *ours = write_file(path, text) >= 0;
}

int machine_set_hostname(const char *name) {
        static bool hostname_ours, hosts_ours;
        char text[512];

        if (sethostname(name, strlen(name)) < 0)
                return -errno;

        snprintf(text, sizeof(text), "%s\n", name);
        write_if_ours("/etc/hostname", &hostname_ours, text);
        snprintf(text, sizeof(text),
                 "127.0.0.1 localhost\n"
                 "127.0.1.1 %s\n"
                 "::1 localhost ip6-localhost ip6-loopback\n", name);
        write_if_ours("/etc/hosts", &hosts_ours, text);
        return 0;
}

int machine_set_nameservers(const char *text) {
        static const char path[] = "/etc/resolv.conf";
        static bool ours;
        struct stat st;

        /* A link that leads nowhere is what images have whose resolver isn't running here. */
        if (!ours && stat(path, &st) < 0 && errno == ENOENT)
                (void) unlink(path);
        write_if_ours(path, &ours, text);
        return 0;
}

int machine_set_e2b(const char *sandbox, const char *template) {
        if (mkdir("/run/e2b", 0755) < 0 && errno != EEXIST)
                return -errno;

        int r = write_file("/run/e2b/.E2B_SANDBOX", "true");
        if (r >= 0 && *sandbox)
                r = write_file("/run/e2b/.E2B_SANDBOX_ID", sandbox);
        if (r >= 0 && *template)
                r = write_file("/run/e2b/.E2B_TEMPLATE_ID", template);
        return r;
}

static int set_cpu_online(uint32_t cpu) {
        _cleanup_free_ char *path = NULL, *state = NULL;

        if (asprintf(&path, "/sys/devices/system/cpu/cpu%u/online", cpu) < 0)
                return -ENOMEM;
        int r = read_file(AT_FDCWD, path, 16, &state, NULL);
        if (r < 0)
                return r;
        if (*state == '1')
                return 0;

        _cleanup_close_ int fd = open(path, O_WRONLY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return write_full(fd, "1", 1);
}

int machine_set_cpus(uint32_t n, char ret_message[static MACHINE_MESSAGE_MAX]) {
        for (uint32_t i = 1; i < n; i++) {
                int r = set_cpu_online(i);
                if (r < 0) {
                        snprintf(ret_message, MACHINE_MESSAGE_MAX, "CPU %u of %u did not come online", i, n);
                        return r;
                }
        }
        return 0;
}

int machine_grow_disk(uint64_t max_bytes) {
        return disk_grow(max_bytes);
}

int machine_disk_fd(void) {
        return disk_fd();
}

int machine_freeze(bool disk) {
        sync();
        /* Then it is the disk alone that is saved. */
        if (disk)
                return disk_freeze();
        /* What can be read again need not be saved, and free memory in one piece makes for few runs. Neither
         * is worth failing for. */
        (void) write_existing("/proc/sys/vm/drop_caches", "3");
        (void) write_existing("/proc/sys/vm/compact_memory", "1");
        return 0;
}

int machine_thaw(void) {
        return disk_thaw();
}

void machine_poweroff(void) {
        sync();
        /* Can't be unmounted: it is beneath the root that we run on. Freezing writes the journal out and
         * marks it clean all the same. */
        int r = disk_freeze();
        if (r < 0)
                log_warning("writable disk not frozen: %s", strerror(-r));
        (void) reboot(RB_POWER_OFF);
        /* A kernel that can't: PID 1 must not return, a panic would say something else. */
        for (;;)
                pause();
}
