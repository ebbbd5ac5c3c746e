/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/op-common.h"

/* polkit's action, which cubed names to whom it was denied. */
#define SPECIAL_RANGES "open-special-ranges"

void reply_bad(Request *r, int k, const ErrorText *error) {
        if (k == -EINVAL)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "%s", error->text);
        else
                reply_errno(r, k);
}

void reply_sandbox(Request *r, unsigned status) {
        request_reply_json(r, status,
                           sandbox_to_json(r->sandbox, &r->gateway->host_key, config_domain(&r->gateway->config)));
}

void on_done_no_content(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_cubed_error(r, error);
        else
                request_reply(r, MHD_HTTP_NO_CONTENT);
}

void reply_policy_error(Request *r, const sd_bus_error *error) {
        if (sd_bus_error_has_name(error, BUS_ERROR_ACCESS_DENIED) && strstr(strempty(error->message), SPECIAL_RANGES))
                request_reply_error(r, MHD_HTTP_BAD_REQUEST,
                                    "network.allowOut has an address in a private or special range, which this host does "
                                    "not open");
        else
                reply_cubed_error(r, error);
}
