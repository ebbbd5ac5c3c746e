/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/id.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/write-file.h"
#include "dbus/bus-errors.h"

#define JOB_READERS_MAX 16U
#define JOB_FILE_MAX (64U * 1024U)

/* Somebody who follows the log: the write end of his pipe, the log, and how far he is. */
typedef struct JobReader {
        Job *job;
        sd_event_source *source;   /* off while he has read everything */
        int fd;
        int log_fd;
        uint64_t offset;
} JobReader;

struct JobPrivate {
        JobCancel cancel;
        void *userdata;
        int log_fd;                /* for appending, while it runs */
        uint64_t log_size;
        bool log_full;
        JobReader *readers[JOB_READERS_MAX];
};

static const char *const state_table[_JOB_STATE_MAX] = {
        [JOB_RUNNING] = "running",
        [JOB_DONE] = "done",
        [JOB_FAILED] = "failed",
        [JOB_CANCELED] = "canceled",
};

const char *job_state_to_string(JobState s) {
        return (unsigned) s < _JOB_STATE_MAX ? state_table[s] : NULL;
}

JobState job_state_from_string(const char *s) {
        for (unsigned i = 0; i < _JOB_STATE_MAX; i++)
                if (s && streq(state_table[i], s))
                        return (JobState) i;
        return _JOB_STATE_INVALID;
}

static char *job_path(const Job *j, const char *suffix) {
        char *path = NULL;

        if (asprintf(&path, "%s/jobs/%s.%s", j->manager->config.runtime_directory, j->id, suffix) < 0)
                return NULL;
        return path;
}

static void reader_free(JobReader *r) {
        if (!r)
                return;
        for (size_t i = 0; i < JOB_READERS_MAX; i++)
                if (r->job->priv->readers[i] == r)
                        r->job->priv->readers[i] = NULL;
        sd_event_source_disable_unref(r->source);
        safe_close(r->fd);
        safe_close(r->log_fd);
        free(r);
}

Job *job_free(Job *j) {
        if (!j)
                return NULL;

        Manager *m = j->manager;
        for (size_t i = 0; i < m->n_jobs; i++)
                if (m->jobs[i] == j) {
                        memmove(m->jobs + i, m->jobs + i + 1, (m->n_jobs - i - 1) * sizeof(Job *));
                        m->n_jobs--;
                        if (m->hooks && m->hooks->job_removed)
                                m->hooks->job_removed(m, j);
                        break;
                }

        if (j->priv) {
                for (size_t i = 0; i < JOB_READERS_MAX; i++)
                        reader_free(j->priv->readers[i]);
                safe_close(j->priv->log_fd);
                free(j->priv);
        }
        free(j->kind);
        free(j->subject);
        free(j->step);
        free(j->result);
        free(j->error_name);
        free(j->error_message);
        free(j);
        return NULL;
}
DEFINE_CLEANUP(Job *, job_free);

static void job_remove_files(const Job *j) {
        static const char *const suffixes[] = { "log", "json" };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
                _cleanup_free_ char *path = job_path(j, suffixes[i]);
                if (path)
                        (void) unlink(path);
        }
}

static void put_str(json_object *o, const char *key, const char *value) {
        if (value)
                json_object_object_add(o, key, json_object_new_string(value));
}

static void job_save(const Job *j) {
        json_object *o = json_object_new_object();
        _cleanup_free_ char *path = job_path(j, "json");

        if (o) {
                put_str(o, "kind", j->kind);
                put_str(o, "subject", j->subject);
                put_str(o, "state", job_state_to_string(j->state));
                put_str(o, "step", j->step);
                put_str(o, "result", j->result);
                put_str(o, "error-name", j->error_name);
                put_str(o, "error-message", j->error_message);
                put_str(o, "tenant", *j->tenant ? j->tenant : NULL);
                json_object_object_add(o, "owner", json_object_new_int64(j->owner_uid));
                json_object_object_add(o, "progress", json_object_new_int64(j->progress));
                json_object_object_add(o, "build-step", json_object_new_int64(j->build_step));
                json_object_object_add(o, "cached-steps", json_object_new_int64(j->cached_steps));
                json_object_object_add(o, "created", json_object_new_int64((int64_t) j->created_usec));
                json_object_object_add(o, "finished", json_object_new_int64((int64_t) j->finished_usec));
        }
        int r = o && path ? write_file(path, json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)) : -ENOMEM;
        if (r < 0)
                log_warning_errno(r, "Failed to save the state of job %s: %m", j->id);
        json_object_put(o);
}

