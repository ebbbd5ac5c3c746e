/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The VMM's event loop: epoll, no allocation after set-up but for the sources themselves.
 *
 * One loop belongs to one thread. Sources are owned by whoever added them and removed with
 * loop_remove() in the same thread; removing a source in its own or another source's callback is
 * allowed, its memory goes at the end of the round. Another thread reaches a loop by an eventfd that
 * the loop watches. */

#include <stdint.h>
#include <sys/epoll.h>

typedef struct Loop Loop;
typedef struct LoopSource LoopSource;

/* events: EPOLLIN etc. < 0 ends the loop with that error. */
typedef int (*LoopHandler)(LoopSource *s, int fd, uint32_t events, void *userdata);

int loop_new(Loop **ret);
Loop *loop_free(Loop *l);

int loop_add_fd(Loop *l, int fd, uint32_t events, LoopHandler handler, void *userdata, LoopSource **ret);
/* Changes what is waited for; 0 = nothing but errors. */
int loop_set_events(LoopSource *s, uint32_t events);
/* A one-shot timer, disarmed. Handler's fd is -1, events 0. */
int loop_add_timer(Loop *l, LoopHandler handler, void *userdata, LoopSource **ret);
/* Relative; 0 disarms. */
int loop_timer_set(LoopSource *s, uint64_t usec);
LoopSource *loop_remove(LoopSource *s);

/* Until loop_exit() or a handler's error. Returns what loop_exit() was given. */
int loop_run(Loop *l);
void loop_exit(Loop *l, int code);
