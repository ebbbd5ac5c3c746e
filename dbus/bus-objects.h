/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the bus front share: the front itself, its vtables, and authorization.
 * Private to dbus/. */

#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "daemon/job.h"
#include "daemon/manager.h"
#include "daemon/template.h"
#include "dbus/bus-polkit.h"
#include "dbus/bus-sender.h"
#include "dbus/bus-util.h"

#define BUS_FRONT_SLOTS_MAX 16U

typedef struct BusFront {
        Manager *manager;
        BusSenders *senders;
        Polkit *polkit;
        sd_bus_slot *slots[BUS_FRONT_SLOTS_MAX];
        size_t n_slots;
        bool has_name;

        /* What is being taken off the bus: still an object for as long as that is told. */
        const Sandbox *leaving_sandbox;
        const Template *leaving_template;
        const Job *leaving_job;
        const Snapshot *leaving_snapshot;

        /* Snapshots that are objects: they come and go with their kind as well. */
        const Snapshot **snapshots;
        size_t n_snapshots, n_snapshots_allocated;
} BusFront;

/* The one front of this process; NULL before attach. Handlers run only while it is there. */
extern BusFront *bus_front;

extern const sd_bus_vtable bus_manager_vtable[];
extern const sd_bus_vtable bus_sandbox_vtable[];
extern const sd_bus_vtable bus_template_vtable[];
extern const sd_bus_vtable bus_snapshot_vtable[];
extern const sd_bus_vtable bus_job_vtable[];

/* Asks the bus whether a client is still there, and ends what is bound to it if not. */
int bus_check_client(sd_bus *bus, const char *unique_name);

/* Who calls. 1; 0 when that is being found out: return 1 and the message will come again. */
int bus_actor(sd_bus_message *m, uid_t *ret, sd_bus_error *error);

#define BUS_OWNER_NONE ((uid_t) -1)

/* Who may: root, the owner, and whom polkit grants action. Returns as bus_actor(). */
typedef struct BusAccess {
        const char *action;
        uid_t owner;             /* BUS_OWNER_NONE */
        const char *key, *value; /* what it is about, for polkit's rules and the audit */
        bool quiet;              /* no prompt and no audit entry: a listing that is filtered otherwise */
} BusAccess;
int bus_authorize(sd_bus_message *m, const BusAccess *access, uid_t *ret_actor, sd_bus_error *error);
int bus_authorize_sandbox(sd_bus_message *m, const Sandbox *s, const char *action, uid_t *ret_actor,
                          sd_bus_error *error);
/* Who may change it, name it or take it out of the host. */
int bus_authorize_template(sd_bus_message *m, const Template *t, uid_t *ret_actor, sd_bus_error *error);
/* Puts a message that waited for something back into the bus's queue: its handler starts anew, and what polkit granted
 * still holds. Answers it when that fails. */
void bus_again(sd_bus_message *m);

/* Common getters: userdata points at the field. */
int bus_property_uid(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error);

/* An id or address that is an array in its struct. */
int bus_property_id(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error);

/* Templates that a caller may see: his own, root's, and what is public; the last by its id, as its names are its owner's. tenant: of his own only those of it, "" for those of none; NULL: all. */
bool bus_template_visible(const Template *t, uid_t actor, const char *tenant);
/* By id, or NAME[:TAG] among the names of tenant; negative with error set when there is none that is visible. */
int bus_find_template(uid_t actor, const char *tenant, const char *ref, Template **ret, sd_bus_error *error);
/* Unlike template_store_find() by id alone, and whosoever it is. */
Template *bus_template_by_id(Manager *m, const char *id);
/* "NAME:TAG" into buf; "" once the name stands for another one. */
#define BUS_TEMPLATE_NAME_MAX 132
const char *bus_template_name(const Template *t, char buf[static BUS_TEMPLATE_NAME_MAX]);

/* "NAME[:TAG]"; negative with error set when it is not that. */
int bus_parse_template_name(const char *s, char **ret_name, char **ret_tag, sd_bus_error *error);
/* Makes each "NAME:TAG"; aliases may be NULL. */
int bus_parse_aliases(char **aliases, sd_bus_error *error);

/* "snapshot", "checkpoint", "pause", "template"; NULL: of a kind that is no object. */
const char *bus_snapshot_kind(const Snapshot *s);
/* The uppermost of s and what is beneath its disk that is an object; NULL: none. */
const Snapshot *bus_snapshot_shown(const Snapshot *s);
uint64_t bus_snapshot_bytes(const Snapshot *s);
/* Negative with error set when there is none that actor may see; tenant as of bus_template_visible(). */
int bus_find_snapshot(uid_t actor, const char *tenant, const char *id, Snapshot **ret, sd_bus_error *error);
/* All for root and whom polkit lets list, else only the caller's own. Returns as bus_actor(). */
int bus_may_list_all(sd_bus_message *m, uid_t *ret_actor, bool *ret_all);
/* Options on-timeout and checkpoint as they were given; NULL and 0: not given. */
int bus_spec_set(SandboxSpec *spec, const char *on_timeout, const char *checkpoint, uint64_t checkpoint_usec,
                 sd_bus_error *error);

/* The limits of its network as options, 0 where one is not given; and their names as properties. */
#define BUS_NETWORK_LIMITS(l)                                                                     \
        { "network-bandwidth-out", BUS_OPTION_U64, &(l)->bytes_out, BUS_OPTION_NONZERO },         \
        { "network-bandwidth-in", BUS_OPTION_U64, &(l)->bytes_in, BUS_OPTION_NONZERO },           \
        { "network-packets-out", BUS_OPTION_U32, &(l)->packets_out, BUS_OPTION_NONZERO },         \
        { "network-packets-in", BUS_OPTION_U32, &(l)->packets_in, BUS_OPTION_NONZERO },           \
        { "network-new-connections", BUS_OPTION_U32, &(l)->flows_new, BUS_OPTION_NONZERO },       \
        { "network-open-connections", BUS_OPTION_U32, &(l)->flows_open, BUS_OPTION_NONZERO }

/* Appends {sv} entries. */
int bus_append_network_statistics(sd_bus_message *m, const NetStats *st);
int bus_property_sandbox_policy(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error);

/* Method handlers that have files of their own. */
int bus_method_find_sandboxes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_find_templates(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_create_sandbox(sd_bus_message *m, void *userdata, sd_bus_error *error);
/* If it is bound to the caller, it outlives him. */
void bus_unbind(Sandbox *s, sd_bus_message *m);
int bus_method_unbind_sandboxes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_build_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_derive_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_remove_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_alias_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_export_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_import_template(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_collect_garbage(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_list_template_names(sd_bus_message *m, void *userdata, sd_bus_error *error);

int bus_method_list_snapshots(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_get_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_remove_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error);

int bus_method_pause(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_resume(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_fork(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_rollback(sd_bus_message *m, void *userdata, sd_bus_error *error);

int bus_method_set_network_policy(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_change_network_policy(sd_bus_message *m, void *userdata, sd_bus_error *error);

int bus_method_exec(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_exec_pty(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_wait_process(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_signal_process(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_resize_process(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_list_processes(sd_bus_message *m, void *userdata, sd_bus_error *error);

int bus_method_copy_to(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_copy_from(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_stat_file(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_list_directory(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_remove_file(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_rename_file(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_make_directory(sd_bus_message *m, void *userdata, sd_bus_error *error);
int bus_method_serve_envd(sd_bus_message *m, void *userdata, sd_bus_error *error);
