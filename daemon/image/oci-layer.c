/* SPDX-License-Identifier: Apache-2.0 */
#include <archive_entry.h>
#include <inttypes.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/oci-layer.h"

#define CHUNK KIB(256)
/* Behind the end of an archive stand zeros up to a round number of bytes, and little else. */
#define TRAILER_MAX MIB(16)

struct OciLayer {
        int fd, position_fd;
        OciBlob blob;
        const char *name;
        struct archive *packed;   /* a stream as libarchive has it: one file, and what is in that is the archive */
        struct archive *archive;
        struct sha256_ctx sum, unpacked_sum;
        bool unpacked;        /* to its end */
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

static la_ssize_t unpack_some(struct archive *a, void *userdata, const void **ret) {
        OciLayer *l = userdata;
        la_int64_t offset;
        size_t n = 0;

        if (l->unpacked)
                return 0;
        int r = archive_read_data_block(l->packed, ret, &n, &offset);
        if (r == ARCHIVE_EOF) {
                l->unpacked = true;
                return 0;
        }
        if (r < ARCHIVE_WARN) {
                archive_set_error(a, archive_errno(l->packed), "%s", strempty(archive_error_string(l->packed)));
                return ARCHIVE_FATAL;
        }
        sha256_update(&l->unpacked_sum, n, *ret);
        return (la_ssize_t) n;
}

/* Unpacking is an archive of its own, for only what stands between the two shows what the configuration has the sum of. */
static int open_packed(OciLayer *l) {
        struct archive_entry *e;

        l->packed = archive_read_new();
        if (!l->packed)
                return -ENOMEM;
        archive_read_support_filter_gzip(l->packed);
        archive_read_support_filter_zstd(l->packed);
        archive_read_support_format_raw(l->packed);
        archive_read_support_format_empty(l->packed);
        if (archive_read_open(l->packed, l, NULL, read_some, NULL) != ARCHIVE_OK)
                return -EBADMSG;
        int r = archive_read_next_header(l->packed, &e);
        l->unpacked = r == ARCHIVE_EOF;
        return r < ARCHIVE_WARN ? -EBADMSG : 0;
}

static int open_archive(OciLayer *l) {
        l->archive = archive_read_new();
        if (!l->archive)
                return -ENOMEM;
        archive_read_support_format_tar(l->archive);
        /* Docker's layer without files is a tar of nothing but its end. */
        archive_read_support_format_empty(l->archive);
        return archive_read_open(l->archive, l, NULL, unpack_some, NULL) == ARCHIVE_OK ? 0 : -EBADMSG;
}

int oci_layer_open(int fd, const OciBlob *b, const char *name, int position_fd, OciLayer **ret, Fault *fault) {
        _cleanup_(oci_layer_freep) OciLayer *l = new0(OciLayer, 1);
        if (!l)
                return -ENOMEM;

        *l = (OciLayer) { .fd = fd, .position_fd = position_fd, .blob = *b, .name = name, .fault = fault };
        sha256_init(&l->sum);
        sha256_init(&l->unpacked_sum);
        if (lseek(fd, 0, SEEK_SET) < 0)
                return fault_set(fault, -errno, "%s: %s", name, strerror(errno));
        int r = open_packed(l);
        if (r >= 0)
                r = open_archive(l);
        if (r < 0)
                return r == -EBADMSG ? oci_layer_broken(l) : r;
        *ret = TAKE_PTR(l);
        return 0;
}

OciLayer *oci_layer_free(OciLayer *l) {
        if (!l)
                return NULL;
        archive_read_freep(&l->archive);
        archive_read_freep(&l->packed);
        free(l);
        return NULL;
}

struct archive *oci_layer_archive(const OciLayer *l) {
        return l->archive;
}

static int check_packed(OciLayer *l) {
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

static int broken_by(OciLayer *l, const char *why) {
        int r = check_packed(l);

        return r < 0 ? r : fault_set(l->fault, -EBADMSG, "%s (%s) is broken: %s", l->name, l->blob.digest, why);
}

static int check_unpacked(OciLayer *l) {
        char hex[SHA256_HEX_SIZE];

        hash_finish(&l->unpacked_sum, hex);
        if (!l->blob.unpacked[0] || streq(hex, l->blob.unpacked + strlen("sha256:")))
                return 0;
        return fault_set(l->fault, -EBADMSG, "%s: wrong checksum: unpacked it is sha256:%s, not the %s of the image's configuration",
                         l->name, hex, l->blob.unpacked);
}

int oci_layer_finish(OciLayer *l) {
        uint64_t trailer = 0;
        const void *data;
        la_ssize_t n;

        while (trailer <= TRAILER_MAX && (n = unpack_some(l->archive, l, &data)) > 0)
                trailer += (uint64_t) n;
        if (trailer > TRAILER_MAX)
                return broken_by(l, "it goes on behind its end");
        if (n < 0)
                return oci_layer_broken(l);
        int r = check_packed(l);
        return r < 0 ? r : check_unpacked(l);
}

int oci_layer_broken(OciLayer *l) {
        const char *why = l->archive ? archive_error_string(l->archive) : archive_error_string(l->packed);

        return broken_by(l, strempty(why));
}
