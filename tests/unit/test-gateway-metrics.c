/* SPDX-License-Identifier: Apache-2.0 */

/* Samples of what sandboxes use: a bounded number of each and of all. */

#include <stdio.h>

#include "gateway/bus-json.h"
#include "gateway/metrics.h"
#include "tests/unit/test.h"

#define ID "i0123456789ab"

static void add(Metrics *m, const char *id, uint64_t usec, uint64_t total, uint64_t idle) {
        json_object *usage = json_object_new_object();

        json_object_object_add(usage, "CPUTotalUSec", json_object_new_uint64(total));
        json_object_object_add(usage, "CPUIdleUSec", json_object_new_uint64(idle));
        json_object_object_add(usage, "CPUs", json_object_new_int(2));
        json_object_object_add(usage, "MemoryUsed", json_object_new_uint64(UINT64_MAX));
        assert_ok(metrics_add(m, id, usec, usage));
        json_object_put(usage);
}

static double last_percent(const Metrics *m, const char *id) {
        json_object *o;

        assert_eq(metrics_last_to_json(m, id, &o), 1);
        double v = json_object_get_double(info_get(o, "cpuUsedPct"));
        json_object_put(o);
        return v;
}

static size_t count(const Metrics *m, const char *id, uint64_t start, uint64_t end) {
        json_object *o = metrics_to_json(m, id, start, end);

        assert_true(o);
        size_t n = json_object_array_length(o);
        json_object_put(o);
        return n;
}

TEST(of_a_sandbox_that_nobody_asked_there_is_nothing) {
        _cleanup_(metrics_freep) Metrics *m = NULL;
        json_object *o;

        assert_ok(metrics_new(&m));
        assert_eq(count(m, ID, 0, UINT64_MAX), 0u);
        assert_eq(metrics_last_to_json(m, ID, &o), 0);
        assert_true(!metrics_recent(m, ID, 5));
}

TEST(cpu_time_counts_between_two_samples) {
        _cleanup_(metrics_freep) Metrics *m = NULL;

        assert_ok(metrics_new(&m));
        add(m, ID, 1000000, 1000, 750);
        assert_eq((int) last_percent(m, ID), 25);
        add(m, ID, 2000000, 2000, 750);
        assert_eq((int) last_percent(m, ID), 100);
        /* It was resumed, and began anew. */
        add(m, ID, 3000000, 400, 200);
        assert_eq((int) last_percent(m, ID), 50);
        /* Nothing has passed. */
        add(m, ID, 4000000, 400, 200);
        assert_eq((int) last_percent(m, ID), 0);
        /* What makes no sense. */
        add(m, ID, 5000000, 500, 9000);
        assert_eq((int) last_percent(m, ID), 0);
        add(m, ID, 6000000, UINT64_MAX, 0);
        assert_eq((int) last_percent(m, ID), 100);
}

TEST(a_sample_is_recent_for_a_second) {
        _cleanup_(metrics_freep) Metrics *m = NULL;

        assert_ok(metrics_new(&m));
        add(m, ID, 5000000, 0, 0);
        assert_true(metrics_recent(m, ID, 5000000));
        assert_true(metrics_recent(m, ID, 5999999));
        assert_true(!metrics_recent(m, ID, 6000000));
        assert_true(!metrics_recent(m, ID, 4999999));
}

TEST(of_one_the_last_are_kept) {
        _cleanup_(metrics_freep) Metrics *m = NULL;

        assert_ok(metrics_new(&m));
        for (uint64_t i = 1; i <= METRICS_SAMPLES_MAX + 7; i++)
                add(m, ID, i * USEC_PER_SEC, i, 0);
        assert_eq(count(m, ID, 0, UINT64_MAX), METRICS_SAMPLES_MAX);
        assert_eq(count(m, ID, 0, 7), 0u);
        assert_eq(count(m, ID, 8, 10), 3u);
        json_object *o = metrics_to_json(m, ID, 0, UINT64_MAX);
        for (size_t i = 0; i < METRICS_SAMPLES_MAX; i++)
                assert_eq(info_u64(json_object_array_get_idx(o, i), "timestampUnix"), i + 8);
        json_object_put(o);
}

TEST(the_one_that_was_looked_at_longest_ago_is_forgotten) {
        _cleanup_(metrics_freep) Metrics *m = NULL;
        char id[32];

        assert_ok(metrics_new(&m));
        for (uint64_t i = 0; i < METRICS_SANDBOXES_MAX; i++) {
                (void) snprintf(id, sizeof(id), "i%llu", (unsigned long long) i);
                add(m, id, (i + 10) * USEC_PER_SEC, 1000, 0);
        }
        add(m, "i0", 5000 * USEC_PER_SEC, 2000, 0);
        add(m, "new", 5001 * USEC_PER_SEC, 10, 9);
        assert_eq(count(m, "i0", 0, UINT64_MAX), 2u);
        assert_eq(count(m, "i1", 0, UINT64_MAX), 0u);
        assert_eq(count(m, "i2", 0, UINT64_MAX), 1u);
        /* With nothing of the other's. */
        assert_eq(count(m, "new", 0, UINT64_MAX), 1u);
        assert_eq((int) last_percent(m, "new"), 10);
}

TEST(a_guests_word_is_a_number_that_json_holds) {
        _cleanup_(metrics_freep) Metrics *m = NULL;
        json_object *o;

        assert_ok(metrics_new(&m));
        add(m, ID, 1, 0, 0);
        assert_eq(metrics_last_to_json(m, ID, &o), 1);
        assert_eq(info_u64(o, "memUsed"), UINT64_C(1) << 53);
        assert_eq(info_u64(o, "memTotal"), 0u);
        json_object_put(o);
}
