/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How skopeo(1) is called to bring an image: by cubectl for its user, and by cube-fetch for clients of the gateway. */

#include "base/macros.h"

#define SKOPEO_LAYOUT "layout"
#define SKOPEO_ARGUMENTS_MAX 20U

typedef struct SkopeoOptions {
        const char *authfile;   /* NULL: where skopeo looks for one */
        const char *cert_dir;   /* with *.crt of the registry's CA; NULL: /etc/containers/certs.d and the host's */
        bool insecure;          /* plain HTTP, or a certificate that nobody has checked */
} SkopeoOptions;

typedef struct SkopeoCommand {
        const char *argv[SKOPEO_ARGUMENTS_MAX]; /* ends with NULL; borrowed, but for target */
        char *target;
} SkopeoCommand;

/* Of the image ref, with its transport, into an OCI image layout, directory/SKOPEO_LAYOUT. */
int skopeo_command_init(SkopeoCommand *c, const char *ref, const char *directory, const SkopeoOptions *options);
void skopeo_command_done(SkopeoCommand *c);
