/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>
#include <termios.h>

#include "ctl/tty.h"

static struct termios saved;
static bool is_raw = false;

int tty_raw(void) {
        static bool registered = false;
        struct termios raw;

        if (is_raw || !isatty(STDIN_FILENO))
                return 0;
        if (tcgetattr(STDIN_FILENO, &saved) < 0)
                return -errno;
        if (!registered && atexit(tty_restore) == 0)
                registered = true;

        raw = saved;
        cfmakeraw(&raw);
        if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
                return -errno;
        is_raw = true;
        return 0;
}

void tty_restore(void) {
        if (!is_raw)
                return;
        (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
        is_raw = false;
}

void tty_size(uint32_t *ret_rows, uint32_t *ret_cols) {
        struct winsize ws = {};

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_row == 0 || ws.ws_col == 0)
                (void) ioctl(STDIN_FILENO, TIOCGWINSZ, &ws);
        *ret_rows = ws.ws_row > 0 ? ws.ws_row : 24;
        *ret_cols = ws.ws_col > 0 ? ws.ws_col : 80;
}
