/* SPDX-License-Identifier: Apache-2.0 */
#include <cpuid.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/adopt.h"
#include "daemon/audit.h"
#include "daemon/host-network.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/manager-private.h"
#include "daemon/template-pack.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "daemon/store-client.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"
#include "net/net-client.h"

#define NSS_TIMEOUT_USEC (5 * USEC_PER_SEC)
/* A dispatch over this is worth a line for those who debug. */
#define DISPATCH_LONG_USEC (5 * USEC_PER_MSEC)

int manager_new(sd_event *event, const Config *config, Manager **ret) {
        Manager *m = new0(Manager, 1);
        if (!m)
                return -ENOMEM;

        m->event = sd_event_ref(event);
        m->priv = new0(struct ManagerPrivate, 1);
        int r = m->priv ? config_copy(config, &m->config) : -ENOMEM;
        if (r >= 0)
                r = host_network_new(m, &m->network);
        if (r < 0) {
                manager_free(m);
                return r;
        }
        m->priv->state_fd = m->priv->lock_fd = m->priv->probe_fd = -EBADF;
        m->priv->schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY|O_CLOEXEC);
        *ret = m;
        return 0;
}

/* Running sandboxes stay as they are; one in the making can't be gone on with by anybody. */
static void free_sandboxes(Manager *m) {
        for (size_t i = 0; i < m->n_sandboxes; i++) {
                Sandbox *s = m->sandboxes[i];
                if (!sandbox_in_making(s))
                        continue;
                sandbox_failf(s, BUS_ERROR_INTERNAL, "cubed is going down while sandbox %s is being %s; try again", s->id,
                              s->state == SANDBOX_CREATING ? "created" : "resumed");
                if (s->priv->create_done) {
                        SandboxDone done = s->priv->create_done;
                        s->priv->create_done = NULL;
                        done(s, &s->priv->error, s->priv->create_userdata);
                }
        }
        while (m->n_sandboxes > 0)
                sandbox_free(m->sandboxes[m->n_sandboxes - 1]);
        free(m->sandboxes);
        /* Those that an earlier cubed left, and that are being ended: builds have taken theirs along. */
        while (m->n_builders > 0)
                sandbox_free(m->builders[m->n_builders - 1]);
        free(m->builders);
}

static void private_free(struct ManagerPrivate *p) {
        sd_event_source_disable_unref(p->status);
        sd_event_source_disable_unref(p->probe_child);
        sd_event_source_disable_unref(p->probe_io);
        helper_free(p->netd);
        helper_free(p->stored);
        units_free(p->units);
        uid_range_free(p->uids);
        safe_close(p->probe_fd);
        safe_close(p->state_fd);
        safe_close(p->lock_fd);
        safe_close(p->schedstat_fd);
        free(p->uid_conflict);
        free(p);
}

Manager *manager_free(Manager *m) {
        if (!m)
                return NULL;

        m->hooks = NULL;
        if (m->snapshots)
                m->snapshots->stopping = true;
        manager_end_builds(m);
        if (m->priv) {
                manager_end_exports(m);
                manager_end_imports(m);
                garbage_free(m->priv->garbage);
        }
        free_sandboxes(m);
        sandbox_forget_none(m);
        while (m->n_jobs > 0)
                job_free(m->jobs[m->n_jobs - 1]);
        free(m->jobs);
        host_network_free(m->network);
        net_client_free(m->net);
        store_client_free(m->store);
        snapshot_store_free(m->snapshots);
        template_store_free(m->templates);
        if (m->priv)
                private_free(m->priv);
        audit_free(m->audit);
        config_done(&m->config);
        sd_bus_unref(m->bus);
        sd_event_unref(m->event);
        free(m);
        return NULL;
}

static int add_builder(Manager *m, Sandbox *s) {
        Sandbox **l = reallocarray(m->builders, m->n_builders + 1, sizeof(*l));
        if (!l)
                return -ENOMEM;
        m->builders = l;
        m->builders[m->n_builders++] = s;
        return 0;
}

