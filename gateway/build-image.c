/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "gateway/build-call.h"
#include "gateway/build-image.h"
#include "gateway/cubed.h"

/* Another build's call has its turn, cubed has no room or is away: it is tried again. */
#define TURN_USEC (100 * USEC_PER_MSEC)
#define BUSY_USEC (2 * USEC_PER_SEC)
/* So long it is tried. */
#define ROOM_USEC (30 * 60 * USEC_PER_SEC)

static int on_turn(sd_event_source *source, uint64_t usec, void *userdata);

static void try_later(Build *b, uint64_t usec) {
        b->source = sd_event_source_disable_unref(b->source);
        int k = sd_event_add_time_relative(b->gateway->event, &b->source, CLOCK_MONOTONIC, usec, 0, on_turn, b);
        if (k < 0)
                build_fail(b, "The gateway has no memory for this build", "base");
}

static int on_asked(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *error = sd_bus_message_get_error(reply);
        const char *job = NULL;
        Build *b = userdata;

        b->slot = sd_bus_slot_unref(b->slot);
        b->asking = false;
        bool later = error && (sd_bus_error_has_name(error, BUS_ERROR_BUSY) || cubed_is_away(error));
        if (later && now_usec() < b->give_up_usec)
                try_later(b, BUSY_USEC);
        else if (error)
                build_fail(b, client_error_text(error, 0), "base");
        else if (sd_bus_message_read(reply, "o", &job) < 0)
                build_fail(b, "cubed does not say what became of this build", "base");
        else {
                build_source_done(b);
                build_follow(b, job);
        }
        return 1;
}

static int make_call(Build *b, const BuildSpec *s, sd_bus_message **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char name[CUBED_NAME_MAX];

        template_cubed_name(b->tenant, b->request.name, b->id, name);
        int k = sd_bus_message_new_method_call(b->gateway->bus, &m, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "BuildTemplate");
        if (k >= 0)
                k = sd_bus_message_append(m, "sh", name, b->layout_fd);
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "{sv}");
        /* E2B starts nothing that the image itself would. */
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}{sv}", "image", "s", "", "no-start", "b", true);
        if (k >= 0)
                k = build_call_append(m, b, s, b->archives_fd);
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        if (k < 0)
                return k;
        *ret = TAKE_PTR(m);
        return 0;
}

static int on_turn(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        Build *b = userdata;
        BuildSpec s;

        b->source = sd_event_source_disable_unref(b->source);
        /* cubed asks polkit, and has few questions of a client open at once. */
        if (builds_is_asking(b->builds)) {
                try_later(b, TURN_USEC);
                return 0;
        }
        int k = build_spec_parse(b->body, &s, &error);
        if (k >= 0) {
                k = make_call(b, &s, &m);
                build_spec_done(&s);
        }
        if (k >= 0)
                k = sd_bus_call_async(b->gateway->bus, &b->slot, m, on_asked, b, UINT64_MAX);
        if (k < 0)
                build_fail(b, "cubed could not be asked for this build", "base");
        b->asking = k >= 0;
        return 0;
}

static void on_log(const char *text, size_t size, void *userdata) {
        Build *b = userdata;

        build_log_feed(&b->log, text, size, wall_usec());
}

static void on_fetched(int layout_fd, const char *why, void *userdata) {
        Build *b = userdata;

        if (layout_fd < 0) {
                build_fail(b, why, "base");
                return;
        }
        build_log_end(&b->log, wall_usec());
        b->layout_fd = fcntl(layout_fd, F_DUPFD_CLOEXEC, 3);
        if (b->layout_fd < 0)
                build_fail(b, "The image could not be opened", "base");
        else
                try_later(b, 0);
}

int build_fetch(Build *b, json_object *body, const BuildSpec *s, int *archives_fd) {
        const GatewayConfig *c = &b->gateway->config;
        ImageFetchSpec spec = {
                .socket = b->gateway->fetch_socket, .relay_socket = b->gateway->fetch_relay_socket,
                .user = s->user, .password = s->password, .networks = c->image_networks, .bytes_max = c->image_max,
                .timeout_usec = c->image_usec,
        };
        char text[IMAGE_NAME_MAX + 16];

        int k = image_ref_parse(s->from_image, &spec.ref);
        if (k >= 0)
                k = image_fetch_start(b->gateway->event, &spec, on_log, on_fetched, b, &b->fetch);
        if (k < 0)
                return k;
        (void) snprintf(text, sizeof(text), "Fetching %s", spec.ref.name);
        build_log_add(&b->log, LOG_LEVEL_INFO, wall_usec(), text);
        b->body = json_object_get(body);
        b->archives_fd = TAKE_FD(*archives_fd);
        b->give_up_usec = now_usec() + ROOM_USEC;
        return 0;
}
