/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/op-common.h"

static void on_set(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_policy_error(r, error);
        else
                request_reply(r, MHD_HTTP_NO_CONTENT);
}

/* All of it is replaced: what the body does not say is as if it had never been said. */
void op_network(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        bool internet = true;
        NetworkSpec n;

        int k = field_bool(r->json, "allow_internet_access", &internet, &error);
        if (k >= 0)
                k = network_parse(r->json, internet && r->gateway->config.default_internet, &n, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = cubed_message_sandbox(r, "SetNetworkPolicy", &m);
        if (k >= 0)
                k = network_append(m, &n);
        cubed_call_asking(r, m, k, on_set);
}