int manager_add_sandbox(Manager *m, Sandbox *s) {
        if (s->builder)
                return add_builder(m, s);
        if (m->n_sandboxes == m->n_sandboxes_allocated) {
                size_t n = m->n_sandboxes_allocated * 2 + 16;
                Sandbox **p = reallocarray(m->sandboxes, n, sizeof(Sandbox *));
                if (!p)
                        return -ENOMEM;
                m->sandboxes = p;
                m->n_sandboxes_allocated = n;
        }
        m->sandboxes[m->n_sandboxes++] = s;
        if (m->hooks && m->hooks->sandbox_added)
                m->hooks->sandbox_added(m, s);
        manager_update_status(m);
        return 0;
}

static void remove_from(Sandbox **list, size_t *n, const Sandbox *s) {
        for (size_t i = 0; i < *n; i++)
                if (list[i] == s) {
                        memmove(list + i, list + i + 1, (*n - i - 1) * sizeof(Sandbox *));
                        (*n)--;
                        return;
                }
}

void manager_remove_sandbox(Manager *m, Sandbox *s) {
        if (s->builder)
                remove_from(m->builders, &m->n_builders, s);
        else
                remove_from(m->sandboxes, &m->n_sandboxes, s);
}

Sandbox *manager_find_sandbox(Manager *m, const char *id) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (streq(m->sandboxes[i]->id, id))
                        return m->sandboxes[i];
        return NULL;
}

Sandbox *manager_find_sandbox_by_pid(Manager *m, pid_t pid) {
        for (size_t i = 0; pid > 0 && i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->vmm_pid == pid)
                        return m->sandboxes[i];
        return NULL;
}

Sandbox *manager_find_sandbox_by_request(Manager *m, uid_t owner, const char *tenant, const char *request_id) {
        for (size_t i = 0; i < m->n_sandboxes; i++) {
                Sandbox *s = m->sandboxes[i];
                /* One that ends is there for nobody any more. */
                if (s->state != SANDBOX_STOPPING && tenant_same(s->owner_uid, s->tenant, owner, tenant) && s->request_id &&
                    streq(s->request_id, request_id))
                        return s;
        }
        return NULL;
}

void manager_client_gone(Manager *m, const char *unique_name) {
        for (size_t i = 0; i < m->n_sandboxes; i++) {
                Sandbox *s = m->sandboxes[i];
                if (!s->bound_client || !streq(s->bound_client, unique_name) || s->state == SANDBOX_STOPPING)
                        continue;
                log_info("Sandbox %s: its client %s left the bus, ending it", s->id, unique_name);
                /* Ended from a round of their own: the list does not change under the loop. */
                (void) sandbox_kill(s, VMM_EXIT_KILLED, NULL, NULL, NULL);
        }
}

static int on_status(sd_event_source *source, void *userdata) {
        char buf[FORMAT_SIZE_MAX], host[FORMAT_SIZE_MAX];
        Manager *m = userdata;
        size_t running = 0, creating = 0;
        uint64_t mem = 0;

        for (size_t i = 0; i < m->n_sandboxes; i++) {
                running += m->sandboxes[i]->state == SANDBOX_RUNNING;
                creating += sandbox_in_making(m->sandboxes[i]);
                mem += sandbox_on_disk(m->sandboxes[i]) ? 0 : m->sandboxes[i]->mem_bytes;
        }
        (void) sd_notifyf(false, "STATUS=%zu running, %zu starting, %zu in all; %s of %s memory committed", running, creating,
                          m->n_sandboxes, format_size(buf, mem), format_size(host, m->priv->host_mem_bytes));
        return 0;
}

void manager_update_status(Manager *m) {
        if (!m->priv->status) {
                if (sd_event_add_defer(m->event, &m->priv->status, on_status, m) >= 0)
                        (void) sd_event_source_set_priority(m->priv->status, SD_EVENT_PRIORITY_IDLE);
                return;
        }
        (void) sd_event_source_set_enabled(m->priv->status, SD_EVENT_ONESHOT);
}

