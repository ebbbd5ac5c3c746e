/* SPDX-License-Identifier: Apache-2.0 */

/* Slots that nobody has yet, made ahead one after the other, and those who wait for one.
 *
 * A create takes one that is free; the next is made a moment later, so that it does not take the CPU from that create.
 * When none is free those who came first get what is made first. A sandbox that is resumed wants one slot in particular,
 * which no pool can hold. */

#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/host-network-private.h"
#include "daemon/log.h"

#define REFILL_DELAY_USEC (20 * USEC_PER_MSEC)

static void fill(HostNetwork *n);

static void slot_close(HostNetwork *n, NetworkSlot *s) {
        host_network_drop_slot(n, TAKE_FD(s->netns_fd), TAKE_FD(s->tap_fd));
}

static void read_slot(const NetResult *result, NetworkSlot *ret) {
        *ret = (NetworkSlot) {
                .slot = result->slot,
                .mtu = result->mtu,
                .netns_fd = TAKE_FD(result->fds[0]),
                .tap_fd = TAKE_FD(result->fds[1]),
        };
        (void) snprintf(ret->address4, sizeof(ret->address4), "%s", result->address4);
        (void) snprintf(ret->address6, sizeof(ret->address6), "%s", result->address6);
}

/* Waiters. */

static void waiter_finish(SlotWaiter *w, int error, const char *message, NetworkSlot *slot) {
        NetworkSlot nothing = NETWORK_SLOT_INIT;

        if (w->done)
                w->done(error, message, slot ? slot : &nothing, w->userdata);
        /* What it did not take. */
        if (slot)
                slot_close(w->network, slot);
        free(w);
}

static void waiter_unlink(SlotWaiter *w) {
        for (SlotWaiter **i = &w->network->pool.waiters; *i; i = &(*i)->next)
                if (*i == w) {
                        *i = w->next;
                        return;
                }
}

static SlotWaiter *first_waiter(const SlotPool *p) {
        for (SlotWaiter *w = p->waiters; w; w = w->next)
                if (w->slot == 0)
                        return w;
        return NULL;
}

void slot_pool_fail(HostNetwork *n, int error, const char *message) {
        for (SlotWaiter **i = &n->pool.waiters, *w; (w = *i);) {
                if (w->asked) {
                        i = &w->next;
                        continue;
                }
                *i = w->next;
                waiter_finish(w, error, message, NULL);
                /* It may have changed the list. */
                i = &n->pool.waiters;
        }
}

/* The one that was asked for by its number. */
static void on_own_slot(int error, const NetResult *result, void *userdata) {
        SlotWaiter *w = userdata;
        NetworkSlot slot = NETWORK_SLOT_INIT;

        w->asked = false;
        if (error < 0 && netd_is_away(error) && w->done)
                return; /* it is asked again */
        waiter_unlink(w);
        if (error >= 0)
                read_slot(result, &slot);
        waiter_finish(w, error, result->message, error >= 0 ? &slot : NULL);
}

static int ask_for_own(HostNetwork *n, SlotWaiter *w) {
        int r = n->ready ? net_client_new_slot(n->manager->net, w->slot, on_own_slot, w) : -ENOTCONN;

        w->asked = r >= 0;
        return netd_is_away(r) ? 0 : r;
}

/* The pool. */

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        fill(userdata);
        return 0;
}

static void fill_in(HostNetwork *n, uint64_t usec) {
        SlotPool *p = &n->pool;

        if (p->timer && sd_event_source_get_enabled(p->timer, NULL) > 0)
                return;
        int r = p->timer ? sd_event_source_set_time_relative(p->timer, usec)
                         : sd_event_add_time_relative(n->manager->event, &p->timer, CLOCK_MONOTONIC, usec, 0, on_timer, n);
        if (r >= 0)
                r = sd_event_source_set_enabled(p->timer, SD_EVENT_ONESHOT);
        if (r < 0)
                log_warning_errno(r, "The pool of network slots can't be filled: %m");
}

static void fill_failed(HostNetwork *n, int error, const char *message) {
        SlotPool *p = &n->pool;

        if (p->delay_usec == 0)
                log_warning("No network slot could be made: %s", message);
        p->delay_usec = MIN(MAX(2 * p->delay_usec, NETWORK_RETRY_MIN_USEC), NETWORK_RETRY_MAX_USEC);
        for (SlotWaiter *w; (w = first_waiter(p));) {
                waiter_unlink(w);
                waiter_finish(w, error, message, NULL);
        }
        fill_in(n, p->delay_usec);
}

static int push(SlotPool *p, NetworkSlot *slot) {
        if (p->n == p->n_allocated) {
                size_t more = p->n_allocated * 2 + 16;
                NetworkSlot *slots = reallocarray(p->slots, more, sizeof(*slots));
                if (!slots)
                        return -ENOMEM;
                p->slots = slots;
                p->n_allocated = more;
        }
        p->slots[p->n++] = *slot;
        *slot = NETWORK_SLOT_INIT;
        return 0;
}

