/* SPDX-License-Identifier: Apache-2.0 */
#include <net/if.h>
#include <stdio.h>

#include "base/clock.h"
#include "net/host-link.h"
#include "net/host-sockets.h"
#include "net/network.h"
#include "net/network-names.h"
#include "net/nft.h"

#define QUARANTINE_USEC (60 * USEC_PER_SEC)
/* Whoever was given a policy's id has so long to write it into an entry. */
#define UNUSED_USEC (60 * USEC_PER_SEC)
/* For a slot that was asked for by number: two seconds. */
#define GONE_WAITS 400U
#define GONE_WAIT_USEC 5000U
#define MTU_WITHOUT_UPLINK 1500U
#define BUSY UINT64_MAX
#define RESOLVER_PORT 53

/* Tried in this order for "auto"; none is in common use. */
static const char *const candidates[] = { "10.209.0.0/16", "10.231.0.0/16", "172.29.0.0/16", "100.97.0.0/16", "198.19.0.0/16" };

typedef struct Loaded {
        uint32_t id;
        PolicyTable *table;    /* NULL: of a cube-netd before */
        uint64_t n_kept;       /* loaded more often than dropped: rules that are written otherwise may come to the same */
        bool special;
        uint64_t since;
        struct Loaded *next;
} Loaded;

struct Network {
        Datapath *datapath;
        NftTable *nft;
        SlotPlan plan;
        NetConfig config;
        char uplink[IF_NAMESIZE];
        uint64_t *free_at;     /* by slot: when it can be given out; BUSY */
        bool *kept;
        Loaded *policies;
        uint32_t next_policy;
        NetworkPolicyWatch watch;
        void *watch_userdata;
        ResolverSockets resolver;
};