/* The loop's clock. What counts is the time for which we held the loop up: CPU of our own, and
 * waiting in the kernel. That others had the CPU meanwhile is not our doing, and on a busy host it is
 * most of the wall's time. */

/* How long this thread had to wait for a CPU, all in all. */
static uint64_t read_run_delay(const Manager *m) {
        unsigned long long cpu, delay;
        char text[128];

        ssize_t n = m->priv->schedstat_fd >= 0 ? pread(m->priv->schedstat_fd, text, sizeof(text) - 1, 0) : 0;
        if (n <= 0)
                return 0;
        text[n] = 0;
        return sscanf(text, "%llu %llu", &cpu, &delay) == 2 ? delay / NSEC_PER_USEC : 0;
}

static LoopClock read_loop_clock(const Manager *m) {
        struct rusage u = {};

        (void) getrusage(RUSAGE_THREAD, &u);
        return (LoopClock) {
                .wall_usec = clock_usec(CLOCK_MONOTONIC),
                .cpu_usec = clock_usec(CLOCK_THREAD_CPUTIME_ID),
                .delay_usec = read_run_delay(m),
                .sleeps = (uint64_t) u.ru_nvcsw,
        };
}

void manager_dispatch_begin(Manager *m) {
        m->priv->dispatch_start = read_loop_clock(m);
}

void manager_dispatch_end(Manager *m) {
        LoopClock a = m->priv->dispatch_start, b = read_loop_clock(m);
        uint64_t wall = b.wall_usec - a.wall_usec, delay = b.delay_usec - a.delay_usec, own = b.cpu_usec - a.cpu_usec;

        /* Without a sleep nothing was waited for but the CPU. */
        if (b.sleeps != a.sleeps)
                own = MAX(own, wall - MIN(wall, delay));
        m->priv->loop_max_usec = MAX(m->priv->loop_max_usec, own);
        if (own > DISPATCH_LONG_USEC)
                log_debug("One dispatch took %llu us (%llu us by the clock, %llu sleeps)", (unsigned long long) own,
                          (unsigned long long) wall, (unsigned long long) (b.sleeps - a.sleeps));
}

uint64_t manager_loop_max_usec(Manager *m, bool reset) {
        uint64_t max = m->priv->loop_max_usec;

        if (reset)
                m->priv->loop_max_usec = 0;
        return max;
}

/* Start-up. */

static int make_directory(const char *path, mode_t mode) {
        if (mkdir(path, mode) < 0 && errno != EEXIST)
                return log_error_errno(errno, "Can't make directory %s: %m", path);
        return 0;
}

