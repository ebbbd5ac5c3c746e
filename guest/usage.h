/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the guest uses of its CPUs, memory and disk, as its kernel counts it. Part of the agent: for the host (AGENT_USAGE) and for
 * envd's clients. */

#include "guest/request.h"

/* In ticks, since the boot. */
typedef struct CpuTimes {
        uint64_t total, idle;
} CpuTimes;

typedef struct Usage {
        uint32_t cpus;
        uint64_t mem_total, mem_used, mem_cache;    /* bytes */
        uint64_t disk_total, disk_used;
} Usage;

/* 0 where the kernel does not tell. */
void cpu_times_read(CpuTimes *ret);
void usage_read(Usage *ret);
/* CPU times count from the last claim on: what a template did before is none of the sandbox's. */
void handle_usage(Agent *a, Request *q, Reply reply);
