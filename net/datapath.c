/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "net/datapath.h"
#include "net/poke.h"
#include "net/bpf/datapath.skel.h"

/* Goes up with each change of what the maps hold: programs of two releases never share one. */
#define PIN_VERSION "4"
#define TC_HANDLE 1U
#define TC_PRIORITY 1U

struct Datapath {
        struct datapath *skel;
        struct ring_buffer *audit;
        DatapathAudit on_audit;
        void *audit_userdata;
};

/* Its messages tell of things that are no errors to us, such as a qdisc that is there. */
static int print_nothing(enum libbpf_print_level level, const char *format, va_list ap) {
        if (level == LIBBPF_WARN && secure_getenv("CUBE_NETD_DEBUG"))
                return vfprintf(stderr, format, ap);
        return 0;
}

static int make_pin_dir(const char *pin_dir) {
        struct statfs fs;

        if (mkdir(pin_dir, 0700) < 0 && errno != EEXIST)
                /* sysfs, which it should be mounted over, lets nobody make anything */
                return errno == EPERM || errno == ENOENT ? -ENODEV : -errno;
        if (statfs(pin_dir, &fs) < 0)
                return -errno;
        return fs.f_type == BPF_FS_MAGIC ? 0 : -ENODEV;
}

int datapath_open(const char *pin_dir, Datapath **ret) {
        _cleanup_(datapath_freep) Datapath *d = new0(Datapath, 1);
        char dir[200];
        int r;

        if (!d)
                return -ENOMEM;
        libbpf_set_print(print_nothing);
        r = make_pin_dir(pin_dir);
        if (r < 0)
                return r;
        (void) snprintf(dir, sizeof(dir), "%s/" PIN_VERSION, pin_dir);
        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return -errno;

        LIBBPF_OPTS(bpf_object_open_opts, opts, .pin_root_path = dir);
        d->skel = datapath__open_opts(&opts);
        if (!d->skel)
                return -errno;
        r = datapath__load(d->skel);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(d);
        return 0;
}

Datapath *datapath_free(Datapath *d) {
        if (!d)
                return NULL;
        ring_buffer__free(d->audit);
        datapath__destroy(d->skel);
        free(d);
        return NULL;
}

int datapath_open_pinned(const char *pin_dir, const char *map) {
        char path[250];

        (void) snprintf(path, sizeof(path), "%s/" PIN_VERSION "/%s", pin_dir, map);
        return bpf_obj_get(path);
}

int datapath_entries_fd(const Datapath *d) {
        return bpf_map__fd(d->skel->maps.sandboxes);
}

int datapath_program_fd(const Datapath *d, const char *name) {
        struct bpf_program *p = bpf_object__find_program_by_name(d->skel->obj, name);

        return p ? bpf_program__fd(p) : -ENOENT;
}

int datapath_map_fd(const Datapath *d, const char *name) {
        return bpf_object__find_map_fd_by_name(d->skel->obj, name);
}

int datapath_configure(Datapath *d, const NetConfig *config) {
        uint32_t zero = 0;

        return bpf_map_update_elem(bpf_map__fd(d->skel->maps.config), &zero, config, BPF_ANY);
}

int datapath_get_config(Datapath *d, NetConfig *ret) {
        uint32_t zero = 0;

        return bpf_map_lookup_elem(bpf_map__fd(d->skel->maps.config), &zero, ret);
}

static int attach(unsigned ifindex, enum bpf_tc_attach_point point, struct bpf_program *program) {
        LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int) ifindex, .attach_point = point);
        LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY, .flags = BPF_TC_F_REPLACE,
                    .prog_fd = bpf_program__fd(program));

        int r = bpf_tc_hook_create(&hook);
        if (r < 0 && r != -EEXIST)
                return r;
        return bpf_tc_attach(&hook, &opts);
}

int datapath_attach(Datapath *d, unsigned slot, NetLink link) {
        unsigned ifindex = NET_IFINDEX(slot, (unsigned) link);

        switch (link) {
        case NET_LINK_TAP:
                return attach(ifindex, BPF_TC_INGRESS, d->skel->progs.from_guest);
        case NET_LINK_PEER:
                return attach(ifindex, BPF_TC_INGRESS, d->skel->progs.to_guest);
        case NET_LINK_HOST: {
                int r = attach(ifindex, BPF_TC_INGRESS, d->skel->progs.from_sandbox);
                return r < 0 ? r : attach(ifindex, BPF_TC_EGRESS, d->skel->progs.to_sandbox);
        }
        }
        return -EINVAL;
}

int datapath_add_slot(Datapath *d, unsigned slot, const NetSlot *s) {
        static const NetEntry deny = { .policy = NET_POLICY_DENY, .owner = UINT32_MAX };
        NetUsage usage = {};
        uint32_t key = slot;

        int r = bpf_map_update_elem(bpf_map__fd(d->skel->maps.usage), &key, &usage, BPF_ANY);
        if (r >= 0)
                r = bpf_map_update_elem(bpf_map__fd(d->skel->maps.sandboxes), &key, &deny, BPF_ANY);
        if (r >= 0)
                r = bpf_map_update_elem(bpf_map__fd(d->skel->maps.slots), &key, s, BPF_ANY);
        return r;
}