static int make_directories(Manager *m) {
        int r = make_directory(m->config.runtime_directory, 0711);
        if (r >= 0)
                r = make_directory(m->config.state_directory, 0711);
        if (r < 0)
                return r;
        m->priv->state_fd = open(m->config.state_directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        return m->priv->state_fd < 0 ? log_error_errno(errno, "Can't open %s: %m", m->config.state_directory) : 0;
}

/* Before anything under it is touched: a second cubed would take the first one's sandboxes over. */
static int take_lock(Manager *m) {
        _cleanup_free_ char *path = NULL;
        char pid[32] = "";

        if (asprintf(&path, "%s/lock", m->config.runtime_directory) < 0)
                return log_oom();
        _cleanup_close_ int fd = open(path, O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return log_error_errno(errno, "Can't open %s: %m", path);
        if (flock(fd, LOCK_EX|LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK)
                        return log_error_errno(errno, "Can't lock %s: %m", path);
                ssize_t n = read(fd, pid, sizeof(pid) - 1);
                pid[n > 0 ? (size_t) n : 0] = 0;
                pid[strcspn(pid, "\n")] = 0;
                log_error("Can't start: another cubed runs here (PID %s); \"systemctl status cubed\" shows it", *pid ? pid : "unknown");
                return -EEXIST;
        }
        int n = snprintf(pid, sizeof(pid), "%d\n", (int) getpid());
        if (ftruncate(fd, 0) < 0 || write_full(fd, pid, (size_t) n) < 0)
                log_warning_errno(errno, "Can't write to %s: %m", path);
        m->priv->lock_fd = TAKE_FD(fd);
        return 0;
}

static int start_uids(Manager *m) {
        const Config *c = &m->config;

        int r = uid_range_new(c->uid_base, c->uid_count, &m->priv->uids);
        if (r < 0)
                return log_oom();
        r = uid_range_check(c->uid_base, c->uid_count, NSS_TIMEOUT_USEC, &m->priv->uid_conflict);
        if (r < 0)
                log_warning_errno(r, "Could not check whether UIDRange=0x%x/%u is free: %m", c->uid_base, c->uid_count);
        else if (r > 0)
                log_warning("UIDRange=0x%x/%u is not free: %s; set another one in cubed.conf", c->uid_base, c->uid_count,
                            m->priv->uid_conflict);
        return 0;
}

/* QEMU's TCG does not intercept XSETBV: guests that see XSAVE would crash in it. */
static bool nested_in_tcg(void) {
        uint32_t a, b, c, d;
        char vendor[13] = "";

        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1U << 31)))
                return false;
        __cpuid(0x40000000, a, b, c, d);
        memcpy(vendor, &b, 4);
        memcpy(vendor + 4, &c, 4);
        memcpy(vendor + 8, &d, 4);
        return streq(vendor, "TCGTCGTCGTCG");
}

static void look_at_host(Manager *m) {
        struct sysinfo si;

        m->priv->host_mem_bytes = sysinfo(&si) == 0 ? (uint64_t) si.totalram * si.mem_unit : UINT64_MAX;
        m->priv->hide_xsave = m->config.cpuid_hide_xsave == CONFIG_YES ||
                (m->config.cpuid_hide_xsave == CONFIG_AUTO && nested_in_tcg());
        if (m->priv->hide_xsave)
                log_info("Guests won't see XSAVE and AVX (CpuidHideXsave=)");
}

static int attach_netd(int fd, void *userdata) {
        Manager *m = userdata;

        int r = net_client_attach(m->net, fd);
        if (r >= 0)
                host_network_attached(m->network);
        return r;
}

static int attach_stored(int fd, void *userdata) {
        Manager *m = userdata;

        int r = store_client_attach(m->store, fd);
        if (r >= 0 && m->snapshots)
                snapshot_store_retry(m->snapshots);
        if (r >= 0)
                sandbox_forget_again(m);
        return r;
}

static int start_helpers(Manager *m) {
        int r = net_client_new(m->event, &m->net);
        if (r >= 0)
                host_network_start(m->network);
        if (r >= 0)
                r = store_client_new(m->event, m->priv->state_fd, &m->store);
        if (r >= 0)
                r = helper_start(m->event, "cube-netd", attach_netd, m, &m->priv->netd);
        if (r >= 0)
                r = helper_start(m->event, "cube-stored", attach_stored, m, &m->priv->stored);
        return r < 0 ? log_error_errno(r, "Failed to start the helper processes: %m") : 0;
}

static int load_templates(Manager *m) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/templates", m->config.state_directory) < 0)
                return log_oom();
        int r = template_store_load(&m->templates, path);
        if (r < 0)
                return log_error_errno(r, "Failed to load templates from %s: %m", path);
        for (size_t i = 0; i < m->templates->n_warnings; i++)
                log_warning("%s", m->templates->warnings[i]);
        r = template_store_clean(m->event, m->templates, NULL, NULL);
        if (r < 0)
                log_warning_errno(r, "Failed to remove what earlier builds left in %s: %m", path);
        return 0;
}

static void on_snapshot_added(Snapshot *n, void *userdata) {
        Manager *m = userdata;

        if (m->hooks && m->hooks->snapshot_added)
                m->hooks->snapshot_added(m, n);
}

static void on_snapshot_changed(Snapshot *n, void *userdata) {
        Manager *m = userdata;

        if (m->hooks && m->hooks->snapshot_changed)
                m->hooks->snapshot_changed(m, n);
}

