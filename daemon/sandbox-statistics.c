/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox uses: the files of its cgroup, read here, and the VMM's own counters. */

#include <fcntl.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"
#include "net/net-client.h"

#define COUNTERS_MAX 64U
#define STATISTICS_TIMEOUT_USEC (5 * USEC_PER_SEC)

typedef struct Asked {
        Sandbox *sandbox;
        StatisticsDone done;
        void *userdata;
} Asked;

/* As /proc/PID/cgroup tells: PID 1 may have put the slice elsewhere. */
static int open_cgroup(const Sandbox *s, int *ret_fd) {
        _cleanup_free_ char *text = NULL, *path = NULL;
        char proc[64];

        (void) snprintf(proc, sizeof(proc), "/proc/%d/cgroup", (int) s->vmm_pid);
        int r = read_file(AT_FDCWD, proc, 65536, &text, NULL);
        if (r < 0)
                return r;
        char *line = startswith(text, "0::") ? text : strstr(text, "\n0::");
        if (!line)
                return -ENOENT;
        line += *line == '\n' ? 4 : 3;
        line[strcspn(line, "\n")] = 0;
        /* Only ever the scope that is its own. */
        if (!strstr(line, s->scope_name))
                return -ENOENT;
        if (asprintf(&path, "/sys/fs/cgroup%s", line) < 0)
                return -ENOMEM;
        int fd = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

/* A file that is one number, or the number behind key in one of several lines. */
static uint64_t read_number(int dir, const char *file, const char *key) {
        _cleanup_free_ char *text = NULL;
        uint64_t value;

        if (dir < 0 || read_file(dir, file, 65536, &text, NULL) < 0)
                return UINT64_MAX;
        for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                const char *rest = key ? startswith(line, key) : line;
                if (key && (!rest || *rest++ != ' '))
                        continue;
                return parse_u64(rest, &value) < 0 ? UINT64_MAX : value;
        }
        return UINT64_MAX;
}

static void read_cgroup(const Sandbox *s, SandboxStatistics *st) {
        _cleanup_close_ int dir = -EBADF;

        (void) open_cgroup(s, &dir);
        st->memory_current = read_number(dir, "memory.current", NULL);
        st->memory_peak = read_number(dir, "memory.peak", NULL);
        st->cpu_usage_usec = read_number(dir, "cpu.stat", "usage_usec");
        st->pids_current = read_number(dir, "pids.current", NULL);
        st->oom_kills = read_number(dir, "memory.events", "oom_kill");
}

static bool counter_valid(const VmmCounter *c) {
        size_t n = strnlen(c->name, sizeof(c->name));

        if (n == 0 || n == sizeof(c->name))
                return false;
        return strspn(c->name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == n;
}

static size_t parse_counters(const PacketBody *body, VmmCounter counters[static COUNTERS_MAX]) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        size_t n = 0;
        Tlv t;

        while (n < COUNTERS_MAX && tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_COUNTER && tlv_get_struct(&t, counters + n, sizeof(VmmCounter)) >= 0 &&
                    counter_valid(counters + n))
                        n++;
        return n;
}

static void on_statistics(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_free_ Asked *a = userdata;
        VmmCounter counters[COUNTERS_MAX];
        SandboxStatistics st = { .counters = counters };

        /* One that is going down may have no counters any more, its cgroup it has. */
        if (error == -ECONNRESET) {
                (void) sandbox_set_error(a->sandbox, &e, error, message);
                a->done(a->sandbox, &e, NULL, a->userdata);
                return;
        }
        read_cgroup(a->sandbox, &st);
        if (error >= 0)
                st.n_counters = parse_counters(body, counters);
        a->done(a->sandbox, NULL, &st, a->userdata);
}

int sandbox_ask_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error) {
        if (!s->priv->vmm)
                return sandbox_check_running(s, error);

        Asked *a = new0(Asked, 1);
        if (!a)
                return sd_bus_error_set_errno(error, ENOMEM);
        *a = (Asked) { s, done, userdata };
        int r = vmm_client_call(s->priv->vmm, VMM_OP_STATISTICS, NULL, NULL, 0, STATISTICS_TIMEOUT_USEC, on_statistics, a);
        if (r < 0) {
                free(a);
                return sandbox_set_error(s, error, r, NULL);
        }
        return 0;
}

/* The same with what cube-netd counts, which is asked first. */

typedef struct StatisticsRequest {
        Sandbox *sandbox;
        bool known;
        NetStats net;
        StatisticsDone done;
        void *userdata;
        struct StatisticsRequest *next;
} StatisticsRequest;

static void request_unlink(StatisticsRequest *q) {
        for (StatisticsRequest **i = &q->sandbox->priv->statistics; *i; i = &(*i)->next)
                if (*i == q) {
                        *i = q->next;
                        return;
                }
}

static void on_vmm(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata) {
        _cleanup_free_ StatisticsRequest *q = userdata;
        SandboxStatistics all;

        if (error) {
                q->done(s, error, NULL, q->userdata);
                return;
        }
        all = *st;
        all.net = q->known ? &q->net : NULL;
        q->done(s, NULL, &all, q->userdata);
}

static void on_net(int error, const NetResult *result, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        StatisticsRequest *q = userdata;
        Sandbox *s = q->sandbox;

        request_unlink(q);
        q->known = error >= 0;
        q->net = result->stats;
        if (sandbox_ask_statistics(s, on_vmm, q, &e) >= 0)
                return;
        q->done(s, &e, NULL, q->userdata);
        free(q);
}

void sandbox_drop_statistics(Sandbox *s, const sd_bus_error *error) {
        for (StatisticsRequest *q; (q = s->priv->statistics);) {
                s->priv->statistics = q->next;
                net_client_cancel(s->manager->net, q);
                q->done(s, error, NULL, q->userdata);
                free(q);
        }
}

int sandbox_get_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error) {
        if (sandbox_in_making(s) || !s->priv->vmm)
                return sandbox_check_running(s, error);
        if (s->slot == 0)
                return sandbox_ask_statistics(s, done, userdata, error);

        StatisticsRequest *q = new0(StatisticsRequest, 1);
        if (!q)
                return sd_bus_error_set_errno(error, ENOMEM);
        *q = (StatisticsRequest) { .sandbox = s, .done = done, .userdata = userdata, .next = s->priv->statistics };
        if (net_client_get_statistics(s->manager->net, s->slot, on_net, q) < 0) {
                free(q);
                return sandbox_ask_statistics(s, done, userdata, error);
        }
        s->priv->statistics = q;
        return 0;
}
