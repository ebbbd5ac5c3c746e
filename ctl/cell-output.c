/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/cell-output.h"
#include "ctl/ctl.h"
#include "ctl/text.h"

/* What is made printable at once, of a text that may have megabytes. */
#define PIECE KIB(64)

static int flush(FILE *f, const char *name) {
        if (fflush(f) == 0 && !ferror(f))
                return 0;
        int r = -errno;
        return r == -EPIPE ? r : ctl_fail(r, NULL, "write to %s", name);
}

/* A return to the begin of a line would hide what stands there: that is a new line. */
static int write_printable(FILE *f, const char *text, size_t size) {
        _cleanup_free_ char *lines = malloc(size + 1);
        size_t n = 0;

        if (!lines)
                return -ENOMEM;
        for (size_t i = 0; i < size; i++)
                if (text[i] != '\r')
                        lines[n++] = text[i];
                else if (i + 1 == size || text[i + 1] != '\n')
                        lines[n++] = '\n';
        _cleanup_free_ char *printable = text_printable(lines, n, true);
        if (!printable)
                return -ENOMEM;
        fputs(printable, f);
        return 0;
}

static int write_text(FILE *f, bool terminal, const char *text, size_t size) {
        if (!terminal) {
                fwrite(text, 1, size, f);
                return 0;
        }
        while (size > 0) {
                size_t n = size > PIECE ? text_whole(text, PIECE) : size;
                int r = write_printable(f, text, n);
                if (r < 0)
                        return r;
                text += n;
                size -= n;
        }
        return 0;
}

static int put_out(CellOutput *o, const char *text, size_t size) {
        if (size == 0)
                return 0;
        int r = write_text(o->out, o->out_terminal, text, size);
        o->line_begun = text[size - 1] != '\n' && !(o->out_terminal && text[size - 1] == '\r');
        return r < 0 ? r : flush(o->out, "stdout");
}

static int put_err(CellOutput *o, const char *text, size_t size) {
        int r = write_text(o->err, o->err_terminal, text, size);
        return r < 0 ? r : flush(o->err, "stderr");
}

static int put_line(CellOutput *o, const char *text, size_t size) {
        int r = o->line_begun ? put_out(o, "\n", 1) : 0;

        if (r >= 0)
                r = put_out(o, text, size);
        return r < 0 || !o->line_begun ? r : put_out(o, "\n", 1);
}

static int show_stream(CellOutput *o, const CellEvent *e) {
        size_t size;

        const char *text = cell_event_text(e, "text", &size);
        if (!text)
                return 0;
        return e->type == CELL_STDOUT ? put_out(o, text, size) : put_err(o, text, size);
}

/* What of a result reads as text; Markdown was made to be read. */
static const char *readable(const CellEvent *e, size_t *ret_size) {
        static const char *const names[] = { "markdown", "text", "latex" };

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                const char *text = cell_event_text(e, names[i], ret_size);
                if (text)
                        return text;
        }
        return NULL;
}

static const Form *picture(const CellEvent *e) {
        const Form *png = result_form("png"), *jpeg = result_form("jpeg");

        return result_has(e, png) ? png : result_has(e, jpeg) ? jpeg : NULL;
}

/* 1 when it was. */
static int show_inline(CellOutput *o, const CellEvent *e) {
        _cleanup_free_ uint8_t *data = NULL;
        const Form *form = picture(e);
        size_t size;

        if (o->inline_images == INLINE_NONE || o->directory || !form || result_bytes(e, form, &data, &size) < 0)
                return 0;
        int r = o->line_begun ? put_out(o, "\n", 1) : 0;
        if (r >= 0)
                r = inline_image_show(o->out, o->inline_images, data, size);
        if (r == -EOPNOTSUPP)
                return 0;
        if (r >= 0)
                r = flush(o->out, "stdout");
        return r < 0 ? r : 1;
}

static int write_files(CellOutput *o, const CellEvent *e, const Form *const *forms, size_t n) {
        if (!o->files_open) {
                int r = result_files_open(&o->files, o->directory ? o->directory : ".");
                if (r < 0)
                        return r;
                o->files_open = true;
        }
        return result_files_write(&o->files, e, forms, n);
}

static int keep_forms(CellOutput *o, const CellEvent *e) {
        const Form *forms[32];
        size_t n = 0;

        if (!o->directory) {
                forms[0] = picture(e);
                n = forms[0] != NULL;
        } else
                for (const Form *f = result_forms; f->name; f++)
                        if (result_has(e, f))
                                forms[n++] = f;
        return n > 0 ? write_files(o, e, forms, n) : 0;
}

/* There is nothing of it that could be shown here. */
static void tell_forms(const CellEvent *e) {
        char names[256] = "";

        for (const Form *f = result_forms; f->name; f++)
                if (result_has(e, f))
                        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", *names ? ", " : "", f->name);
        if (*names && !ctl_options.quiet)
                ctl_note("A result is not text, but: %s. --output=DIR keeps it.", names);
}

static int show_result(CellOutput *o, const CellEvent *e) {
        size_t size;

        int shown = show_inline(o, e);
        if (shown != 0)
                return MIN(shown, 0);

        const char *text = readable(e, &size);
        int r = text ? put_line(o, text, size) : 0;
        if (r < 0)
                return r;
        if (!text && !picture(e) && !o->directory)
                tell_forms(e);
        return keep_forms(o, e);
}

static int put_printable(CellOutput *o, const char *text, size_t size) {
        _cleanup_free_ char *printable = text_printable(text, size, true);

        if (!printable)
                return -ENOMEM;
        size = strlen(printable);
        int r = put_err(o, printable, size);
        return r < 0 || (size > 0 && printable[size - 1] == '\n') ? r : put_err(o, "\n", 1);
}

static int show_error(CellOutput *o, const CellEvent *e) {
        size_t n_name = 0, n_value = 0, n_traceback = 0;
        const char *name = strempty(cell_event_text(e, "name", &n_name)),
                   *value = strempty(cell_event_text(e, "value", &n_value)),
                   *traceback = strempty(cell_event_text(e, "traceback", &n_traceback));
        _cleanup_free_ char *line = NULL;

        int r = n_traceback > 0 ? put_printable(o, traceback, n_traceback) : 0;
        if (r < 0 || (n_traceback > 0 && strstr(traceback, value)))
                return r;
        if (asprintf(&line, "%s: %s", name, value) < 0) {
                line = NULL;
                return -ENOMEM;
        }
        return put_printable(o, line, strlen(line));
}

static int show_json(CellOutput *o, const CellEvent *e) {
        const char *json = json_object_to_json_string_ext(e->object, JSON_C_TO_STRING_PLAIN|JSON_C_TO_STRING_NOSLASHESCAPE);
        _cleanup_free_ char *text = json ? text_json(json) : NULL;
        return text ? put_line(o, text, strlen(text)) : -ENOMEM;
}

static int show(CellOutput *o, const CellEvent *e) {
        if (o->json)
                return show_json(o, e);
        switch (e->type) {
        case CELL_STDOUT:
        case CELL_STDERR:
                return show_stream(o, e);
        case CELL_RESULT:
                return show_result(o, e);
        case CELL_ERROR:
                return show_error(o, e);
        default:
                return 0;
        }
}

int cell_output_event(void *userdata, const CellEvent *e) {
        CellOutput *o = userdata;

        o->failed = o->failed || e->type == CELL_ERROR;
        o->ended = o->ended || e->type == CELL_END;
        return show(o, e);
}

void cell_output_done(CellOutput *o) {
        if (o->files_open)
                result_files_close(&o->files);
        o->files_open = false;
}
