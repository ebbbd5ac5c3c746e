/* SPDX-License-Identifier: Apache-2.0 */
#include <archive_entry.h>
#include <inttypes.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/oci-layer.h"

#define CHUNK KIB(256)

struct OciLayer {
        int fd, position_fd;
        OciBlob blob;
        const char *name;
        struct archive *archive;
        struct sha256_ctx sum;
        uint64_t bytes;       /* read so far */
        int error;            /* of reading the file */
        Fault *fault;
        uint8_t buffer[CHUNK];
};

static la_ssize_t read_some(struct archive *a, void *userdata, const void **ret) {
        OciLayer *l = userdata;
        ssize_t n;

        do
                n = read(l->fd, l->buffer, sizeof(l->buffer));
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                l->error = -errno;
                if (a)
                        archive_set_error(a, errno, "%s", strerror(errno));
                return ARCHIVE_FATAL;
        }
        l->bytes += (uint64_t) n;
        sha256_update(&l->sum, (size_t) n, l->buffer);
        if (l->position_fd >= 0)
                (void) lseek(l->position_fd, n, SEEK_CUR);
        *ret = l->buffer;
        return n;
}

int oci_layer_open(int fd, const OciBlob *b, const char *name, int position_fd, OciLayer **ret, Fault *fault) {
        _cleanup_(oci_layer_freep) OciLayer *l = new0(OciLayer, 1);
        if (!l)
                return -ENOMEM;

        *l = (OciLayer) { .fd = fd, .position_fd = position_fd, .blob = *b, .name = name, .fault = fault };
        sha256_init(&l->sum);
        if (lseek(fd, 0, SEEK_SET) < 0)
                return fault_set(fault, -errno, "%s: %s", name, strerror(errno));
        l->archive = archive_read_new();
        if (!l->archive)
                return -ENOMEM;
        archive_read_support_filter_gzip(l->archive);
        archive_read_support_filter_zstd(l->archive);
        archive_read_support_format_tar(l->archive);
        /* Docker's layer without files is a tar of nothing but its end. */
        archive_read_support_format_empty(l->archive);
        if (archive_read_open(l->archive, l, NULL, read_some, NULL) != ARCHIVE_OK)
                return oci_layer_broken(l);
        *ret = TAKE_PTR(l);
        return 0;
}

OciLayer *oci_layer_free(OciLayer *l) {
        if (!l)
                return NULL;
        archive_read_freep(&l->archive);
        free(l);
        return NULL;
}

struct archive *oci_layer_archive(const OciLayer *l) {
        return l->archive;
}

int oci_layer_finish(OciLayer *l) {
        char hex[SHA256_HEX_SIZE];
        const void *data;
        la_ssize_t n;

        while (l->error == 0 && l->bytes <= l->blob.bytes && (n = read_some(NULL, l, &data)) > 0)
                ;
        if (l->error < 0)
                return fault_set(l->fault, l->error, "%s: reading %s: %s", l->name, l->blob.digest, strerror(-l->error));
        hash_finish(&l->sum, hex);
        if (l->bytes > l->blob.bytes)
                return fault_set(l->fault, -EBADMSG, "%s: %s is larger than the %" PRIu64 " bytes that the image says",
                                 l->name, l->blob.digest, l->blob.bytes);
        if (l->bytes < l->blob.bytes || !streq(hex, l->blob.digest + strlen("sha256:")))
                return fault_set(l->fault, -EBADMSG, "%s: wrong checksum: %s is %" PRIu64 " bytes of sha256:%s", l->name,
                                 l->blob.digest, l->bytes, hex);
        return 0;
}

int oci_layer_broken(OciLayer *l) {
        int r = oci_layer_finish(l);

        return r < 0 ? r : fault_set(l->fault, -EBADMSG, "%s (%s) is broken: %s", l->name, l->blob.digest,
                                     strempty(archive_error_string(l->archive)));
}
