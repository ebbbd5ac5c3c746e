/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A long piece of work that somebody watches: a template that is built, exported or imported.
 *
 * Owned by the Manager. The worker (daemon/image/) makes it with job_new(), tells how far it is,
 * and ends it with exactly one of job_done(), job_fail() and job_canceled(). After its end it is
 * kept for those who come late; only the last JOBS_KEPT ended ones are.
 * State and log lie in RuntimeDirectory/jobs/: a restarted cubed shows what was running as failed. */

#include <systemd/sd-bus.h>

#include "daemon/sandbox.h"

#define JOBS_KEPT 32U
#define JOB_LOG_MAX (1024U * 1024U)

typedef struct Job Job;

typedef enum JobState {
        JOB_RUNNING,
        JOB_DONE,
        JOB_FAILED,
        JOB_CANCELED,
        _JOB_STATE_MAX,
        _JOB_STATE_INVALID = -EINVAL,
} JobState;

const char *job_state_to_string(JobState s);
JobState job_state_from_string(const char *s);

/* Asks the worker to give up; it calls job_canceled() when it has, at once or later. */
typedef void (*JobCancel)(Job *j, void *userdata);

struct Job {
        Manager *manager;
        char id[21];
        uid_t owner_uid;
        char tenant[TENANT_NAME_MAX]; /* of the owner's; "": he himself */
        char *kind;                /* "build-template", "export-template", "import-template" */
        char *subject;             /* what is worked on: NAME:TAG */
        JobState state;
        char *step;                /* a few words, "making the root image" */
        uint32_t progress;         /* 0 to 100 */
        uint32_t build_step;       /* of a build with steps: which of them is being done, or was when it failed, from 1 on;
                                      one more than there are: all are done; 0: none was begun */
        uint32_t cached_steps;     /* so many of the first ones were not run: what they come to is that of an earlier build */
        char *result;              /* id of what was made; NULL until done */
        char *error_name;          /* bus error, when failed or canceled */
        char *error_message;
        uint64_t created_usec;     /* realtime */
        uint64_t finished_usec;    /* 0 while it runs */

        struct JobPrivate *priv;   /* log and its readers */
};

int job_new(Manager *m, const char *kind, const char *subject, uid_t owner_uid, JobCancel cancel, void *userdata,
            Job **ret);
/* How many there may be at a time. */
#define JOBS_RUNNING_MAX 4U
/* For so long after a tenant with none was refused those that have one are given no other. */
#define JOBS_WAIT_USEC (600 * USEC_PER_SEC)
/* 0, or negative with error set. Of a tenant that has a name only where he leaves as many to the other ones, and one to whoever is
 * none: a build may take as long as its steps like. Two of them would have all that there are for tenants, so that none has a
 * second one while a third waits. */
int job_may_begin(Manager *m, uid_t owner_uid, const char *tenant, sd_bus_error *error);
/* Whose of the owner's it is; before anybody else knows of it. */
void job_set_tenant(Job *j, const char *tenant);
/* Closes the log's readers, removes it from the manager. Its files go with it only once it ended. */
Job *job_free(Job *j);
/* What an earlier cubed left. */
int manager_load_jobs(Manager *m);
Job *manager_find_job(Manager *m, const char *id);

void job_set_step(Job *j, const char *step, uint32_t progress);
void job_set_build_step(Job *j, uint32_t n);
void job_set_cached_steps(Job *j, uint32_t n);
/* Appends to the log; text beyond JOB_LOG_MAX is dropped, with one line that says so. */
void job_log(Job *j, const void *data, size_t size);
void job_logf(Job *j, const char *format, ...) _printf_(2, 3);

void job_done(Job *j, const char *result);
void job_fail(Job *j, const sd_bus_error *error);
void job_canceled(Job *j);

/* For those who watch. Cancel of an ended job is BUS_ERROR_BUSY. */
int job_cancel(Job *j, sd_bus_error *error);
/* The read end of a pipe: the log from its start, then what comes, until the job's end. */
int job_open_log(Job *j, int *ret_fd, sd_bus_error *error);
