/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A container image in a directory (OCI image layout): which one is meant, what it is made of, and
 * how its programs are to be run.
 *
 * Every blob is read by its digest and has to have it, but for layers, which the one who reads them
 * checks. Nothing outside the directory is opened. */

#include "daemon/exec-defaults.h"
#include "daemon/image/fault.h"
#include "daemon/template-files.h"

/* "sha256:" and the digits, with a NUL. */
#define OCI_DIGEST_SIZE (7 + SHA256_HEX_SIZE)

typedef struct OciBlob {
        char digest[OCI_DIGEST_SIZE];
        char unpacked[OCI_DIGEST_SIZE]; /* of a layer: of the tar in it; "": not asked for */
        uint64_t bytes;        /* UINT64_MAX: not known */
} OciBlob;

typedef struct OciImage {
        OciBlob *layers;       /* from the lowest on */
        int *fds;              /* of the layers; NULL until oci_layout_open_layers() */
        size_t n_layers;
        uint64_t bytes;        /* of all layers, as they are packed */
        ExecDefaults defaults; /* ENV, USER, WORKDIR */
        char **command;        /* ENTRYPOINT and CMD; never NULL */
        bool has_ports;        /* it says that it serves some */
} OciImage;

bool oci_digest_valid(const char *s);
/* name: as the layout names it, or "" for the only one that there is. The one for linux/amd64. */
int oci_layout_find(int dir_fd, const char *name, OciBlob *ret_manifest, Fault *fault);
int oci_layout_load(int dir_fd, const OciBlob *manifest, OciImage *ret, Fault *fault);
/* From then on nothing has to be opened any more. */
int oci_layout_open_layers(int dir_fd, OciImage *image, Fault *fault);
void oci_image_done(OciImage *i);
