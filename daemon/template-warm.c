/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/parse.h"
#include "daemon/guest-command.h"
#include "daemon/guest-copy.h"
#include "daemon/guest-steps.h"
#include "daemon/guest-touch.h"
#include "daemon/sandbox-private.h"
#include "daemon/template-warm.h"
#include "dbus/bus-errors.h"

#define READY_INTERVAL_USEC (200 * USEC_PER_MSEC)
#define READY_INTERVAL_MAX_USEC (10 * USEC_PER_SEC)
/* The first run fetches the pages, the second fills the caches that the first has only sized, the third finds
 * nothing new to do: more of them save no fault in the first exec of a sandbox. */
#define EXEC_ROUNDS 3U
/* In the root directory, which each image has. */
#define TOUCHED_FILE "/.cube-warm"

typedef enum WarmStep {
        WARM_BOOT,
        WARM_COPY,
        WARM_SETUP,
        WARM_STEPS,
        WARM_START,
        WARM_READY,
        WARM_EXEC,
        WARM_FREEZE,
        WARM_SAVE,
        WARM_END,
        _WARM_STEP_MAX,
} WarmStep;

struct TemplateWarm {
        Manager *manager;
        Template *template;
        const TemplateWarmSpec *spec;
        const TemplateWarmCallbacks *callbacks;
        void *userdata;

        Sandbox *builder;          /* NULL once it is gone */
        WarmStep step;
        size_t n_run;              /* of the commands of this step */
        GuestCommand *command;     /* that this step waits for */
        GuestCommand *service;     /* --start */
        GuestSteps *steps;         /* theirs, and what they came to, to the end */
        GuestTouch *touch;
        GuestCopy *copy;
        size_t n_step;             /* that copies are for */
        TemplatePoint keeping;     /* its kind and number; the key is others' */
        void (*after)(TemplateWarm *w); /* once that is kept */
        sd_event_source *ready_deadline, *ready_timer, *done;
        uint64_t ready_began_usec;

        int result;
        char *message;
};

typedef struct WarmStepType {
        const char *words;
        unsigned percent;
        int (*start)(TemplateWarm *w); /* 1: there is nothing to do */
} WarmStepType;

static const WarmStepType step_types[_WARM_STEP_MAX];

/* To the end, by way of the builder's: the first failure stays. */
static void warm_end(TemplateWarm *w, int r, char *message) {
        if (w->step == WARM_END) {
                free(message);
                return;
        }
        w->step = WARM_END;
        w->result = r;
        w->message = message;
        w->command = guest_command_free(w->command);
        w->service = guest_command_free(w->service);
        w->touch = guest_touch_free(w->touch);
        w->copy = guest_copy_free(w->copy);
        w->steps = guest_steps_free(w->steps);
        w->ready_deadline = sd_event_source_disable_unref(w->ready_deadline);
        w->ready_timer = sd_event_source_disable_unref(w->ready_timer);
        (void) sandbox_kill(w->builder, VMM_EXIT_KILLED, NULL, NULL, NULL);
}

_printf_(3, 4) static void fail(TemplateWarm *w, int r, const char *format, ...) {
        char *message = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&message, format, ap) < 0)
                message = NULL;
        va_end(ap);
        warm_end(w, r, message);
}

static void fail_error(TemplateWarm *w, const char *what, const sd_bus_error *error) {
        int r = sd_bus_error_get_errno(error);

        fail(w, r > 0 ? -r : -EIO, "%s: %s", what, isempty(error->message) ? strempty(error->name) : error->message);
}

/* With what the kernel had to say: it may be the one who ended the program. */
static void fail_exit(TemplateWarm *w, const char *what, const AgentExit *exit) {
        _cleanup_free_ char *tail = sandbox_console_tail(w->builder);

        fail(w, -EIO, "%s ended %s %u; the log has what it printed. The console's last lines:\n%s", what,
             exit->signaled ? "by signal" : "with exit status", exit->status,
             isempty(tail) ? "  (nothing was printed)" : tail);
}

/* Each step's start may be the end of it all, or of the step. */
static void warm_next(TemplateWarm *w) {
        int r;

        do {
                w->step++;
                w->n_run = 0;
                w->callbacks->progress(step_types[w->step].words, step_types[w->step].percent, w->userdata);
                /* Cancelled by the callback? */
                if (w->step == WARM_END)
                        return;
                r = step_types[w->step].start(w);
        } while (r > 0);
}

/* Commands. */