/* Drops the oldest of the ended ones, but not keep. */
static void manager_trim_jobs(Manager *m, const Job *keep) {
        size_t ended = 0;

        for (size_t i = 0; i < m->n_jobs; i++)
                ended += m->jobs[i]->state != JOB_RUNNING;
        for (size_t i = 0; i < m->n_jobs && ended > JOBS_KEPT;) {
                if (m->jobs[i]->state == JOB_RUNNING || m->jobs[i] == keep) {
                        i++;
                        continue;
                }
                job_remove_files(m->jobs[i]);
                job_free(m->jobs[i]);
                ended--;
        }
}

static int manager_add_job(Manager *m, Job *j) {
        if (m->n_jobs == m->n_jobs_allocated) {
                size_t n = m->n_jobs_allocated * 2 + 8;
                Job **p = reallocarray(m->jobs, n, sizeof(Job *));
                if (!p)
                        return -ENOMEM;
                m->jobs = p;
                m->n_jobs_allocated = n;
        }
        m->jobs[m->n_jobs++] = j;
        return 0;
}

static int job_alloc(Manager *m, const char *id, Job **ret) {
        _cleanup_(job_freep) Job *j = new0(Job, 1);
        if (!j)
                return -ENOMEM;

        j->manager = m;
        if (id)
                memcpy(j->id, id, strlen(id) + 1);
        else
                id_random(j->id);
        j->priv = new0(struct JobPrivate, 1);
        if (!j->priv)
                return -ENOMEM;
        j->priv->log_fd = -EBADF;
        *ret = TAKE_PTR(j);
        return 0;
}

int job_new(Manager *m, const char *kind, const char *subject, uid_t owner_uid, JobCancel cancel, void *userdata,
            Job **ret) {
        _cleanup_(job_freep) Job *j = NULL;

        int r = job_alloc(m, NULL, &j);
        if (r < 0)
                return r;
        j->kind = strdup(kind);
        j->subject = strdup(subject);
        j->step = strdup("starting");
        if (!j->kind || !j->subject || !j->step)
                return -ENOMEM;
        j->owner_uid = owner_uid;
        j->created_usec = wall_usec();
        j->priv->cancel = cancel;
        j->priv->userdata = userdata;

        _cleanup_free_ char *path = job_path(j, "log");
        if (!path)
                return -ENOMEM;
        j->priv->log_fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_APPEND|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (j->priv->log_fd < 0)
                return -errno;

        r = manager_add_job(m, j);
        if (r < 0) {
                job_remove_files(j);
                return r;
        }
        job_save(j);
        if (m->hooks && m->hooks->job_added)
                m->hooks->job_added(m, j);
        *ret = TAKE_PTR(j);
        return 0;
}

static void count_running(const Manager *m, uid_t owner_uid, const char *tenant, size_t *ret_all, size_t *ret_own) {
        *ret_all = *ret_own = 0;
        for (size_t i = 0; i < m->n_jobs; i++) {
                const Job *j = m->jobs[i];
                if (j->state != JOB_RUNNING)
                        continue;
                (*ret_all)++;
                *ret_own += tenant_same(j->owner_uid, j->tenant, owner_uid, tenant);
        }
}

static bool a_tenant_waits(const Manager *m) {
        return m->tenant_waits_usec > 0 && now_usec() - m->tenant_waits_usec < JOBS_WAIT_USEC;
}

