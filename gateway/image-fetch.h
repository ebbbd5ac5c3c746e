/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One image on its way, brought by cube-fetch (fetch/fetch-proto.h). Owned by the build that wants it, and freed by it: with it
 * goes the image, which lies in a directory of cube-fetch's until then. */

#include <systemd/sd-event.h>

#include "gateway/image-ref.h"

#define FETCH_SOCKET "/run/cubed/fetch"
#define FETCH_RELAY_SOCKET "/run/cubed/fetch-relay"

typedef struct ImageFetch ImageFetch;

typedef struct ImageFetchSpec {
        const char *socket, *relay_socket;
        ImageRef ref;
        const char *user, *password;   /* NULL: nobody's */
        const char *networks;          /* special ranges that may be reached, with blanks between */
        uint64_t bytes_max, timeout_usec;
} ImageFetchSpec;

/* Text as it comes, cut anywhere. */
typedef void (*ImageFetchLog)(const char *text, size_t size, void *userdata);
/* Once. layout_fd is borrowed, an OCI image layout; or it is negative, and why says so, for people. It may be freed in it. */
typedef void (*ImageFetchDone)(int layout_fd, const char *why, void *userdata);

/* -ECONNREFUSED, -ENOENT: nobody listens; -EAGAIN: too many do already. */
int image_fetch_start(sd_event *e, const ImageFetchSpec *spec, ImageFetchLog log, ImageFetchDone done, void *userdata, ImageFetch **ret);
ImageFetch *image_fetch_free(ImageFetch *f);