static void on_output(GuestCommand *c, const char *text, size_t size, void *userdata) {
        TemplateWarm *w = userdata;

        w->callbacks->log(text, size, w->userdata);
}

static void fail_start(TemplateWarm *w, const char *what, const sd_bus_error *error) {
        if (!sd_bus_error_has_name(error, SD_BUS_ERROR_FILE_NOT_FOUND))
                fail_error(w, what, error);
        else if (!w->spec->user && !w->spec->cwd && !w->template->defaults.user && !w->template->defaults.cwd)
                fail(w, -ENOENT, "%s needs a shell, and this image has no \"sh\"; put it in, or build without --setup, "
                     "--start and --ready", what);
        else
                /* It may be the user or the directory as well: the guest says which. */
                fail(w, -ENOENT, "%s: %s (it is run by \"sh\", which the image must have)", what, strempty(error->message));
}

static int run_exec_spec(TemplateWarm *w, const ExecSpec *spec, const GuestCommandCallbacks *callbacks, GuestCommand **ret,
                         const char *what) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        int r = guest_command_start(w->builder, spec, callbacks, w, ret, &e);
        if (r < 0)
                fail_error(w, what, &e);
        return 0;
}

static int run_program(TemplateWarm *w, char **argv, const GuestCommandCallbacks *callbacks, GuestCommand **ret,
                       const char *what) {
        const ExecSpec spec = {
                .argv = argv,
                .env = w->spec->env,
                .cwd = w->spec->cwd,
                .user = w->spec->user,
        };

        return run_exec_spec(w, &spec, callbacks, ret, what);
}

static int run_shell(TemplateWarm *w, const char *command, const GuestCommandCallbacks *callbacks, GuestCommand **ret,
                     const char *what) {
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) command, NULL };
        StepCommand c;

        if (!w->steps)
                return run_program(w, argv, callbacks, ret, what);
        const StepState *state = guest_steps_state(w->steps);
        step_command_shell(command, state, &c);
        const ExecSpec spec = { .argv = c.argv, .env = state->env, .cwd = c.cwd, .user = c.user };
        return run_exec_spec(w, &spec, callbacks, ret, what);
}

/* Keeping what the disk is for later builds, with all written out and nobody writing. */

static void go_on(TemplateWarm *w) {
        void (*after)(TemplateWarm *) = w->after;

        w->after = NULL;
        after(w);
}

static void on_thawed(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        TemplateWarm *w = userdata;

        if (more || w->step == WARM_END)
                return;
        if (error)
                fail_error(w, "the guest's disk could not be thawed", error);
        else
                go_on(w);
}

void template_warm_kept(TemplateWarm *w) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(64);

        /* The guest may have gone while its disk was read. */
        if (w->step == WARM_END)
                return;
        if (sandbox_agent_wait(w->builder, AGENT_THAW, &body, on_thawed, w, &e) < 0)
                fail_error(w, "the guest's disk could not be thawed", &e);
}

static void on_disk_frozen(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        TemplateWarm *w = userdata;

        if (more || w->step == WARM_END)
                return;
        if (error) {
                fail_error(w, "the guest's disk could not be frozen", error);
                return;
        }
        const StepState *state = w->keeping.kind == TEMPLATE_POINT_STEP ? guest_steps_state(w->steps) : NULL;
        if (w->callbacks->keep(w->keeping.kind, w->keeping.n, state, w->builder->priv->overlay_fd, w->userdata) == 0)
                template_warm_kept(w);
}

/* False when there is nothing to do; else after() follows, unless it all ends. */
static bool keep(TemplateWarm *w, TemplatePointKind kind, size_t n, void (*after)(TemplateWarm *w)) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(64);

        if (!w->callbacks->keeps || !w->callbacks->keeps(kind, n, w->userdata))
                return false;
        w->keeping = (TemplatePoint) { .kind = kind, .n = n };
        w->after = after;
        tlv_put_u32(&body, AGENT_TAG_FREEZE_DISK, 1);
        if (sandbox_agent_wait(w->builder, AGENT_FREEZE, &body, on_disk_frozen, w, &e) < 0)
                fail_error(w, "the guest's disk could not be frozen", &e);
        return true;
}

/* Copy. */

static int run_copy(TemplateWarm *w);
static void copied_for_step(TemplateWarm *w);

static void describe_copy(const TemplateWarm *w, char *buf, size_t size) {
        (void) snprintf(buf, size, "copy %zu of %zu, to %s", w->n_run + 1, w->spec->n_copies, w->spec->copies[w->n_run].path);
}

