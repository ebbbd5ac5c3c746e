/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/eventfd.h>

#include "vmm/mailbox.h"

int mailbox_init(Mailbox *b, Loop *loop, LoopHandler handler, void *userdata) {
        assert(b);

        *b = (Mailbox) { .wake_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK) };
        if (b->wake_fd < 0)
                return -errno;
        (void) pthread_mutex_init(&b->lock, NULL);

        int r = loop_add_fd(loop, b->wake_fd, EPOLLIN, handler, userdata, &b->source);
        if (r < 0)
                b->wake_fd = safe_close(b->wake_fd);
        return r;
}

void mailbox_post_end(Mailbox *b, VmmExitReason reason, uint32_t status, const char *message) {
        assert(b);
        assert(reason != VMM_EXIT_NONE);

        pthread_mutex_lock(&b->lock);
        MachineEnd *end = &b->content.end;
        if (end->reason == VMM_EXIT_NONE) {
                end->reason = reason;
                end->status = status;
                (void) snprintf(end->message, sizeof(end->message), "%s", message);
        }
        pthread_mutex_unlock(&b->lock);

        (void) eventfd_write(b->wake_fd, 1);
}

void mailbox_post_notice(Mailbox *b, const char *device, const char *message) {
        assert(b);

        pthread_mutex_lock(&b->lock);
        if (b->content.n_notices < MAILBOX_NOTICES) {
                Notice *n = &b->content.notices[b->content.n_notices++];

                (void) snprintf(n->device, sizeof(n->device), "%s", device);
                (void) snprintf(n->message, sizeof(n->message), "%s", message);
        }
        pthread_mutex_unlock(&b->lock);

        (void) eventfd_write(b->wake_fd, 1);
}

void mailbox_take(Mailbox *b, MailboxContent *ret) {
        eventfd_t n_posts;

        assert(b);
        assert(ret);

        /* Before the look, so that what is posted after it wakes again. */
        (void) eventfd_read(b->wake_fd, &n_posts);

        pthread_mutex_lock(&b->lock);
        *ret = b->content;
        b->content.n_notices = 0;
        pthread_mutex_unlock(&b->lock);
}
