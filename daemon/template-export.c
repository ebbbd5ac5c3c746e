/* SPDX-License-Identifier: Apache-2.0 */

/* Writing a template into one file: cubed opens what it consists of, a child does the rest. The open files keep
 * what is written whole, whatever becomes of the template meanwhile. */

#include <stdio.h>
#include <sys/mman.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/job.h"
#include "daemon/json-strict.h"
#include "daemon/template-pack.h"
#include "dbus/bus-errors.h"

#define PROGRESS_INTERVAL (500 * USEC_PER_MSEC)

typedef struct Export {
        Manager *manager;
        Job *job;
        Tool *tool;
        PackProgress progress;
        char *template_id;
        bool canceled;
        struct Export *next;
} Export;

/* Progress */

static int on_progress(sd_event_source *source, uint64_t usec, void *userdata) {
        PackProgress *p = userdata;
        uint64_t numbers[2];

        /* Memory, which does not keep anybody waiting; what is in it is the child's word. */
        if (pread(p->fd, numbers, sizeof(numbers), 0) == sizeof(numbers) && numbers[1] > 0 && p->job)
                job_set_step(p->job, p->step,
                             p->from + (unsigned) ((p->to - p->from) * ((double) MIN(numbers[0], numbers[1]) / (double) numbers[1])));
        return sd_event_source_set_time_relative(source, PROGRESS_INTERVAL);
}

int pack_progress_start(PackProgress *p, sd_event *e, const char *step, unsigned from, unsigned to) {
        p->step = step;
        p->from = from;
        p->to = to;
        p->fd = memfd_create("progress", MFD_CLOEXEC);
        if (p->fd < 0)
                return -errno;
        int r = sd_event_add_time_relative(e, &p->source, CLOCK_MONOTONIC, PROGRESS_INTERVAL, 0, on_progress, p);
        return r < 0 ? r : sd_event_source_set_enabled(p->source, SD_EVENT_ON);
}

void pack_progress_done(PackProgress *p) {
        p->source = sd_event_source_disable_unref(p->source);
        p->fd = safe_close(p->fd);
}

ToolSpec pack_tool_spec(const Manager *m, const char *const *argv) {
        uint64_t timeout = m->config.build_timeout_usec;
        ToolSpec spec = TOOL_SPEC_INIT;

        spec.argv = argv;
        spec.uid = m->templates->tools.uid;
        spec.gid = m->templates->tools.gid;
        spec.timeout_usec = timeout == UINT64_MAX ? 0 : timeout;
        return spec;
}

/* Export */

static Export *export_free(Export *x) {
        if (!x)
                return NULL;
        for (Export **i = &x->manager->priv->exports; *i; i = &(*i)->next)
                if (*i == x) {
                        *i = x->next;
                        break;
                }
        pack_progress_done(&x->progress);
        tool_free(x->tool);
        free(x->template_id);
        free(x);
        return NULL;
}
DEFINE_CLEANUP(Export *, export_free);

void manager_end_exports(Manager *m) {
        while (m->priv->exports)
                export_free(m->priv->exports);
}

static void on_packed(Tool *tool, int r, const char *message, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_(export_freep) Export *x = userdata;

        if (x->canceled)
                job_canceled(x->job);
        else if (r < 0) {
                (void) sd_bus_error_setf(&e, BUS_ERROR_INTERNAL, "Template %s could not be exported: %s", x->job->subject, message);
                job_fail(x->job, &e);
        } else
                job_done(x->job, x->template_id);
}

static void on_log(Tool *tool, const char *text, size_t size, void *userdata) {
        Export *x = userdata;

        if (x->job)
                job_log(x->job, text, size);
}

static void on_cancel(Job *j, void *userdata) {
        Export *x = userdata;

        x->canceled = true;
        tool_kill(x->tool);
}

static int describe(const Template *t, const Snapshot *guest, int *ret_fd) {
        _cleanup_json_ json_object *o = json_object_new_object();
        _cleanup_close_ int fd = memfd_create("pack", MFD_CLOEXEC);

        if (fd < 0)
                return -errno;
        if (!o || json_add_string(o, "format", PACK_FORMAT) < 0 || json_add_u64(o, "version", PACK_VERSION) < 0 ||
            json_add(o, "template", template_to_json_whole(t)) < 0 ||
            (guest && json_add(o, "guest", snapshot_describe(guest)) < 0))
                return -ENOMEM;
        const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        int r = text ? write_full(fd, text, strlen(text)) : -ENOMEM;
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int open_members(const Template *t, const Snapshot *guest, int fds[static _PACK_MEMBER_MAX]) {
        int r = 0;

        for (int i = 0; i < _TEMPLATE_FILE_MAX && r >= 0; i++)
                r = template_open_file(t, (TemplateFile) i, &fds[PACK_KERNEL + i]);
        for (int i = 0; guest && i < _SNAPSHOT_FILE_MAX && r >= 0; i++)
                r = snapshot_open_file(guest, (SnapshotFileKind) i, &fds[PACK_GUEST_STATE + i]);
        return r;
}

static int start(Export *x, const Template *t, int out_fd) {
        const char *const argv[] = { t->store->tools.cube_image, "pack", NULL };
        const Snapshot *guest = snapshot_store_find_template(x->manager->snapshots, t->id);
        ToolSpec spec = pack_tool_spec(x->manager, argv);
        int fds[_PACK_MEMBER_MAX];
        int in = -EBADF;

        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                fds[i] = -EBADF;
        int r = open_members(t, guest, fds);
        if (r >= 0)
                r = describe(t, guest, &in);
        if (r >= 0)
                r = pack_progress_start(&x->progress, x->manager->event, "writing the file", 0, 99);
        if (r >= 0) {
                spec.fds[0] = in;
                spec.fds[1] = out_fd;
                spec.fds[PACK_PROGRESS_FD] = x->progress.fd;
                memcpy(spec.fds + PACK_MEMBERS_FD, fds, sizeof(fds));
                r = tool_start(x->manager->event, &spec, on_packed, on_log, x, &x->tool);
        }
        close_many(fds, ELEMENTSOF(fds));
        safe_close(in);
        return r;
}

int manager_export_template(Manager *m, const Template *t, uid_t actor, int out_fd, Job **ret, sd_bus_error *error) {
        char subject[160];

        int r = job_may_begin(m, actor, NULL, error);
        if (r < 0)
                return r;
        _cleanup_(export_freep) Export *x = new0(Export, 1);
        if (!x)
                return sd_bus_error_set_errno(error, ENOMEM);
        x->manager = m;
        x->progress = PACK_PROGRESS_NONE;
        x->template_id = strdup(t->id);
        (void) snprintf(subject, sizeof(subject), "%s:%s", t->name, t->tag);
        r = x->template_id ? start(x, t, out_fd) : -ENOMEM;
        if (r < 0)
                return sd_bus_error_set_errnof(error, -r, "Template %s can't be exported: %s", t->id, strerror(-r));
        r = job_new(m, "export-template", subject, actor, on_cancel, x, &x->job);
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        x->progress.job = x->job;
        x->next = m->priv->exports;
        m->priv->exports = x;
        *ret = TAKE_PTR(x)->job;
        return 0;
}