static void on_copied(GuestCopy *c, int r, const char *message, void *userdata) {
        TemplateWarm *w = userdata;
        char what[PATH_MAX + 64];

        describe_copy(w, what, sizeof(what));
        if (r < 0) {
                fail(w, r, "%s: %s", what, isempty(message) ? strerror(-r) : message);
                return;
        }
        w->copy = guest_copy_free(w->copy);
        w->n_run++;
        if (w->step == WARM_STEPS)
                copied_for_step(w);
        else if (run_copy(w) > 0)
                warm_next(w);
}

static int start_copy(TemplateWarm *w) {
        char what[PATH_MAX + 64], line[PATH_MAX + 80];

        describe_copy(w, what, sizeof(what));
        int n = snprintf(line, sizeof(line), "[%s]\n", what);
        w->callbacks->log(line, (size_t) n, w->userdata);

        const TemplateCopy *copy = &w->spec->copies[w->n_run];
        const GuestCopySpec spec = {
                .tools = &w->template->store->tools,
                .fd = copy->fd,
                .path = copy->path,
                .uid = w->template->owner_uid,
        };
        int r = guest_copy_start(w->builder, &spec, on_copied, w, &w->copy);
        if (r < 0)
                fail(w, r, "%s: %s", what, strerror(-r));
        return 0;
}

static int run_copy(TemplateWarm *w) {
        const TemplateWarmSpec *s = w->spec;

        while (w->n_run < s->n_copies && (s->done.copies || template_copy_step(s, w->n_run) != SIZE_MAX))
                w->n_run++;
        if (w->n_run < s->n_copies)
                return start_copy(w);
        return !s->done.copies && keep(w, TEMPLATE_POINT_COPIES, 0, warm_next) ? 0 : 1;
}

/* Setup. */

static void describe_setup(const TemplateWarm *w, char *buf, size_t size) {
        size_t n = 0;

        while (w->spec->setup[n])
                n++;
        (void) snprintf(buf, size, "setup command %zu of %zu", w->n_run + 1, n);
}

static int run_setup(TemplateWarm *w);

static void setup_go_on(TemplateWarm *w) {
        if (run_setup(w) > 0)
                warm_next(w);
}

static void on_setup_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        TemplateWarm *w = userdata;
        char what[64];

        w->command = guest_command_free(w->command);
        describe_setup(w, what, sizeof(what));
        if (error)
                fail_start(w, what, error);
        else if (exit->signaled || exit->status != 0)
                fail_exit(w, what, exit);
        else {
                w->n_run++;
                if (!keep(w, TEMPLATE_POINT_SETUP, w->n_run - 1, setup_go_on))
                        setup_go_on(w);
        }
}

static const GuestCommandCallbacks setup_callbacks = { .output = on_output, .done = on_setup_done };

static int run_setup(TemplateWarm *w) {
        char what[64], step[80];

        if (!w->spec->setup || !w->spec->setup[w->n_run])
                return 1;
        describe_setup(w, what, sizeof(what));
        (void) snprintf(step, sizeof(step), "running %s", what);
        w->callbacks->progress(step, step_types[WARM_SETUP].percent, w->userdata);
        /* Its number alone: what it is may be as secret as what it is given. */
        int n = snprintf(step, sizeof(step), "[%s]\n", what);
        w->callbacks->log(step, (size_t) n, w->userdata);
        return w->step == WARM_END ? 0 : run_shell(w, w->spec->setup[w->n_run], &setup_callbacks, &w->command, what);
}

static int start_setup(TemplateWarm *w) {
        w->n_run = w->spec->done.setup;
        return run_setup(w);
}

/* Steps. */

/* Those that this step unpacks. */
static bool copy_for_step(TemplateWarm *w) {
        while (w->n_run < w->spec->n_copies && template_copy_step(w->spec, w->n_run) != w->n_step)
                w->n_run++;
        if (w->n_run == w->spec->n_copies)
                return false;
        (void) start_copy(w);
        return true;
}

static void copied_for_step(TemplateWarm *w) {
        if (!copy_for_step(w))
                guest_steps_go_on(w->steps);
}

static bool on_between_steps(size_t n, bool done, void *userdata) {
        TemplateWarm *w = userdata;

        w->n_step = n;
        w->n_run = 0;
        return (done && keep(w, TEMPLATE_POINT_STEP, n - 1, copied_for_step)) || copy_for_step(w);
}

