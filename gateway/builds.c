/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "gateway/bus-json.h"
#include "gateway/builds.h"
#include "gateway/cubed.h"
#include "gateway/json-maker.h"
#include "gateway/log.h"
#include "gateway/template-json.h"
#include "gateway/uploads.h"

/* All together, and of a tenant those that are not over; but none may have more than he leaves to the others. */
#define BUILDS_MAX 64U
#define BUILDS_TENANT_MAX 16U
#define READ_SIZE 16384U
#define MEBIBYTE (1024U * 1024U)
#define ASK_USEC (100 * USEC_PER_MSEC)
#define NAMELESS_MAX 256U
/* One that is not started keeps its place so long. */
#define WAITING_USEC (UINT64_C(2) * 60 * 60 * USEC_PER_SEC)

struct Builds {
        Gateway *gateway;
        Build *first;              /* the newest */
        size_t n;
        json_object *nameless;     /* ids of templates that are to be removed, one after the other */
        sd_bus_slot *discarding;
};

const char *build_state_to_string(BuildState s) {
        static const char *const names[] = {
                [BUILD_WAITING] = "waiting",
                [BUILD_BUILDING] = "building",
                [BUILD_READY] = "ready",
                [BUILD_ERROR] = "error",
        };
        return names[s];
}

int builds_new(Gateway *g, Builds **ret) {
        Builds *b = new0(Builds, 1);
        if (!b)
                return -ENOMEM;

        b->gateway = g;
        b->nameless = json_object_new_array();
        if (!b->nameless) {
                free(b);
                return -ENOMEM;
        }
        *ret = b;
        return 0;
}

void build_source_done(Build *b) {
        json_object_put(b->body);
        b->body = NULL;
        b->archives_fd = safe_close(b->archives_fd);
        b->layout_fd = safe_close(b->layout_fd);
}

static void release(Build *b) {
        b->source = sd_event_source_disable_unref(b->source);
        b->slot = sd_bus_slot_unref(b->slot);
        b->asking = false;
        b->log_fd = safe_close(b->log_fd);
        b->fetch = image_fetch_free(b->fetch);
        build_source_done(b);
        json_object_put(b->names);
        b->names = NULL;
}

static void build_free(Build *b) {
        Build **at = &b->builds->first;

        while (*at != b)
                at = &(*at)->next;
        *at = b->next;
        b->builds->n--;
        release(b);
        build_log_done(&b->log);
        free(b->reason);
        free(b->job);
        free(b);
}

Builds *builds_free(Builds *b) {
        if (!b)
                return NULL;

        while (b->first)
                build_free(b->first);
        sd_bus_slot_unref(b->discarding);
        json_object_put(b->nameless);
        free(b);
        return NULL;
}

/* Somebody waits for it. */
static bool is_open(const Build *b, uint64_t now_usec) {
        return b->state == BUILD_BUILDING || (b->state == BUILD_WAITING && now_usec - b->created_usec <= WAITING_USEC);
}

static size_t count_over(const Builds *b, const char *tenant, uint64_t now_usec) {
        size_t n = 0;

        for (const Build *i = b->first; i; i = i->next)
                n += !is_open(i, now_usec) && streq(i->tenant, tenant);
        return n;
}

/* The oldest of those that nobody waits for, of the tenant who has most of them: the others' are not pushed out by him. */
static bool drop_one(Builds *b, uint64_t now_usec) {
        Build *oldest = NULL;
        size_t most = 0;

        for (Build *i = b->first; i; i = i->next) {
                size_t n = is_open(i, now_usec) ? 0 : count_over(b, i->tenant, now_usec);
                if (n == 0 || n < most)
                        continue;
                most = n;
                oldest = i;
        }
        if (oldest)
                build_free(oldest);
        return oldest;
}

int build_new(Builds *b, const char *tenant, const BuildRequest *request, Build **ret) {
        uint64_t now = wall_usec();
        size_t own = 0, all = 0;

        for (Build *i = b->first; i; i = i->next) {
                all += is_open(i, now);
                own += is_open(i, now) && streq(i->tenant, tenant);
        }
        if (own >= BUILDS_TENANT_MAX || !share_may_take(own, all, BUILDS_MAX, 1))
                return -EBUSY;
        if (b->n >= BUILDS_MAX && !drop_one(b, now))
                return -EBUSY;
        Build *build = new0(Build, 1);
        if (!build)
                return -ENOMEM;

        *build = (Build) { .builds = b, .gateway = b->gateway, .request = *request, .created_usec = now, .archives_fd = -EBADF,
                            .layout_fd = -EBADF, .log_fd = -EBADF, .next = b->first };
        build_id_new(build->id);
        template_public_id(tenant, request->name, build->template_id);
        strcpy(build->tenant, tenant);
        b->first = build;
        b->n++;
        *ret = build;
        return 0;
}

