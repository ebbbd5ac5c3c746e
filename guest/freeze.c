/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <sys/wait.h>

#include "guest/agent.h"
#include "guest/freeze.h"
#include "guest/machine.h"
#include "guest/request.h"
#include "guest/stream.h"

static int run_freeze(const void *userdata) {
        const Freeze *f = userdata;
        return -machine_freeze(f->disk);
}

static int thaw(Agent *a) {
        int r = a->frozen ? machine_thaw() : 0;

        if (r >= 0)
                a->frozen = false;
        return r;
}

static void on_frozen(Helper *h, int status) {
        Agent *a = h->agent;
        Freeze *f = &a->freeze;

        bool killed = !WIFEXITED(status), thaw_owed = f->thaw_owed;
        int r = killed ? -ECANCELED : -WEXITSTATUS(status);

        if (r < 0 && !killed)
                a->frozen = false;
        f->thaw_owed = false;
        /* One that was killed, which anybody in the guest may do, may have frozen it before. */
        int k = killed || thaw_owed ? thaw(a) : 0;
        envd_resume(a);
        reply_result(&f->reply, r >= 0 && thaw_owed ? -ECANCELED : r, "freezing");
        if (thaw_owed)
                reply_result(&f->thaw_reply, k, "thawing the file system");
}

int freeze_end(Agent *a) {
        /* Waits: it would else freeze behind our back what was thawed. */
        helper_end(&a->freeze.helper);
        int r = thaw(a);
        envd_resume(a);
        return r;
}

void handle_freeze(Agent *a, Request *q, Reply reply) {
        Freeze *f = &a->freeze;

        if (f->helper.pid != 0) {
                reply_error(&reply, -EBUSY, "a freeze is under way");
                return;
        }
        f->reply = reply;
        f->disk = q->freeze_disk;

        int r = helper_start(&f->helper, a, run_freeze, f, machine_disk_fd(), on_frozen);
        if (r < 0) {
                reply_result(&reply, r, "freezing");
                return;
        }
        if (f->disk) {
                a->frozen = true;
                streams_freeze(a);
        }
        (void) malloc_trim(0);
}

void handle_thaw(Agent *a, Request *q, Reply reply) {
        Freeze *f = &a->freeze;

        if (f->thaw_owed)
                reply_error(&reply, -EBUSY, "a thaw is under way");
        else if (f->helper.pid != 0) {
                /* Who asks has given the freeze up. What waits for a disk can't be ended, and would freeze behind our back. */
                f->thaw_owed = true;
                f->thaw_reply = reply;
        } else
                reply_result(&reply, freeze_end(a), "thawing the file system");
}
