/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>

#include "base/agent-proto.h"
#include "guest/files.h"
#include "guest/listing.h"
#include "guest/task.h"

/* Bytes of one frame and entries of one step. */
#define LISTING_FRAME_BYTES (64U * 1024U)
#define LISTING_STEP 128U

typedef struct Listing {
        Task task;
        DIR *directory;
        char *path;
        TlvWriter frame;
} Listing;

static void listing_free(Listing *l) {
        if (l->directory)
                closedir(l->directory);
        free(l->path);
        tlv_writer_done(&l->frame);
        free(l);
}

static void listing_done(Task *t) {
        listing_free((Listing *) t);
}

/* 1: added, 0: the end, or a negative errno */
static int listing_add(Listing *l) {
        struct dirent *de;
        struct stat st;

        for (;;) {
                errno = 0;
                de = readdir(l->directory);
                if (!de)
                        return -errno;
                if (streq(de->d_name, ".") || streq(de->d_name, ".."))
                        continue;
                if (fstatat(dirfd(l->directory), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;

                int r = file_record_put(&l->frame, dirfd(l->directory), de->d_name, de->d_name, &st);
                if (r == -ENOENT || r == -EINVAL)
                        continue; /* a link that went away or became something else */
                return r < 0 ? r : 1;
        }
}

static void listing_step(Task *t) {
        Listing *l = (Listing *) t;
        int r = 1;

        if (!reply_wanted(&t->reply)) {
                task_free(t);
                return;
        }
        if (control_congested(t->reply.control)) {
                task_sleep(t);
                return;
        }

        for (unsigned i = 0; r > 0 && i < LISTING_STEP && l->frame.size < LISTING_FRAME_BYTES; i++)
                r = listing_add(l);
        if (r < 0)
                reply_result(&t->reply, r, l->path);
        else if (r == 0)
                reply_ok(&t->reply, &l->frame);
        if (r <= 0) {
                task_free(t);
                return;
        }

        if (l->frame.size >= LISTING_FRAME_BYTES) {
                reply_more(&t->reply, &l->frame);
                l->frame.size = 0;
        }
}

void handle_list_directory(Agent *a, Request *q, Reply reply) {
        Listing *l = new0(Listing, 1);
        if (!l) {
                reply_result(&reply, -ENOMEM, q->path);
                return;
        }

        l->frame = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        l->path = TAKE_PTR(q->path);
        l->directory = opendir(l->path);
        int r = l->directory ? task_start(&l->task, &reply, listing_step, listing_done) : -errno;
        if (r < 0) {
                reply_result(&reply, r, l->path);
                listing_free(l);
        }
}
