/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What happens in a directory, and below it if asked for, as inotify tells it and envd's clients want to hear it. Owned by who
 * listens. Directories that come later are watched too; what was in them before that is told as if it had been made then. A
 * tree is gone through in steps between other events of the loop, and what happens meanwhile is told after that. */

#include "guest/loop.h"

typedef struct Watch Watch;

typedef enum WatchEvent {
        WATCH_CREATE = 1U << 0,
        WATCH_RENAME = 1U << 1, /* away: the old name */
        WATCH_CHMOD = 1U << 2,
        WATCH_WRITE = 1U << 3,
        WATCH_REMOVE = 1U << 4,
} WatchEvent;

typedef struct WatchListener {
        /* All that is there is watched. */
        void (*armed)(void *userdata);
        /* name is below the directory, "." for itself. */
        void (*event)(void *userdata, WatchEvent event, const char *name);
        /* It ends: -EOVERFLOW when more happened than the kernel keeps, else why a directory can't be watched. The watch
         * may be freed from here. */
        void (*failed)(void *userdata, int error);
        /* Whether events have to wait; watch_resume() ends that. NULL: never. */
        bool (*full)(void *userdata);
} WatchListener;

/* 1: it is armed, 0: armed() is to come. -ENOSPC and -EMFILE: the kernel has no more watches. */
int watch_new(Loop *l, const char *path, bool recursive, const WatchListener *listener, void *userdata, Watch **ret);
Watch *watch_free(Watch *w);
void watch_resume(Watch *w);