int job_may_begin(Manager *m, uid_t owner_uid, const char *tenant, sd_bus_error *error) {
        size_t max = JOBS_RUNNING_MAX - !isempty(tenant), all, own;

        count_running(m, owner_uid, tenant, &all, &own);
        if (all >= max) {
                if (!isempty(tenant) && own == 0)
                        m->tenant_waits_usec = now_usec();
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "%zu templates are being worked on already; wait for one to end", all);
        }
        if (!isempty(tenant) && (own >= max - all || (own > 0 && a_tenant_waits(m))))
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "%zu templates of tenant %s are being worked on already; wait for one to end",
                                         own, tenant);
        return 0;
}

void job_set_tenant(Job *j, const char *tenant) {
        tenant_name_copy(j->tenant, tenant);
        job_save(j);
}

static char *get_str(json_object *o, const char *key) {
        json_object *v;

        if (!json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, json_type_string))
                return NULL;
        return strdup(json_object_get_string(v));
}

static uint64_t get_u64(json_object *o, const char *key) {
        json_object *v;

        if (!json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, json_type_int))
                return 0;
        return (uint64_t) json_object_get_int64(v);
}

/* Our own file under a directory that only root writes to; still, nothing in it is taken for given. */
static int job_load(Manager *m, const char *id) {
        _cleanup_(job_freep) Job *j = NULL;
        _cleanup_free_ char *text = NULL, *state = NULL, *tenant = NULL;

        int r = job_alloc(m, id, &j);
        if (r < 0)
                return r;
        _cleanup_free_ char *path = job_path(j, "json"), *log_path = job_path(j, "log");
        if (!path || !log_path)
                return -ENOMEM;
        r = read_file(AT_FDCWD, path, JOB_FILE_MAX, &text, NULL);
        if (r < 0)
                return r;

        json_object *o = json_tokener_parse(text);
        if (!o || !json_object_is_type(o, json_type_object)) {
                json_object_put(o);
                return -EBADMSG;
        }
        state = get_str(o, "state");
        j->kind = get_str(o, "kind");
        j->subject = get_str(o, "subject");
        j->step = get_str(o, "step");
        j->result = get_str(o, "result");
        j->error_name = get_str(o, "error-name");
        j->error_message = get_str(o, "error-message");
        j->owner_uid = (uid_t) get_u64(o, "owner");
        tenant = get_str(o, "tenant");
        j->progress = (uint32_t) get_u64(o, "progress");
        j->build_step = (uint32_t) get_u64(o, "build-step");
        j->cached_steps = (uint32_t) get_u64(o, "cached-steps");
        j->created_usec = get_u64(o, "created");
        j->finished_usec = get_u64(o, "finished");
        j->state = job_state_from_string(state);
        json_object_put(o);
        if (j->state < 0 || !j->kind || !j->subject || !j->step || (tenant && !tenant_name_valid(tenant)))
                return -EBADMSG;
        tenant_name_copy(j->tenant, tenant);

        struct stat st;
        if (stat(log_path, &st) == 0)
                j->priv->log_size = (uint64_t) st.st_size;

        if (j->state == JOB_RUNNING) {
                j->state = JOB_FAILED;
                j->finished_usec = wall_usec();
                free(j->error_name);
                free(j->error_message);
                j->error_name = strdup(BUS_ERROR_INTERNAL);
                j->error_message = strdup("cubed ended while the job ran; start it again");
                if (!j->error_name || !j->error_message)
                        return -ENOMEM;
                job_save(j);
        }

        /* By age: a directory has no order. */
        r = manager_add_job(m, j);
        if (r < 0)
                return r;
        for (size_t i = m->n_jobs - 1; i > 0 && m->jobs[i - 1]->created_usec > j->created_usec; i--) {
                m->jobs[i] = m->jobs[i - 1];
                m->jobs[i - 1] = j;
        }
        (void) TAKE_PTR(j);
        return 0;
}