static bool is_of(const Build *b, const char *tenant, const char *template) {
        return streq(b->tenant, tenant) && (!template || streq(b->template_id, template) || streq(b->request.name, template));
}

Build *build_find(Builds *b, const char *tenant, const char *template, const char *id) {
        for (Build *i = b->first; i; i = i->next)
                if (is_of(i, tenant, template) && streq(i->id, id))
                        return i;
        return NULL;
}

bool build_is_of_template(Builds *b, const char *tenant, const char *template) {
        for (Build *i = b->first; i; i = i->next)
                if (is_of(i, tenant, template))
                        return true;
        return false;
}

void builds_count_fetches(const Builds *b, const char *tenant, size_t *ret_own, size_t *ret_all) {
        *ret_own = *ret_all = 0;
        for (const Build *i = b->first; i; i = i->next) {
                *ret_all += i->fetch != NULL;
                *ret_own += i->fetch && streq(i->tenant, tenant);
        }
}

size_t builds_count_building(const Builds *b, const char *tenant) {
        size_t n = 0;

        for (const Build *i = b->first; i; i = i->next)
                n += i->state == BUILD_BUILDING && streq(i->tenant, tenant);
        return n;
}

static json_object *open_to_json(const Build *b) {
        JsonMaker m = json_maker_new();

        json_put_string(&m, "buildID", b->id);
        json_put_string(&m, "status", build_state_to_string(b->state));
        json_put_time(&m, "createdAt", b->created_usec);
        json_put_time(&m, "updatedAt", b->created_usec);
        json_put(&m, "cpuCount", json_object_new_uint64(b->request.cpus));
        json_put(&m, "memoryMB", json_object_new_uint64(b->request.memory / MEBIBYTE));
        return json_maker_done(&m);
}

bool builds_append_open(Builds *b, const char *tenant, const char *template_id, json_object *list) {
        bool ok = true;

        for (Build *i = b->first; ok && i; i = i->next)
                if (i->state != BUILD_READY && streq(i->tenant, tenant) && streq(i->template_id, template_id))
                        ok = json_append(list, open_to_json(i));
        return ok;
}

bool builds_is_asking(const Builds *b) {
        const Build *i = b->first;

        while (i && !i->asking)
                i = i->next;
        return i;
}

/* The end. */

static void build_over(Build *b, BuildState state) {
        release(b);
        build_directory_remove(b->gateway->builds_fd, b->id);
        b->state = state;
}

void build_fail(Build *b, const char *why, const char *step) {
        free(b->reason);
        b->reason = strdup(why);
        (void) snprintf(b->reason_step, sizeof(b->reason_step), "%s", step);
        build_log_end(&b->log, wall_usec());
        build_log_add(&b->log, LOG_LEVEL_ERROR, wall_usec(), why);
        build_over(b, BUILD_ERROR);
}

/* Builds of the same name that no tag stands for any more lose their own name, too. Nobody of the tenant's can name them then, but
 * who did so just before may be about to use one: it goes with the next build of the tenant's that is ready. */

static bool has_tag(json_object *names, const Build *b, const char *cubed_id) {
        TemplateName n;

        for (size_t i = 0; i < json_object_array_length(names); i++)
                if (template_name_parse(json_object_array_get_idx(names, i), b->tenant, b->gateway->uid, &n) && n.own && !n.is_build &&
                    streq(n.cubed_id, cubed_id))
                        return true;
        return false;
}

static void forget(const Build *b, const TemplateName *n) {
        char name[CUBED_NAME_MAX];

        template_cubed_name(b->tenant, n->name, n->tag, name);
        int k = sd_bus_call_method_async(b->gateway->bus, NULL, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "AliasTemplate", NULL,
                                         NULL, "ss", name, "");
        if (k < 0)
                (void) log_full_errno(LOG_WARNING, k, "The name %s could not be taken away: %m", name);
}

