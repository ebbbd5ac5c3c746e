/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "guest/envd-entry.h"
#include "guest/envd-metadata.h"
#include "guest/files.h"

#define MODE_MAX 16
#define TIME_MAX 64
#define TEXT_MAX 32

/* As Go writes it: a letter for each kind that is not a plain file, then the nine of the permissions. */
static void format_mode(mode_t mode, char ret[static MODE_MAX]) {
        static const struct {
                mode_t kind;
                const char *letters;
        } kinds[] = {
                { S_IFDIR, "d" }, { S_IFLNK, "L" }, { S_IFBLK, "D" }, { S_IFCHR, "Dc" }, { S_IFIFO, "p" }, { S_IFSOCK, "S" },
        };
        size_t n = 0;

        for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
                if ((mode & S_IFMT) == kinds[i].kind)
                        n += (size_t) snprintf(ret + n, MODE_MAX - n, "%s", kinds[i].letters);
        if (mode & S_ISUID)
                ret[n++] = 'u';
        if (mode & S_ISGID)
                ret[n++] = 'g';
        if (mode & S_ISVTX)
                ret[n++] = 't';
        if (n == 0)
                ret[n++] = '-';
        for (unsigned i = 0; i < 9; i++)
                ret[n++] = mode & (0400U >> i) ? "rwxrwxrwx"[i] : '-';
        ret[n] = 0;
}

static void put_time(json_object *o, const struct timespec *ts) {
        char text[TIME_MAX + TEXT_MAX], date[TIME_MAX];
        struct tm tm;

        if (!gmtime_r(&ts->tv_sec, &tm) || strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
                return;
        if (ts->tv_nsec > 0)
                snprintf(text, sizeof(text), "%s.%09ldZ", date, ts->tv_nsec);
        else
                snprintf(text, sizeof(text), "%sZ", date);
        json_put_text(o, "modifiedTime", text);
}

static void put_link(json_object *o, const char *path, mode_t *mode) {
        _cleanup_free_ char *target = realpath(path, NULL);
        struct stat st;

        json_put_text(o, "symlinkTarget", target ? target : path);
        *mode = target && stat(target, &st) >= 0 ? st.st_mode : 0;
}

static void put_owner(json_object *o, const struct stat *st, EntryNames *names) {
        if (!names->user_known || names->uid != st->st_uid)
                (void) user_name(st->st_uid, names->user);
        if (!names->group_known || names->gid != st->st_gid)
                (void) group_name(st->st_gid, names->group);
        names->user_known = names->group_known = true;
        names->uid = st->st_uid;
        names->gid = st->st_gid;
        json_put_text(o, "owner", names->user);
        json_put_text(o, "group", names->group);
}

int entry_new(const char *path, EntryNames *names, json_object **ret, bool *ret_directory) {
        char text[TEXT_MAX];
        struct stat st;

        if (lstat(path, &st) < 0)
                return -errno;

        json_object *o = json_object_new_object(), *metadata;
        mode_t mode = st.st_mode;

        json_put_text(o, "name", file_base_name(path));
        json_put_text(o, "path", path);
        if (S_ISLNK(st.st_mode))
                put_link(o, path, &mode);
        if (S_ISREG(mode))
                json_put_text(o, "type", "FILE_TYPE_FILE");
        else if (S_ISDIR(mode))
                json_put_text(o, "type", "FILE_TYPE_DIRECTORY");
        /* 64 bits are text in JSON. */
        snprintf(text, sizeof(text), "%lld", (long long) st.st_size);
        json_put_text(o, "size", text);
        json_put_int(o, "mode", mode & 0777);
        format_mode(S_ISLNK(st.st_mode) ? S_IFLNK | 0777 : st.st_mode, text);
        json_put_text(o, "permissions", text);
        put_owner(o, &st, names);
        put_time(o, &st.st_mtim);
        metadata = metadata_get(path);
        if (metadata)
                json_put(o, "metadata", metadata);
        if (ret_directory)
                *ret_directory = S_ISDIR(st.st_mode);
        *ret = o;
        return o ? 0 : -ENOMEM;
}
