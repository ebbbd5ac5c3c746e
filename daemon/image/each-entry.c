/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>

#include "daemon/image/each-entry.h"

static inline void closedirp(DIR **d) {
        if (*d)
                (void) closedir(*d);
}

int for_each_entry(int parent_fd, const char *path, EntryFn fn, void *userdata) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;
        int fd = openat(parent_fd, path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC), r = 0;

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        d = fdopendir(fd);
        if (!d) {
                r = -errno;
                safe_close(fd);
                return r;
        }
        while (r >= 0 && (errno = 0, de = readdir(d)))
                if (!streq(de->d_name, ".") && !streq(de->d_name, ".."))
                        r = fn(dirfd(d), de->d_name, userdata);
        return r < 0 ? r : -errno;
}
