/* SPDX-License-Identifier: Apache-2.0 */

/* What this host can do: for cubectl check. Everything in here is at hand or one short system call
 * away; what KVM can really do was found out once by cube-kvm-probe, as a child, and cube-netd is asked. */

#include <fcntl.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/check-private.h"
#include "daemon/log.h"
#include "daemon/template.h"
#include "daemon/write-file.h"

#define KERNEL_MAJOR_MIN 6
#define KERNEL_MINOR_MIN 1
/* Hardware takes a nanosecond or less for an instruction, nested TCG some ten; PVM about a thousand. */
#define SLOW_NSEC_PER_INSTRUCTION 200.0
#define FREE_MEM_MIN MIB(512)
#define FREE_DISK_MIN GIB(2)

void check_tell(const Check *c, const char *name, CheckLevel level, const char *advice, const char *format, ...) {
        char finding[512];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(finding, sizeof(finding), format, ap);
        va_end(ap);
        c->fn(c->userdata, name, level, finding, advice);
}

/* The probe. */

static void probe_text_done(struct ManagerPrivate *p) {
        p->probe_text[p->probe_size] = 0;
        p->probe_io = sd_event_source_disable_unref(p->probe_io);
        p->probe_fd = safe_close(p->probe_fd);
}

static int on_probe_io(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        struct ManagerPrivate *p = ((Manager *) userdata)->priv;
        size_t room = sizeof(p->probe_text) - 1 - p->probe_size;

        ssize_t n = room > 0 ? read(fd, p->probe_text + p->probe_size, room) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0) {
                p->probe_size += (size_t) n;
                return 0;
        }
        probe_text_done(p);
        return 0;
}

static char *probe_path(const Manager *m) {
        char *path;

        return asprintf(&path, "%s/kvm-probe", m->config.runtime_directory) < 0 ? NULL : path;
}

/* What was found holds until the next boot, and so does the directory; a failure may have passed. */
static void save_probe(const Manager *m) {
        _cleanup_free_ char *path = probe_path(m);

        if (path && strstr(m->priv->probe_text, "nsec="))
                (void) write_file(path, m->priv->probe_text);
}

static bool load_probe(Manager *m) {
        _cleanup_free_ char *path = probe_path(m), *text = NULL;

        if (!path || read_file(AT_FDCWD, path, sizeof(m->priv->probe_text) - 1, &text, NULL) < 0 || !strstr(text, "nsec="))
                return false;
        memcpy(m->priv->probe_text, text, strlen(text) + 1);
        return true;
}

static int on_probe_child(sd_event_source *source, const siginfo_t *si, void *userdata) {
        struct ManagerPrivate *p = ((Manager *) userdata)->priv;

        p->probe_child = sd_event_source_disable_unref(p->probe_child);
        p->probe_pid = 0;
        /* All that it wrote is in the pipe; another child may hold that open for a moment. */
        for (unsigned i = 0; i < 4 && p->probe_io; i++)
                (void) on_probe_io(p->probe_io, p->probe_fd, EPOLLIN, userdata);
        if (p->probe_io)
                probe_text_done(p);
        if (p->probe_size == 0)
                (void) snprintf(p->probe_text, sizeof(p->probe_text), "error=the probe ended with %s %d\n",
                                si->si_code == CLD_EXITED ? "status" : "signal", si->si_status);
        save_probe(userdata);
        return 0;
}

static _noreturn_ void probe_exec(const char *path, int out) {
        char *const argv[] = { (char *) path, NULL }, *const env[] = { NULL };
        sigset_t none;

        if (dup2(out, STDOUT_FILENO) < 0)
                _exit(126);
        (void) syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        execve(path, argv, env);
        _exit(127);
}

int manager_start_probe(Manager *m) {
        struct ManagerPrivate *p = m->priv;
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int out = -EBADF;
        int ends[2];

        if (load_probe(m))
                return 0;
        int r = helper_path("cube-kvm-probe", &path);
        if (r < 0)
                return r;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        p->probe_fd = ends[0];
        out = ends[1];

        p->probe_pid = fork();
        if (p->probe_pid < 0)
                return -errno;
        if (p->probe_pid == 0)
                probe_exec(path, out);
        r = fd_set_nonblock(p->probe_fd, true);
        if (r >= 0)
                r = sd_event_add_io(m->event, &p->probe_io, p->probe_fd, EPOLLIN, on_probe_io, m);
        if (r >= 0)
                r = sd_event_add_child(m->event, &p->probe_child, p->probe_pid, WEXITED, on_probe_child, m);
        return r;
}

