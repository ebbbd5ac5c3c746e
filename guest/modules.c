/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/module.h>
#include <sys/syscall.h>

#include "base/fd-util.h"
#include "guest/log.h"
#include "guest/modules.h"

#define LIST_MAX (64U * 1024U)

#ifndef MODULE_INIT_COMPRESSED_FILE
#define MODULE_INIT_COMPRESSED_FILE 4
#endif

static bool ends_with(const char *s, const char *suffix) {
        size_t n = strlen(s), m = strlen(suffix);
        return n >= m && streq(s + n - m, suffix);
}

static int module_load(const char *path, const char *parameters) {
        bool compressed = ends_with(path, ".xz") || ends_with(path, ".zst") || ends_with(path, ".gz");

        _cleanup_close_ int fd = open(path, O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (syscall(SYS_finit_module, fd, parameters, compressed ? MODULE_INIT_COMPRESSED_FILE : 0) < 0 &&
            errno != EEXIST)
                return -errno;
        return 0;
}

int modules_load(const char *list) {
        _cleanup_free_ char *text = NULL;
        char *save = NULL;

        int r = read_file(AT_FDCWD, list, LIST_MAX, &text, NULL);
        if (r < 0)
                return r;

        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                size_t n = strcspn(line, " \t");
                const char *parameters = "";

                if (n == 0 || *line == '#')
                        continue;
                if (line[n]) {
                        line[n] = 0;
                        parameters = line + n + 1;
                }
                r = module_load(line, parameters);
                if (r < 0)
                        log_warning("module %s not loaded: %s", line, strerror(-r));
        }
        return 0;
}
