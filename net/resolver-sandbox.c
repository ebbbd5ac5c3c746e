/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "net/resolver-private.h"

#define CLEANING_USEC (10 * USEC_PER_SEC)
#define WHOLE USEC_PER_SEC

uint64_t resolver_now_nsec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

ResolverSandbox *resolver_sandbox_get(Resolver *r, uint32_t slot) {
        ResolverSandbox *s;

        if (slot >= NET_SLOTS_MAX)
                return NULL;
        if (!r->sandboxes[slot] && (s = new0(ResolverSandbox, 1))) {
                *s = (ResolverSandbox) { .slot = slot, .tokens = r->config.rate * WHOLE };
                s->filled = resolver_now_nsec() / NSEC_PER_USEC;
                r->sandboxes[slot] = s;
        }
        return r->sandboxes[slot];
}

bool resolver_sandbox_may_ask(Resolver *r, ResolverSandbox *s) {
        uint64_t now = resolver_now_nsec() / NSEC_PER_USEC, full = r->config.rate * WHOLE;
        uint64_t passed = MIN(now - s->filled, USEC_PER_SEC);

        s->tokens = MIN(s->tokens + passed * r->config.rate, full);
        s->filled = now;
        if (s->tokens < WHOLE)
                return false;
        s->tokens -= WHOLE;
        return true;
}

typedef struct Telling {
        Resolver *resolver;
        const ResolverSandbox *sandbox;
} Telling;

static void tell(const char *reason, const char *name, const char *address, uint32_t count, void *userdata) {
        const Telling *t = userdata;
        resolver_link_tell_denied(t->resolver->link, t->sandbox->slot, reason, name, address, count);
}

void resolver_sandbox_denied(Resolver *r, ResolverSandbox *s, const char *reason, const char *name, const char *address) {
        Telling t = { r, s };

        denied_names_add(&s->denied, reason, name, address, resolver_now_nsec() / NSEC_PER_USEC, r->audit_usec, tell, &t);
}

static ResolverSandbox *sandbox_free(ResolverSandbox *s) {
        opened_names_done(&s->opened);
        denied_names_done(&s->denied);
        free(s);
        return NULL;
}

static void clean(Resolver *r, uint32_t slot, uint64_t now) {
        ResolverSandbox *s = r->sandboxes[slot];
        Telling t = { r, s };

        bool remembered = denied_names_flush(&s->denied, now / NSEC_PER_USEC, r->audit_usec, tell, &t);
        remembered |= opened_names_expire(&s->opened, now);
        /* Whoever has not asked for so long has all its tokens. */
        if (!remembered && s->n_queries == 0 && s->n_tcp == 0 && now / NSEC_PER_USEC - s->filled > USEC_PER_SEC)
                r->sandboxes[slot] = sandbox_free(s);
}

static int on_cleaning(sd_event_source *source, uint64_t usec, void *userdata) {
        Resolver *r = userdata;
        uint64_t now = resolver_now_nsec();

        for (uint32_t slot = 0; slot < NET_SLOTS_MAX; slot++)
                if (r->sandboxes[slot])
                        clean(r, slot, now);
        int k = sd_event_source_set_time_relative(source, CLEANING_USEC);
        return k < 0 ? k : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void resolver_sandboxes_count(Resolver *r) {
        uint64_t now = resolver_now_nsec();
        NetNameKey key, next;
        NetName name;

        int k = resolver_maps_next(&r->maps, NULL, &next);
        /* The bound: when a key goes meanwhile, the kernel begins again. */
        for (unsigned i = 0; k >= 0 && i < 2 * NET_FLOWS_MAX; i++) {
                key = next;
                k = resolver_maps_next(&r->maps, &key, &next);
                ResolverSandbox *s = resolver_maps_get(&r->maps, &key, &name) >= 0 && name.expires > now ?
                                     resolver_sandbox_get(r, key.slot) : NULL;
                if (s)
                        (void) opened_names_count(&s->opened, &r->maps, &key, now, name.expires);
        }
}

int resolver_sandboxes_start(Resolver *r) {
        r->sandboxes = new0(ResolverSandbox *, NET_SLOTS_MAX);
        if (!r->sandboxes)
                return -ENOMEM;
        return sd_event_add_time_relative(r->event, &r->cleaning, CLOCK_MONOTONIC, CLEANING_USEC, USEC_PER_SEC, on_cleaning, r);
}

void resolver_sandboxes_done(Resolver *r) {
        sd_event_source_disable_unref(r->cleaning);
        for (uint32_t slot = 0; r->sandboxes && slot < NET_SLOTS_MAX; slot++)
                if (r->sandboxes[slot])
                        sandbox_free(r->sandboxes[slot]);
        free(r->sandboxes);
}
