/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/nss-child.h"
#include "daemon/uid-range.h"

/* Entries and single look-ups that the check makes at most: a directory service may hold millions. */
#define CHECK_ENTRIES_MAX 50000U
#define CHECK_SAMPLES 16U
#define CHECK_TEXT_MAX 256U
#define SUBID_FILE_MAX (4U * 1024U * 1024U)

struct UidRange {
        uint32_t base, count;
        uint32_t next;
        uint32_t used;
        uint8_t *bits;
};

int uid_range_new(uint32_t base, uint32_t count, UidRange **ret) {
        assert(count > 0);

        UidRange *u = new0(UidRange, 1);
        if (!u)
                return -ENOMEM;
        *u = (UidRange) { .base = base, .count = count, .bits = new0(uint8_t, ((size_t) count + 7) / 8) };
        if (!u->bits) {
                free(u);
                return -ENOMEM;
        }
        *ret = u;
        return 0;
}

UidRange *uid_range_free(UidRange *u) {
        if (!u)
                return NULL;
        free(u->bits);
        free(u);
        return NULL;
}

static bool is_used(const UidRange *u, uint32_t i) {
        return u->bits[i / 8] & (1U << (i % 8));
}

static void set_used(UidRange *u, uint32_t i, bool on) {
        if (on)
                u->bits[i / 8] |= (uint8_t) (1U << (i % 8));
        else
                u->bits[i / 8] &= (uint8_t) ~(1U << (i % 8));
        u->used += on ? 1 : -1U;
}

int uid_range_acquire(UidRange *u, uint32_t *ret) {
        if (u->used == u->count)
                return -ENOSPC;

        while (is_used(u, u->next))
                u->next = (u->next + 1) % u->count;
        set_used(u, u->next, true);
        *ret = u->base + u->next;
        u->next = (u->next + 1) % u->count;
        return 0;
}

int uid_range_take(UidRange *u, uint32_t uid) {
        if (uid < u->base || uid - u->base >= u->count)
                return -ERANGE;
        if (is_used(u, uid - u->base))
                return -EBUSY;
        set_used(u, uid - u->base, true);
        return 0;
}

void uid_range_release(UidRange *u, uint32_t uid) {
        if (uid < u->base || uid - u->base >= u->count || !is_used(u, uid - u->base))
                return;
        set_used(u, uid - u->base, false);
}

typedef struct Range {
        uint32_t base, count;
} Range;

static bool inside(Range r, uint64_t id) {
        return id >= r.base && id - r.base < r.count;
}

static bool find_user(Range r, char text[static CHECK_TEXT_MAX]) {
        struct passwd *p;

        setpwent();
        for (unsigned i = 0; i < CHECK_ENTRIES_MAX && (p = getpwent()); i++)
                if (inside(r, p->pw_uid)) {
                        (void) snprintf(text, CHECK_TEXT_MAX, "user %.64s has uid %u", p->pw_name, p->pw_uid);
                        return true;
                }
        /* Directory services often list nothing but answer for single numbers. */
        for (unsigned i = 0; i < CHECK_SAMPLES; i++) {
                uid_t uid = r.base + (uint32_t) ((uint64_t) (r.count - 1) * i / (CHECK_SAMPLES - 1));
                p = getpwuid(uid);
                if (p) {
                        (void) snprintf(text, CHECK_TEXT_MAX, "user %.64s has uid %u", p->pw_name, p->pw_uid);
                        return true;
                }
        }
        return false;
}

static bool find_group(Range r, char text[static CHECK_TEXT_MAX]) {
        struct group *g;

        setgrent();
        for (unsigned i = 0; i < CHECK_ENTRIES_MAX && (g = getgrent()); i++)
                if (inside(r, g->gr_gid)) {
                        (void) snprintf(text, CHECK_TEXT_MAX, "group %.64s has gid %u", g->gr_name, g->gr_gid);
                        return true;
                }
        return false;
}

static bool find_subid(Range r, const char *path, char text[static CHECK_TEXT_MAX]) {
        _cleanup_free_ char *content = NULL;

        if (read_file(AT_FDCWD, path, SUBID_FILE_MAX, &content, NULL) < 0)
                return false;
        for (char *save = NULL, *line = strtok_r(content, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                unsigned long long base, count;
                char name[65];

                if (sscanf(line, "%64[^:]:%llu:%llu", name, &base, &count) != 3 || count == 0)
                        continue;
                if (base < (uint64_t) r.base + r.count && r.base < base + count) {
                        (void) snprintf(text, CHECK_TEXT_MAX, "%s gives %llu to %llu to %s", path, base,
                                        base + count - 1, name);
                        return true;
                }
        }
        return false;
}

static void check_child(int fd, const void *arg) {
        char text[CHECK_TEXT_MAX] = "";
        const Range *r = arg;

        (void) (find_user(*r, text) || find_group(*r, text) || find_subid(*r, "/etc/subuid", text) ||
                find_subid(*r, "/etc/subgid", text));
        /* The byte before the text tells an answer from a crash. */
        if (write_full(fd, "", 1) >= 0)
                (void) write_full(fd, text, strlen(text));
}

int uid_range_check(uint32_t base, uint32_t count, uint64_t timeout_usec, char **ret_conflict) {
        char text[CHECK_TEXT_MAX + 1];
        size_t size;

        int r = nss_child_ask(check_child, &(Range) { base, count }, timeout_usec, text, sizeof(text) - 1, &size);
        if (r < 0)
                return r;
        if (size == 0)
                return -EIO;
        text[size] = 0;
        if (size == 1)
                return 0;
        *ret_conflict = strdup(text + 1);
        return *ret_conflict ? 1 : -ENOMEM;
}
