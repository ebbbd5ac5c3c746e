/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/aml.h"

enum {
        AML_ZERO = 0x00,
        AML_ONE = 0x01,
        AML_NAME = 0x08,
        AML_BYTE_PREFIX = 0x0a,
        AML_DWORD_PREFIX = 0x0c,
        AML_STRING_PREFIX = 0x0d,
        AML_SCOPE = 0x10,
        AML_BUFFER = 0x11,
        AML_PACKAGE = 0x12,
        AML_ROOT = '\\',
        AML_EXT_PREFIX = 0x5b,
        AML_EXT_DEVICE = 0x82,
};

#define PACKAGE_LENGTH_BYTES 2U
#define NAME_SEGMENT 4U
#define RESOURCE_END_TAG 0x79U

static void byte(AmlWriter *w, uint8_t v) {
        aml_raw(w, &v, sizeof(v));
}

void aml_raw(AmlWriter *w, const void *data, size_t size) {
        assert(w);
        assert(data || size == 0);

        if (w->overflow || size > w->max - w->size) {
                w->overflow = true;
                return;
        }
        memcpy(w->data + w->size, data, size);
        w->size += size;
}

static void path_put(AmlWriter *w, const char *path) {
        char segment[NAME_SEGMENT] = { '_', '_', '_', '_' };

        if (*path == '\\') {
                byte(w, AML_ROOT);
                path++;
        }

        size_t n = strlen(path);
        assert(n >= 1 && n <= NAME_SEGMENT);
        memcpy(segment, path, n);
        aml_raw(w, segment, sizeof(segment));
}

/* Always the two-byte form, so that the length can be filled in afterwards. */
static size_t package_length_begin(AmlWriter *w) {
        size_t begin = w->size;

        byte(w, 0);
        byte(w, 0);
        return begin;
}

void aml_package_length_end(AmlWriter *w, size_t begin) {
        assert(w);

        if (w->overflow)
                return;

        size_t length = w->size - begin;
        assert(length >= PACKAGE_LENGTH_BYTES && length < 4096);
        w->data[begin] = (uint8_t) (1U << 6 | (length & 0xf));
        w->data[begin + 1] = (uint8_t) (length >> 4);
}

size_t aml_scope_begin(AmlWriter *w, const char *path) {
        byte(w, AML_SCOPE);
        size_t begin = package_length_begin(w);
        path_put(w, path);
        return begin;
}

size_t aml_device_begin(AmlWriter *w, const char *name) {
        byte(w, AML_EXT_PREFIX);
        byte(w, AML_EXT_DEVICE);
        size_t begin = package_length_begin(w);
        path_put(w, name);
        return begin;
}

static void integer(AmlWriter *w, uint32_t v) {
        if (v <= 1)
                byte(w, v == 0 ? AML_ZERO : AML_ONE);
        else if (v <= UINT8_MAX) {
                byte(w, AML_BYTE_PREFIX);
                byte(w, (uint8_t) v);
        } else {
                byte(w, AML_DWORD_PREFIX);
                aml_raw(w, &v, sizeof(v));
        }
}

void aml_name_integer(AmlWriter *w, const char *path, uint32_t v) {
        byte(w, AML_NAME);
        path_put(w, path);
        integer(w, v);
}

static uint8_t hex_digit(char c) {
        return (uint8_t) (c <= '9' ? c - '0' : c - 'A' + 10);
}

void aml_name_eisa_id(AmlWriter *w, const char *path, const char *id) {
        assert(strlen(id) == 7);

        /* Three letters of five bits each, then four hex digits; stored big-endian. */
        uint8_t bytes[4] = {
                (uint8_t) ((id[0] & 0x1f) << 2 | (id[1] & 0x1f) >> 3),
                (uint8_t) ((id[1] & 0x1f) << 5 | (id[2] & 0x1f)),
                (uint8_t) (hex_digit(id[3]) << 4 | hex_digit(id[4])),
                (uint8_t) (hex_digit(id[5]) << 4 | hex_digit(id[6])),
        };

        byte(w, AML_NAME);
        path_put(w, path);
        byte(w, AML_DWORD_PREFIX);
        aml_raw(w, bytes, sizeof(bytes));
}

void aml_name_string(AmlWriter *w, const char *path, const char *text) {
        byte(w, AML_NAME);
        path_put(w, path);
        byte(w, AML_STRING_PREFIX);
        aml_raw(w, text, strlen(text) + 1);
}

void aml_name_package(AmlWriter *w, const char *path, const uint32_t *values, uint8_t n) {
        byte(w, AML_NAME);
        path_put(w, path);
        byte(w, AML_PACKAGE);

        size_t begin = package_length_begin(w);
        byte(w, n);
        for (uint8_t i = 0; i < n; i++)
                integer(w, values[i]);
        aml_package_length_end(w, begin);
}

void aml_name_resources(AmlWriter *w, const char *path, const void *descriptors, size_t size) {
        const uint8_t end_tag[] = { RESOURCE_END_TAG, 0 }; /* checksum 0: none */

        assert(size + sizeof(end_tag) <= UINT8_MAX);

        byte(w, AML_NAME);
        path_put(w, path);
        byte(w, AML_BUFFER);

        size_t begin = package_length_begin(w);
        integer(w, (uint32_t) (size + sizeof(end_tag)));
        aml_raw(w, descriptors, size);
        aml_raw(w, end_tag, sizeof(end_tag));
        aml_package_length_end(w, begin);
}
