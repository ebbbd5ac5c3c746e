/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The loaded BPF programs and their maps: the only place that talks to libbpf.
 *
 * One in cube-netd. Maps are pinned below a directory of a BPF file system, and programs hang on
 * the links that they are attached to, so that all of it goes on while cube-netd is away; a new one
 * takes over what is there. Errors are negative errno. */

#include "net/policy.h"

typedef struct Datapath Datapath;

/* pin_dir: below a BPF file system, made if it is not there. -ENODEV: no such file system is mounted there. */
int datapath_open(const char *pin_dir, Datapath **ret);
Datapath *datapath_free(Datapath *d);
DEFINE_CLEANUP(Datapath *, datapath_free);
/* Takes the pinned maps away: with the last link the state of all is gone. */
/* A map that is pinned, without programs being loaded. Its fd, or negative errno. */
int datapath_open_pinned(const char *pin_dir, const char *map);

/* Of the plain map with what a claim writes: {slot} -> NetEntry. Borrowed. */
int datapath_entries_fd(const Datapath *d);

int datapath_configure(Datapath *d, const NetConfig *config);
/* All zeros before the first time. */
int datapath_get_config(Datapath *d, NetConfig *ret);
/* Both programs of a link; of NET_LINK_HOST in the namespace of the caller, else in the present one. */
int datapath_attach(Datapath *d, unsigned slot, NetLink link);

/* Addresses and counters of a slot, and an entry that denies everything. */
int datapath_add_slot(Datapath *d, unsigned slot, const NetSlot *s);
/* Everything about it. 0 also when there was nothing. */
int datapath_remove_slot(Datapath *d, unsigned slot);
/* Of every slot that the maps know, in any order: calls f, which may remove it. */
int datapath_each_slot(Datapath *d, void (*f)(Datapath *d, unsigned slot, void *userdata), void *userdata);
int datapath_each_policy(Datapath *d, void (*f)(Datapath *d, unsigned id, void *userdata), void *userdata);

int datapath_get_entry(Datapath *d, unsigned slot, NetEntry *ret);
int datapath_set_entry(Datapath *d, unsigned slot, const NetEntry *entry);
/* NULL: those of the configuration */
int datapath_set_limits(Datapath *d, unsigned slot, const NetLimits *limits);
int datapath_get_stats(Datapath *d, unsigned slot, NetStats *ret);

/* Waits for the kernel (RCU) some milliseconds. In force for whoever's entry has the id. */
int datapath_add_policy(Datapath *d, uint32_t id, const PolicyTable *t);
int datapath_remove_policy(Datapath *d, uint32_t id);

/* What names opened for a slot under a policy: calls f, which may add. */
typedef void (*DatapathName)(Datapath *d, const NetNameKey *key, const NetName *name, void *userdata);
void datapath_each_name(Datapath *d, unsigned slot, uint32_t policy, DatapathName f, void *userdata);
int datapath_add_name(Datapath *d, const NetNameKey *key, const NetName *name);
int datapath_get_name(Datapath *d, const NetNameKey *key, NetName *ret);
void datapath_drop_names(Datapath *d, unsigned slot, uint32_t policy);
/* Of all the maps, two for cube-resolver: the one that it writes, and that of entries, to be read only. The caller's. */
int datapath_resolver_fds(Datapath *d, int *ret_names, int *ret_entries);

/* Judges open flows of a slot by its present entry, and makes the ends of those that are denied hear of it. */
int datapath_cut(Datapath *d, unsigned slot);
/* Drops flows and answers that are too old. */
int datapath_expire(Datapath *d, unsigned *ret_removed);

/* Events of what was denied: readable when there are some; borrowed. */
typedef void (*DatapathAudit)(const NetAuditEvent *event, void *userdata);
int datapath_audit_open(Datapath *d, DatapathAudit f, void *userdata, int *ret_fd);
int datapath_audit_read(Datapath *d);

/* For tests, which run programs on packets of their own. */
int datapath_program_fd(const Datapath *d, const char *name);
int datapath_map_fd(const Datapath *d, const char *name);
