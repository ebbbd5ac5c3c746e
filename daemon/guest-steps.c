/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/guest-steps.h"

/* Of the values of one ENV. */
#define OUTPUT_MAX (256U * 1024U)
#define WHAT_MAX 64U

struct GuestSteps {
        Sandbox *sandbox;
        const TemplateStep *steps;
        size_t n_steps, n_done;
        StepState state;
        const GuestStepsCallbacks *callbacks;
        void *userdata;

        GuestCommand *command;
        StepCommand running;       /* what that was made of */
        char *output;              /* of one that is captured; a NUL behind it */
        size_t output_size;
        bool too_long;
};

static int run_next(GuestSteps *g);

static void describe(const GuestSteps *g, char buf[static WHAT_MAX]) {
        (void) snprintf(buf, WHAT_MAX, "step %zu of %zu (%s)", g->n_done + 1, g->n_steps, g->steps[g->n_done].type);
}

static void drop_command(GuestSteps *g) {
        g->command = guest_command_free(g->command);
        step_command_done(&g->running);
        if (g->output)
                explicit_bzero(g->output, g->output_size);
        free(g->output);
        g->output = NULL;
        g->output_size = 0;
}

GuestSteps *guest_steps_free(GuestSteps *g) {
        if (!g)
                return NULL;
        drop_command(g);
        step_state_done(&g->state);
        free(g);
        return NULL;
}

const StepState *guest_steps_state(const GuestSteps *g) {
        return &g->state;
}

static void capture(GuestSteps *g, const char *text, size_t size) {
        char *grown = size <= OUTPUT_MAX - g->output_size ? realloc(g->output, g->output_size + size + 1) : NULL;

        if (!grown) {
                g->too_long = true;
                return;
        }
        memcpy(grown + g->output_size, text, size);
        g->output = grown;
        g->output_size += size;
        g->output[g->output_size] = 0;
}

static void on_output(GuestCommand *c, const char *text, size_t size, void *userdata) {
        GuestSteps *g = userdata;

        if (g->running.captured)
                capture(g, text, size);
        else
                g->callbacks->log(text, size, g->userdata);
}

static void end_with(GuestSteps *g, int r, const char *why) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        char what[WHAT_MAX];

        describe(g, what);
        (void) sd_bus_error_set_errnof(&e, r, "%s", why);
        g->callbacks->done(g, what, &e, NULL, g->userdata);
}

static void on_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        GuestSteps *g = userdata;
        char what[WHAT_MAX];

        if (error || exit->signaled || exit->status != 0) {
                describe(g, what);
                g->callbacks->done(g, what, error, exit, g->userdata);
                return;
        }
        int r = g->too_long ? -E2BIG : step_state_apply(&g->state, &g->steps[g->n_done], strempty(g->output), g->output_size);
        if (r < 0) {
                end_with(g, r, r == -EBADMSG ? "the shell of this image did not print the values" : strerror(-r));
                return;
        }
        drop_command(g);
        g->n_done++;
        if (!g->callbacks->between(g->n_done, true, g->userdata))
                guest_steps_go_on(g);
}

static const GuestCommandCallbacks command_callbacks = { .output = on_output, .done = on_done };

static int run_next(GuestSteps *g) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        char what[WHAT_MAX], line[WHAT_MAX + 4];

        if (g->n_done == g->n_steps)
                return 1;
        describe(g, what);
        if (!g->callbacks->begin(g->n_done, g->userdata))
                return 0;
        /* Its number alone: what it is may be as secret as what it is given. */
        int n = snprintf(line, sizeof(line), "[%s]\n", what);
        g->callbacks->log(line, (size_t) n, g->userdata);

        int r = step_command_make(&g->steps[g->n_done], &g->state, &g->running);
        if (r < 0)
                return r;
        const ExecSpec spec = {
                .argv = g->running.argv,
                .env = g->running.with_env ? g->state.env : NULL,
                .cwd = g->running.cwd,
                .user = g->running.user,
        };
        return guest_command_start(g->sandbox, &spec, &command_callbacks, g, &g->command, &e);
}

void guest_steps_go_on(GuestSteps *g) {
        int r = run_next(g);

        if (r > 0)
                g->callbacks->done(g, NULL, NULL, NULL, g->userdata);
        else if (r < 0)
                end_with(g, r, strerror(-r));
}

int guest_steps_start(Sandbox *s, const TemplateStep *steps, size_t n, size_t n_done, const StepState *state,
                      const GuestStepsCallbacks *callbacks, void *userdata, GuestSteps **ret) {
        GuestSteps *g = new0(GuestSteps, 1);
        if (!g)
                return -ENOMEM;

        *g = (GuestSteps) { .sandbox = s, .steps = steps, .n_steps = n, .n_done = n_done, .callbacks = callbacks, .userdata = userdata };
        int r = step_state_set(&g->state, state->user, state->cwd, state->env);
        if (r < 0) {
                guest_steps_free(g);
                return r;
        }
        /* Before the first callback. */
        *ret = g;
        return g->callbacks->between(n_done, false, userdata) ? 0 : run_next(g);
}
