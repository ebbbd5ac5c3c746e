/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the agent and its two programs share. */

#include <linux/types.h>

#define LOOPBACK_N_PORTS 65536U

/* Each port has one count of listeners of each kind, 16 bits wide, so that one atomic addition counts a socket in or out. */
#define LOOPBACK_OPEN4 (1ULL << 0)      /* takes what comes from outside by IPv4, */
#define LOOPBACK_OPEN6 (1ULL << 16)     /* by IPv6; [::] takes both */
#define LOOPBACK_ONLY4 (1ULL << 32)     /* 127.0.0.1 */
#define LOOPBACK_ONLY6 (1ULL << 48)     /* ::1 */
#define LOOPBACK_COUNT 0xffffULL

/* The agent's listeners, as they are numbered in their map. */
#define LOOPBACK_LISTENER4 0U
#define LOOPBACK_LISTENER6 1U
#define LOOPBACK_N_LISTENERS 2U

typedef struct LoopbackConfig {
        __u64 netns_cookie;     /* of the namespace that the network card is in */
        __u32 card;             /* its number; 0: not there yet, and nothing is forwarded */
        __u32 unused;
} LoopbackConfig;