static int run(struct bpf_program *program, NetSweep *sweep) {
        uint8_t in[ETH_HLEN + sizeof(NetSweep)] = {}, out[sizeof(in) + 64];
        LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = in, .data_size_in = sizeof(in), .data_out = out,
                    .data_size_out = sizeof(out), .repeat = 1);

        memcpy(in + ETH_HLEN, sweep, sizeof(*sweep));
        int r = bpf_prog_test_run_opts(bpf_program__fd(program), &opts);
        if (r < 0)
                return r;
        if (opts.retval != 0 || opts.data_size_out < sizeof(in))
                return -EIO;
        memcpy(sweep, out + ETH_HLEN, sizeof(*sweep));
        return 0;
}

int datapath_remove_slot(Datapath *d, unsigned slot) {
        struct bpf_map *maps[] = { d->skel->maps.sandboxes, d->skel->maps.slots, d->skel->maps.limits, d->skel->maps.usage };
        NetSweep sweep = { .what = NET_SWEEP_DROP, .slot = slot };
        uint32_t key = slot;

        int r = run(d->skel->progs.sweep, &sweep);
        for (size_t i = 0; i < ELEMENTSOF(maps); i++) {
                int k = bpf_map_delete_elem(bpf_map__fd(maps[i]), &key);
                if (k < 0 && k != -ENOENT)
                        r = k;
        }
        return r;
}

static int each_key(Datapath *d, struct bpf_map *map, void (*f)(Datapath *d, unsigned key, void *userdata), void *userdata) {
        int fd = bpf_map__fd(map), r;
        uint32_t key, next;

        for (r = bpf_map_get_next_key(fd, NULL, &next); r == 0;) {
                key = next;
                r = bpf_map_get_next_key(fd, &key, &next);
                f(d, key, userdata);
        }
        return r == -ENOENT ? 0 : r;
}

int datapath_each_slot(Datapath *d, void (*f)(Datapath *d, unsigned slot, void *userdata), void *userdata) {
        return each_key(d, d->skel->maps.slots, f, userdata);
}

int datapath_each_policy(Datapath *d, void (*f)(Datapath *d, unsigned id, void *userdata), void *userdata) {
        return each_key(d, d->skel->maps.policies, f, userdata);
}

int datapath_get_entry(Datapath *d, unsigned slot, NetEntry *ret) {
        uint32_t key = slot;
        return bpf_map_lookup_elem(bpf_map__fd(d->skel->maps.sandboxes), &key, ret);
}

int datapath_set_entry(Datapath *d, unsigned slot, const NetEntry *entry) {
        uint32_t key = slot;
        return bpf_map_update_elem(bpf_map__fd(d->skel->maps.sandboxes), &key, entry, BPF_EXIST);
}

int datapath_set_limits(Datapath *d, unsigned slot, const NetLimits *l) {
        int fd = bpf_map__fd(d->skel->maps.limits), r;
        uint32_t key = slot;

        if (l)
                return bpf_map_update_elem(fd, &key, l, BPF_ANY);
        r = bpf_map_delete_elem(fd, &key);
        return r == -ENOENT ? 0 : r;
}

int datapath_get_stats(Datapath *d, unsigned slot, NetStats *ret) {
        uint32_t key = slot;
        NetUsage usage;

        int r = bpf_map_lookup_elem(bpf_map__fd(d->skel->maps.usage), &key, &usage);
        if (r >= 0)
                *ret = usage.stats;
        return r;
}

static int fill_trie(int fd, const PolicyTable *t) {
        for (size_t i = 0; i < t->n_entries; i++) {
                int r = bpf_map_update_elem(fd, &t->entries[i].key, &t->entries[i].rule, BPF_ANY);
                if (r < 0)
                        return r;
        }
        return 0;
}

int datapath_add_policy(Datapath *d, uint32_t id, const PolicyTable *t) {
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
        _cleanup_close_ int fd = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "cube_policy", sizeof(NetPolicyKey), sizeof(NetRule),
                                                (uint32_t) MAX(t->n_entries, 1U), &opts);
        int r = fd < 0 ? fd : fill_trie(fd, t);

        for (uint32_t i = 0; r >= 0 && i < t->n_sets; i++) {
                NetPortSetKey key = { id, i };
                r = bpf_map_update_elem(bpf_map__fd(d->skel->maps.port_sets), &key, &t->sets[i], BPF_ANY);
        }
        if (r >= 0)
                r = bpf_map_update_elem(bpf_map__fd(d->skel->maps.policies), &id, &fd, BPF_ANY);
        if (r < 0)
                (void) datapath_remove_policy(d, id);
        return r;
}

int datapath_remove_policy(Datapath *d, uint32_t id) {
        int fd = bpf_map__fd(d->skel->maps.port_sets);
        NetPortSetKey key = { id, 0 };
        int r = bpf_map_delete_elem(bpf_map__fd(d->skel->maps.policies), &id);

        /* They are numbered without gaps. */
        for (; bpf_map_delete_elem(fd, &key) >= 0; key.set++)
                ;
        return r == -ENOENT ? 0 : r;
}

