/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/write-file.h"

int write_file(const char *path, const char *text) {
        _cleanup_free_ char *tmp = NULL;

        if (asprintf(&tmp, "%s.new", path) < 0)
                return -ENOMEM;
        _cleanup_close_ int fd = open(tmp, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        int r = write_full(fd, text, strlen(text));
        if (r >= 0 && rename(tmp, path) < 0)
                r = -errno;
        if (r < 0)
                (void) unlink(tmp);
        return r;
}