static void on_snapshot_removed(Snapshot *n, void *userdata) {
        Manager *m = userdata;

        if (m->hooks && m->hooks->snapshot_removed)
                m->hooks->snapshot_removed(m, n);
}

static bool is_owned(const Snapshot *n, void *userdata) {
        Manager *m = userdata;

        /* A paused sandbox that could not be read is left where it is, for a cubed that can. */
        if (n->kind == SNAPSHOT_CHECKPOINT || n->kind == SNAPSHOT_PAUSE) {
                bool loaded = n->sandbox_id && manager_find_sandbox(m, n->sandbox_id);
                bool unread = n->sandbox_id && !loaded && sandbox_is_kept(m, n->sandbox_id);
                return unread || (loaded && n->kind == SNAPSHOT_CHECKPOINT);
        }
        for (size_t i = 0; i < m->templates->n_templates; i++)
                if (streq(m->templates->templates[i]->id, n->template_id))
                        return true;
        return false;
}

static int load_snapshots(Manager *m) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/snapshots", m->config.state_directory) < 0) {
                path = NULL;
                return log_oom();
        }
        int r = snapshot_store_load(&m->snapshots, path, m->store);
        if (r < 0)
                return log_error_errno(r, "Failed to load snapshots from %s: %m", path);
        for (size_t i = 0; i < m->snapshots->n_warnings; i++)
                log_warning("%s", m->snapshots->warnings[i]);
        m->snapshots->added = on_snapshot_added;
        m->snapshots->changed = on_snapshot_changed;
        m->snapshots->removed = on_snapshot_removed;
        m->snapshots->owned = is_owned;
        m->snapshots->starting = true;
        m->snapshots->userdata = m;
        return 0;
}

/* The loop makes a timer per clock when that is first used: now, so that the number of descriptors
 * of a cubed at rest is always the same. */
static int open_clocks(Manager *m) {
        static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME };

        for (size_t i = 0; i < ELEMENTSOF(clocks); i++) {
                sd_event_source *source = NULL;
                int r = sd_event_add_time(m->event, &source, clocks[i], UINT64_MAX, 0, NULL, NULL);
                sd_event_source_disable_unref(source);
                if (r < 0)
                        return log_error_errno(r, "Can't make a timer: %m");
        }
        return 0;
}

int manager_startup(Manager *m) {
        int r = make_directories(m);
        if (r >= 0)
                r = open_clocks(m);
        if (r >= 0)
                r = take_lock(m);
        if (r < 0)
                return r;

        r = audit_new(m->event, NULL, m->config.audit_arguments, &m->audit);
        if (r < 0)
                return log_oom();
        look_at_host(m);
        r = start_uids(m);
        if (r < 0)
                return r;
        r = units_new(m->bus, &m->priv->units);
        if (r < 0)
                return log_error_errno(r, "Failed to watch PID 1: %m");
        r = start_helpers(m);
        if (r >= 0)
                r = load_templates(m);
        if (r >= 0)
                r = load_snapshots(m);
        if (r < 0)
                return r;
        r = manager_load_jobs(m);
        if (r < 0)
                log_warning_errno(r, "Failed to load the jobs of an earlier cubed: %m");
        r = manager_adopt_sandboxes(m);
        if (r < 0)
                log_warning_errno(r, "Failed to look for the sandboxes of an earlier cubed: %m");
        manager_load_kept(m);
        manager_park_sandboxes(m);
        snapshot_store_clean(m->snapshots);
        manager_remove_left_overlays(m);
        r = manager_start_probe(m);
        if (r < 0)
                log_warning_errno(r, "Failed to start cube-kvm-probe: %m");
        manager_update_status(m);
        return 0;
}

/* Reload. */

static void on_config_warning(void *userdata, const char *path, unsigned line, const char *message) {
        if (line > 0)
                log_warning("%s:%u: %s", path, line, message);
        else
                log_warning("%s: %s", path, message);
}

