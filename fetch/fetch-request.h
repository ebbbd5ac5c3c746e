/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The image that cube-fetch is asked for: FETCH_IMAGE of fetch-proto.h. Checked again, for the gateway speaks with clients. */

#include <stdint.h>

#include "base/macros.h"

typedef struct FetchRequest {
        char *name, *registry;
        char *user, *password;  /* NULL: nobody's */
        uint64_t bytes_max;
} FetchRequest;

/* Of what is behind the first byte. -EBADMSG. */
int fetch_request_parse(const void *data, size_t size, FetchRequest *ret);
void fetch_request_done(FetchRequest *r);
/* An authfile as skopeo reads it, with these two or with nobody's; directory_fd is where. */
int fetch_request_write_auth(const FetchRequest *r, int directory_fd, const char *name);
