/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "guest/agent.h"
#include "guest/usage.h"

#define FILE_MAX (256U * 1024U)

void cpu_times_read(CpuTimes *ret) {
        _cleanup_free_ char *text = NULL;
        unsigned long long t[8] = {};

        *ret = (CpuTimes) {};
        if (read_file(AT_FDCWD, "/proc/stat", FILE_MAX, &text, NULL) < 0 ||
            sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6, t + 7) < 4)
                return;
        for (size_t i = 0; i < ELEMENTSOF(t); i++)
                ret->total += t[i];
        ret->idle = t[3] + t[4];
}

/* Of one line of /proc/meminfo, in bytes. */
static uint64_t memory(const char *text, const char *name) {
        const char *at = text ? strstr(text, name) : NULL;

        return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

void usage_read(Usage *ret) {
        _cleanup_free_ char *text = NULL;
        struct statvfs st = {};
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);

        (void) read_file(AT_FDCWD, "/proc/meminfo", FILE_MAX, &text, NULL);
        (void) statvfs("/", &st);
        uint64_t total = memory(text, "MemTotal:"), available = memory(text, "MemAvailable:");
        *ret = (Usage) {
                .cpus = cpus > 0 ? (uint32_t) cpus : 1,
                .mem_total = total,
                .mem_used = total - MIN(total, available),
                .mem_cache = memory(text, "\nCached:"),
                .disk_total = (uint64_t) st.f_blocks * st.f_frsize,
                .disk_used = (uint64_t) (st.f_blocks - st.f_bfree) * st.f_frsize,
        };
}

static uint64_t usec_since(uint64_t ticks, uint64_t before) {
        return (ticks - MIN(before, ticks)) * (USEC_PER_SEC / (uint64_t) MAX(sysconf(_SC_CLK_TCK), 1L));
}

void handle_usage(Agent *a, Request *q, Reply reply) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        CpuTimes now;
        Usage u;

        cpu_times_read(&now);
        usage_read(&u);
        const AgentUsage record = {
                .cpu_total_usec = htole64(usec_since(now.total, a->claim_cpu.total)),
                .cpu_idle_usec = htole64(usec_since(now.idle, a->claim_cpu.idle)),
                .mem_total = htole64(u.mem_total),
                .mem_used = htole64(u.mem_used),
                .mem_cache = htole64(u.mem_cache),
                .disk_total = htole64(u.disk_total),
                .disk_used = htole64(u.disk_used),
                .cpus = htole32(u.cpus),
        };
        tlv_put(&w, AGENT_TAG_USAGE, &record, sizeof(record));
        reply_ok(&reply, &w);
}
