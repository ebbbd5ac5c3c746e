/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd-util.h"
#include "daemon/work-queue.h"

int job_new(const PacketHeader *h, const uint8_t *body, int *fds, size_t n_fds, Job **ret) {
        assert(n_fds <= PACKET_FDS_LIMIT);

        Job *job = calloc(1, sizeof(Job) + h->len);
        if (!job)
                return -ENOMEM;
        job->header = *h;
        for (; job->n_fds < n_fds; job->n_fds++)
                job->fds[job->n_fds] = TAKE_FD(fds[job->n_fds]);
        memcpy(job->body, body, h->len);
        *ret = job;
        return 0;
}

Job *job_free(Job *job) {
        if (job)
                close_many(job->fds, job->n_fds);
        free(job);
        return NULL;
}

static Job *take(WorkQueue *q) {
        (void) pthread_mutex_lock(&q->lock);
        while (!q->first)
                (void) pthread_cond_wait(&q->more, &q->lock);
        Job *job = q->first;
        q->first = job->next;
        q->n--;
        (void) pthread_mutex_unlock(&q->lock);
        return job;
}

static _noreturn_ void *run(void *arg) {
        WorkQueue *q = arg;

        for (;;)
                q->handler(take(q), q->userdata);
}

int work_queue_init(WorkQueue *q, unsigned n_threads, JobHandler handler, void *userdata) {
        *q = (WorkQueue) {
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .more = PTHREAD_COND_INITIALIZER,
                .handler = handler,
                .userdata = userdata,
        };
        for (unsigned i = 0; i < n_threads; i++) {
                pthread_t thread;

                int r = pthread_create(&thread, NULL, run, q);
                if (r != 0)
                        return -r;
                (void) pthread_detach(thread);
        }
        return 0;
}

int work_queue_add(WorkQueue *q, Job *job, size_t max) {
        int r = 0;

        (void) pthread_mutex_lock(&q->lock);
        if (q->n >= max)
                r = -EBUSY;
        else {
                job->next = NULL;
                if (q->first)
                        q->last->next = job;
                else
                        q->first = job;
                q->last = job;
                q->n++;
                (void) pthread_cond_signal(&q->more);
        }
        (void) pthread_mutex_unlock(&q->lock);
        return r;
}
