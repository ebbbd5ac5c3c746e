/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A control request that takes long, e.g. removing a large tree: done in steps between the other
 * events, so that streams and further requests go on. Owned by the control stream's list; ends by
 * task_free() from its own step. */

#include "guest/control.h"
#include "guest/list.h"

#define TASKS_MAX 64U

struct Task {
        LIST_FIELDS(Task);
        LoopSource source;
        Reply reply;
        void (*step)(Task *t);
        void (*done)(Task *t);
};

/* The task is the head of a larger object that step and done know. -EBUSY above TASKS_MAX, and then
 * the object is still the caller's. */
int task_start(Task *t, const Reply *reply, void (*step)(Task *t), void (*done)(Task *t));
void task_free(Task *t);
void task_sleep(Task *t);
void tasks_wake(Control *c);
