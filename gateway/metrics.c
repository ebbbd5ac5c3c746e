/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "gateway/bus-json.h"
#include "gateway/metrics.h"
#include "gateway/timestamp.h"

#define LEAST_USEC USEC_PER_SEC

typedef struct Sample {
        uint64_t usec;
        double cpu_percent;
        uint32_t cpus;
        uint64_t mem_used, mem_total, mem_cache, disk_used, disk_total;
} Sample;

typedef struct Series {
        char id[32];
        uint64_t cpu_total, cpu_idle;      /* at the last sample */
        size_t n;                          /* ever added; the last of them are kept, each at its number % METRICS_SAMPLES_MAX */
        Sample samples[METRICS_SAMPLES_MAX];
} Series;

struct Metrics {
        Series *series[METRICS_SANDBOXES_MAX];
        size_t n;
};

int metrics_new(Metrics **ret) {
        Metrics *m = new0(Metrics, 1);

        *ret = m;
        return m ? 0 : -ENOMEM;
}

Metrics *metrics_free(Metrics *m) {
        for (size_t i = 0; m && i < m->n; i++)
                free(m->series[i]);
        free(m);
        return NULL;
}

static Series *find(const Metrics *m, const char *id) {
        for (size_t i = 0; i < m->n; i++)
                if (streq(m->series[i]->id, id))
                        return m->series[i];
        return NULL;
}

static const Sample *last(const Series *s) {
        return &s->samples[(s->n - 1) % METRICS_SAMPLES_MAX];
}

bool metrics_recent(const Metrics *m, const char *id, uint64_t now_usec) {
        const Series *s = find(m, id);

        /* A clock that was put back makes none of them recent. */
        return s && last(s)->usec <= now_usec && now_usec - last(s)->usec < LEAST_USEC;
}

/* New, or in place of the one that was asked for longest ago. */
static Series *make(Metrics *m, const char *id) {
        Series *s = NULL;

        if (m->n < METRICS_SANDBOXES_MAX) {
                s = new0(Series, 1);
                if (!s)
                        return NULL;
                m->series[m->n++] = s;
        } else {
                s = m->series[0];
                for (size_t i = 1; i < m->n; i++)
                        if (last(m->series[i])->usec < last(s)->usec)
                                s = m->series[i];
                *s = (Series) {};
        }
        (void) snprintf(s->id, sizeof(s->id), "%s", id);
        return s;
}

/* Since the last sample; of the first, and behind a resume, which begins anew, since the start. */
static double cpu_percent(const Series *s, uint64_t total, uint64_t idle) {
        bool on = total >= s->cpu_total && idle >= s->cpu_idle;
        uint64_t t = on ? total - s->cpu_total : total, i = on ? idle - s->cpu_idle : idle;

        return t > 0 && i <= t ? (double) (t - i) * 100 / (double) t : 0;
}

/* What JSON's readers take for a whole number. */
static uint64_t number(json_object *usage, const char *name) {
        return MIN(info_u64(usage, name), (uint64_t) 1 << 53);
}

int metrics_add(Metrics *m, const char *id, uint64_t now_usec, json_object *usage) {
        Series *s = find(m, id) ?: make(m, id);
        if (!s)
                return -ENOMEM;

        uint64_t total = number(usage, "CPUTotalUSec"), idle = number(usage, "CPUIdleUSec");
        s->samples[s->n++ % METRICS_SAMPLES_MAX] = (Sample) {
                .usec = now_usec,
                .cpu_percent = cpu_percent(s, total, idle),
                .cpus = (uint32_t) MIN(number(usage, "CPUs"), (uint64_t) INT32_MAX),
                .mem_used = number(usage, "MemoryUsed"),
                .mem_total = number(usage, "MemoryTotal"),
                .mem_cache = number(usage, "MemoryCache"),
                .disk_used = number(usage, "DiskUsed"),
                .disk_total = number(usage, "DiskTotal"),
        };
        s->cpu_total = total;
        s->cpu_idle = idle;
        return 0;
}

static int add(json_object *o, const char *name, json_object *v) {
        if (v && json_object_object_add(o, name, v) == 0)
                return 0;
        json_object_put(v);
        return -ENOMEM;
}

static int add_number(json_object *o, const char *name, uint64_t v) {
        return add(o, name, json_object_new_uint64(v));
}

static int fill(json_object *o, const Sample *s) {
        char text[TIMESTAMP_MAX], percent[32];

        (void) snprintf(percent, sizeof(percent), "%.2f", s->cpu_percent);
        int r = add(o, "timestamp", json_object_new_string(timestamp_format(text, s->usec)));
        if (r >= 0)
                r = add_number(o, "timestampUnix", s->usec / USEC_PER_SEC);
        if (r >= 0)
                r = add_number(o, "cpuCount", s->cpus);
        if (r >= 0)
                r = add(o, "cpuUsedPct", json_object_new_double_s(s->cpu_percent, percent));
        if (r >= 0)
                r = add_number(o, "memUsed", s->mem_used);
        if (r >= 0)
                r = add_number(o, "memTotal", s->mem_total);
        if (r >= 0)
                r = add_number(o, "memCache", s->mem_cache);
        if (r >= 0)
                r = add_number(o, "diskUsed", s->disk_used);
        return r < 0 ? r : add_number(o, "diskTotal", s->disk_total);
}

static json_object *sample_to_json(const Sample *s) {
        json_object *o = json_object_new_object();

        if (o && fill(o, s) >= 0)
                return o;
        json_object_put(o);
        return NULL;
}

json_object *metrics_to_json(const Metrics *m, const char *id, uint64_t start, uint64_t end) {
        json_object *array = json_object_new_array();
        const Series *s = find(m, id);

        for (size_t i = s && s->n > METRICS_SAMPLES_MAX ? s->n - METRICS_SAMPLES_MAX : 0; array && s && i < s->n; i++) {
                const Sample *sample = &s->samples[i % METRICS_SAMPLES_MAX];
                if (sample->usec / USEC_PER_SEC < start || sample->usec / USEC_PER_SEC > end)
                        continue;
                json_object *o = sample_to_json(sample);
                if (o && json_object_array_add(array, o) == 0)
                        continue;
                json_object_put(o);
                json_object_put(array);
                return NULL;
        }
        return array;
}

int metrics_last_to_json(const Metrics *m, const char *id, json_object **ret) {
        const Series *s = find(m, id);

        if (!s)
                return 0;
        *ret = sample_to_json(last(s));
        return *ret ? 1 : -ENOMEM;
}
