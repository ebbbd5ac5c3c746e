/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-netd reads of cubed: packets, records, rules of policies. The network behind it is none of this host's:
 * slots and policies are counted, and rules compiled as they would be. Each request is answered once.
 *
 * Input: { u8 op, u8 flags, u16 length, bytes }... flags: 1 without a header, 2 the length lies, 4 of another version. */

#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "fuzz.h"
#include "net/net-proto.h"
#include "net/netd-requests.h"
#include "net/network-names.h"

#define PACKETS_MAX 32U
#define BYTES_MAX KIB(16)

struct Network {
        unsigned slot, n_policies;
        SlotPlan plan;
};

static Network network;

/* The network */

int network_new(const char *pin_dir, const NetworkConfig *config, Network **ret, char *error) {
        FUZZ_CHECK(config->net4 && config->filter.n_ingress_uids <= ELEMENTSOF(config->filter.ingress_uids));
        if (!streq(config->net4, "auto") && prefix_parse(config->net4, &network.plan.net4) < 0)
                return -EINVAL;
        if (config->net6 && prefix_parse(config->net6, &network.plan.net6) < 0)
                return -EINVAL;
        network.slot = SLOT_FIRST;
        network.n_policies = 2;
        *ret = &network;
        return 0;
}

Network *network_free(Network *n) {
        return NULL;
}

Datapath *network_datapath(Network *n) {
        return NULL;
}

const SlotPlan *network_plan(const Network *n) {
        return &n->plan;
}

const char *network_uplink(const Network *n) {
        return "eth0";
}

int network_nft_fd(const Network *n) {
        return -EBADF;
}

int network_slot_new(Network *n, unsigned slot, unsigned *ret_slot, int *ret_netns, int *ret_tap, char *error) {
        if (slot >= NET_SLOTS_MAX)
                return -EINVAL;
        *ret_slot = slot ?: n->slot++;
        *ret_netns = eventfd(0, EFD_CLOEXEC);
        *ret_tap = eventfd(0, EFD_CLOEXEC);
        return 0;
}

void network_slot_keep(Network *n, unsigned slot, bool keep) {
        FUZZ_CHECK(slot >= SLOT_FIRST && slot < NET_SLOTS_MAX);
}

int network_slot_quiesce(Network *n, unsigned slot, bool park, unsigned *ret_ended) {
        FUZZ_CHECK(slot >= SLOT_FIRST && slot < NET_SLOTS_MAX);
        *ret_ended = 1;
        return 0;
}

int network_policy_load(Network *n, const Policy *p, NetworkPolicy *ret, char *error) {
        _cleanup_(policy_table_freep) PolicyTable *t = NULL;

        int r = policy_compile(p, NULL, 0, &t, error);
        if (r < 0)
                return r;
        *ret = (NetworkPolicy) { .id = ++n->n_policies, .special = policy_opens_special(p, NULL, 0) };
        return 0;
}

int network_policy_drop(Network *n, uint32_t id) {
        return id <= n->n_policies ? 0 : -ENOENT;
}

int network_policy_set(Network *n, unsigned slot, const Policy *p, uint32_t id, NetworkPolicy *ret, char *error) {
        FUZZ_CHECK(slot >= SLOT_FIRST && slot < NET_SLOTS_MAX);
        if (p)
                return network_policy_load(n, p, ret, error);
        *ret = (NetworkPolicy) { .id = id };
        return 0;
}

void slot_fill(const SlotPlan *plan, unsigned slot, NetSlot *ret) {
        *ret = (NetSlot) { .addr4.w = { slot } };
}

int datapath_entries_fd(const Datapath *d) {
        return STDERR_FILENO;
}

int datapath_get_entry(Datapath *d, unsigned slot, NetEntry *ret) {
        FUZZ_CHECK(slot >= SLOT_FIRST && slot < NET_SLOTS_MAX);
        return slot < network.slot ? 0 : -ENOENT;
}

int datapath_set_limits(Datapath *d, unsigned slot, const NetLimits *limits) {
        return 0;
}

int datapath_get_stats(Datapath *d, unsigned slot, NetStats *ret) {
        *ret = (NetStats) {};
        return 0;
}

void network_name_of(Datapath *d, unsigned slot, uint8_t tag, const NetAddr *address, char name[static NET_NAME_MAX]) {
        name[0] = 0;
}

int forward_chains_find(char ret[static FORWARD_CHAINS_TEXT_MAX]) {
        ret[0] = 0;
        return 0;
}

bool netd_resolver_is_connected(const NetdResolver *r) {
        return false;
}

static int on_setup(void *userdata) {
        return 0;
}

/* cubed */

static void take_answer(int fd) {
        uint8_t data[KIB(16)];
        PacketHeader h;
        size_t n_fds;
        int fds[4];

        ssize_t n = recv_packet(fd, data, sizeof(data), fds, ELEMENTSOF(fds), &n_fds);
        FUZZ_CHECK(n >= (ssize_t) sizeof(h));
        close_many(fds, n_fds);
        memcpy(&h, data, sizeof(h));
        FUZZ_CHECK(h.error <= 0 && (h.flags & PACKET_FLAG_REPLY) && h.len == (size_t) n - sizeof(h));
        FUZZ_CHECK(recv_packet(fd, data, sizeof(data), NULL, 0, &n_fds) == -EAGAIN);
}

static void say(Netd *n, int fd, FuzzInput *in) {
        static struct {
                PacketHeader head;
                uint8_t body[BYTES_MAX];
        } packet;

        uint8_t op = fuzz_u8(in), flags = fuzz_u8(in);
        size_t size = fuzz_bytes(in, packet.body, MIN((size_t) fuzz_u16(in), BYTES_MAX));
        packet.head = (PacketHeader) {
                .magic = NET_PROTO_MAGIC, .version = (uint16_t) (NET_PROTO_VERSION + !!(flags & 4)), .op = op, .seq = op,
                .len = (uint32_t) size + !!(flags & 2),
        };
        int r = flags & 1 ? netd_handle(n, packet.body, size)
                          : netd_handle(n, (const uint8_t *) &packet, sizeof(packet.head) + size);
        if (r >= 0)
                take_answer(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        int ends[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        Netd n = { .fd = ends[0], .pin_dir = "/", .on_setup = on_setup };
        network = (Network) {};
        for (unsigned i = 0; i < PACKETS_MAX && in.left > 0; i++)
                say(&n, ends[1], &in);
        free(n.setup);
        safe_close(ends[0]);
        safe_close(ends[1]);
        return 0;
}