static bool prefix_equal(const Prefix *a, const Prefix *b) {
        return a->tag == b->tag && a->len == b->len && memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

static int check_net(const char *text, uint8_t tag, Prefix *ret, char *error) {
        uint8_t least = tag == NET_TAG4 ? 28 : 124, most = tag == NET_TAG4 ? 8 : 16;

        if (prefix_parse(text, ret) < 0 || ret->tag != tag || ret->len > least || ret->len < most) {
                (void) snprintf(error, POLICY_ERROR_MAX, "The sandbox network \"%s\" is not an IPv%u network of length %u to %u",
                                text, tag, most, least);
                return -EINVAL;
        }
        return 0;
}

/* With present: the one that sandboxes have already. */
static int choose_net4(const NetworkConfig *c, const Prefix *present, Prefix *ret, char *error) {
        int r;

        if (!streq(c->net4, "auto")) {
                r = check_net(c->net4, NET_TAG4, ret, error);
                if (r < 0)
                        return r;
                return host_overlaps(ret, error) == 0 ? 0 : -EADDRINUSE;
        }
        if (present->tag != 0) {
                *ret = *present;
                return 0;
        }
        for (size_t i = 0; i < ELEMENTSOF(candidates); i++) {
                (void) prefix_parse(candidates[i], ret);
                r = host_overlaps(ret, error);
                if (r <= 0)
                        return r;
        }
        return -EADDRINUSE;
}

static int choose_networks(Network *n, const NetworkConfig *c, char *error) {
        Prefix present4, present6;

        int r = host_link_get(&present4, &present6);
        if (r >= 0)
                r = choose_net4(c, &present4, &n->plan.net4, error);
        if (r >= 0 && c->net6 && !host_has_ipv6()) {
                (void) snprintf(error, POLICY_ERROR_MAX, "This host has no IPv6 for the sandbox network %s", c->net6);
                return -EINVAL;
        }
        if (r >= 0 && c->net6) {
                r = check_net(c->net6, NET_TAG6, &n->plan.net6, error);
                if (r >= 0 && host_overlaps(&n->plan.net6, error) != 0)
                        r = -EADDRINUSE;
        }
        if (r < 0)
                return r;
        if (present4.tag != 0 && !prefix_equal(&present4, &n->plan.net4)) {
                char a[PREFIX_TEXT_MAX];
                r = host_link_remove();
                if (r < 0)
                        (void) snprintf(error, POLICY_ERROR_MAX, "Can't leave the sandbox network %s", prefix_format(a, &present4));
        }
        return r;
}

static bool slot_has_links(unsigned slot) {
        char name[16];

        slot_host_name(slot, name);
        return if_nametoindex(name) != 0;
}

static void add_present(Datapath *d, unsigned slot, void *userdata) {
        Network *n = userdata;
        char name[16];

        if (slot >= NET_SLOTS_MAX || !slot_has_links(slot)) {
                if (slot < NET_SLOTS_MAX)
                        (void) network_slot_gone(n, slot);
                else
                        (void) datapath_remove_slot(d, slot);
                return;
        }
        n->free_at[slot] = BUSY;
        /* Somebody may have turned it off for all links. */
        slot_host_name(slot, name);
        (void) host_sysctl("ipv4", name, "forwarding", "1");
        /* Programs of this release, in place; those inside the namespace are as old as it. */
        (void) datapath_attach(d, slot, NET_LINK_HOST);
}

/* Of a cube-netd before: goes when no entry has it. */
static void add_present_policy(Datapath *d, unsigned id, void *userdata) {
        Network *n = userdata;
        Loaded *l;

        if (id <= NET_POLICY_INTERNET)
                return;
        n->next_policy = MAX(n->next_policy, id + 1);
        l = new0(Loaded, 1);
        if (!l)
                return;
        *l = (Loaded) { .id = id, .since = now_usec(), .next = n->policies };
        n->policies = l;
}

static Loaded *loaded_find(Network *n, uint32_t id) {
        for (Loaded *l = n->policies; l; l = l->next)
                if (l->id == id)
                        return l;
        return NULL;
}

static int load_builtin(Network *n, PolicyDefault def, char *error) {
        _cleanup_(policy_freep) Policy *p = NULL;
        NetworkPolicy loaded;

        int r = policy_new(def, &p);
        return r < 0 ? r : network_policy_load(n, p, &loaded, error);
}

static int load_builtins(Network *n, char *error) {
        uint32_t next = n->next_policy;

        n->next_policy = NET_POLICY_DENY;
        int r = load_builtin(n, POLICY_DEFAULT_DENY, error);
        n->next_policy = NET_POLICY_INTERNET;
        if (r >= 0)
                r = load_builtin(n, POLICY_DEFAULT_INTERNET, error);
        n->next_policy = MAX(next, NET_POLICY_INTERNET + 1);
        return r;
}

static int take_over_config(Network *n) {
        NetConfig before;

        int r = datapath_get_config(n->datapath, &before);
        if (r < 0)
                return r;
        memcpy(n->config.guarded, before.guarded, sizeof(n->config.guarded));
        n->config.guarded[sizeof(n->config.guarded) - 1] = 0;
        n->config.forwards6 = before.forwards6;
        n->config.next_slot = MAX(before.next_slot, SLOT_FIRST);
        return datapath_configure(n->datapath, &n->config);
}

static int forward_ipv6(Network *n) {
        int r = host_enable_ipv6();

        if (r > 0) {
                n->config.forwards6 = 1;
                r = datapath_configure(n->datapath, &n->config);
        }
        return r;
}

/* Of ours, unless it is told where another one is. */
static int open_resolver(Network *n) {
        NetSlot own;

        if (n->config.resolver4.w[0] != 0 || n->config.resolver6.w[0] != 0) {
                n->config.resolver_port = RESOLVER_PORT;
                return datapath_configure(n->datapath, &n->config);
        }
        int r = resolver_sockets_open(&n->resolver, &n->plan.net4, &n->plan.net6);
        if (r < 0)
                return r;
        slot_fill(&n->plan, SLOT_HOST, &own);
        n->config.resolver4 = own.addr4;
        n->config.resolver6 = own.addr6;
        n->config.resolver_port = n->resolver.port;
        return datapath_configure(n->datapath, &n->config);
}

static int open_all(Network *n, const char *pin_dir, const NetworkConfig *config, char *error) {
        const char *what = "load the filter";
        int r = datapath_open(pin_dir, &n->datapath);

        if (r == -ENODEV)
                what = "keep the filter's maps, for no BPF file system is mounted at /sys/fs/bpf";
        if (r >= 0)
                r = take_over_config(n);
        if (r >= 0) {
                what = "make the link " HOST_LINK;
                r = host_link_make(&n->plan.net4, &n->plan.net6);
        }
        if (r >= 0) {
                what = "listen for the guests' DNS queries";
                r = open_resolver(n);
        }
        if (r >= 0) {
                what = "make the nftables table";
                r = nft_table_open(&n->plan.net4, &n->plan.net6, config->filter.mark, n->resolver.port, &n->nft);
        }
        if (r >= 0 && n->plan.net6.tag != 0) {
                what = "let IPv6 be forwarded";
                r = forward_ipv6(n);
        }
        if (r < 0)
                (void) snprintf(error, POLICY_ERROR_MAX, "Can't %s: %s", what, strerror(-r));
        return r;
}

int network_new(const char *pin_dir, const NetworkConfig *config, Network **ret, char *error) {
        _cleanup_(network_freep) Network *n = new0(Network, 1);

        *error = 0;
        if (!n)
                return -ENOMEM;
        n->free_at = new0(uint64_t, NET_SLOTS_MAX);
        n->kept = new0(bool, NET_SLOTS_MAX);
        if (!n->free_at || !n->kept)
                return -ENOMEM;
        n->next_policy = NET_POLICY_INTERNET + 1;
        n->config = config->filter;

        int r = choose_networks(n, config, error);
        if (r >= 0)
                r = open_all(n, pin_dir, config, error);
        if (r >= 0)
                r = datapath_each_slot(n->datapath, add_present, n);
        if (r >= 0)
                r = datapath_each_policy(n->datapath, add_present_policy, n);
        if (r >= 0)
                r = load_builtins(n, error);
        if (r < 0)
                return r;
        (void) network_find_uplink(n);
        *ret = TAKE_PTR(n);
        return 0;
}

static Loaded *loaded_free(Loaded *l) {
        policy_table_free(l->table);
        free(l);
        return NULL;
}

Network *network_free(Network *n) {
        if (!n)
                return NULL;
        while (n->policies) {
                Loaded *l = n->policies;
                n->policies = l->next;
                loaded_free(l);
        }
        resolver_sockets_done(&n->resolver);
        nft_table_free(n->nft);
        datapath_free(n->datapath);
        free(n->free_at);
        free(n->kept);
        free(n);
        return NULL;
}

/* A host that did not forward does so for sandboxes only. */
static int forward_from(Network *n, const char *link) {
        char *guarded = n->config.guarded;
        int r;

        if (*guarded && !streq(guarded, link)) {
                (void) host_sysctl("ipv4", guarded, "forwarding", "0");
                *guarded = 0;
        }
        if (*link && (r = host_sysctl("ipv4", link, "forwarding", "1")) > 0)
                (void) snprintf(guarded, sizeof(n->config.guarded), "%s", link);
        r = nft_table_guard(n->nft, guarded);
        return r < 0 ? r : datapath_configure(n->datapath, &n->config);
}

Datapath *network_datapath(Network *n) {
        return n->datapath;
}

const SlotPlan *network_plan(const Network *n) {
        return &n->plan;
}

const char *network_uplink(const Network *n) {
        return n->uplink;
}

int network_nft_fd(const Network *n) {
        return nft_table_fd(n->nft);
}

const NetConfig *network_config(const Network *n) {
        return &n->config;
}

const ResolverSockets *network_resolver_sockets(const Network *n) {
        return &n->resolver;
}

void network_watch_policies(Network *n, NetworkPolicyWatch f, void *userdata) {
        n->watch = f;
        n->watch_userdata = userdata;
}

void network_each_policy(Network *n, NetworkPolicyWatch f, void *userdata) {
        for (const Loaded *l = n->policies; l; l = l->next)
                f(l->id, l->table, userdata);
}

static bool slot_usable(const Network *n, unsigned slot, uint64_t now) {
        return !n->kept[slot] && n->free_at[slot] != BUSY && n->free_at[slot] <= now;
}

static int find_slot(Network *n, unsigned *ret) {
        unsigned limit = slot_limit(&n->plan);
        uint64_t now = now_usec();

        /* Each is used again as late as can be. */
        for (unsigned i = SLOT_FIRST; i < limit; i++) {
                unsigned slot = n->config.next_slot < limit ? n->config.next_slot : SLOT_FIRST;
                n->config.next_slot = slot + 1;
                if (slot_usable(n, slot, now)) {
                        *ret = slot;
                        /* The next cube-netd goes on from here, for it knows nothing of slots that have just gone. */
                        (void) datapath_configure(n->datapath, &n->config);
                        return 0;
                }
        }
        return -ENOSPC;
}

/* The kernel takes links away some time after the fds that held them. */
static bool wait_until_gone(Network *n, unsigned slot) {
        for (unsigned i = 0; i < GONE_WAITS && slot_has_links(slot); i++)
                (void) usleep(GONE_WAIT_USEC);
        (void) network_slot_gone(n, slot);
        return n->free_at[slot] != BUSY;
}

int network_slot_new(Network *n, unsigned slot, unsigned *ret_slot, int *ret_netns, int *ret_tap, char *error) {
        int r;

        if (slot != 0 && (slot < SLOT_FIRST || slot >= slot_limit(&n->plan))) {
                (void) snprintf(error, POLICY_ERROR_MAX, "There is no slot %u in the sandbox network", slot);
                return -EINVAL;
        }
        if (slot != 0 && n->free_at[slot] == BUSY && !wait_until_gone(n, slot)) {
                (void) snprintf(error, POLICY_ERROR_MAX, "Slot %u is in use", slot);
                return -EEXIST;
        }
        if (slot == 0 && find_slot(n, &slot) < 0) {
                (void) snprintf(error, POLICY_ERROR_MAX, "All addresses of the sandbox network are taken; choose a larger one");
                return -ENOSPC;
        }
        r = slot_make(n->datapath, &n->plan, slot, ret_netns, ret_tap, error);
        if (r < 0) {
                (void) datapath_remove_slot(n->datapath, slot);
                return r;
        }
        n->free_at[slot] = BUSY;
        *ret_slot = slot;
        return 0;
}

void network_slot_keep(Network *n, unsigned slot, bool keep) {
        if (slot < NET_SLOTS_MAX)
                n->kept[slot] = keep;
}

static int end_host_connections(Network *n, unsigned slot, bool spare_new, unsigned *ret_ended) {
        unsigned ended4 = 0, ended6 = 0;
        NetSlot s;

        slot_fill(&n->plan, slot, &s);
        int r = host_sockets_destroy(NET_TAG4, &s.addr4, spare_new, &ended4);
        if (r >= 0 && n->plan.net6.tag != 0)
                r = host_sockets_destroy(NET_TAG6, &s.addr6, spare_new, &ended6);
        *ret_ended = ended4 + ended6;
        return r;
}

int network_slot_quiesce(Network *n, unsigned slot, bool park, unsigned *ret_ended) {
        NetEntry entry = {};

        *ret_ended = 0;

        int r = datapath_get_entry(n->datapath, slot, &entry);
        bool present = r >= 0;
        if (r < 0 && r != -ENOENT)
                return r;
        entry.policy = NET_POLICY_DENY;
        entry.flags = NET_ENTRY_CLOSED | (park ? NET_ENTRY_PARKED : 0);
        if (!park)
                entry.owner = UINT32_MAX;
        entry.generation++;
        r = present ? datapath_set_entry(n->datapath, slot, &entry) : 0;
        /* While packets still pass, so that the sandbox's end hears of it too. Of one whose links are gone the host's
         * connections are left. */
        if (r >= 0)
                r = end_host_connections(n, slot, park, ret_ended);
        return r >= 0 && present ? datapath_cut(n->datapath, slot) : r;
}

bool network_slot_gone(Network *n, unsigned slot) {
        NetEntry entry;
        unsigned ended;

        /* News may be old: it has been given out again since. */
        if (slot >= NET_SLOTS_MAX || slot_has_links(slot))
                return false;
        /* One that nobody had has nobody's packets on their way to it. */
        bool claimed = datapath_get_entry(n->datapath, slot, &entry) >= 0 && entry.generation > 0;
        (void) datapath_remove_slot(n->datapath, slot);
        /* A segment that came to the links in their last moment is lost, even to the filter, which would have refused it; and
         * of one that is sent again nobody is told that there is no route any more. */
        if (claimed)
                (void) end_host_connections(n, slot, false, &ended);
        n->free_at[slot] = now_usec() + (claimed ? QUARANTINE_USEC : 0);
        return true;
}

static void check_slot(Datapath *d, unsigned slot, void *userdata) {
        (void) network_slot_gone(userdata, slot);
}

void network_slots_check(Network *n) {
        (void) datapath_each_slot(n->datapath, check_slot, n);
}

static uint32_t table_flags(const PolicyTable *t) {
        return t->dns ? NET_ENTRY_DNS : 0;
}

static int load(Network *n, const Policy *p, bool kept, NetworkPolicy *ret, char *error) {
        _cleanup_(policy_table_freep) PolicyTable *t = NULL;
        Prefix extra[2] = { n->plan.net4, n->plan.net6 };
        size_t n_extra = n->plan.net6.tag != 0 ? 2 : 1;
        Loaded *l;

        int r = policy_compile(p, extra, n_extra, &t, error);
        if (r < 0)
                return r;
        for (l = n->policies; l; l = l->next)
                if (l->table && policy_table_equal(l->table, t))
                        break;
        if (!l) {
                l = new0(Loaded, 1);
                if (!l)
                        return -ENOMEM;
                r = datapath_add_policy(n->datapath, n->next_policy, t);
                if (r < 0) {
                        free(l);
                        (void) snprintf(error, POLICY_ERROR_MAX, "Can't load the policy's table: %s", strerror(-r));
                        return r;
                }
                *l = (Loaded) { .id = n->next_policy++, .table = TAKE_PTR(t), .next = n->policies };
                l->special = policy_opens_special(p, extra, n_extra);
                n->policies = l;
                if (n->watch)
                        n->watch(l->id, l->table, n->watch_userdata);
        }
        l->n_kept += kept;
        l->since = now_usec();
        *ret = (NetworkPolicy) { .id = l->id, .flags = table_flags(l->table), .special = l->special };
        return 0;
}

int network_policy_load(Network *n, const Policy *p, NetworkPolicy *ret, char *error) {
        return load(n, p, true, ret, error);
}

int network_policy_drop(Network *n, uint32_t id) {
        Loaded *l = loaded_find(n, id);

        if (!l || l->n_kept == 0 || id <= NET_POLICY_INTERNET)
                return -ENOENT;
        l->n_kept--;
        return 0;
}

/* In force with the entry: what names opened stays open if the new policy has them, too. */
static int switch_policy(Network *n, unsigned slot, NetEntry *entry, const NetworkPolicy *to) {
        uint32_t from = entry->policy;

        entry->policy = to->id;
        entry->flags = to->flags;
        entry->generation++;
        if (from != to->id)
                network_names_carry(n->datapath, slot, from, to->id, loaded_find(n, to->id)->table, &n->plan);
        int r = datapath_set_entry(n->datapath, slot, entry);
        if (r >= 0)
                r = datapath_cut(n->datapath, slot);
        if (r >= 0 && from != to->id)
                datapath_drop_names(n->datapath, slot, from);
        return r;
}

int network_policy_set(Network *n, unsigned slot, const Policy *p, uint32_t id, NetworkPolicy *ret, char *error) {
        NetEntry entry;

        int r = datapath_get_entry(n->datapath, slot, &entry);
        if (r < 0)
                return r;
        if (p)
                r = load(n, p, false, ret, error);
        else {
                const Loaded *l = loaded_find(n, id);
                if (!l || !l->table) {
                        (void) snprintf(error, POLICY_ERROR_MAX, "There is no policy %u", id);
                        return -ENOENT;
                }
                *ret = (NetworkPolicy) { .id = id, .flags = table_flags(l->table), .special = l->special };
        }
        if (r < 0)
                return r;
        r = switch_policy(n, slot, &entry, ret);
        if (r < 0)
                (void) snprintf(error, POLICY_ERROR_MAX, "Can't change the policy of slot %u: %s", slot, strerror(-r));
        return r;
}

static void mark_used(Datapath *d, unsigned slot, void *userdata) {
        Network *n = userdata;
        NetEntry entry;
        Loaded *l;

        if (datapath_get_entry(d, slot, &entry) < 0)
                return;
        l = loaded_find(n, entry.policy);
        if (l)
                l->since = now_usec();
}

static void drop_unused_policies(Network *n) {
        (void) datapath_each_slot(n->datapath, mark_used, n);
        /* Not before: none was used later than that. */
        uint64_t now = now_usec();
        for (Loaded **i = &n->policies; *i;) {
                Loaded *l = *i;
                if (l->n_kept > 0 || now - l->since < UNUSED_USEC) {
                        i = &l->next;
                        continue;
                }
                (void) datapath_remove_policy(n->datapath, l->id);
                if (n->watch)
                        n->watch(l->id, NULL, n->watch_userdata);
                *i = l->next;
                loaded_free(l);
        }
}

void network_sweep(Network *n) {
        unsigned removed;

        (void) datapath_expire(n->datapath, &removed);
        drop_unused_policies(n);
}

int network_find_uplink(Network *n) {
        char before[IF_NAMESIZE];
        unsigned ifindex, mtu_before = n->plan.mtu;

        memcpy(before, n->uplink, sizeof(before));
        int r = host_uplink(NET_TAG4, &ifindex, &n->plan.mtu, n->uplink);
        if (r <= 0) {
                n->uplink[0] = 0;
                n->plan.mtu = MTU_WITHOUT_UPLINK;
        }
        r = forward_from(n, n->uplink);
        return r < 0 ? r : !streq(before, n->uplink) || mtu_before != n->plan.mtu;
}

int network_nft_event(Network *n) {
        return nft_table_event(n->nft);
}

int network_nft_restore(Network *n) {
        return nft_table_restore(n->nft);
}
