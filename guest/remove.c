/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/remove-tree.h"
#include "guest/remove.h"
#include "guest/task.h"

#define REMOVE_STEP 256U

typedef struct Removal {
        Task task;
        TreeRemoval tree;
} Removal;

static void removal_free(Removal *x) {
        tree_removal_done(&x->tree);
        free(x);
}

static void removal_done(Task *t) {
        removal_free((Removal *) t);
}

static void removal_step(Task *t) {
        Removal *x = (Removal *) t;
        int r = t->reply.control->agent->frozen ? -ECANCELED : 1;

        for (unsigned i = 0; r > 0 && i < REMOVE_STEP; i++)
                r = tree_removal_next(&x->tree);
        if (r > 0)
                return;

        if (r < 0)
                reply_error(&t->reply, r, "%s: in %s: %s", x->tree.path, tree_removal_where(&x->tree), strerror(-r));
        else
                reply_ok(&t->reply, NULL);
        task_free(t);
}

void handle_remove(Agent *a, Request *q, Reply reply) {
        Removal *x = new0(Removal, 1);
        if (!x) {
                reply_result(&reply, -ENOMEM, q->path);
                return;
        }

        x->tree.path = TAKE_PTR(q->path);
        int r = tree_removal_begin(&x->tree, q->recursive);
        if (r > 0) {
                r = task_start(&x->task, &reply, removal_step, removal_done);
                if (r >= 0)
                        return;
        }
        reply_result(&reply, r, x->tree.path);
        removal_free(x);
}
