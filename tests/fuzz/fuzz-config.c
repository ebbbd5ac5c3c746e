/* SPDX-License-Identifier: Apache-2.0 */

/* cubed.conf. Whatever is in it there is a configuration, and what that is written as is read as the same, without a word
 * of complaint. */

#include "daemon/config.h"
#include "fuzz.h"

#define FILE_MAX KIB(64)

static void on_warning(void *userdata, const char *path, unsigned line, const char *message) {
        FUZZ_CHECK(path && message && *message);
        (*(unsigned *) userdata)++;
}

static char *dump(const Config *c, size_t *ret_size) {
        char *text = NULL;

        FILE *f = open_memstream(&text, ret_size);
        FUZZ_CHECK(f);
        config_dump(c, f);
        FUZZ_CHECK(fclose(f) == 0);
        return text;
}

static void load(Config *c, const void *text, size_t size, unsigned *ret_warnings) {
        char path[32];

        *ret_warnings = 0;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fuzz_file(text, size));
        FUZZ_CHECK(config_init(c) == 0);
        (void) config_load_file(c, path, on_warning, ret_warnings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *first = NULL, *second = NULL;
        size_t n_first, n_second;
        unsigned n_warnings;
        Config c, again;

        load(&c, data, MIN(size, FILE_MAX), &n_warnings);
        first = dump(&c, &n_first);
        load(&again, first, n_first, &n_warnings);
        second = dump(&again, &n_second);
        FUZZ_CHECK(n_warnings == 0);
        FUZZ_CHECK(n_first == n_second && memcmp(first, second, n_first) == 0);
        config_done(&c);
        config_done(&again);
        return 0;
}