/* What is in use already can't move under those who use it. */
static void keep_fixed(Config *c, const Config *old) {
        if (!streq(c->state_directory, old->state_directory) || !streq(c->runtime_directory, old->runtime_directory) ||
            c->uid_base != old->uid_base || c->uid_count != old->uid_count)
                log_notice("StateDirectory=, RuntimeDirectory= and UIDRange= change only when cubed is restarted");
        free(c->state_directory);
        free(c->runtime_directory);
        c->state_directory = strdup(old->state_directory);
        c->runtime_directory = strdup(old->runtime_directory);
        c->uid_base = old->uid_base;
        c->uid_count = old->uid_count;
}

static bool same_text(const char *a, const char *b) {
        return streq(strempty(a), strempty(b));
}

/* cube-netd is told once. */
static int keep_network(Config *c, const Config *old) {
        bool same = same_text(c->network4, old->network4) && same_text(c->network6, old->network6) &&
                memcmp(&c->ingress_users, &old->ingress_users, sizeof(c->ingress_users)) == 0 && c->network_mark == old->network_mark &&
                c->network_audit_usec == old->network_audit_usec &&
                memcmp(&c->net_limits, &old->net_limits, sizeof(c->net_limits)) == 0;

        if (same)
                return 0;
        log_notice("Of section [Network], DefaultPolicy=, SpecialRangesUsers= and FreeSlots= alone change without a restart of "
                   "cubed");
        free(c->network4);
        free(c->network6);
        c->network4 = old->network4 ? strdup(old->network4) : NULL;
        c->network6 = old->network6 ? strdup(old->network6) : NULL;
        c->ingress_users = old->ingress_users;
        c->network_mark = old->network_mark;
        c->network_audit_usec = old->network_audit_usec;
        c->net_limits = old->net_limits;
        return !c->network4 || !c->network6 != !old->network6 ? -ENOMEM : 0;
}

/* That a child is just giving its name, or taking away. */
static bool is_at_work(const Manager *m, const char *template_id) {
        return manager_is_building(m, template_id) || template_store_is_busy(m->templates, STORE_JOB_REMOVE, template_id);
}

/* A restored backup. */
void manager_load_new_templates(Manager *m) {
        struct dirent *e;
        int fd = dup(m->templates->root_fd);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

        if (!d) {
                safe_close(fd);
                return;
        }
        rewinddir(d);
        while ((e = readdir(d))) {
                Template *t = NULL;

                if (!sandbox_id_valid(e->d_name) || template_store_find(m->templates, 0, NULL, e->d_name) ||
                    is_at_work(m, e->d_name))
                        continue;
                int r = template_store_add(m->templates, e->d_name, &t);
                if (r < 0) {
                        log_warning_errno(r, "Template %s can't be loaded: %m", e->d_name);
                        continue;
                }
                host_network_add_template(m->network, t);
                if (m->hooks && m->hooks->template_added)
                        m->hooks->template_added(m, t);
                t->renamed = false;
        }
        closedir(d);
        manager_tell_renamed(m);
}

int manager_reload(Manager *m, sd_bus_error *error) {
        Config c;

        (void) sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long) clock_usec(CLOCK_MONOTONIC));
        int r = config_init(&c);
        if (r >= 0)
                r = config_load(&c, "", on_config_warning, NULL);
        if (r >= 0) {
                keep_fixed(&c, &m->config);
                if (!c.state_directory || !c.runtime_directory)
                        r = -ENOMEM;
                if (r >= 0)
                        r = keep_network(&c, &m->config);
        }
        if (r < 0) {
                config_done(&c);
                (void) sd_notify(false, "READY=1");
                return sd_bus_error_set_errno(error, r);
        }
        config_done(&m->config);
        m->config = c;
        audit_set_arguments(m->audit, c.audit_arguments);
        look_at_host(m);
        host_network_reload(m->network);
        manager_load_new_templates(m);
        log_info("Configuration was read again");
        (void) sd_notify(false, "READY=1");
        return 0;
}
