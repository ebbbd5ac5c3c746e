/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "gateway/build-call.h"
#include "gateway/network.h"
#include "gateway/uploads.h"

/* Of the archives, in the guest. */
#define ARCHIVES "/.cube-build"
#define READY_DEFAULT "sleep 20"
#define READY_TIMEOUT_USEC (UINT64_C(10) * 60 * USEC_PER_SEC)

int build_call_archives(const Build *b, const BuildSpec *s, int *ret_fd, ErrorText *error) {
        const Gateway *g = b->gateway;
        bool any = false;

        for (size_t i = 0; i < s->n_steps; i++)
                any = any || s->steps[i].files_hash;
        if (!any)
                return 0;
        int k = build_directory_make(g->builds_fd, b->id, ret_fd);
        for (size_t i = 0; k >= 0 && i < s->n_steps; i++) {
                char name[24];

                if (!s->steps[i].files_hash)
                        continue;
                (void) snprintf(name, sizeof(name), "%zu", i + 1);
                k = build_directory_add(*ret_fd, name, g->files_fd, b->tenant, s->steps[i].files_hash);
                if (k == -ENOENT)
                        k = error_text(error, "step %zu: its files were not uploaded", i + 1);
        }
        return k;
}

static int append_strings(sd_bus_message *m, json_object *list) {
        int k = sd_bus_message_open_container(m, 'a', "s");

        for (size_t i = 0; k >= 0 && i < json_object_array_length(list); i++)
                k = sd_bus_message_append(m, "s", json_object_get_string(json_object_array_get_idx(list, i)));
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int append_copy_step(sd_bus_message *m, const BuildStep *s, size_t at) {
        char archive[64];

        (void) snprintf(archive, sizeof(archive), ARCHIVES "/%zu", at);
        int k = sd_bus_message_open_container(m, 'a', "s");
        if (k >= 0)
                k = sd_bus_message_append(m, "ss", archive, s->source);
        for (size_t i = 1; k >= 0 && i < json_object_array_length(s->args); i++)
                k = sd_bus_message_append(m, "s", json_object_get_string(json_object_array_get_idx(s->args, i)));
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int append_step(sd_bus_message *m, const BuildStep *s, size_t at) {
        int k = sd_bus_message_open_container(m, 'r', "sas");

        if (k >= 0)
                k = sd_bus_message_append(m, "s", s->type);
        if (k >= 0)
                k = s->files_hash ? append_copy_step(m, s, at) : append_strings(m, s->args);
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static int open_option(sd_bus_message *m, const char *name, const char *type) {
        int k = sd_bus_message_open_container(m, 'e', "sv");

        if (k >= 0)
                k = sd_bus_message_append(m, "s", name);
        return k < 0 ? k : sd_bus_message_open_container(m, 'v', type);
}

static int close_option(sd_bus_message *m) {
        int k = sd_bus_message_close_container(m);

        return k < 0 ? k : sd_bus_message_close_container(m);
}

/* Before the client's those that give an image the user whom E2B's have; behind them one that leaves nothing of the archives. */
static int append_steps(sd_bus_message *m, const BuildSpec *s, bool archives) {
        int k = open_option(m, "steps", "a(sas)");

        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "(sas)");
        if (k >= 0 && !isempty(s->from_image))
                k = sd_bus_message_append(m, "(sas)(sas)", "USER", 2, "user", "true", "WORKDIR", 1, "/home/user");
        for (size_t i = 0; k >= 0 && i < s->n_steps; i++)
                k = append_step(m, &s->steps[i], i + 1);
        if (k >= 0 && archives)
                k = sd_bus_message_append(m, "(sas)", "RUN", 2, "rm -rf " ARCHIVES, "root");
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        return k < 0 ? k : close_option(m);
}

static int append_aliases(sd_bus_message *m, const Build *b) {
        char name[CUBED_NAME_MAX];
        int k = open_option(m, "alias", "as");

        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; k >= 0 && i < b->request.n_tags; i++) {
                template_cubed_name(b->tenant, b->request.name, b->request.tags[i], name);
                k = sd_bus_message_append(m, "s", name);
        }
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        return k < 0 ? k : close_option(m);
}

/* It may reach what a sandbox may that says nothing. */
static int append_network(sd_bus_message *m, const GatewayConfig *config) {
        int k = open_option(m, "build-network-policy", "a{sv}");

        if (k >= 0)
                k = network_append(m, &(NetworkSpec) { .internet = config->default_internet });
        return k < 0 ? k : close_option(m);
}

static int append_programs(sd_bus_message *m, const BuildSpec *s) {
        const char *ready = s->ready ?: s->start ? READY_DEFAULT : NULL;
        int k = s->start ? sd_bus_message_append(m, "{sv}", "start", "s", s->start) : 0;

        if (k >= 0 && ready)
                k = sd_bus_message_append(m, "{sv}", "ready", "s", ready);
        if (k >= 0 && ready)
                k = sd_bus_message_append(m, "{sv}", "ready-timeout", "t", READY_TIMEOUT_USEC);
        return k;
}

static int append_force(sd_bus_message *m, const BuildSpec *s) {
        size_t before = isempty(s->from_image) ? 0 : IMAGE_STEPS;

        int k = s->force ? sd_bus_message_append(m, "{sv}", "no-cache", "b", true) : 0;
        if (k >= 0 && s->force_step > 0)
                k = sd_bus_message_append(m, "{sv}", "force-step", "u", (uint32_t) (before + s->force_step));
        return k;
}

int build_call_append(sd_bus_message *m, const Build *b, const BuildSpec *s, int archives_fd) {
        int k = sd_bus_message_append(m, "{sv}", "tenant", "s", b->tenant);

        if (k >= 0)
                k = append_aliases(m, b);
        if (k >= 0 && b->request.cpus > 0)
                k = sd_bus_message_append(m, "{sv}", "cpus", "u", b->request.cpus);
        if (k >= 0 && b->request.memory > 0)
                k = sd_bus_message_append(m, "{sv}", "memory", "t", b->request.memory);
        if (k >= 0 && archives_fd >= 0)
                k = sd_bus_message_append(m, "{sv}", "copy", "a(hs)", 1, archives_fd, ARCHIVES);
        if (k >= 0 && (s->n_steps > 0 || !isempty(s->from_image)))
                k = append_steps(m, s, archives_fd >= 0);
        if (k >= 0)
                k = append_programs(m, s);
        if (k >= 0)
                k = append_force(m, s);
        return k < 0 ? k : append_network(m, &b->gateway->config);
}
