/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/parse.h"
#include "net/policy-private.h"

static unsigned tag_bits(uint8_t tag) {
        return tag == NET_TAG4 ? 32 : 128;
}

static void mask(Prefix *p) {
        for (unsigned bit = p->len; bit < 128; bit++)
                p->addr[bit / 8] &= (uint8_t) ~(0x80U >> bit % 8);
}

static void unmap(Prefix *p) {
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

        if (p->tag != NET_TAG6 || p->len < 96 || memcmp(p->addr, mapped, sizeof(mapped)) != 0)
                return;
        memmove(p->addr, p->addr + 12, 4);
        memset(p->addr + 4, 0, 12);
        p->tag = NET_TAG4;
        p->len -= 96;
}

int prefix_parse(const char *text, Prefix *ret) {
        char address[INET6_ADDRSTRLEN];
        const char *slash = strchr(text, '/');
        size_t n = slash ? (size_t) (slash - text) : strlen(text);
        Prefix p = {};
        uint32_t len;

        if (n >= sizeof(address))
                return -EINVAL;
        memcpy(address, text, n);
        address[n] = 0;
        if (inet_pton(AF_INET, address, p.addr) == 1)
                p.tag = NET_TAG4;
        else if (inet_pton(AF_INET6, address, p.addr) == 1)
                p.tag = NET_TAG6;
        else
                return -EINVAL;

        len = tag_bits(p.tag);
        if (slash && (parse_u32(slash + 1, &len) < 0 || len > tag_bits(p.tag)))
                return -EINVAL;
        p.len = (uint8_t) len;
        unmap(&p);
        mask(&p);
        *ret = p;
        return 0;
}

bool prefix_covers(const Prefix *outer, const Prefix *inner) {
        Prefix cut = *inner;

        if (outer->tag != inner->tag || outer->len > inner->len)
                return false;
        cut.len = outer->len;
        mask(&cut);
        return memcmp(cut.addr, outer->addr, sizeof(cut.addr)) == 0;
}

/* What is not the internet. */
static const char *const special4[] = {
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
};
static const char *const special6[] = {
        "::/128", "::1/128", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "ff00::/8",
};
/* The forms in which IPv6 carries an IPv4 address: mapped, NAT64, 6to4. */
static const struct {
        uint8_t bytes[12];
        uint8_t n;
} carriers[] = {
        { { [10] = 0xff, [11] = 0xff }, 12 },
        { { 0x00, 0x64, 0xff, 0x9b }, 12 },
        { { 0x20, 0x02 }, 2 },
};

bool special_prefix(size_t i, Prefix *ret) {
        Prefix inner;

        if (i < ELEMENTSOF(special4))
                return prefix_parse(special4[i], ret) >= 0;
        i -= ELEMENTSOF(special4);
        if (i < ELEMENTSOF(special6))
                return prefix_parse(special6[i], ret) >= 0;
        i -= ELEMENTSOF(special6);
        if (i >= ELEMENTSOF(carriers) * ELEMENTSOF(special4))
                return false;

        uint8_t n = carriers[i / ELEMENTSOF(special4)].n;
        (void) prefix_parse(special4[i % ELEMENTSOF(special4)], &inner);
        *ret = (Prefix) { .tag = NET_TAG6, .len = (uint8_t) (8 * n + inner.len) };
        memcpy(ret->addr, carriers[i / ELEMENTSOF(special4)].bytes, n);
        memcpy(ret->addr + n, inner.addr, 4);
        return true;
}

bool prefix_is_special(const Prefix *p) {
        Prefix special;

        for (size_t i = 0; special_prefix(i, &special); i++)
                if (prefix_covers(&special, p))
                        return true;
        return false;
}

bool prefix_is_special_here(const Prefix *p, const Prefix *net4, const Prefix *net6) {
        return prefix_is_special(p) || prefix_covers(net4, p) || prefix_covers(net6, p);
}

Prefix prefix_first(const Prefix *net) {
        unsigned bits = tag_bits(net->tag);
        Prefix first = *net;

        first.len = (uint8_t) bits;
        first.addr[bits / 8 - 1] |= 1;
        return first;
}

char *prefix_format(char buf[static PREFIX_TEXT_MAX], const Prefix *p) {
        char address[INET6_ADDRSTRLEN] = "?";

        (void) inet_ntop(p->tag == NET_TAG4 ? AF_INET : AF_INET6, p->addr, address, sizeof(address));
        (void) snprintf(buf, PREFIX_TEXT_MAX, "%s/%u", address, p->len);
        return buf;
}
