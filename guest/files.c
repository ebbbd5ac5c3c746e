/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/agent-proto.h"
#include "guest/files.h"
#include "guest/user.h"

int file_record_put(TlvWriter *w, int dirfd, const char *name, const char *shown, const struct stat *st) {
        uint8_t record[sizeof(AgentFile) + NAME_MAX + 1 + PATH_MAX];
        size_t name_len = strnlen(shown, NAME_MAX);
        AgentFile f = {
                .size = htole64((uint64_t) st->st_size),
                .mtime_nsec = htole64((uint64_t) st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t) st->st_mtim.tv_nsec),
                .mode = htole32(st->st_mode),
                .uid = htole32(st->st_uid),
                .gid = htole32(st->st_gid),
                .name_len = htole32((uint32_t) name_len),
        };
        size_t size = sizeof(f);

        memcpy(record, &f, sizeof(f));
        memcpy(record + size, shown, name_len);
        size += name_len;

        if (S_ISLNK(st->st_mode)) {
                ssize_t n = readlinkat(dirfd, name, (char *) record + size + 1, PATH_MAX);
                if (n < 0)
                        return -errno;
                record[size] = 0;
                size += 1 + (size_t) n;
        }

        tlv_put(w, AGENT_TAG_FILE, record, size);
        return tlv_writer_finish(w);
}

const char *file_base_name(const char *path) {
        const char *slash = strrchr(path, '/');
        return slash && slash[1] ? slash + 1 : path;
}

void handle_stat(Agent *a, Request *q, Reply reply) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        struct stat st;

        int r = fstatat(AT_FDCWD, q->path, &st, q->follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
        if (r >= 0)
                r = file_record_put(&w, AT_FDCWD, q->path, file_base_name(q->path), &st);
        if (r < 0)
                reply_result(&reply, r, q->path);
        else
                reply_ok(&reply, &w);
}

void handle_rename(Agent *a, Request *q, Reply reply) {
        if (rename(q->path, q->target) < 0)
                reply_error(&reply, -errno, "%s to %s: %s", q->path, q->target, strerror(errno));
        else
                reply_ok(&reply, NULL);
}

static int make_directory(const char *path, mode_t mode, bool exact) {
        if (mkdir(path, mode) < 0)
                return -errno;
        /* A directory with the set-group-id bit hands that down; chmod for the rest only. */
        if (exact && (mode & 07000) && chmod(path, mode) < 0)
                return -errno;
        return 0;
}

static int make_parents(char *path) {
        for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
                *p = 0;
                int r = make_directory(path, 0755, false);
                *p = '/';
                if (r < 0 && r != -EEXIST)
                        return r;
        }
        return 0;
}

static int make_path(Request *q) {
        struct stat st;
        int r = 0;

        if (q->parents)
                r = make_parents(q->path);
        if (r < 0)
                return r;

        bool exact = request_has(q, AGENT_TAG_MODE);
        r = make_directory(q->path, exact ? q->mode & 07777 : 0755, exact);
        if (r == -EEXIST && q->parents && stat(q->path, &st) >= 0)
                r = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
        return r;
}

void handle_mkdir(Agent *a, Request *q, Reply reply) {
        _cleanup_user_ User user = {};

        int r = user_find(q->user, &user);
        if (r < 0) {
                reply_error(&reply, r, "user %s: not in the guest's /etc/passwd", strempty(q->user));
                return;
        }

        r = identity_enter(&user);
        if (r >= 0) {
                r = make_path(q);
                identity_leave();
        }
        reply_result(&reply, r, q->path);
}

void handle_symlink(Agent *a, Request *q, Reply reply) {
        struct stat st;

        int r = symlink(q->link, q->path) < 0 ? -errno : 0;
        if (r == -EEXIST && lstat(q->path, &st) >= 0 && !S_ISDIR(st.st_mode))
                r = unlink(q->path) < 0 || symlink(q->link, q->path) < 0 ? -errno : 0;
        reply_result(&reply, r, q->path);
}