static void forget_others(const Build *b) {
        TemplateName n;

        for (size_t i = 0; i < json_object_array_length(b->names); i++)
                if (template_name_parse(json_object_array_get_idx(b->names, i), b->tenant, b->gateway->uid, &n) && n.is_build &&
                    streq(n.name, b->request.name) && !streq(n.tag, b->id) && !has_tag(b->names, b, n.cubed_id))
                        forget(b, &n);
}

static void discard_next(Builds *b);

static int on_discarded(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *e = sd_bus_message_get_error(reply);
        Builds *b = userdata;

        if (e && !cubed_is_away(e) && !sd_bus_error_has_names(e, BUS_ERROR_TEMPLATE_IN_USE, BUS_ERROR_NO_SUCH_TEMPLATE, BUS_ERROR_BUSY))
                (void) log_full_errno(LOG_WARNING, 0, "A template that has no name any more could not be removed: %s", strempty(e->message));
        b->discarding = sd_bus_slot_unref(b->discarding);
        discard_next(b);
        return 1;
}

/* One at a time: cubed has a process take each away. */
static void discard_next(Builds *b) {
        while (!b->discarding && json_object_array_length(b->nameless) > 0) {
                const char *id = json_object_get_string(json_object_array_get_idx(b->nameless, 0));
                int k = sd_bus_call_method_async(b->gateway->bus, &b->discarding, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER,
                                                 "RemoveTemplate", on_discarded, b, "s", id);
                if (k < 0)
                        (void) log_full_errno(LOG_WARNING, k, "Template %s could not be removed: %m", id);
                (void) json_object_array_del_idx(b->nameless, 0, 1);
        }
}

/* What there is no room for, the next one sees to. */
static void discard(Builds *b, const char *cubed_id) {
        size_t n = json_object_array_length(b->nameless);

        for (size_t i = 0; i < n; i++)
                if (streq(json_object_get_string(json_object_array_get_idx(b->nameless, i)), cubed_id))
                        return;
        if (n < NAMELESS_MAX && json_append(b->nameless, json_object_new_string(cubed_id)))
                discard_next(b);
}

void builds_discard_nameless(Builds *b, const char *tenant, json_object *names) {
        for (size_t i = 0; i < json_object_array_length(names); i++) {
                const char *id = template_nameless_id(json_object_array_get_idx(names, i), tenant, b->gateway->uid);
                if (id)
                        discard(b, id);
        }
}

static int ask_names(Build *b, const char *after);

static int on_names(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        json_object *found = NULL;
        const char *next = "";
        Build *b = userdata;

        b->slot = sd_bus_slot_unref(b->slot);
        int k = sd_bus_message_get_error(reply) ? -EIO : bus_to_json(reply, &found);
        if (k >= 0)
                k = sd_bus_message_read(reply, "s", &next);
        for (size_t i = 0; k >= 0 && i < json_object_array_length(found); i++)
                if (!template_add_names(json_object_array_get_idx(json_object_array_get_idx(found, i), 1), b->names))
                        k = -ENOMEM;
        json_object_put(found);
        if (k >= 0 && *next)
                k = ask_names(b, next);
        else if (k >= 0) {
                builds_discard_nameless(b->builds, b->tenant, b->names);
                forget_others(b);
        }
        /* The next build sees to it. */
        if (k < 0 || !*next) {
                json_object_put(b->names);
                b->names = NULL;
        }
        return 1;
}

/* A page of them, as template_each() has them for a request. */
static int ask_names(Build *b, const char *after) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = sd_bus_message_new_method_call(b->gateway->bus, &m, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "FindTemplates");
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "{sv}");
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}{sv}", "tenant", "s", b->tenant, "names-only", "b", true);
        if (k >= 0 && *after)
                k = sd_bus_message_append(m, "{sv}", "after", "s", after);
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        return k < 0 ? k : sd_bus_call_async(b->gateway->bus, &b->slot, m, on_names, b, UINT64_MAX);
}

static void forget_old_ones(Build *b) {
        b->names = json_object_new_array();
        if (!b->names || ask_names(b, "") < 0) {
                json_object_put(b->names);
                b->names = NULL;
        }
}

/* "Template T..N:ID could not be built: warm: step 4 of 5 (RUN) ended with ..." has cubed's words before those for clients. */
static const char *reason_of(const char *error) {
        static const char before[] = " could not be built: ", warm[] = "warm: ";
        const char *p = strstr(error, before);

        p = p ? p + strlen(before) : error;
        return startswith(p, warm) ?: p;
}

