/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/result-files.h"

/* A loop that shows pictures makes no more files than that, in a directory that it has no business in. */
#define RESULTS_MAX 1000U
#define FILE_NAME_MAX 64

const Form result_forms[] = {
        { "png", "png", FORM_BASE64 },
        { "jpeg", "jpeg", FORM_BASE64 },
        { "svg", "svg", FORM_TEXT },
        { "pdf", "pdf", FORM_BASE64 },
        { "html", "html", FORM_TEXT },
        { "markdown", "md", FORM_TEXT },
        { "latex", "tex", FORM_TEXT },
        { "javascript", "js", FORM_TEXT },
        { "json", "json", FORM_JSON },
        { "data", "data.json", FORM_JSON },
        { "chart", "chart.json", FORM_JSON },
        { "extra", "extra.json", FORM_JSON },
        {},
};

const Form *result_form(const char *name) {
        const Form *f = result_forms;

        while (!streq(f->name, name))
                f++;
        return f;
}

bool result_has(const CellEvent *e, const Form *form) {
        json_object *value;

        if (!json_object_object_get_ex(e->object, form->name, &value) || !value)
                return false;
        if (form->kind != FORM_JSON)
                return json_object_is_type(value, json_type_string);
        return !json_object_is_type(value, json_type_object) || json_object_object_length(value) > 0;
}

static int decode(const char *text, size_t size, uint8_t **ret, size_t *ret_size) {
        struct base64_decode_ctx ctx;

        _cleanup_free_ uint8_t *data = malloc(BASE64_DECODE_LENGTH(size) + 1);
        if (!data)
                return -ENOMEM;
        base64_decode_init(&ctx);
        if (!base64_decode_update(&ctx, ret_size, data, size, text) || !base64_decode_final(&ctx))
                return -EBADMSG;
        *ret = TAKE_PTR(data);
        return 0;
}

int result_bytes(const CellEvent *e, const Form *form, uint8_t **ret, size_t *ret_size) {
        json_object *value;
        const char *text;
        size_t size;

        if (!result_has(e, form))
                return -ENOENT;
        if (form->kind == FORM_JSON) {
                (void) json_object_object_get_ex(e->object, form->name, &value);
                text = json_object_to_json_string_length(value, JSON_C_TO_STRING_PLAIN|JSON_C_TO_STRING_NOSLASHESCAPE, &size);
        } else
                text = cell_event_text(e, form->name, &size);
        if (form->kind == FORM_BASE64)
                return decode(text, size, ret, ret_size);

        uint8_t *copy = text ? malloc(size + 1) : NULL;
        if (!copy)
                return -ENOMEM;
        memcpy(copy, text, size);
        *ret = copy;
        *ret_size = size;
        return 0;
}

int result_files_open(ResultFiles *f, const char *directory) {
        *f = (ResultFiles) { .directory = directory, .fd = -EBADF, .room = RESULT_BYTES_MAX };

        if (mkdir(directory, 0777) < 0 && errno != EEXIST)
                return ctl_fail(-errno, NULL, "make the directory %s", directory);
        f->fd = open(directory, O_DIRECTORY|O_RDONLY|O_CLOEXEC);
        return f->fd < 0 ? ctl_fail(-errno, NULL, "open the directory %s", directory) : 0;
}

void result_files_close(ResultFiles *f) {
        f->fd = safe_close(f->fd);
}

static const char *file_name(char buf[static FILE_NAME_MAX], unsigned number, const Form *form) {
        snprintf(buf, FILE_NAME_MAX, "result-%u.%s", number, form->suffix);
        return buf;
}

static bool number_is_free(const ResultFiles *f, unsigned number, const Form *const *forms, size_t n) {
        char name[FILE_NAME_MAX];

        for (size_t i = 0; i < n; i++)
                if (faccessat(f->fd, file_name(name, number, forms[i]), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                        return false;
        return true;
}

static int write_form(ResultFiles *f, const CellEvent *e, const Form *form) {
        const char *slash = streq(f->directory, ".") ? "" : "/", *directory = *slash ? f->directory : "";
        _cleanup_free_ uint8_t *data = NULL;
        char name[FILE_NAME_MAX];
        size_t size;

        file_name(name, f->last, form);
        int r = result_bytes(e, form, &data, &size);
        if (r == -EBADMSG) {
                ctl_note("The %s of a result is not the base64 that it should be.", form->name);
                return 0;
        }
        if (r < 0)
                return ctl_fail(r, NULL, "write the %s of a result", form->name);
        if (size > f->room)
                return ctl_fail_text(-EFBIG, "the files of results are larger than 1 GiB together", "write the %s of a result",
                                     form->name);
        f->room -= size;
        _cleanup_close_ int fd = openat(f->fd, name, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0666);
        r = fd < 0 ? -errno : write_full(fd, data, size);
        if (r < 0)
                return ctl_fail(r, NULL, "write %s%s%s", directory, slash, name);
        if (!ctl_options.quiet)
                ctl_note("%s%s%s", directory, slash, name);
        return 0;
}

int result_files_write(ResultFiles *f, const CellEvent *e, const Form *const *forms, size_t n) {
        int r = 0;

        for (f->last++; f->last <= RESULTS_MAX && !number_is_free(f, f->last, forms, n);)
                f->last++;
        if (f->last > RESULTS_MAX)
                return ctl_fail_text(-EFBIG, "there are too many of them already; name another one with --output=",
                                     "write a result to the directory %s", f->directory);
        for (size_t i = 0; r >= 0 && i < n; i++)
                r = write_form(f, e, forms[i]);
        return r;
}
