/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "daemon/image/bzimage.h"

#define SECTOR 512U
#define OFFSET_SETUP_SECTS 0x1f1U
#define OFFSET_BOOT_FLAG 0x1feU
#define OFFSET_MAGIC 0x202U
#define OFFSET_VERSION 0x206U
#define OFFSET_KERNEL_VERSION 0x20eU
#define OFFSET_PAYLOAD_OFFSET 0x248U
#define OFFSET_PAYLOAD_LENGTH 0x24cU
#define HEADER_END 0x250U

static uint16_t get16(const uint8_t *p) {
        uint16_t v;
        memcpy(&v, p, sizeof(v));
        return le16toh(v);
}

static uint32_t get32(const uint8_t *p) {
        uint32_t v;
        memcpy(&v, p, sizeof(v));
        return le32toh(v);
}

bool bzimage_is(const uint8_t *data, size_t size) {
        return size >= OFFSET_MAGIC + 4 && get16(data + OFFSET_BOOT_FLAG) == 0xaa55 &&
                memcmp(data + OFFSET_MAGIC, "HdrS", 4) == 0;
}

/* "6.1.0-57-cloud-amd64 (debian-kernel@...) #1 SMP ...": the first word. */
static void parse_release(const uint8_t *data, size_t setup_size, char *ret) {
        size_t offset = get16(data + OFFSET_KERNEL_VERSION), n;

        ret[0] = 0;
        if (offset == 0 || offset + SECTOR >= setup_size)
                return;

        data += offset + SECTOR;
        n = MIN(setup_size - offset - SECTOR, (size_t) KERNEL_RELEASE_MAX + 1);
        for (size_t i = 0; i < n; i++)
                if (data[i] == ' ' || data[i] == 0) {
                        memcpy(ret, data, i);
                        ret[i] = 0;
                        break;
                }
        if (!kernel_release_valid(ret))
                ret[0] = 0;
}

int bzimage_parse(const uint8_t *data, size_t size, BzImage *ret, Fault *fault) {
        size_t setup_size, offset, length;
        unsigned version;

        if (!bzimage_is(data, size) || size < HEADER_END)
                return fault_set(fault, -EBADMSG, "the kernel file is cut off inside its setup header");

        version = get16(data + OFFSET_VERSION);
        if (version < 0x208)
                return fault_set(fault, -EBADMSG,
                                 "boot protocol %u.%02u is too old, 2.08 or newer (Linux 2.6.26) is needed",
                                 version >> 8, version & 0xff);

        /* 0 means 4 for the sake of very old loaders. */
        setup_size = ((data[OFFSET_SETUP_SECTS] ?: 4) + 1U) * SECTOR;
        offset = get32(data + OFFSET_PAYLOAD_OFFSET);
        length = get32(data + OFFSET_PAYLOAD_LENGTH);
        if (length == 0)
                return fault_set(fault, -EBADMSG, "the setup header names no compressed kernel");
        if (setup_size > size || offset > size - setup_size || length > size - setup_size - offset)
                return fault_set(fault, -EBADMSG,
                                 "the compressed kernel (%zu bytes at %zu) lies outside the file of %zu bytes: "
                                 "is it cut off?",
                                 length, setup_size + offset, size);

        parse_release(data, setup_size, ret->release);
        ret->payload = data + setup_size + offset;
        ret->payload_size = length;
        return 0;
}
