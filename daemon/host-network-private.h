/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What host-network.c, slot-pool.c and loaded-policy.c share. */

#include "daemon/host-network.h"

#define NETWORK_TEXT_MAX 400U
#define NETWORK_RETRY_MIN_USEC USEC_PER_SEC
#define NETWORK_RETRY_MAX_USEC (60 * USEC_PER_SEC)

typedef struct SlotWaiter {
        uint32_t slot;             /* 0: any */
        bool asked;                /* cube-netd makes this very one */
        HostNetwork *network;
        NetworkSlotDone done;      /* NULL: cancelled */
        void *userdata;
        struct SlotWaiter *next;
} SlotWaiter;

typedef struct SlotPool {
        NetworkSlot *slots;        /* free ones */
        size_t n, n_allocated;
        bool filling;              /* one is being made */
        uint64_t delay_usec;       /* until the next try, after one that failed */
        sd_event_source *timer;
        SlotWaiter *waiters;       /* in order */
} SlotPool;

typedef struct ReadyWaiter {
        NetworkReady ready;
        void *userdata;
        struct ReadyWaiter *next;
} ReadyWaiter;

struct HostNetwork {
        Manager *manager;
        bool ready;                /* cube-netd is set up */
        char *error;               /* why it could not be */
        uint64_t retry_usec;
        sd_event_source *retry;
        char net4[64], net6[64], uplink[32];
        uint32_t mtu;
        bool templates_loaded;     /* the policies of templates */

        SlotPool pool;
        ReadyWaiter *ready_waiters;
        LoadedPolicy *policies;
        LoadedPolicy *deny, *internet;
        uint64_t policy_clock;     /* counts the ends of uses */
};

/* slot-pool.c */
void slot_pool_start(HostNetwork *n);
/* Those in line are told. */
void slot_pool_fail(HostNetwork *n, int error, const char *message);
/* The links of this slot may have gone; 0: of any. */
void slot_pool_check(HostNetwork *n, uint32_t slot);
/* Free ones are not as they should be any more. */
void slot_pool_renew(HostNetwork *n);
void slot_pool_cancel(HostNetwork *n, void *userdata);
void slot_pool_done(HostNetwork *n);

/* loaded-policy.c */
int policies_init(HostNetwork *n);
/* Loads all that are in use, anew. */
void policies_start(HostNetwork *n);
void policies_fail(HostNetwork *n, int error, const char *message);
void policies_cancel(HostNetwork *n, void *userdata);
void policies_done(HostNetwork *n);