/* The value of key=VALUE in the probe's line, up to the next blank (or the end, for the last). */
static bool probe_value(const Manager *m, const char *key, bool rest, char *buf, size_t size) {
        const char *p = m->priv->probe_text;
        size_t n = strlen(key);

        for (; p; p = strchr(p, ' ')) {
                p += *p == ' ';
                if (strncmp(p, key, n) == 0 && p[n] == '=') {
                        size_t k = strcspn(p + n + 1, rest ? "\n" : " \n");
                        (void) snprintf(buf, size, "%.*s", (int) MIN(k, size - 1), p + n + 1);
                        return true;
                }
        }
        return false;
}

static void check_kvm_guests(const Check *c) {
        char value[400];

        if (c->manager->priv->probe_pid > 0 || c->manager->priv->probe_io) {
                check_tell(c, "kvm", CHECK_WARNING, "Ask again in a moment.", "still being tried");
                return;
        }
        if (probe_value(c->manager, "error", true, value, sizeof(value))) {
                check_tell(c, "kvm", CHECK_FAILED,
                     "Load kvm_intel or kvm_amd, and switch virtualization on in the firmware (for a VM: nested virtualization).",
                     "%s", value);
                return;
        }
        if (probe_value(c->manager, "missing", false, value, sizeof(value)) && *value) {
                check_tell(c, "kvm", CHECK_FAILED, "Use a newer kernel: 6.1 or later.", "KVM lacks %s", value);
                return;
        }
        if (!probe_value(c->manager, "nsec", false, value, sizeof(value))) {
                check_tell(c, "kvm", CHECK_FAILED, "See the journal of cubed.", "could not be tried");
                return;
        }
        double nsec = strtod(value, NULL);
        if (nsec > SLOW_NSEC_PER_INSTRUCTION)
                check_tell(c, "kvm", CHECK_FAILED,
                     "This is a PVM host: its KVM emulates ring 0, and Linux guests cannot run here. Use the lab (dev/vm), or a "
                     "host with hardware virtualization.",
                     "an instruction of a guest's kernel takes %.0f ns", nsec);
        else
                check_tell(c, "kvm", CHECK_OK, NULL, "runs guest code, %.2f ns an instruction", nsec);
}

static void check_device(const Check *c) {
        _cleanup_close_ int fd = open("/dev/kvm", O_RDWR|O_CLOEXEC);

        if (fd < 0)
                check_tell(c, "dev-kvm", CHECK_FAILED,
                     errno == ENOENT ? "Load kvm_intel or kvm_amd (modprobe), and see that the firmware has virtualization on."
                                     : "cubed needs DeviceAllow=/dev/char/10:232 rw and the right to open it.",
                     "/dev/kvm: %s", strerror(errno));
        else
                check_tell(c, "dev-kvm", CHECK_OK, NULL, "/dev/kvm opens");
}

static void check_kernel(const Check *c) {
        unsigned major = 0, minor = 0;
        struct utsname u;

        (void) uname(&u);
        bool ok = sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
                (major > KERNEL_MAJOR_MIN || (major == KERNEL_MAJOR_MIN && minor >= KERNEL_MINOR_MIN));
        check_tell(c, "kernel", ok ? CHECK_OK : CHECK_FAILED, ok ? NULL : "cubed needs Linux 6.1 or later.", "Linux %s", u.release);
}

static void check_systemd(const Check *c) {
        _cleanup_free_ char *comm = NULL;

        if (read_file(AT_FDCWD, "/proc/1/comm", 64, &comm, NULL) < 0 || !startswith(comm, "systemd"))
                check_tell(c, "systemd", CHECK_FAILED, "cubed needs systemd 252 or later as PID 1.", "PID 1 is not systemd");
        else
                check_tell(c, "systemd", CHECK_OK, NULL, "PID 1 is systemd");
}

