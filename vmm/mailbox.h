/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What vCPU and device threads tell the machine's thread: that it is over, or that a device has
 * trouble. Bounded: the first end wins, and of notices only the first few of a round are kept.
 *
 * Embedded in the machine. Posting is for any thread and never waits for one that does I/O. */

#include <pthread.h>

#include "base/macros.h"
#include "base/vmm-proto.h"
#include "vmm/loop.h"

#define MAILBOX_NOTICES 8U

typedef struct MachineEnd {
        VmmExitReason reason; /* VMM_EXIT_NONE: not over */
        uint32_t status;
        char message[sizeof(((VmmExitRecord *) NULL)->message)];
} MachineEnd;

typedef struct Notice {
        char device[24];
        char message[128];
} Notice;

typedef struct MailboxContent {
        MachineEnd end;
        Notice notices[MAILBOX_NOTICES];
        unsigned n_notices;
} MailboxContent;

typedef struct Mailbox {
        pthread_mutex_t lock; /* content; held only to copy */
        MailboxContent content;
        int wake_fd;
        LoopSource *source;
} Mailbox;

/* handler is called on the loop's thread after something was posted, and takes it. */
int mailbox_init(Mailbox *b, Loop *loop, LoopHandler handler, void *userdata);

void mailbox_post_end(Mailbox *b, VmmExitReason reason, uint32_t status, const char *message);
void mailbox_post_notice(Mailbox *b, const char *device, const char *message);

/* Notices are gone afterwards, the end stays. */
void mailbox_take(Mailbox *b, MailboxContent *ret);
