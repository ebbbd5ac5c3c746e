/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a snapshot: names, sizes, and what their headers say. What is in them otherwise is checked by
 * the VMM that loads them. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/fd-util.h"
#include "daemon/snapshot-private.h"

static const char *const file_bases[_SNAPSHOT_FILE_MAX] = {
        [SNAPSHOT_FILE_STATE] = "state",
        [SNAPSHOT_FILE_MEMORY] = "memory",
        [SNAPSHOT_FILE_DISK] = "disk",
};

const char *snapshot_file_base(SnapshotFileKind file) {
        return file_bases[file];
}

void snapshot_file_name(char ret[static SNAPSHOT_FILE_NAME_MAX], SnapshotFileKind file, uint32_t number) {
        if (number == 0)
                (void) snprintf(ret, SNAPSHOT_FILE_NAME_MAX, "%s", file_bases[file]);
        else
                (void) snprintf(ret, SNAPSHOT_FILE_NAME_MAX, "%s-%u", file_bases[file], number);
}

bool snapshot_has_file(const Snapshot *s, SnapshotFileKind file) {
        switch (file) {
        case SNAPSHOT_FILE_STATE:
                return s->has_memory && s->kind != SNAPSHOT_LAYER;
        case SNAPSHOT_FILE_MEMORY:
                return s->has_memory;
        default:
                return true;
        }
}

char *snapshot_client_path(const SnapshotStore *store, const char *dir, const char *name) {
        const char *slash = strrchr(store->root, '/');
        char *path;

        if (asprintf(&path, "%s/%s%s%s", slash ? slash + 1 : store->root, dir, name ? "/" : "", strempty(name)) < 0)
                return NULL;
        return path;
}