static void check_cgroups(const Check *c) {
        static const char *const wanted[] = { "cpu", "memory", "pids", "io" };
        _cleanup_free_ char *text = NULL;
        char missing[64] = "";
        size_t n = 0;

        if (read_file(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", 4096, &text, NULL) < 0) {
                check_tell(c, "cgroup", CHECK_FAILED, "Boot with systemd.unified_cgroup_hierarchy=1.", "no unified cgroup hierarchy");
                return;
        }
        for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
                const char *p = strstr(text, wanted[i]);
                size_t k = strlen(wanted[i]);
                while (p && ((p != text && p[-1] != ' ') || (p[k] != ' ' && p[k] != '\n' && p[k] != 0)))
                        p = strstr(p + 1, wanted[i]);
                if (!p)
                        n += (size_t) snprintf(missing + n, sizeof(missing) - n, " %s", wanted[i]);
        }
        if (n > 0)
                check_tell(c, "cgroup", CHECK_WARNING, "Limits of sandboxes do not hold without them; see the kernel's command line and configuration.",
                     "controllers missing:%s", missing);
        else
                check_tell(c, "cgroup", CHECK_OK, NULL, "controllers cpu, memory, pids, io");
}

static void check_memory(const Check *c) {
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];
        _cleanup_free_ char *text = NULL;
        unsigned long long kib = 0;

        if (read_file(AT_FDCWD, "/proc/meminfo", 65536, &text, NULL) >= 0) {
                const char *p = strstr(text, "MemAvailable:");
                if (p)
                        (void) sscanf(p, "MemAvailable: %llu", &kib);
        }
        uint64_t available = (uint64_t) kib * 1024;
        check_tell(c, "memory", available < FREE_MEM_MIN ? CHECK_WARNING : CHECK_OK,
             available < FREE_MEM_MIN ? "A sandbox of default size may not find the memory it needs." : NULL, "%s of %s available",
             format_size(a, available), format_size(b, c->manager->priv->host_mem_bytes));
}

static void check_disk(const Check *c) {
        const char *dir = c->manager->config.state_directory;
        char a[FORMAT_SIZE_MAX];
        struct statvfs fs;

        if (statvfs(dir, &fs) < 0) {
                check_tell(c, "disk", CHECK_FAILED, "See StateDirectory= in cubed.conf(5).", "%s: %s", dir, strerror(errno));
                return;
        }
        uint64_t available = (uint64_t) fs.f_bavail * fs.f_frsize;
        _cleanup_close_ int fd = open(dir, O_TMPFILE|O_RDWR|O_CLOEXEC, 0600);
        if (fs.f_flag & ST_RDONLY)
                check_tell(c, "disk", CHECK_FAILED, "Make it writable.", "%s is read-only", dir);
        else if (available < FREE_DISK_MIN)
                check_tell(c, "disk", CHECK_WARNING, "Free some space: sandboxes write there.", "%s free in %s", format_size(a, available), dir);
        else
                check_tell(c, "disk", CHECK_OK, NULL, "%s free in %s%s", format_size(a, available), dir,
                     fd < 0 ? ", no unnamed files (names are used for a moment)" : "");
}

static void check_polkit(const Check *c) {
        static const char *const places[] = {
                "/usr/share/dbus-1/system-services/org.freedesktop.PolicyKit1.service",
                "/usr/lib/polkit-1/polkitd",
        };

        for (size_t i = 0; i < ELEMENTSOF(places); i++)
                if (access(places[i], F_OK) == 0) {
                        check_tell(c, "polkit", CHECK_OK, NULL, "installed");
                        return;
                }
        check_tell(c, "polkit", CHECK_WARNING, "Install polkitd: without it only root may do anything.", "not installed");
}

static void check_templates(const Check *c) {
        const TemplateStore *store = c->manager->templates;

        if (!store || store->n_templates == 0)
                check_tell(c, "templates", CHECK_WARNING, "Build one: cubectl template build NAME --from TAR|DIR.", "none yet");
        else if (!template_store_find((TemplateStore *) store, 0, NULL, c->manager->config.default_template))
                check_tell(c, "templates", CHECK_WARNING, "Build it, or set DefaultTemplate= in cubed.conf(5).", "%zu, but no %s",
                     store->n_templates, c->manager->config.default_template);
        else
                check_tell(c, "templates", CHECK_OK, NULL, "%zu", store->n_templates);
}

