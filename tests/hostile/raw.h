/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A driver for virtio devices that keeps to no rule: every register, ring entry and descriptor is the attack's to
 * write. It has rings of its own that the payload's drivers don't know; who opened vsock
 * takes the agent's connections down and has to agent_restart() at the end (hostile.c does).
 *
 * What attacks use of the machine is in here, in smp.h, in payload/lib.h and in payload/clock.h, so that the same attacks
 * can be built into something else that runs in a guest's kernel. */

#include "tests/payload/virtio.h"

#define RAW_QUEUES_MAX 5U
#define RAW_SIZE_MAX 256U
#define PAGE 4096U
#define DATA_PAGES 64U

#define DESC_INDIRECT 4U
#define FEATURE_INDIRECT (1ULL << 28)
#define FEATURE_EVENT_IDX (1ULL << 29)
#define FEATURE_VERSION_1 (1ULL << 32)

#define STATUS_FAILED 0x80U
#define STATUS_NEEDS_RESET 0x40U
#define STATUS_DRIVER_OK 15U
#define NO_VECTOR 0xffffU

/* Offsets in the common configuration (virtio 1.2, 4.1.4.3). */
enum {
        COMMON_DEVICE_SELECT = 0x00,
        COMMON_DEVICE_FEATURES = 0x04,
        COMMON_DRIVER_SELECT = 0x08,
        COMMON_DRIVER_FEATURES = 0x0c,
        COMMON_CONFIG_VECTOR = 0x10,
        COMMON_N_QUEUES = 0x12,
        COMMON_STATUS = 0x14,
        COMMON_GENERATION = 0x15,
        COMMON_SELECT = 0x16,
        COMMON_SIZE = 0x18,
        COMMON_VECTOR = 0x1a,
        COMMON_ENABLE = 0x1c,
        COMMON_NOTIFY_OFF = 0x1e,
        COMMON_DESC = 0x20,
        COMMON_AVAIL = 0x28,
        COMMON_USED = 0x30,
        COMMON_BYTES = 0x38,
};

typedef enum Kind { KIND_BLK, KIND_NET, KIND_VSOCK, KIND_RNG, KIND_BALLOON, KIND_MEM } Kind;

/* What is there to be attacked. */
typedef struct Target {
        const char *name;
        Kind kind;
        uint16_t type;            /* virtio 1.2, 5 */
        unsigned nth;
        unsigned n_queues;
} Target;

extern const Target targets[];
extern const unsigned n_targets;
const Target *target_find(const char *name);

typedef struct Ring {
        uint16_t size;
        uint16_t index;
        uint16_t last_used;
        Desc *desc;
        volatile uint16_t *avail; /* flags, index, entries */
        volatile uint16_t *used;  /* flags, index, {id, length} of 32 bits each */
        uint64_t notify;
} Ring;

typedef struct Raw {
        const Target *target;
        unsigned set;             /* of rings and pages */
        Device device;
        uint64_t features;
        Ring rings[RAW_QUEUES_MAX];
} Raw;

/* The two devices that can be open at the same time, 0 and 1, have rings of their own and pages for good requests. */
void raw_use(unsigned set);

/* Pages for whatever is to lie somewhere, and the last byte of memory. */
extern uint8_t data[DATA_PAGES][PAGE];
uint64_t memory_end(void);

/* Steps. False: the device did not take it, or is not there. */
bool raw_find(Raw *r, const Target *t);
void raw_reset(Raw *r);
bool raw_negotiate(Raw *r, uint64_t features);
/* Registers of a queue, as they are, and enables it. */
bool raw_enable(Raw *r, unsigned queue, uint16_t size, uint64_t desc, uint64_t avail, uint64_t used);
void raw_status(Raw *r, uint8_t status);

/* All of them: the queues empty, in memory of ours; up to DRIVER_OK, and with it. size: of each queue, less where it has
 * less. */
bool raw_prepare(Raw *r, const Target *t, uint64_t features, uint16_t size);
bool raw_open(Raw *r, const Target *t, uint64_t features, uint16_t size);

uint16_t raw_queue_size(const Raw *r, unsigned queue);
void ring_offer(Ring *ring, uint16_t head);
void ring_kick(const Ring *ring);
bool ring_take(Ring *ring, uint32_t *ret_head, uint32_t *ret_len);

typedef enum Outcome {
        OUTCOME_USED,             /* the device gave a chain back */
        OUTCOME_STOPPED,          /* it needs a reset */
        OUTCOME_NOTHING,          /* neither, for a minute */
} Outcome;

/* What comes of what was offered. */
Outcome raw_wait(Raw *r, Ring *ring, uint32_t *ret_len);
const char *outcome_name(Outcome o);

/* A chain that asks for something harmless, from descriptor 0 on. Returns how many descriptors it has. Where a queue is
 * only looked at when there is something for the guest, raw_provoke() makes sure that there is; where a chain is kept
 * until there is another one, raw_replace() offers that, on the same ring. */
unsigned raw_good_chain(Raw *r, unsigned queue);
void raw_provoke(Raw *r, unsigned queue);
void raw_replace(Raw *r, unsigned queue);
/* Does a harmless request, and says what comes of it. */
Outcome raw_good_request(Raw *r, unsigned queue, uint32_t *ret_len);
/* Queue 2 of vsock, which no device reads (5.10.2). */
bool raw_queue_is_read(const Raw *r, unsigned queue);

uint32_t random32(uint32_t *state);