static void on_new_slot(int error, const NetResult *result, void *userdata) {
        HostNetwork *n = userdata;
        SlotPool *p = &n->pool;
        NetworkSlot slot = NETWORK_SLOT_INIT;

        p->filling = false;
        if (error < 0 && netd_is_away(error))
                return;
        if (error < 0) {
                fill_failed(n, error, result->message);
                return;
        }
        p->delay_usec = 0;
        read_slot(result, &slot);
        SlotWaiter *w = first_waiter(p);
        if (w) {
                waiter_unlink(w);
                waiter_finish(w, 0, "", &slot);
        } else if (push(p, &slot) < 0)
                slot_close(n, &slot);
        fill(n);
}

static void fill(HostNetwork *n) {
        SlotPool *p = &n->pool;

        if (!n->ready || p->filling || (!first_waiter(p) && p->n >= n->manager->config.free_slots))
                return;
        int r = net_client_new_slot(n->manager->net, 0, on_new_slot, n);
        p->filling = r >= 0;
        if (r < 0 && !netd_is_away(r))
                fill_in(n, NETWORK_RETRY_MIN_USEC);
}

static SlotWaiter *ask_for_all_own(HostNetwork *n, int *ret_error) {
        for (SlotWaiter *w = n->pool.waiters; w; w = w->next) {
                *ret_error = w->slot != 0 && !w->asked ? ask_for_own(n, w) : 0;
                if (*ret_error < 0)
                        return w;
        }
        return NULL;
}

void slot_pool_start(HostNetwork *n) {
        int r;

        n->pool.delay_usec = 0;
        for (SlotWaiter *w; (w = ask_for_all_own(n, &r));) {
                waiter_unlink(w);
                waiter_finish(w, r, strerror(-r), NULL);
        }
        fill(n);
}

static void shrink(HostNetwork *n, size_t most) {
        while (n->pool.n > most)
                slot_close(n, &n->pool.slots[--n->pool.n]);
}

void slot_pool_check(HostNetwork *n, uint32_t slot) {
        SlotPool *p = &n->pool;
        size_t kept = 0, before = p->n;

        for (size_t i = 0; i < before; i++) {
                NetEntry entry;
                bool meant = slot == 0 || slot == p->slots[i].slot;
                if (meant && net_client_get_entry(n->manager->net, p->slots[i].slot, &entry) == -ENOENT)
                        slot_close(n, &p->slots[i]);
                else
                        p->slots[kept++] = p->slots[i];
        }
        p->n = kept;
        if (kept < before) {
                log_warning("Somebody took the links of %zu network slots that were free, making others", before - kept);
                fill_in(n, REFILL_DELAY_USEC);
        }
}

void slot_pool_renew(HostNetwork *n) {
        shrink(n, 0);
        fill_in(n, REFILL_DELAY_USEC);
}

void host_network_reload(HostNetwork *n) {
        shrink(n, n->manager->config.free_slots);
        fill_in(n, REFILL_DELAY_USEC);
}

static int wait_in_line(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata) {
        SlotWaiter **end = &n->pool.waiters, *w = new0(SlotWaiter, 1);

        if (!w)
                return -ENOMEM;
        *w = (SlotWaiter) { .slot = slot, .network = n, .done = done, .userdata = userdata };
        while (*end)
                end = &(*end)->next;
        *end = w;
        int r = slot != 0 ? ask_for_own(n, w) : 0;
        if (r < 0) {
                *end = NULL;
                free(w);
                return r;
        }
        fill(n);
        return 0;
}

int host_network_take_slot(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata) {
        SlotPool *p = &n->pool;

        if (n->error) {
                done(-ENETDOWN, n->error, &NETWORK_SLOT_INIT, userdata);
                return 0;
        }
        if (slot != 0 || p->n == 0 || first_waiter(p))
                return wait_in_line(n, slot, done, userdata);

        NetworkSlot s = p->slots[--p->n];
        done(0, "", &s, userdata);
        slot_close(n, &s);
        if (p->n == 0)
                fill(n);
        else
                fill_in(n, REFILL_DELAY_USEC);
        return 0;
}

void host_network_drop_slot(HostNetwork *n, int netns_fd, int tap_fd) {
        net_client_close_slot(n->manager->net, netns_fd, tap_fd);
}

void slot_pool_cancel(HostNetwork *n, void *userdata) {
        for (SlotWaiter **i = &n->pool.waiters, *w; (w = *i);) {
                if (w->userdata != userdata) {
                        i = &w->next;
                        continue;
                }
                /* What is on its way is to be closed. */
                if (w->asked) {
                        w->done = NULL;
                        i = &w->next;
                        continue;
                }
                *i = w->next;
                free(w);
        }
}

void slot_pool_done(HostNetwork *n) {
        SlotPool *p = &n->pool;

        sd_event_source_disable_unref(p->timer);
        for (SlotWaiter *w; (w = p->waiters);) {
                p->waiters = w->next;
                if (w->asked)
                        net_client_cancel(n->manager->net, w);
                free(w);
        }
        while (p->n > 0) {
                NetworkSlot *s = &p->slots[--p->n];
                close_many((int[]) { s->netns_fd, s->tap_fd }, 2);
        }
        free(p->slots);
}