static bool on_step_begin(size_t n, void *userdata) {
        TemplateWarm *w = userdata;
        char step[48];

        (void) snprintf(step, sizeof(step), "running step %zu of %zu", n + 1, w->spec->n_steps);
        w->callbacks->progress(step, step_types[WARM_STEPS].percent, w->userdata);
        if (w->step == WARM_END)
                return false;
        w->callbacks->step(n + 1, w->userdata);
        return true;
}

static void on_step_log(const char *text, size_t size, void *userdata) {
        TemplateWarm *w = userdata;

        w->callbacks->log(text, size, w->userdata);
}

static void all_steps_done(TemplateWarm *w) {
        static const char line[] = "[all steps are done]\n";

        w->callbacks->log(line, strlen(line), w->userdata);
        w->callbacks->step(w->spec->n_steps + 1, w->userdata);
}

static void on_steps_done(GuestSteps *g, const char *what, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        TemplateWarm *w = userdata;

        if (error)
                fail_start(w, what, error);
        else if (what)
                fail_exit(w, what, exit);
        else {
                all_steps_done(w);
                warm_next(w);
        }
}

static const GuestStepsCallbacks steps_callbacks = {
        .between = on_between_steps,
        .begin = on_step_begin,
        .log = on_step_log,
        .done = on_steps_done,
};

static int run_steps(TemplateWarm *w) {
        const TemplateWarmSpec *s = w->spec;
        const StepState begin = { .user = s->user, .cwd = s->cwd, .env = s->env };

        if (s->n_steps == 0)
                return 1;
        int r = guest_steps_start(w->builder, s->steps, s->n_steps, s->done.steps, s->done.steps > 0 ? &s->done.state : &begin,
                                  &steps_callbacks, w, &w->steps);
        if (r > 0)
                all_steps_done(w);
        else if (r < 0)
                fail(w, r, "the first step: %s", strerror(-r));
        return r > 0;
}

/* Start. */

static const char *service_words(const TemplateWarm *w) {
        return w->spec->start ? "the program of --start" : "the image's own program (ENTRYPOINT and CMD; see --no-start)";
}

static void on_service_started(GuestCommand *c, void *userdata) {
        warm_next(userdata);
}

static void on_service_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        TemplateWarm *w = userdata;

        w->service = guest_command_free(w->service);
        if (error && w->spec->start)
                fail_start(w, service_words(w), error);
        else if (error)
                fail_error(w, service_words(w), error);
        else if (!exit->signaled && exit->status == 0)
                fail(w, -EIO, "%s ended with exit status 0, but it is to stay; one that goes into the background by "
                     "itself belongs into --setup", service_words(w));
        else
                fail_exit(w, service_words(w), exit);
}

static const GuestCommandCallbacks service_callbacks = {
        .started = on_service_started,
        .output = on_output,
        .done = on_service_done,
};

static int start_service(TemplateWarm *w) {
        static const char line[] = "[starting the image's own program]\n";

        if (w->spec->start)
                return run_shell(w, w->spec->start, &service_callbacks, &w->service, service_words(w));
        if (!w->spec->image_command)
                return 1;
        w->callbacks->log(line, strlen(line), w->userdata);
        return run_program(w, w->spec->image_command, &service_callbacks, &w->service, service_words(w));
}

/* Ready. */

static int run_ready(TemplateWarm *w);

static int on_ready_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        TemplateWarm *w = userdata;

        w->ready_timer = sd_event_source_disable_unref(w->ready_timer);
        (void) run_ready(w);
        return 0;
}

static int on_ready_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        char limit[FORMAT_USEC_MAX];
        TemplateWarm *w = userdata;

        fail(w, -ETIMEDOUT, "it was not ready within %s: the command of --ready did not succeed (see --ready-timeout)",
             format_usec(limit, w->spec->ready_timeout_usec));
        return 0;
}

uint64_t template_warm_ready_pause(uint64_t took_usec) {
        return MAX(READY_INTERVAL_USEC, MIN(took_usec, READY_INTERVAL_MAX_USEC / 2) * 2);
}

static int wait_for_next_ready(TemplateWarm *w) {
        uint64_t now;

        int r = sd_event_now(w->manager->event, CLOCK_MONOTONIC, &now);
        return r < 0 ? r : sd_event_add_time_relative(w->manager->event, &w->ready_timer, CLOCK_MONOTONIC,
                                                      template_warm_ready_pause(now - w->ready_began_usec), 0,
                                                      on_ready_timer, w);
}

