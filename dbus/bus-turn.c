/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-objects.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-turn.h"

#define CALLS_MAX 64U

typedef struct Queue {
        char *what;
        sd_bus_message *calls[CALLS_MAX];   /* the first one has the turn */
        size_t n;
        bool kept;
        sd_event_source *watch;             /* runs after the first one was dispatched */
        struct Queue *next;
} Queue;

static Queue *queues = NULL;

static Queue *queue_of(const sd_bus_message *m) {
        for (Queue *q = queues; q; q = q->next)
                if (q->calls[0] == m)
                        return q;
        return NULL;
}

static Queue *queue_free(Queue *q) {
        Queue **at = &queues;

        while (*at && *at != q)
                at = &(*at)->next;
        if (*at)
                *at = q->next;
        for (size_t i = 0; i < q->n; i++)
                sd_bus_message_unref(q->calls[i]);
        sd_event_source_disable_unref(q->watch);
        free(q->what);
        free(q);
        return NULL;
}

static int queue_find(const char *what, Queue **ret) {
        for (Queue *q = queues; q; q = q->next)
                if (streq(q->what, what)) {
                        *ret = q;
                        return 0;
                }

        Queue *q = new0(Queue, 1);
        if (!q)
                return -ENOMEM;
        q->what = strdup(what);
        if (!q->what) {
                free(q);
                return -ENOMEM;
        }
        q->next = queues;
        *ret = queues = q;
        return 0;
}

int bus_turn_take(sd_bus_message *m, const char *what, sd_bus_error *error) {
        Queue *q;

        int r = queue_find(what, &q);
        if (r < 0)
                return r;
        for (size_t i = 0; i < q->n; i++)
                if (q->calls[i] == m)
                        return i == 0;
        if (q->n == CALLS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Too many calls about %s wait already, try again", what);

        q->calls[q->n++] = sd_bus_message_ref(m);
        if (q->n == 1)
                return 1;
        polkit_hold(bus_front->polkit, m);
        return 0;
}

void bus_turn_keep(sd_bus_message *m) {
        Queue *q = queue_of(m);

        assert(q);
        q->kept = true;
}

static void next_turn(Queue *q) {
        q->kept = false;
        sd_bus_message_unref(q->calls[0]);
        memmove(q->calls, q->calls + 1, --q->n * sizeof(q->calls[0]));
        if (q->n > 0 && bus_front)
                bus_again(q->calls[0]);
        else
                queue_free(q);
}

void bus_turn_end(sd_bus_message *m) {
        Queue *q = queue_of(m);

        if (q)
                next_turn(q);
}

void bus_turn_leave(sd_bus_message *m) {
        Queue *q = queue_of(m);

        if (q && !q->kept && !bus_policy_is_loading(m))
                next_turn(q);
}

static int on_watch(sd_event_source *source, void *userdata) {
        Queue *q = userdata;

        bus_turn_leave(q->calls[0]);
        return 0;
}

void bus_turn_watch(sd_bus_message *m) {
        Queue *q = queue_of(m);
        int r = 0;

        if (!q)
                return;
        if (q->watch)
                r = sd_event_source_set_enabled(q->watch, SD_EVENT_ONESHOT);
        else {
                r = sd_event_add_defer(bus_front->manager->event, &q->watch, on_watch, q);
                if (r >= 0)
                        r = sd_event_source_set_priority(q->watch, SD_EVENT_PRIORITY_IDLE);
        }
        /* Without memory it could be held for ever: the others go first. */
        if (r < 0)
                next_turn(q);
}

void bus_turns_detach(void) {
        while (queues)
                queue_free(queues);
}
