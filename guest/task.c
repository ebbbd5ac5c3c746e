/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent.h"
#include "guest/task.h"

static void on_step(LoopSource *s, uint32_t events) {
        Task *t = s->userdata;
        t->step(t);
}

int task_start(Task *t, const Reply *reply, void (*step)(Task *t), void (*done)(Task *t)) {
        Control *c = reply->control;

        if (c->n_tasks >= TASKS_MAX)
                return -EBUSY;
        int r = loop_add_idle(&c->agent->loop, &t->source, on_step, t);
        if (r < 0)
                return r;

        t->reply = *reply;
        t->step = step;
        t->done = done;
        LIST_PREPEND(c->tasks, t);
        c->n_tasks++;
        return 0;
}

void task_free(Task *t) {
        Control *c = t->reply.control;

        LIST_REMOVE(c->tasks, t);
        c->n_tasks--;
        loop_remove(&t->source);
        t->done(t);
}

void task_sleep(Task *t) {
        (void) loop_modify(&t->source, 0);
}

void tasks_wake(Control *c) {
        for (Task *t = c->tasks; t; t = t->list_next)
                if (t->source.events == 0)
                        (void) loop_modify(&t->source, EPOLLIN);
}
