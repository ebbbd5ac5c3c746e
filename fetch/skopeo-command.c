/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "fetch/skopeo-command.h"

int skopeo_command_init(SkopeoCommand *c, const char *ref, const char *directory, const SkopeoOptions *options) {
        size_t n = 6;

        *c = (SkopeoCommand) { .argv = {
                "skopeo", "--override-os=linux", "--override-arch=amd64", "copy", "--dest-oci-accept-uncompressed-layers",
                /* A layout has no place for them, which would be an error. They are checked before, if the host says so. */
                "--remove-signatures",
        } };
        if (asprintf(&c->target, "oci:%s/" SKOPEO_LAYOUT, directory) < 0) {
                c->target = NULL;
                return -ENOMEM;
        }
        if (options->authfile) {
                c->argv[n++] = "--src-authfile";
                c->argv[n++] = options->authfile;
        }
        if (options->cert_dir) {
                c->argv[n++] = "--src-cert-dir";
                c->argv[n++] = options->cert_dir;
        }
        if (options->insecure)
                c->argv[n++] = "--src-tls-verify=false";
        c->argv[n++] = ref;
        c->argv[n++] = c->target;
        return 0;
}

void skopeo_command_done(SkopeoCommand *c) {
        free(c->target);
        *c = (SkopeoCommand) {};
}