static void on_ready_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        TemplateWarm *w = userdata;

        w->command = guest_command_free(w->command);
        if (error)
                fail_start(w, "the command of --ready", error);
        else if (!exit->signaled && exit->status == 0) {
                w->ready_deadline = sd_event_source_disable_unref(w->ready_deadline);
                warm_next(w);
        } else if (wait_for_next_ready(w) < 0)
                fail(w, -ENOMEM, "out of memory");
}

/* Without its output: it fails again and again, and means to. */
static const GuestCommandCallbacks ready_callbacks = { .done = on_ready_done };

static int run_ready(TemplateWarm *w) {
        (void) sd_event_now(w->manager->event, CLOCK_MONOTONIC, &w->ready_began_usec);
        return run_shell(w, w->spec->ready, &ready_callbacks, &w->command, "the command of --ready");
}

static int start_ready(TemplateWarm *w) {
        if (!w->spec->ready)
                return 1;
        int r = sd_event_add_time_relative(w->manager->event, &w->ready_deadline, CLOCK_MONOTONIC,
                                           w->spec->ready_timeout_usec, 0, on_ready_deadline, w);
        if (r < 0) {
                fail(w, r, "setting the time limit of --ready: %s", strerror(-r));
                return 0;
        }
        return run_ready(w);
}

/* Exec: nothing, by the way that everything goes. */

static char *const true_argv[] = { (char *) "true", NULL };
static char *const shell_argv[] = { (char *) "sh", (char *) "-c", (char *) ":", NULL };
static char *const *const exec_programs[] = { true_argv, shell_argv, NULL /* a file */ };

static int run_exec(TemplateWarm *w);

static void exec_next(TemplateWarm *w) {
        w->n_run++;
        if (run_exec(w) > 0)
                warm_next(w);
}

static void on_exec_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        TemplateWarm *w = userdata;
        int r = error ? sd_bus_error_get_errno(error) : 0;

        w->command = guest_command_free(w->command);
        /* An image need not have either, and looking for one warms as well. */
        if (r != 0 && r != ENOENT && r != EACCES)
                fail_error(w, "running a program", error);
        else
                exec_next(w);
}

static const GuestCommandCallbacks exec_callbacks = { .done = on_exec_done };

static void on_touched(GuestTouch *t, int r, void *userdata) {
        TemplateWarm *w = userdata;

        w->touch = guest_touch_free(w->touch);
        if (r < 0)
                fail(w, r, "writing a file: %s", strerror(-r));
        else
                exec_next(w);
}

static int run_exec(TemplateWarm *w) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        char *const *argv = exec_programs[w->n_run % ELEMENTSOF(exec_programs)];
        int r;

        if (w->n_run == EXEC_ROUNDS * ELEMENTSOF(exec_programs))
                return 1;
        if (argv)
                r = guest_command_start(w->builder, &(ExecSpec) { .argv = (char **) argv }, &exec_callbacks, w, &w->command, &e);
        else
                r = guest_touch_start(w->builder, TOUCHED_FILE, on_touched, w, &w->touch, &e);
        if (r < 0)
                fail_error(w, "running a program", &e);
        return 0;
}

/* Freeze and save. */

static void on_frozen(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        TemplateWarm *w = userdata;

        if (more || w->step != WARM_FREEZE)
                return;
        if (error)
                fail_error(w, "the guest could not be frozen", error);
        else
                warm_next(w);
}

static int start_freeze(TemplateWarm *w) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(64);

        if (sandbox_agent_wait(w->builder, AGENT_FREEZE, &body, on_frozen, w, &e) < 0)
                fail_error(w, "the guest could not be frozen", &e);
        return 0;
}

static void on_saved(Sandbox *s, const sd_bus_error *error, Snapshot *snapshot, void *userdata) {
        TemplateWarm *w = userdata;

        if (w->step != WARM_SAVE)
                return;
        if (error)
                fail_error(w, "the guest could not be saved", error);
        else {
                w->callbacks->progress(step_types[WARM_END].words, step_types[WARM_END].percent, w->userdata);
                warm_end(w, 0, NULL);
        }
}

static int start_save(TemplateWarm *w) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        if (sandbox_snapshot(w->builder, SNAPSHOT_TEMPLATE, NULL, on_saved, w, &e) < 0)
                fail_error(w, "the guest could not be saved", &e);
        return 0;
}