static void check_core_scheduling(const Check *c) {
        /* PR_SCHED_CORE, get the cookie of this thread: EINVAL where the kernel has none. */
        unsigned long cookie = 0;
        long r = syscall(SYS_prctl, 62UL, 0UL, 0UL, 0UL, &cookie);
        _cleanup_free_ char *smt = NULL;
        bool on = read_file(AT_FDCWD, "/sys/devices/system/cpu/smt/active", 16, &smt, NULL) >= 0 && *smt == '1';

        if (r >= 0)
                check_tell(c, "core-scheduling", CHECK_OK, NULL, "the kernel has it");
        else if (!on)
                check_tell(c, "core-scheduling", CHECK_OK, NULL, "not needed: no simultaneous multithreading");
        else
                check_tell(c, "core-scheduling", CHECK_WARNING,
                     "Switch SMT off (nosmt) or use a kernel with CONFIG_SCHED_CORE if tenants do not trust each other.",
                     "the kernel lacks it, and two sandboxes may share a core");
}

static void check_landlock(const Check *c) {
        /* The version that brought each: files 1, TCP 4, sockets and signals 6. */
        int version = (int) syscall(SYS_landlock_create_ruleset, NULL, 0, 1U);

        if (version < 0)
                check_tell(c, "landlock", CHECK_WARNING,
                           "Use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in lsm= of its command line: VMMs do without one of their walls.",
                           "the kernel lacks it");
        else
                check_tell(c, "landlock", CHECK_OK, NULL, "version %d: VMMs reach no files%s%s", version, version >= 4 ? ", no TCP" : "",
                           version >= 6 ? ", no abstract sockets and no other processes" : "");
}

static void check_own(const Check *c) {
        const Manager *m = c->manager;

        if (m->priv->uid_conflict)
                check_tell(c, "uid-range", CHECK_WARNING, "Set another UIDRange= in cubed.conf(5).", "%s", m->priv->uid_conflict);
        else
                check_tell(c, "uid-range", CHECK_OK, NULL, "0x%x to 0x%x", m->config.uid_base, m->config.uid_base + m->config.uid_count - 1);
        if (helper_pid(m->priv->netd) <= 0 || helper_pid(m->priv->stored) <= 0)
                check_tell(c, "helpers", CHECK_FAILED, "See the journal of cubed.", "cube-netd or cube-stored does not run");
        else
                check_tell(c, "helpers", CHECK_OK, NULL, "cube-netd and cube-stored run");
        if (audit_lost(m->audit) > 0)
                check_tell(c, "journal", CHECK_WARNING, "See whether systemd-journald is overloaded.", "%llu audit entries were lost",
                     (unsigned long long) audit_lost(m->audit));
        else
                check_tell(c, "journal", CHECK_OK, NULL, "takes all audit entries");
}

static void check_all(const Check *c, const NetResult *found) {
        check_device(c);
        check_kvm_guests(c);
        check_kernel(c);
        check_systemd(c);
        check_cgroups(c);
        check_memory(c);
        check_disk(c);
        check_polkit(c);
        check_core_scheduling(c);
        check_landlock(c);
        check_templates(c);
        check_own(c);
        check_network(c, found);
        c->done(c->userdata);
}

static void on_netd(int error, const NetResult *result, void *userdata) {
        _cleanup_free_ Check *c = userdata;

        /* The manager is being freed: there is nothing left to look at, but who asked waits. */
        if (!c->manager->hooks)
                c->done(c->userdata);
        else
                check_all(c, error < 0 ? NULL : result);
}

int manager_check_host(Manager *m, CheckFn fn, CheckDone done, void *userdata) {
        _cleanup_free_ Check *c = new0(Check, 1);

        if (!c)
                return -ENOMEM;
        *c = (Check) { m, fn, done, userdata };
        if (net_client_check(m->net, on_netd, c) < 0)
                check_all(c, NULL);
        else
                (void) TAKE_PTR(c);
        return 0;
}
