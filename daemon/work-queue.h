/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A line of jobs with a fixed number of threads that work on them, in the order of adding.
 *
 * Owned by cube-stored's main thread, the only one that adds; lives as long as the process. Each job is
 * handed to the handler, which owns it from there, in one of the queue's threads. */

#include <pthread.h>

#include "base/packet-client.h"

/* One request as it came; the fds are its own. */
typedef struct Job {
        struct Job *next;
        PacketHeader header;
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds;
        uint8_t body[];
} Job;

typedef void (*JobHandler)(Job *job, void *userdata);

typedef struct WorkQueue {
        pthread_mutex_t lock;     /* of all below but handler and userdata */
        pthread_cond_t more;
        Job *first, *last;
        size_t n;
        JobHandler handler;
        void *userdata;
} WorkQueue;

/* Takes fds. */
int job_new(const PacketHeader *h, const uint8_t *body, int *fds, size_t n_fds, Job **ret);
Job *job_free(Job *job);
DEFINE_CLEANUP(Job *, job_free);

int work_queue_init(WorkQueue *q, unsigned n_threads, JobHandler handler, void *userdata);
/* -EBUSY when max jobs wait already; else the job is taken. */
int work_queue_add(WorkQueue *q, Job *job, size_t max);
