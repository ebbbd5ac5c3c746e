/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* As much of an AML encoder (ACPI 6.4, chapter 20) as a DSDT without methods needs.
 *
 * Writes into a buffer of the caller's; what does not fit sets overflow and is dropped, to be asked
 * for once at the end. Containers are opened and closed around their content:
 *
 *         size_t device = aml_device_begin(&w, "PCI0");
 *         aml_name_integer(&w, "_UID", 0);
 *         aml_package_length_end(&w, device); */

#include <stdint.h>

#include "base/macros.h"

typedef struct AmlWriter {
        uint8_t *data;
        size_t size;
        size_t max;
        bool overflow;
} AmlWriter;

void aml_raw(AmlWriter *w, const void *data, size_t size);

/* path: up to one name segment, with or without a backslash in front. */
size_t aml_scope_begin(AmlWriter *w, const char *path);
size_t aml_device_begin(AmlWriter *w, const char *name);
/* Closes a scope, device or package; at most 4095 bytes of content. */
void aml_package_length_end(AmlWriter *w, size_t begin);

void aml_name_integer(AmlWriter *w, const char *path, uint32_t v);
/* id: an EISA id as text, PNP0A08. */
void aml_name_eisa_id(AmlWriter *w, const char *path, const char *id);
void aml_name_string(AmlWriter *w, const char *path, const char *text);
/* A package of integers. */
void aml_name_package(AmlWriter *w, const char *path, const uint32_t *values, uint8_t n);
/* A resource template; the end tag is added. At most 255 bytes. */
void aml_name_resources(AmlWriter *w, const char *path, const void *descriptors, size_t size);
