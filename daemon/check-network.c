/* SPDX-License-Identifier: Apache-2.0 */

/* Of cubectl check: what sandboxes need of this host's network. Most can be read below /proc/sys, the firewalls of others
 * cube-netd has looked at. */

#include <fcntl.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "base/fd-util.h"
#include "daemon/check-private.h"
#include "daemon/host-network.h"

#define SETTING_MAX 64U
#define TABLE_MAX (1024U * 1024U)

/* The number that net.FAMILY.conf.LINK.KEY has; -1 when it can't be read. */
static int setting(const char *family, const char *link, const char *key) {
        _cleanup_free_ char *text = NULL;
        char path[150];

        (void) snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, link, key);
        if (read_file(AT_FDCWD, path, SETTING_MAX, &text, NULL) < 0 || *text < '0' || *text > '9')
                return -1;
        return *text - '0';
}

static void check_bpf(const Check *c) {
        struct statfs fs;

        if (statfs("/sys/fs/bpf", &fs) < 0 || fs.f_type != BPF_FS_MAGIC)
                check_tell(c, "bpf-fs", CHECK_FAILED, "Mount it (mount -t bpf bpf /sys/fs/bpf), on each boot, and restart cubed.",
                           "no BPF file system at /sys/fs/bpf");
        else
                check_tell(c, "bpf-fs", CHECK_OK, NULL, "mounted");
}

static void check_setup(const Check *c, const HostNetworkInfo *n) {
        if (n->error)
                check_tell(c, "network", CHECK_FAILED, "No sandbox can be created before this is mended.", "%s", n->error);
        else if (isempty(n->uplink))
                check_tell(c, "network", CHECK_WARNING, "Give this host a default route; cubed will notice.",
                           "%s, but no way to the internet", n->net4);
        else
                check_tell(c, "network", CHECK_OK, NULL, "%s%s%s, uplink %s, MTU %u", n->net4, isempty(n->net6) ? "" : " and ", n->net6,
                           n->uplink, n->mtu);
}

static void check_forwarding(const Check *c, const HostNetworkInfo *n) {
        static const char advice[] = "Find what turns it off (sysctl.d(5)), and restart cubed, which turns it on for this link.";

        if (setting("ipv4", n->uplink, "forwarding") != 1)
                check_tell(c, "forwarding", CHECK_FAILED, advice, "%s does not forward IPv4", n->uplink);
        else if (!isempty(n->net6) && setting("ipv6", "all", "forwarding") != 1)
                check_tell(c, "forwarding", CHECK_WARNING, advice, "IPv6 is not forwarded");
        else if (!isempty(n->net6) && setting("ipv6", n->uplink, "accept_ra") == 1)
                check_tell(c, "forwarding", CHECK_WARNING, "Set net.ipv6.conf.LINK.accept_ra=2 if that link gets its default route from a router.",
                           "%s believes no router while IPv6 is forwarded", n->uplink);
        else
                check_tell(c, "forwarding", CHECK_OK, NULL, "on for %s", n->uplink);
}

/* iptables of the old kind has tables that nftables does not see. */
static bool has_legacy_filter(void) {
        _cleanup_free_ char *text = NULL;

        if (read_file(AT_FDCWD, "/proc/net/ip_tables_names", SETTING_MAX * 16, &text, NULL) < 0)
                return false;
        for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (streq(line, "filter"))
                        return true;
        return false;
}

static void check_firewall(const Check *c, const NetResult *found) {
        const char *chains = found ? found->chains : NULL;
        char advice[700], chain[250];

        if (!chains) {
                check_tell(c, "firewall", CHECK_WARNING, "See the journal of cubed.", "the host's chains could not be read");
                return;
        }
        if (isempty(chains)) {
                if (has_legacy_filter())
                        check_tell(c, "firewall", CHECK_WARNING,
                                   "See whether it drops what is forwarded: iptables-legacy -S FORWARD.", "iptables-legacy filters here");
                else
                        check_tell(c, "firewall", CHECK_OK, NULL, "no chain of others stops sandboxes");
                return;
        }
        (void) snprintf(chain, sizeof(chain), "%.*s", (int) strcspn(chains, ","), chains);
        (void) snprintf(advice, sizeof(advice),
                        "nft insert rule %s iifname '\"cube*\"' accept; nft insert rule %s oifname '\"cube*\"' accept. "
                        "cubed's own filter still decides. To keep them, see docs/NETWORK.md.", chain, chain);
        check_tell(c, "firewall", CHECK_FAILED, advice, "what sandboxes send is dropped by %s", chains);
}

/* Links that a default route leads through. */
static size_t count_ways_out(void) {
        _cleanup_free_ char *text = NULL;
        char seen[IF_NAMESIZE] = "";
        size_t n = 0;

        if (read_file(AT_FDCWD, "/proc/net/route", TABLE_MAX, &text, NULL) < 0)
                return 0;
        for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char link[IF_NAMESIZE], mask[9], to[9];
                if (sscanf(line, "%15s %8s %*s %*s %*s %*s %*s %8s", link, to, mask) != 3 || !streq(to, "00000000") ||
                    !streq(mask, "00000000") || streq(link, seen))
                        continue;
                (void) snprintf(seen, sizeof(seen), "%s", link);
                n++;
        }
        return n;
}

static void check_reverse_path(const Check *c, const HostNetworkInfo *n) {
        int all = setting("ipv4", "all", "rp_filter"), own = setting("ipv4", n->uplink, "rp_filter");

        if (MAX(all, own) == 1 && count_ways_out() > 1)
                check_tell(c, "rp-filter", CHECK_WARNING, "Set net.ipv4.conf.LINK.rp_filter=2 for each of them.",
                           "there is more than one way out, and answers by another one than the best are dropped");
        else
                check_tell(c, "rp-filter", CHECK_OK, NULL, "not in the way");
}

static void check_resolver(const Check *c, const NetResult *found) {
        if (!found || !found->resolving)
                check_tell(c, "resolver", CHECK_WARNING, "Guests can't resolve names. See: systemctl status cube-resolver.service.",
                           "cube-resolver does not run");
        else
                check_tell(c, "resolver", CHECK_OK, NULL, "cube-resolver runs");
}

void check_network(const Check *c, const NetResult *found) {
        HostNetworkInfo n;

        host_network_get_info(c->manager->network, &n);
        check_bpf(c);
        check_setup(c, &n);
        check_firewall(c, found);
        check_resolver(c, found);
        if (n.error || isempty(n.uplink))
                return;
        check_forwarding(c, &n);
        check_reverse_path(c, &n);
}