int snapshot_open_directory(const Snapshot *s, int *ret_fd) {
        int fd = openat(s->store->root_fd, s->priv->dir, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int snapshot_create_numbered(const Snapshot *s, SnapshotFileKind file, uint32_t number, int *ret_fd) {
        _cleanup_close_ int dir = -EBADF;
        char name[SNAPSHOT_FILE_NAME_MAX];

        int r = snapshot_open_directory(s, &dir);
        if (r < 0)
                return r;
        snapshot_file_name(name, file, number);
        int fd = openat(dir, name, O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int snapshot_create_file(Snapshot *s, SnapshotFileKind file, int *ret_fd) {
        if (s->priv->published)
                return -EROFS;
        return snapshot_create_numbered(s, file, 0, ret_fd);
}

int snapshot_link_file(Snapshot *s, SnapshotFileKind file, int fd) {
        _cleanup_close_ int dir = -EBADF;
        char path[32];

        if (s->priv->published)
                return -EROFS;
        int r = snapshot_open_directory(s, &dir);
        if (r < 0)
                return r;
        /* By an empty path it would take CAP_DAC_READ_SEARCH. */
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return linkat(AT_FDCWD, path, dir, file_bases[file], AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Without waiting, whatever it is that lies there. */
static int open_regular(const Snapshot *s, SnapshotFileKind file, int *ret_fd, struct stat *ret_st) {
        _cleanup_close_ int dir = -EBADF, fd = -EBADF;
        char name[SNAPSHOT_FILE_NAME_MAX];

        int r = snapshot_open_directory(s, &dir);
        if (r < 0)
                return r;
        snapshot_file_name(name, file, s->priv->files[file].number);
        fd = openat(dir, name, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC);
        if (fd < 0 || fstat(fd, ret_st) < 0)
                return -errno;
        if (!S_ISREG(ret_st->st_mode))
                return -ESTALE;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int snapshot_open_file(const Snapshot *s, SnapshotFileKind file, int *ret_fd) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (!snapshot_has_file(s, file))
                return -ENOENT;
        int r = open_regular(s, file, &fd, &st);
        if (r < 0)
                return r;
        if (s->priv->published && (uint64_t) st.st_size != s->priv->files[file].bytes)
                return -ESTALE;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

bool snapshot_is_whole(const Snapshot *s) {
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++) {
                _cleanup_close_ int fd = -EBADF;

                if (snapshot_has_file(s, (SnapshotFileKind) i) && snapshot_open_file(s, (SnapshotFileKind) i, &fd) < 0)
                        return false;
        }
        return true;
}

static int pread_exact(int fd, void *buffer, size_t size, off_t offset) {
        ssize_t n = pread(fd, buffer, size, offset);

        if (n < 0)
                return -errno;
        return (size_t) n == size ? 0 : -EBADMSG;
}

/* crc: over a header, with its crc field as 0, and the table behind it. */
static int check_table(int fd, const void *header, size_t header_bytes, size_t table_bytes, uint32_t crc) {
        _cleanup_free_ uint8_t *table = malloc(table_bytes + 1);

        if (!table)
                return -ENOMEM;
        int r = pread_exact(fd, table, table_bytes, (off_t) header_bytes);
        if (r < 0)
                return r;
        uLong sum = crc32_z(0, header, header_bytes);
        return (uint32_t) crc32_z(sum, table, table_bytes) == crc ? 0 : -EBADMSG;
}

static int check_state(int fd, uint64_t bytes, const Snapshot *s) {
        SnapshotHeader h;

        int r = pread_exact(fd, &h, sizeof(h), 0);
        if (r < 0)
                return r;
        if (memcmp(h.magic, SNAPSHOT_STATE_MAGIC, sizeof(h.magic)) != 0 || h.total_bytes != bytes ||
            h.n_sections > SNAPSHOT_SECTIONS_MAX || memcmp(h.id, s->uuid, sizeof(h.id)) != 0)
                return -EBADMSG;

        uint32_t crc = h.crc;
        h.crc = 0;
        return check_table(fd, &h, sizeof(h), h.n_sections * sizeof(SnapshotSection), crc);
}

int snapshot_check_memory(int fd, const uint8_t id[static SNAPSHOT_ID_BYTES],
                          uint8_t ret_below[static SNAPSHOT_ID_BYTES]) {
        SnapshotLayerHeader h;

        int r = pread_exact(fd, &h, sizeof(h), 0);
        if (r < 0)
                return r;
        if (memcmp(h.magic, SNAPSHOT_LAYER_MAGIC, sizeof(h.magic)) != 0 || h.n_runs > SNAPSHOT_LAYER_RUNS_MAX ||
            memcmp(h.id, id, sizeof(h.id)) != 0)
                return -EBADMSG;

        uint32_t crc = h.crc;
        h.crc = 0;
        r = check_table(fd, &h, sizeof(h), h.n_runs * sizeof(SnapshotRun), crc);
        if (r < 0)
                return r;
        memcpy(ret_below, h.parent, sizeof(h.parent));
        return 0;
}

int snapshot_check_files(Snapshot *s) {
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++) {
                _cleanup_close_ int fd = -EBADF;
                struct stat st;

                if (!snapshot_has_file(s, (SnapshotFileKind) i))
                        continue;
                int r = open_regular(s, (SnapshotFileKind) i, &fd, &st);
                if (r < 0)
                        return r;
                if (!s->priv->published)
                        s->priv->files[i].bytes = (uint64_t) st.st_size;
                else if ((uint64_t) st.st_size != s->priv->files[i].bytes)
                        return -ESTALE;
                if (i == SNAPSHOT_FILE_STATE)
                        r = check_state(fd, (uint64_t) st.st_size, s);
                else if (i == SNAPSHOT_FILE_MEMORY)
                        r = snapshot_check_memory(fd, s->uuid, s->priv->memory_below);
                if (r < 0)
                        return r;
        }
        return 0;
}

bool snapshot_memory_fits(const Snapshot *s, const Snapshot *memory_parent) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        const uint8_t *below = memory_parent ? memory_parent->uuid : none;

        return !s->has_memory || memcmp(s->priv->memory_below, below, SNAPSHOT_ID_BYTES) == 0;
}

void snapshot_measure(Snapshot *s) {
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++) {
                _cleanup_close_ int fd = -EBADF;
                struct stat st;

                s->file_bytes[i] = 0;
                if (snapshot_has_file(s, (SnapshotFileKind) i) && open_regular(s, (SnapshotFileKind) i, &fd, &st) >= 0)
                        s->file_bytes[i] = (uint64_t) st.st_blocks * 512;
        }
}
