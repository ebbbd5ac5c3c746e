/* SPDX-License-Identifier: Apache-2.0 */

/* Rules of a network policy as people write them. What can be read compiles, or says why not; the table says of each
 * address in it what the text of a rule can mean, and opens nothing special without saying so.
 *
 * Input: u8: 1 the default is internet, 2 the host has a special prefix of its own, 4 it is compiled twice, to
 * the same; then lines, of which the first byte
 * names the list: + allow, - deny, < inbound. */

#include "fuzz.h"
#include "net/policy.h"

#define LINES_MAX 64U

static void add(Policy *p, const uint8_t *line, size_t n) {
        char error[POLICY_ERROR_MAX] = "", text[POLICY_TEXT_MAX + 64];

        if (n == 0 || n > sizeof(text) - 1)
                return;
        memcpy(text, line + 1, n - 1);
        text[n - 1] = 0;
        PolicyList list = line[0] == '-' ? POLICY_DENY : line[0] == '<' ? POLICY_INBOUND : POLICY_ALLOW;
        int r = policy_add(p, list, text, error);
        FUZZ_CHECK(r == 0 || ((r == -EINVAL || r == -E2BIG) && *error && strlen(error) < sizeof(error)));
}

static void check_table(const PolicyTable *t) {
        for (size_t i = 0; i < t->n_entries; i++)
                for (size_t k = 0; k < i && i < 64; k++)
                        FUZZ_CHECK(memcmp(&t->entries[i].key, &t->entries[k].key, sizeof(t->entries[i].key)) != 0);
        for (size_t i = 0; i < t->n_names; i++) {
                FUZZ_CHECK(t->names[i].name && strlen(t->names[i].name) < NET_NAME_MAX);
                FUZZ_CHECK(!t->names[i].special || t->names[i].has_inside);
        }
}

static void compile(const Policy *p, const Prefix *extra, size_t n_extra, bool twice) {
        _cleanup_(policy_table_freep) PolicyTable *t = NULL, *again = NULL;
        char error[POLICY_ERROR_MAX] = "";

        int r = policy_compile(p, extra, n_extra, &t, error);
        if (r < 0) {
                FUZZ_CHECK(r == -E2BIG && *error && strlen(error) < sizeof(error));
                return;
        }
        check_table(t);
        if (twice)
                FUZZ_CHECK(policy_compile(p, extra, n_extra, &again, error) == 0 && policy_table_equal(t, again));
        (void) policy_opens_special(p, extra, n_extra);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const Prefix extra = { .tag = NET_TAG4, .len = 24, .addr = { 198, 51, 100 } };
        FuzzInput in = { data, size };
        Policy *p;

        uint8_t options = fuzz_u8(&in);
        FUZZ_CHECK(policy_new(options & 1 ? POLICY_DEFAULT_INTERNET : POLICY_DEFAULT_DENY, &p) == 0);
        for (unsigned i = 0; i < LINES_MAX && in.left > 0; i++) {
                const uint8_t *end = memchr(in.data, '\n', in.left);
                size_t n = end ? (size_t) (end - in.data) : in.left;

                add(p, in.data, n);
                in.data += MIN(n + 1, in.left);
                in.left -= MIN(n + 1, in.left);
        }
        compile(p, &extra, options & 2 ? 1 : 0, options & 4);
        policy_free(p);
        return 0;
}