static bool is_job_file(const char *name, const char *suffix, char *ret_id) {
        size_t n = strlen(name), k = strlen(suffix);

        if (n <= k || n - k >= ID_SIZE || !streq(name + n - k, suffix))
                return false;
        memcpy(ret_id, name, n - k);
        ret_id[n - k] = 0;
        return sandbox_id_valid(ret_id);
}

static bool has_state(DIR *d, const char *id) {
        char name[ID_SIZE + sizeof(".json")];

        (void) snprintf(name, sizeof(name), "%s.json", id);
        return faccessat(dirfd(d), name, F_OK, AT_SYMLINK_NOFOLLOW) >= 0;
}

/* What a cubed that was killed had half made. */
static void sweep_jobs(DIR *d) {
        struct dirent *e;
        char id[ID_SIZE];

        rewinddir(d);
        while ((e = readdir(d)))
                if (is_job_file(e->d_name, ".json.new", id) || (is_job_file(e->d_name, ".log", id) && !has_state(d, id)))
                        (void) unlinkat(dirfd(d), e->d_name, 0);
}

int manager_load_jobs(Manager *m) {
        _cleanup_free_ char *dir = NULL;
        struct dirent *e;
        char id[ID_SIZE];

        if (asprintf(&dir, "%s/jobs", m->config.runtime_directory) < 0)
                return -ENOMEM;
        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return -errno;

        DIR *d = opendir(dir);
        if (!d)
                return -errno;
        while ((e = readdir(d))) {
                if (!is_job_file(e->d_name, ".json", id))
                        continue;
                int r = job_load(m, id);
                if (r < 0)
                        log_warning_errno(r, "Failed to load job %s, ignored: %m", id);
        }
        sweep_jobs(d);
        closedir(d);
        manager_trim_jobs(m, NULL);
        return 0;
}

Job *manager_find_job(Manager *m, const char *id) {
        for (size_t i = 0; i < m->n_jobs; i++)
                if (streq(m->jobs[i]->id, id))
                        return m->jobs[i];
        return NULL;
}

static void job_changed(Job *j) {
        if (j->manager->hooks && j->manager->hooks->job_changed)
                j->manager->hooks->job_changed(j->manager, j);
}

void job_set_step(Job *j, const char *step, uint32_t progress) {
        assert(j->state == JOB_RUNNING);

        progress = MIN(progress, 100U);
        bool same_step = streq(j->step, step);
        if (same_step && j->progress == progress)
                return;
        if (!same_step) {
                char *s = strdup(step);
                if (!s)
                        return;
                free(j->step);
                j->step = s;
        }
        j->progress = progress;
        if (!same_step)
                job_save(j);
        job_changed(j);
}

void job_set_build_step(Job *j, uint32_t n) {
        j->build_step = n;
        job_save(j);
        job_changed(j);
}

void job_set_cached_steps(Job *j, uint32_t n) {
        j->cached_steps = n;
        job_save(j);
        job_changed(j);
}

/* True while there may be more for him. */
static bool reader_pump(JobReader *r) {
        struct JobPrivate *p = r->job->priv;
        uint8_t buf[16384];

        /* One piece a round: the log's reader must not hold up the loop. */
        size_t want = MIN(sizeof(buf), p->log_size - r->offset);
        if (want == 0)
                return r->job->state == JOB_RUNNING;

        ssize_t n = pread(r->log_fd, buf, want, (off_t) r->offset);
        if (n <= 0)
                return false;
        n = write(r->fd, buf, (size_t) n);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        r->offset += (uint64_t) n;
        return r->offset < p->log_size || r->job->state == JOB_RUNNING;
}