void datapath_each_name(Datapath *d, unsigned slot, uint32_t policy, DatapathName f, void *userdata) {
        int fd = bpf_map__fd(d->skel->maps.names);
        NetNameKey key, next;
        NetName name;

        /* The bound: when a key goes meanwhile, the kernel begins again. */
        int r = bpf_map_get_next_key(fd, NULL, &next);
        for (unsigned i = 0; r == 0 && i < 2 * NET_FLOWS_MAX; i++) {
                key = next;
                r = bpf_map_get_next_key(fd, &key, &next);
                if (key.slot == slot && key.policy == policy && bpf_map_lookup_elem(fd, &key, &name) == 0)
                        f(d, &key, &name, userdata);
        }
}

int datapath_add_name(Datapath *d, const NetNameKey *key, const NetName *name) {
        return bpf_map_update_elem(bpf_map__fd(d->skel->maps.names), key, name, BPF_ANY);
}

int datapath_get_name(Datapath *d, const NetNameKey *key, NetName *ret) {
        return bpf_map_lookup_elem(bpf_map__fd(d->skel->maps.names), key, ret);
}

static void drop_name(Datapath *d, const NetNameKey *key, const NetName *name, void *userdata) {
        (void) bpf_map_delete_elem(bpf_map__fd(d->skel->maps.names), key);
}

void datapath_drop_names(Datapath *d, unsigned slot, uint32_t policy) {
        datapath_each_name(d, slot, policy, drop_name, NULL);
}

int datapath_resolver_fds(Datapath *d, int *ret_names, int *ret_entries) {
        LIBBPF_OPTS(bpf_get_fd_by_id_opts, opts, .open_flags = BPF_F_RDONLY);
        _cleanup_close_ int names = fcntl(bpf_map__fd(d->skel->maps.names), F_DUPFD_CLOEXEC, 3);
        struct bpf_map_info info = {};
        uint32_t size = sizeof(info);

        if (names < 0)
                return -errno;
        int r = bpf_obj_get_info_by_fd(bpf_map__fd(d->skel->maps.sandboxes), &info, &size);
        if (r < 0)
                return r;
        r = bpf_map_get_fd_by_id_opts(info.id, &opts);
        if (r < 0)
                return r;
        *ret_entries = r;
        *ret_names = TAKE_FD(names);
        return 0;
}

/* An ACK that fits nothing: the guest answers it with one that has the numbers of the connection, and
 * from_sandbox turns that into resets for both ends. */
static int poke_flow(Datapath *d, const NetFlowKey *key, const NetSlot *slot) {
        uint8_t packet[POKE_BYTES_MAX];
        struct __sk_buff context = { .mark = NET_IFINDEX(key->slot, NET_LINK_HOST) };
        LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = packet, .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = 1);

        opts.data_size_in = (uint32_t) poke_build(packet, key, slot);
        return bpf_prog_test_run_opts(bpf_program__fd(d->skel->progs.poke), &opts);
}

int datapath_cut(Datapath *d, unsigned slot) {
        NetSweep sweep = { .what = NET_SWEEP_REJUDGE, .slot = slot };
        int fd = bpf_map__fd(d->skel->maps.flows);
        uint32_t number = slot;
        NetFlowKey key, next;
        NetFlow flow;
        NetSlot s;

        int r = bpf_map_lookup_elem(bpf_map__fd(d->skel->maps.slots), &number, &s);
        if (r >= 0)
                r = run(d->skel->progs.sweep, &sweep);
        if (r < 0 || sweep.denied == 0)
                return r;
        for (int k = bpf_map_get_next_key(fd, NULL, &next); k == 0;) {
                key = next;
                k = bpf_map_get_next_key(fd, &key, &next);
                if (key.slot == slot && key.proto == IPPROTO_TCP && bpf_map_lookup_elem(fd, &key, &flow) == 0 &&
                    flow.flags & NET_FLOW_DENIED)
                        (void) poke_flow(d, &key, &s);
        }
        return 0;
}

int datapath_expire(Datapath *d, unsigned *ret_removed) {
        NetSweep sweep = { .what = NET_SWEEP_EXPIRE };

        int r = run(d->skel->progs.sweep, &sweep);
        *ret_removed = sweep.removed;
        return r;
}

static int on_audit(void *userdata, void *data, size_t size) {
        Datapath *d = userdata;
        NetAuditEvent event;

        if (size >= sizeof(event)) {
                memcpy(&event, data, sizeof(event));
                d->on_audit(&event, d->audit_userdata);
        }
        return 0;
}

int datapath_audit_open(Datapath *d, DatapathAudit f, void *userdata, int *ret_fd) {
        d->on_audit = f;
        d->audit_userdata = userdata;
        d->audit = ring_buffer__new(bpf_map__fd(d->skel->maps.audit), on_audit, d, NULL);
        if (!d->audit)
                return -errno;
        *ret_fd = ring_buffer__epoll_fd(d->audit);
        return 0;
}

int datapath_audit_read(Datapath *d) {
        return ring_buffer__consume(d->audit);
}
