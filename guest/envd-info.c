/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/fd-util.h"
#include "guest/envd-info.h"
#include "guest/http-reply.h"
#include "guest/json.h"

#define FILE_MAX (256U * 1024U)
#define FIELDS "Content-Type: application/json\r\nCache-Control: no-store\r\n"

static void reply_json(HttpConn *c, json_object *o) {
        const char *text = json_text(o);

        http_reply(c, 200, FIELDS, text, strlen(text));
}

void info_reply_variables(Agent *a, HttpConn *c) {
        _cleanup_json_ json_object *o = json_object_new_object();

        json_put_text(o, "E2B_SANDBOX", "true");
        for (size_t i = 0; i < a->envd.env.n; i++) {
                const char *equals = strchr(a->envd.env.items[i], '=');
                _cleanup_free_ char *name = strndup(a->envd.env.items[i], (size_t) (equals - a->envd.env.items[i]));

                if (name)
                        json_put_text(o, name, equals + 1);
        }
        reply_json(c, o);
}

/* Of one line of /proc/meminfo, in bytes. */
static uint64_t memory(const char *text, const char *name) {
        const char *at = text ? strstr(text, name) : NULL;

        return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* Since this was asked for the last time; the first time since the boot. */
static double cpu_percent(CpuTimes *last) {
        _cleanup_free_ char *text = NULL;
        unsigned long long t[8] = {};
        CpuTimes now = {};

        if (read_file(AT_FDCWD, "/proc/stat", FILE_MAX, &text, NULL) < 0 ||
            sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6, t + 7) < 4)
                return 0;
        for (size_t i = 0; i < ELEMENTSOF(t); i++)
                now.total += t[i];
        now.idle = t[3] + t[4];
        uint64_t total = now.total - last->total, idle = now.idle - last->idle;
        *last = now;
        return total > 0 && idle <= total ? (double) (total - idle) * 100 / (double) total : 0;
}

static void put_percent(json_object *o, const char *key, double value) {
        char text[32];

        snprintf(text, sizeof(text), "%.2f", value);
        json_put(o, key, json_object_new_double_s(value, text));
}

void info_reply_metrics(Agent *a, HttpConn *c) {
        _cleanup_json_ json_object *o = json_object_new_object();
        _cleanup_free_ char *text = NULL;
        struct statvfs st = {};

        (void) read_file(AT_FDCWD, "/proc/meminfo", FILE_MAX, &text, NULL);
        (void) statvfs("/", &st);
        uint64_t total = memory(text, "MemTotal:"), used = total - memory(text, "MemAvailable:");

        json_put_int(o, "ts", time(NULL));
        json_put_int(o, "cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
        put_percent(o, "cpu_used_pct", cpu_percent(&a->envd.cpu));
        json_put_int(o, "mem_total_mib", (int64_t) (total >> 20));
        json_put_int(o, "mem_used_mib", (int64_t) (used >> 20));
        json_put_int(o, "mem_total", (int64_t) total);
        json_put_int(o, "mem_used", (int64_t) used);
        json_put_int(o, "mem_cache", (int64_t) memory(text, "\nCached:"));
        json_put_int(o, "disk_used", (int64_t) ((st.f_blocks - st.f_bfree) * st.f_frsize));
        json_put_int(o, "disk_total", (int64_t) (st.f_blocks * st.f_frsize));
        reply_json(c, o);
}
