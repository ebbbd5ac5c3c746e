/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "guest/envd-info.h"
#include "guest/http-reply.h"
#include "guest/json.h"

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

/* Since this was asked for the last time; the first time since the boot. */
static double cpu_percent(CpuTimes *last) {
        CpuTimes now;

        cpu_times_read(&now);
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
        Usage u;

        usage_read(&u);
        json_put_int(o, "ts", time(NULL));
        json_put_int(o, "cpu_count", u.cpus);
        put_percent(o, "cpu_used_pct", cpu_percent(&a->envd.cpu));
        json_put_int(o, "mem_total_mib", (int64_t) (u.mem_total >> 20));
        json_put_int(o, "mem_used_mib", (int64_t) (u.mem_used >> 20));
        json_put_int(o, "mem_total", (int64_t) u.mem_total);
        json_put_int(o, "mem_used", (int64_t) u.mem_used);
        json_put_int(o, "mem_cache", (int64_t) u.mem_cache);
        json_put_int(o, "disk_used", (int64_t) u.disk_used);
        json_put_int(o, "disk_total", (int64_t) u.disk_total);
        reply_json(c, o);
}
