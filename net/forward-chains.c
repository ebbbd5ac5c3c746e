/* SPDX-License-Identifier: Apache-2.0 */
#include <nftables/libnftables.h>
#include <stdio.h>

#include "base/macros.h"
#include "net/forward-chains.h"

#define NAME_MAX_BYTES 128
#define CHAINS_MAX 16U
#define OWN_TABLE "cubed"

typedef struct Chain {
        char family[16], table[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
        bool drops;            /* by its policy */
} Chain;

typedef struct Chains {
        Chain chains[CHAINS_MAX];
        size_t n;
} Chains;

static struct nft_ctx *open_nft(void) {
        struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);

        if (nft) {
                nft_ctx_buffer_output(nft);
                nft_ctx_buffer_error(nft);
        }
        return nft;
}

/* Of each command a context of its own, since a buffer only grows. */
static int list(const char *command, char **ret) {
        struct nft_ctx *nft = open_nft();

        if (!nft)
                return -ENOMEM;
        int r = nft_run_cmd_from_buffer(nft, command) == 0 ? 0 : -EIO;
        char *text = strdup(nft_ctx_get_output_buffer(nft));
        nft_ctx_free(nft);
        if (!text)
                return -ENOMEM;
        if (r < 0)
                free(text);
        else
                *ret = text;
        return r;
}

/* What nft tells of chains: "table FAMILY NAME {", "chain NAME {", "type filter hook forward priority 0; policy drop;". */
static void parse_chains(char *text, Chains *ret) {
        Chain now = {};

        for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                line += strspn(line, " \t");
                if (sscanf(line, "table %15s %127s {", now.family, now.table) == 2 || sscanf(line, "chain %127s {", now.name) == 1)
                        continue;
                if (!startswith(line, "type filter hook forward ") || streq(now.table, OWN_TABLE) || ret->n == CHAINS_MAX)
                        continue;
                now.drops = strstr(line, "policy drop;");
                ret->chains[ret->n++] = now;
        }
}

/* Such as firewalld's, whose last rule rejects what none before it has accepted. */
static bool ends_with_drop(char *text) {
        const char *last = "";

        for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                line += strspn(line, " \t");
                if (*line != '}')
                        last = line;
        }
        if (startswith(last, "counter packets ")) {
                last = strstr(last, " bytes ");
                last = last ? strchr(last + strlen(" bytes "), ' ') : NULL;
                last = last ? last + 1 : "";
        }
        return startswith(last, "drop") || startswith(last, "reject");
}

static bool has_accept(const char *table, const char *match) {
        for (const char *p = strstr(table, match); p; p = strstr(p + 1, match)) {
                const char *end = p + strcspn(p, "\n"), *accept = strstr(p, " accept");
                if (accept && accept < end)
                        return true;
        }
        return false;
}

static int stops_sandboxes(const Chain *c, bool *ret) {
        _cleanup_free_ char *table = NULL, *chain = NULL;
        char command[2 * NAME_MAX_BYTES + 50];

        (void) snprintf(command, sizeof(command), "list chain %s %s %s", c->family, c->table, c->name);
        int r = list(command, &chain);
        if (r < 0)
                return r;
        *ret = false;
        if (!c->drops && !ends_with_drop(chain))
                return 0;
        (void) snprintf(command, sizeof(command), "list table %s %s", c->family, c->table);
        r = list(command, &table);
        if (r < 0)
                return r;
        *ret = !has_accept(table, "iifname \"cube*\"") || !has_accept(table, "oifname \"cube*\"");
        return 0;
}

int forward_chains_find(char ret[static FORWARD_CHAINS_TEXT_MAX]) {
        _cleanup_free_ char *text = NULL;
        Chains chains = {};
        size_t size = 0;

        int r = list("list chains", &text);
        if (r < 0)
                return r;
        *ret = 0;
        parse_chains(text, &chains);
        for (size_t i = 0; i < chains.n && size < FORWARD_CHAINS_TEXT_MAX; i++) {
                const Chain *c = &chains.chains[i];
                bool stops;
                /* It may have gone since. */
                if (stops_sandboxes(c, &stops) >= 0 && stops)
                        size += (size_t) snprintf(ret + size, FORWARD_CHAINS_TEXT_MAX - size, "%s%s %s %s", size > 0 ? ", " : "",
                                                  c->family, c->table, c->name);
        }
        return 0;
}
