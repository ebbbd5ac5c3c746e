/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>

#include "ctl/inline-image.h"
#include "ctl/text.h"

/* kitty's protocol takes no longer ones. */
#define KITTY_CHUNK 4096U

static bool env_is(const char *name, const char *value) {
        return streq(strempty(getenv(name)), value);
}

InlineImages inline_images_of_terminal(void) {
        /* tmux and screen keep sequences that they don't know to themselves. */
        if (!text_stdout_is_terminal() || getenv("TMUX") || getenv("STY"))
                return INLINE_NONE;
        if (env_is("TERM", "xterm-kitty") || env_is("TERM", "xterm-ghostty"))
                return INLINE_KITTY;
        if (env_is("TERM_PROGRAM", "iTerm.app") || env_is("TERM_PROGRAM", "WezTerm") || env_is("LC_TERMINAL", "iTerm2"))
                return INLINE_ITERM;
        return INLINE_NONE;
}

static bool is_png(const uint8_t *data, size_t size) {
        return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static bool is_jpeg(const uint8_t *data, size_t size) {
        return size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

/* Shown at once, and without an answer, which would come as if it was typed. */
static void show_kitty(FILE *f, const char *text, size_t size) {
        for (size_t at = 0; at < size; at += KITTY_CHUNK) {
                size_t n = MIN(size - at, (size_t) KITTY_CHUNK);

                fprintf(f, "\033_G%sm=%d;", at == 0 ? "a=T,f=100,q=2," : "", at + n < size);
                fwrite(text + at, 1, n, f);
                fputs("\033\\", f);
        }
        fputc('\n', f);
}

static void show_iterm(FILE *f, const char *text, size_t size, size_t file_size) {
        fprintf(f, "\033]1337;File=inline=1;size=%zu:", file_size);
        fwrite(text, 1, size, f);
        fputs("\a\n", f);
}

int inline_image_show(FILE *f, InlineImages how, const uint8_t *data, size_t size) {
        if (how == INLINE_NONE || !(is_png(data, size) || (how == INLINE_ITERM && is_jpeg(data, size))))
                return -EOPNOTSUPP;

        size_t n = BASE64_ENCODE_RAW_LENGTH(size);
        _cleanup_free_ char *text = malloc(n);
        if (!text)
                return -ENOMEM;
        base64_encode_raw(text, size, data);
        if (how == INLINE_KITTY)
                show_kitty(f, text, n);
        else
                show_iterm(f, text, n, size);
        return 0;
}
