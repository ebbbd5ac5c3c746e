/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>

#include "daemon/image/archive-util.h"
#include "daemon/image/payload.h"

typedef struct Format {
        const char *name;
        const char *magic;
        size_t magic_size;
        int (*support)(struct archive *);
        bool size_appended; /* behind the stream, so it has to be cut off before unpacking */
} Format;

static const Format formats[] = {
        { "gzip", "\x1f\x8b\x08", 3, archive_read_support_filter_gzip, false },
        { "bzip2", "BZh", 3, archive_read_support_filter_bzip2, true },
        { "xz", "\xfd" "7zXZ", 6, archive_read_support_filter_xz, true },
        { "lzma", "\x5d\0\0", 3, archive_read_support_filter_lzma, true },
        { "zstd", "\x28\xb5\x2f\xfd", 4, archive_read_support_filter_zstd, true },
        { "lz4", "\x02\x21\x4c\x18", 4, archive_read_support_filter_lz4, true },
        { "lz4", "\x04\x22\x4d\x18", 4, archive_read_support_filter_lz4, true },
};

static const Format *find_format(const uint8_t *data, size_t size) {
        for (size_t i = 0; i < ELEMENTSOF(formats); i++)
                if (size >= formats[i].magic_size && memcmp(data, formats[i].magic, formats[i].magic_size) == 0)
                        return &formats[i];
        return NULL;
}

const char *payload_format(const uint8_t *data, size_t size) {
        const Format *f = find_format(data, size);
        return f ? f->name : NULL;
}

/* Exactly size bytes, and nothing behind them. */
static int unpack_into(const Format *f, const uint8_t *data, size_t data_size, uint8_t *p, size_t size, Fault *fault) {
        _cleanup_(archive_read_freep) struct archive *a = archive_read_new();
        struct archive_entry *entry;
        size_t done = 0;
        ssize_t n = 0;
        uint8_t rest;

        if (!a)
                return -ENOMEM;
        if (f->support(a) < ARCHIVE_WARN || archive_read_support_format_raw(a) != ARCHIVE_OK)
                return fault_set(fault, -EOPNOTSUPP, "this libarchive can't unpack %s", f->name);
        if (archive_read_open_memory(a, data, data_size) != ARCHIVE_OK ||
            archive_read_next_header(a, &entry) != ARCHIVE_OK)
                return fault_set(fault, -EBADMSG, "the %s data in the kernel file is damaged: %s", f->name,
                                 strempty(archive_error_string(a)));
        if (archive_filter_count(a) != 2)
                return fault_set(fault, -EBADMSG, "the %s data in the kernel file is damaged", f->name);

        while (done < size && (n = archive_read_data(a, p + done, size - done)) > 0)
                done += (size_t) n;
        if (n >= 0 && done == size)
                n = archive_read_data(a, &rest, 1);
        if (n < 0)
                return fault_set(fault, -EBADMSG, "the %s data in the kernel file is damaged: %s", f->name,
                                 strempty(archive_error_string(a)));
        if (n > 0 || done != size)
                return fault_set(fault, -EBADMSG,
                                 "the kernel file says that it unpacks to %zu bytes, but its %s data has %s", size,
                                 f->name, n > 0 ? "more" : "less");
        return 0;
}

int payload_unpack(const uint8_t *data, size_t size, uint8_t **ret, size_t *ret_size, Fault *fault) {
        const Format *f = find_format(data, size);
        _cleanup_free_ uint8_t *p = NULL;
        uint32_t unpacked;
        int r;

        if (!f)
                return fault_set(fault, -EOPNOTSUPP,
                                 "the kernel in the file is compressed in an unknown way (it begins with %02x %02x %02x %02x)",
                                 size > 0 ? data[0] : 0, size > 1 ? data[1] : 0, size > 2 ? data[2] : 0,
                                 size > 3 ? data[3] : 0);
        if (size < f->magic_size + sizeof(unpacked))
                return fault_set(fault, -EBADMSG, "the compressed kernel is cut off");

        memcpy(&unpacked, data + size - sizeof(unpacked), sizeof(unpacked));
        unpacked = le32toh(unpacked);
        if (unpacked == 0 || unpacked > PAYLOAD_UNPACKED_MAX)
                return fault_set(fault, -EFBIG, "the kernel would unpack to %u bytes; at most %llu are taken", unpacked,
                                 (unsigned long long) PAYLOAD_UNPACKED_MAX);

        p = malloc(unpacked);
        if (!p)
                return -ENOMEM;
        r = unpack_into(f, data, size - (f->size_appended ? sizeof(unpacked) : 0), p, unpacked, fault);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(p);
        *ret_size = unpacked;
        return 0;
}
