/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/macros.h"
#include "tests/unit/real-stored.h"

int real_stored_start(RealStored *s) {
        const char *program = getenv("CUBE_STORED");
        int ends[2];

        *s = (RealStored) { .root = "/tmp/cubed-test-store-XXXXXX" };
        if (!program || access(program, X_OK) < 0)
                return -ENOENT;
        if (!mkdtemp(s->root) || socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        s->pid = fork();
        if (s->pid == 0) {
                dup2(ends[1], 3);
                execl(program, program, NULL);
                _exit(127);
        }
        close(ends[1]);
        _cleanup_close_ int root_fd = open(s->root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        int r = sd_event_new(&s->event);
        if (r >= 0)
                r = store_client_new(s->event, root_fd, &s->client);
        if (r >= 0)
                r = store_client_attach(s->client, ends[0]);
        return r;
}

void real_stored_stop(RealStored *s) {
        s->client = store_client_free(s->client);
        s->event = sd_event_unref(s->event);
        (void) waitpid(s->pid, NULL, 0);
        (void) rmdir(s->root);
}

int real_stored_wait(RealStored *s, int r, const int *result) {
        if (r < 0)
                return r;
        while (*result == 1 && sd_event_run(s->event, 60 * USEC_PER_SEC) > 0)
                ;
        return *result;
}

int real_stored_file(void) {
        return open("/tmp", O_TMPFILE|O_RDWR|O_CLOEXEC, 0600);
}

int real_stored_memory_file(void) {
        return memfd_create("test", MFD_CLOEXEC);
}

int real_stored_small_file(uint64_t bytes) {
        char size[32];

        (void) snprintf(size, sizeof(size), "%llu", (unsigned long long) bytes);
        _cleanup_close_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
        if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
            fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        _cleanup_close_ int mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
        if (mount < 0)
                return -errno;
        int fd = openat(mount, "file", O_RDWR|O_CREAT|O_CLOEXEC, 0600);
        return fd < 0 ? -errno : fd;
}
