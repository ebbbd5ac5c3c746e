/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The forms that a result of a cell has, and files of them in a directory: result-1.png, result-1.html. No file that is
 * there is touched: the numbers go on behind those that are taken. */

#include "ctl/cell-event.h"

typedef enum FormKind {
        FORM_TEXT,
        FORM_BASE64,
        FORM_JSON,      /* any value but null and {} */
} FormKind;

typedef struct Form {
        const char *name;      /* of the field */
        const char *suffix;
        FormKind kind;
} Form;

/* Of one run: the disk is not the guest's to fill. */
#define RESULT_BYTES_MAX GIB(1)

typedef struct ResultFiles {
        const char *directory;
        int fd;
        unsigned last;         /* number */
        uint64_t room;         /* bytes that may still be written */
} ResultFiles;

/* All of them but "text"; ends with one that has no name. */
extern const Form result_forms[];

const Form *result_form(const char *name);
/* Does this result have it? */
bool result_has(const CellEvent *e, const Form *form);
/* Its bytes; -EBADMSG for what is no base64, -ENOENT when there is no such form. */
int result_bytes(const CellEvent *e, const Form *form, uint8_t **ret, size_t *ret_size);

/* Makes the directory if need be. Says what went wrong, as the others here. */
int result_files_open(ResultFiles *f, const char *directory);
void result_files_close(ResultFiles *f);
/* These forms of a result, under one number; each name is told on stderr. */
int result_files_write(ResultFiles *f, const CellEvent *e, const Form *const *forms, size_t n);