static const WarmStepType step_types[_WARM_STEP_MAX] = {
        [WARM_BOOT] = { "booting a guest", 0, NULL },
        [WARM_COPY] = { "copying files into the guest", 20, run_copy },
        [WARM_SETUP] = { "setting the guest up", 25, start_setup },
        [WARM_STEPS] = { "running the steps", 30, run_steps },
        [WARM_START] = { "starting the program that stays", 60, start_service },
        [WARM_READY] = { "waiting until it is ready", 65, start_ready },
        [WARM_EXEC] = { "warming up", 75, run_exec },
        [WARM_FREEZE] = { "freezing the guest", 80, start_freeze },
        [WARM_SAVE] = { "saving the guest", 85, start_save },
        [WARM_END] = { "ending the guest", 98, NULL },
};

/* Boot and end. */

static void on_booted(Sandbox *s, const sd_bus_error *error, void *userdata) {
        TemplateWarm *w = userdata;

        if (w->step != WARM_BOOT)
                return;
        if (sd_bus_error_is_set(error))
                fail_error(w, "boot", error);
        else
                warm_next(w);
}

static void explain_end(TemplateWarm *w) {
        _cleanup_free_ char *tail = sandbox_console_tail(w->builder), *before = TAKE_PTR(w->message);

        if (asprintf(&w->message, "the guest ended (%s, status %u) while it was being warmed%s%s. Its console's last lines:\n%s",
                     vmm_exit_reason_to_string(w->builder->exit_reason), w->builder->exit_status, before ? ": " : "",
                     strempty(before), isempty(tail) ? "  (nothing was printed)" : tail) < 0)
                w->message = NULL;
}

static void on_gone(Sandbox *s, const sd_bus_error *error, void *userdata) {
        TemplateWarm *w = userdata;
        bool by_itself = s->exit_reason != VMM_EXIT_KILLED;

        if (w->step != WARM_END)
                warm_end(w, -EIO, NULL);
        /* A boot that failed says it by itself. What it was killed for is known, too. */
        if (w->result < 0 && by_itself && s->priv->was_running && w->result != -ECANCELED)
                explain_end(w);
        w->builder = NULL;
        /* Once nobody holds the template any more. */
        (void) sd_event_source_set_enabled(w->done, SD_EVENT_ONESHOT);
}

static int on_done(sd_event_source *source, void *userdata) {
        TemplateWarm *w = userdata;

        w->callbacks->done(w->result, w->message, w->userdata);
        return 0;
}

void template_warm_cancel(TemplateWarm *w) {
        warm_end(w, -ECANCELED, NULL);
}

TemplateWarm *template_warm_free(TemplateWarm *w) {
        if (!w)
                return NULL;
        w->step = WARM_END;
        w->command = guest_command_free(w->command);
        w->service = guest_command_free(w->service);
        w->touch = guest_touch_free(w->touch);
        w->copy = guest_copy_free(w->copy);
        w->steps = guest_steps_free(w->steps);
        if (w->builder) {
                sandbox_end(w->builder, VMM_EXIT_KILLED);
                sandbox_free(w->builder);
        }
        sd_event_source_disable_unref(w->ready_deadline);
        sd_event_source_disable_unref(w->ready_timer);
        sd_event_source_disable_unref(w->done);
        free(w->message);
        free(w);
        return NULL;
}

int template_warm_start(Manager *m, Template *t, const TemplateWarmSpec *spec, LoadedPolicy *policy,
                        const TemplateWarmCallbacks *callbacks, void *userdata, TemplateWarm **ret, sd_bus_error *error) {
        const SandboxSpec sandbox = {
                .template = t,
                .owner_uid = t->owner_uid,
                .tenant = t->tenant,
                .timeout_usec = UINT64_MAX,
                .idle_timeout_usec = UINT64_MAX,
                .policy = policy,
                .builder = true,
        };
        TemplateWarm *w = new0(TemplateWarm, 1);
        if (!w)
                return sd_bus_error_set_errno(error, ENOMEM);

        *w = (TemplateWarm) {
                .manager = m,
                .template = t,
                .spec = spec,
                .callbacks = callbacks,
                .userdata = userdata,
        };
        int r = sd_event_add_defer(m->event, &w->done, on_done, w);
        if (r >= 0)
                r = sd_event_source_set_enabled(w->done, SD_EVENT_OFF);
        if (r < 0)
                (void) sd_bus_error_set_errno(error, r);
        else
                r = sandbox_create(m, &sandbox, on_booted, w, &w->builder, error);
        if (r >= 0)
                r = sandbox_wait_end(w->builder, on_gone, w, error);
        if (r < 0) {
                template_warm_free(w);
                return r;
        }
        *ret = w;
        return 0;
}
