/* SPDX-License-Identifier: Apache-2.0 */

/* cube-netd: makes network namespaces, links and filters for cubed, which asks on fd 3.
 *
 * One thread that works on one request after the other and may wait for the kernel as long as
 * that takes; the reason why it is a process of its own. Between requests it watches what others
 * do to our nftables table and to the host's routes. Ends when cubed closes the socket; what it made
 * goes on, until `cube-netd --remove`, which the unit runs when the service has ended, finds no sandbox. */

#include <linux/capability.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <systemd/sd-event.h>

#include "base/fd-util.h"
#include "net/net-proto.h"
#include "net/netd-requests.h"
#include "net/netd-resolver.h"
#include "net/nl-util.h"
#include "net/remove.h"
#include "net/resolver-proto.h"

#define PIN_DIR "/sys/fs/bpf/cubed"
#define SWEEP_USEC (5 * USEC_PER_SEC)
/* Changes come in bursts: what they led to is looked at once. */
#define SETTLE_USEC (20 * USEC_PER_MSEC)

typedef struct Main {
        Netd netd;
        sd_event *event;
        sd_event_source *sweep, *table, *uplink;
        struct nl_sock *links;
        bool links_changed;
} Main;

static int on_request(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        static uint8_t packet[PACKET_SIZE_MAX];
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds;
        Main *m = userdata;

        ssize_t n = recv_packet(fd, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
        if (n <= 0)
                return sd_event_exit(m->event, (int) n);
        int r = netd_handle(&m->netd, packet, (size_t) n);
        close_many(fds, n_fds);
        if (r < 0)
                return sd_event_exit(m->event, r == -EPIPE || r == -ECONNRESET ? 0 : r);
        return 0;
}

static int again_in(sd_event_source *timer, uint64_t usec) {
        int r = sd_event_source_set_time_relative(timer, usec);
        return r < 0 ? r : sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static int on_sweep(sd_event_source *s, uint64_t usec, void *userdata) {
        Main *m = userdata;

        network_sweep(m->netd.network);
        if (m->netd.links_untold)
                netd_tell_links_gone(&m->netd, 0);
        return again_in(s, SWEEP_USEC);
}

static int on_nft(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Main *m = userdata;

        m->netd.chains_known = false;
        return network_nft_event(m->netd.network) > 0 ? again_in(m->table, SETTLE_USEC) : 0;
}

static int on_table(sd_event_source *s, uint64_t usec, void *userdata) {
        Main *m = userdata;
        int r = network_nft_restore(m->netd.network);

        if (r > 0)
                netd_tell_table(&m->netd);
        /* Without it nothing is masqueraded: try until it is there. */
        return r < 0 ? again_in(s, USEC_PER_SEC) : 0;
}

static int on_uplink(sd_event_source *s, uint64_t usec, void *userdata) {
        Main *m = userdata;

        if (network_find_uplink(m->netd.network) > 0)
                netd_tell_uplink(&m->netd);
        return 0;
}

static int on_audit(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Main *m = userdata;

        (void) datapath_audit_read(network_datapath(m->netd.network));
        return 0;
}

static void on_denied(const NetAuditEvent *event, void *userdata) {
        Main *m = userdata;
        netd_tell_denied(&m->netd, event);
}

static int on_link_message(struct nl_msg *msg, void *userdata) {
        struct nlmsghdr *h = nlmsg_hdr(msg);
        Main *m = userdata;

        if (h->nlmsg_type == RTM_DELLINK && nlmsg_valid_hdr(h, sizeof(struct ifinfomsg))) {
                unsigned ifindex = (unsigned) ((struct ifinfomsg *) nlmsg_data(h))->ifi_index;
                if (ifindex >= NET_IFINDEX_BASE && ifindex < NET_IFINDEX_END) {
                        unsigned slot = NET_IFINDEX_SLOT(ifindex);
                        if (NET_IFINDEX_LINK(ifindex) == NET_LINK_HOST && network_slot_gone(m->netd.network, slot))
                                netd_tell_links_gone(&m->netd, slot);
                        return NL_OK;
                }
        }
        m->links_changed = true;
        return NL_OK;
}

static int on_links(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Main *m = userdata;

        m->links_changed = false;
        int r = nl_recvmsgs_default(m->links);
        /* Links may have gone unseen. */
        if (r < 0 && r != -NLE_AGAIN) {
                network_slots_check(m->netd.network);
                netd_tell_links_gone(&m->netd, 0);
        }
        return m->links_changed || r < 0 ? again_in(m->uplink, SETTLE_USEC) : 0;
}

static int open_links(Main *m) {
        int r = nl_open_route(&m->links);
        if (r < 0)
                return r;
        nl_socket_disable_seq_check(m->links);
        (void) nl_socket_modify_cb(m->links, NL_CB_VALID, NL_CB_CUSTOM, on_link_message, m);
        /* A burst of links that go away is told in one piece. */
        (void) nl_socket_set_buffer_size(m->links, 4 << 20, 0);
        r = nl_socket_add_memberships(m->links, RTNLGRP_LINK, RTNLGRP_IPV4_ROUTE, 0);
        if (r >= 0)
                r = nl_socket_set_nonblocking(m->links);
        return nl_to_errno(r);
}

static int add_timer(Main *m, sd_event_source **ret, sd_event_time_handler_t f) {
        int r = sd_event_add_time(m->event, ret, CLOCK_MONOTONIC, UINT64_MAX, 0, f, m);
        return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

static void on_name_denied(const NameDenied *denied, void *userdata) {
        Main *m = userdata;
        netd_tell_name_denied(&m->netd, denied);
}

/* Without it the rest of the network is of use still. */
static void open_resolver(Main *m) {
        const char *path = secure_getenv("CUBE_RESOLVER_SOCKET") ?: RESOLVER_SOCKET;
        int r = netd_resolver_new(m->event, path, m->netd.network, on_name_denied, m, &m->netd.resolver);

        if (r < 0)
                fprintf(stderr, "cube-netd: can't listen at %s: %s; guests can't resolve names\n", path, strerror(-r));
}

static int on_setup(void *userdata) {
        Main *m = userdata;
        int audit;

        int r = open_links(m);
        if (r >= 0)
                r = datapath_audit_open(network_datapath(m->netd.network), on_denied, m, &audit);
        if (r >= 0)
                r = sd_event_add_io(m->event, NULL, audit, EPOLLIN, on_audit, m);
        if (r >= 0)
                r = sd_event_add_io(m->event, NULL, nl_socket_get_fd(m->links), EPOLLIN, on_links, m);
        if (r >= 0)
                r = sd_event_add_io(m->event, NULL, network_nft_fd(m->netd.network), EPOLLIN, on_nft, m);
        if (r >= 0)
                r = add_timer(m, &m->table, on_table);
        if (r >= 0)
                r = add_timer(m, &m->uplink, on_uplink);
        if (r >= 0)
                r = add_timer(m, &m->sweep, on_sweep);
        if (r < 0)
                return r;
        /* What changed between the first look and the news of it. */
        network_slots_check(m->netd.network);
        (void) network_find_uplink(m->netd.network);
        open_resolver(m);
        return again_in(m->sweep, SWEEP_USEC);
}

static int run(const char *pin_dir) {
        Main m = { .netd = { .fd = NET_FD, .pin_dir = pin_dir, .on_setup = on_setup } };
        m.netd.userdata = &m;

        int r = sd_event_new(&m.event);
        if (r >= 0)
                r = sd_event_add_io(m.event, NULL, NET_FD, EPOLLIN, on_request, &m);
        if (r >= 0)
                r = sd_event_loop(m.event);
        sd_event_source_disable_unref(m.sweep);
        sd_event_source_disable_unref(m.table);
        sd_event_source_disable_unref(m.uplink);
        netd_resolver_free(m.netd.resolver);
        sd_event_unref(m.event);
        nl_socket_free(m.links);
        network_free(m.netd.network);
        free(m.netd.setup);
        return r;
}

/* Run by the unit when the service has ended. */
static int remove_all(const char *pin_dir) {
        char error[POLICY_ERROR_MAX];
        int r = network_remove(pin_dir, error);

        if (r > 0)
                fprintf(stderr, "cube-netd: sandboxes run on, so their filter stays\n");
        else if (r < 0)
                fprintf(stderr, "cube-netd: %s; 'cube-netd --remove' takes away what is left once that is mended\n", error);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Of what cubed may do: namespaces, links, filters, and whose the socket of cube-resolver is. */
static int drop_capabilities(void) {
        static const unsigned kept[] = { CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON, CAP_CHOWN };
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct had[_LINUX_CAPABILITY_U32S_3] = {}, keep[_LINUX_CAPABILITY_U32S_3] = {};

        if (syscall(SYS_capget, &header, had) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTSOF(kept); i++) {
                unsigned word = CAP_TO_INDEX(kept[i]);
                keep[word].permitted |= had[word].permitted & CAP_TO_MASK(kept[i]);
                keep[word].effective = keep[word].permitted;
        }
        return syscall(SYS_capset, &header, keep) < 0 ? -errno : 0;
}

int main(int argc, char *argv[]) {
        const char *pin_dir = secure_getenv("CUBE_BPF_DIR");
        struct stat st;

        if (argc == 2 && streq(argv[1], "--version")) {
                puts("cube-netd " CUBED_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc == 2 && streq(argv[1], "--remove"))
                return remove_all(pin_dir ?: PIN_DIR);
        if (argc != 1 || fstat(NET_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fputs("cube-netd is started by cubed, with a socket as fd 3.\n", stderr);
                return EXIT_FAILURE;
        }

        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) fd_set_cloexec(NET_FD, true);
        int r = drop_capabilities();
        if (r >= 0)
                r = run(pin_dir ?: PIN_DIR);
        if (r < 0) {
                fprintf(stderr, "cube-netd: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