static int on_reader(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        JobReader *r = userdata;

        if ((revents & EPOLLERR) || !reader_pump(r)) {
                reader_free(r);
                return 0;
        }
        if (r->offset == r->job->priv->log_size)
                (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        return 0;
}

static void wake_readers(Job *j) {
        for (size_t i = 0; i < JOB_READERS_MAX; i++)
                if (j->priv->readers[i])
                        (void) sd_event_source_set_enabled(j->priv->readers[i]->source, SD_EVENT_ON);
}

void job_log(Job *j, const void *data, size_t size) {
        static const char cut[] = "\n[the log is full, the rest is not shown]\n";
        struct JobPrivate *p = j->priv;

        if (p->log_full || p->log_fd < 0)
                return;
        bool full = size > JOB_LOG_MAX - p->log_size;
        if (full)
                size = JOB_LOG_MAX - p->log_size;

        /* A file in a tmpfs: takes it at once. */
        if (write_full(p->log_fd, data, size) < 0)
                return;
        p->log_size += size;
        if (full) {
                p->log_full = true;
                if (write_full(p->log_fd, cut, sizeof(cut) - 1) >= 0)
                        p->log_size += sizeof(cut) - 1;
        }
        wake_readers(j);
}

void job_logf(Job *j, const char *format, ...) {
        char line[1024];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(line, sizeof(line), format, ap);
        va_end(ap);
        if (n > 0)
                job_log(j, line, MIN((size_t) n, sizeof(line) - 1));
}

static void job_end(Job *j, JobState state) {
        assert(j->state == JOB_RUNNING);

        j->state = state;
        j->finished_usec = wall_usec();
        j->priv->cancel = NULL;
        j->priv->log_fd = safe_close(j->priv->log_fd);
        wake_readers(j);
        job_save(j);
        job_changed(j);
        manager_trim_jobs(j->manager, j);
}

void job_done(Job *j, const char *result) {
        j->result = result ? strdup(result) : NULL;
        j->progress = 100;
        job_end(j, JOB_DONE);
}

void job_fail(Job *j, const sd_bus_error *error) {
        j->error_name = strdup(error->name);
        j->error_message = strdup(strempty(error->message));
        job_logf(j, "Failed: %s\n", strempty(error->message));
        job_end(j, JOB_FAILED);
}

void job_canceled(Job *j) {
        j->error_name = strdup(BUS_ERROR_PREFIX "Canceled");
        j->error_message = strdup("Canceled on request");
        job_log(j, "Canceled\n", 9);
        job_end(j, JOB_CANCELED);
}

int job_cancel(Job *j, sd_bus_error *error) {
        if (j->state != JOB_RUNNING)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Job %s has ended already (%s)", j->id,
                                         job_state_to_string(j->state));
        if (!j->priv->cancel)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Job %s can't be canceled any more", j->id);
        j->priv->cancel(j, j->priv->userdata);
        return 0;
}

static int reader_start(JobReader *r) {
        _cleanup_free_ char *path = job_path(r->job, "log");

        if (!path)
                return -ENOMEM;
        r->log_fd = open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);
        if (r->log_fd < 0)
                return -errno;
        int k = fd_set_nonblock(r->fd, true);
        if (k < 0)
                return k;
        return sd_event_add_io(r->job->manager->event, &r->source, r->fd, EPOLLOUT, on_reader, r);
}

int job_open_log(Job *j, int *ret_fd, sd_bus_error *error) {
        _cleanup_close_ int read_end = -EBADF;
        int ends[2];
        size_t slot = 0;

        while (slot < JOB_READERS_MAX && j->priv->readers[slot])
                slot++;
        if (slot == JOB_READERS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Job %s has %u log readers already", j->id,
                                         JOB_READERS_MAX);

        if (pipe2(ends, O_CLOEXEC) < 0)
                return sd_bus_error_set_errno(error, errno);
        read_end = ends[0];
        JobReader *reader = new0(JobReader, 1);
        if (!reader) {
                safe_close(ends[1]);
                return sd_bus_error_set_errno(error, ENOMEM);
        }
        *reader = (JobReader) { .job = j, .fd = ends[1], .log_fd = -EBADF };
        j->priv->readers[slot] = reader;

        int r = reader_start(reader);
        if (r < 0) {
                reader_free(reader);
                return sd_bus_error_set_errnof(error, -r, "Can't open the log of job %s: %s", j->id, strerror(-r));
        }
        *ret_fd = TAKE_FD(read_end);
        return 0;
}
