/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ctl/skopeo.h"
#include "ctl/work-directory.h"

#define ARGUMENTS_MAX 20U

int skopeo_copy(const char *ref, const char *directory, const SkopeoOptions *options) {
        _cleanup_free_ char *target = NULL;
        const char *argv[ARGUMENTS_MAX] = {
                "skopeo", "--override-os=linux", "--override-arch=amd64", "copy", "--dest-oci-accept-uncompressed-layers",
                /* A layout has no place for them, which would be an error. They are checked before, if the host says so. */
                "--remove-signatures",
        };
        size_t n = 6;

        if (asprintf(&target, "oci:%s/" SKOPEO_LAYOUT, directory) < 0) {
                target = NULL;
                return -ENOMEM;
        }
        if (options->authfile) {
                argv[n++] = "--src-authfile";
                argv[n++] = options->authfile;
        }
        if (options->cert_dir) {
                argv[n++] = "--src-cert-dir";
                argv[n++] = options->cert_dir;
        }
        if (options->insecure)
                argv[n++] = "--src-tls-verify=false";
        argv[n++] = ref;
        argv[n++] = target;

        return work_run(argv, directory, "bring in", ref);
}