static void ask_later(Build *b);

static int on_job(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *error = sd_bus_message_get_error(reply);
        json_object *o = NULL;
        Build *b = userdata;
        char step[16];

        b->slot = sd_bus_slot_unref(b->slot);
        int k = error ? -sd_bus_error_get_errno(error) : bus_to_json(reply, &o);
        const char *state = info_string(o, "State");
        if (k < 0 || !o)
                build_fail(b, "cubed does not say what became of this build", "base");
        else if (streq(state, "running"))
                ask_later(b);
        else if (streq(state, "done")) {
                build_log_end(&b->log, wall_usec());
                build_log_cached(&b->log, (unsigned) info_u64(o, "CachedSteps"), wall_usec());
                build_over(b, BUILD_READY);
                forget_old_ones(b);
        } else {
                build_step_name(&b->log, (unsigned) info_u64(o, "BuildStep"), step, sizeof(step));
                build_fail(b, streq(state, "failed") ? reason_of(info_string(o, "Error")) : "The build was cancelled", step);
        }
        json_object_put(o);
        return 1;
}

static int ask_job(Build *b) {
        Gateway *g = b->gateway;

        return sd_bus_call_method_async(g->bus, &b->slot, CUBE_BUS_NAME, b->job, "org.freedesktop.DBus.Properties", "GetAll", on_job,
                                        b, "s", CUBE_BUS_JOB);
}

static int on_ask(sd_event_source *source, uint64_t usec, void *userdata) {
        Build *b = userdata;

        b->source = sd_event_source_disable_unref(b->source);
        if (ask_job(b) < 0)
                build_fail(b, "cubed could not be asked what became of this build", "base");
        return 0;
}

/* Its log has ended a little before it. */
static void ask_later(Build *b) {
        if (sd_event_add_time_relative(b->gateway->event, &b->source, CLOCK_MONOTONIC, ASK_USEC, 0, on_ask, b) < 0)
                build_fail(b, "cubed could not be asked what became of this build", "base");
}

/* Nobody would hear of its end. */
static void build_lost(Build *b, const char *why) {
        int k = sd_bus_call_method_async(b->gateway->bus, NULL, CUBE_BUS_NAME, b->job, CUBE_BUS_JOB, "Cancel", NULL, NULL, NULL);

        if (k < 0)
                (void) log_full_errno(LOG_WARNING, k, "Job %s goes on, and could not be cancelled: %m", b->job);
        build_fail(b, why, "base");
}

/* The log. */

static int on_log(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        char text[READ_SIZE];
        Build *b = userdata;

        ssize_t n = read(fd, text, sizeof(text));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0) {
                build_log_feed(&b->log, text, (size_t) n, wall_usec());
                return 0;
        }
        /* It ends with the job. */
        b->source = sd_event_source_disable_unref(b->source);
        if (ask_job(b) < 0)
                build_fail(b, "cubed could not be asked what became of this build", "base");
        return 0;
}

static int on_log_opened(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        Build *b = userdata;
        int fd = -EBADF;

        b->slot = sd_bus_slot_unref(b->slot);
        int k = sd_bus_message_get_error(reply) ? -EIO : sd_bus_message_read(reply, "h", &fd);
        if (k >= 0) {
                b->log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                k = b->log_fd < 0 || fcntl(b->log_fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
        }
        if (k >= 0)
                k = sd_event_add_io(b->gateway->event, &b->source, b->log_fd, EPOLLIN, on_log, b);
        /* Requests go first. */
        if (k >= 0)
                k = sd_event_source_set_priority(b->source, SD_EVENT_PRIORITY_IDLE);
        if (k < 0)
                build_lost(b, "The log of this build could not be opened");
        return 1;
}

void build_follow(Build *b, const char *job) {
        Gateway *g = b->gateway;

        b->state = BUILD_BUILDING;
        b->job = strdup(job);
        int k = b->job ? sd_bus_call_method_async(g->bus, &b->slot, CUBE_BUS_NAME, b->job, CUBE_BUS_JOB, "OpenLog", on_log_opened, b, NULL)
                       : -ENOMEM;
        if (k < 0)
                build_fail(b, "cubed could not be asked for the log of this build", "base");
}
