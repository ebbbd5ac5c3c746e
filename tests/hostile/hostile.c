/* SPDX-License-Identifier: Apache-2.0 */
#include "hostile.h"
#include "tests/payload/agent.h"

static const Attack *const tables[] = {
        queue_attacks, register_attacks, device_attacks, vsock_attacks, race_attacks, flood_attacks, machine_attacks,
};

#define LAST_BYTES 8192U

static char *text;
static uint32_t text_size, text_len;
/* Of the attack before, whose own streams went with vsock. */
static char last[LAST_BYTES];
static uint32_t last_len;

static void put(const char *s) {
        size_t n = MIN(strlen(s), (size_t) (text_size - text_len));

        memcpy(text + text_len, s, n);
        text_len += (uint32_t) n;
}

static void put_v(uint64_t v) {
        char number[24];

        (void) format_number(number, v);
        put(number);
}

void say(const char *what, int queue, const char *outcome) {
        put(what);
        if (queue >= 0) {
                put("/");
                put_v((uint64_t) queue);
        }
        put(" ");
        put(outcome);
        put("\n");
}

void say_number(const char *what, const char *which, uint64_t v) {
        put(what);
        put(" ");
        put(which);
        put(" ");
        put_v(v);
        put("\n");
}

void say_alive(const Target *t) {
        Raw r;
        uint32_t len;

        for (unsigned i = 0; i < t->n_queues; i++) {
                if (!raw_open(&r, t, 0, 16)) {
                        say(t->name, (int) i, "does not start");
                        return;
                }
                if (!raw_queue_is_read(&r, i))
                        continue;
                Outcome o = raw_good_request(&r, i, &len);
                if (o != OUTCOME_USED) {
                        say(t->name, (int) i, outcome_name(o));
                        return;
                }
        }
        /* Nothing of ours is left to it. */
        raw_reset(&r);
        say(t->name, -1, "alive");
}

static const Attack *find(const char *name) {
        for (unsigned i = 0; i < ELEMENTSOF(tables); i++)
                for (const Attack *a = tables[i]; a->name; a++)
                        if (streq(a->name, name))
                                return a;
        return NULL;
}

static void list(void) {
        for (unsigned i = 0; i < ELEMENTSOF(tables); i++)
                for (const Attack *a = tables[i]; a->name; a++) {
                        put(a->name);
                        put("\n");
                }
}

static void alive(void) {
        for (unsigned i = 0; i < n_targets; i++)
                say_alive(&targets[i]);
}

bool extra_known(const char *name) {
        return streq(name, "attack") || streq(name, "attacks") || streq(name, "alive") || streq(name, "last");
}

uint32_t extra_run(const Args *args, char *ret_text, uint32_t size, uint32_t *ret_len) {
        const Attack *a = args->argc == 2 ? find(args->argv[1]) : NULL;

        text = ret_text;
        text_size = size;
        text_len = 0;
        if (streq(args->argv[0], "last")) {
                text_len = *ret_len = MIN(last_len, size);
                memcpy(text, last, text_len);
                return 0;
        }
        if (streq(args->argv[0], "alive"))
                alive();
        else if (streq(args->argv[0], "attacks"))
                list();
        else if (a)
                a->run();
        *ret_len = text_len;
        last_len = MIN(text_len, LAST_BYTES);
        memcpy(last, text, last_len);
        put_string("hostile: done\n");

        /* Even where vsock was not the aim: a write to nowhere in particular may have met it. */
        if (!agent_restart()) {
                put_string("hostile: vsock does not come up\n");
                power_off();
        }
        return a || args->argc == 1 ? 0 : 127;
}
