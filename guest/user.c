/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "guest/user.h"

#define GROUPS_MAX 1024U

static void fclosep(FILE **f) {
        if (*f)
                fclose(*f);
}

static FILE *open_database(const char *path) {
        struct stat st;

        /* A guest may have put a FIFO there, on which opening or reading would hang PID 1. */
        _cleanup_close_ int fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK|O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return NULL;

        FILE *f = fdopen(fd, "re");
        if (f)
                TAKE_FD(fd);
        return f;
}

static int user_set(User *u, const char *name, const char *home, const char *shell) {
        u->name = strdup(name);
        u->home = strdup(isempty(home) ? "/" : home);
        u->shell = strdup(isempty(shell) ? "/bin/sh" : shell);
        return u->name && u->home && u->shell ? 0 : -ENOMEM;
}

static int find_passwd(const char *name, bool numeric, uid_t uid, User *ret) {
        _cleanup_(fclosep) FILE *f = open_database("/etc/passwd");
        struct passwd *pw;

        if (!f)
                return -ENOENT;

        while ((pw = fgetpwent(f))) {
                if (numeric ? pw->pw_uid != uid : !streq(pw->pw_name, name))
                        continue;
                ret->uid = pw->pw_uid;
                ret->gid = pw->pw_gid;
                return user_set(ret, pw->pw_name, pw->pw_dir, pw->pw_shell);
        }
        return -ENOENT;
}

static bool group_has(const struct group *gr, const char *name) {
        for (char **m = gr->gr_mem; *m; m++)
                if (streq(*m, name))
                        return true;
        return false;
}

static int find_groups(User *u) {
        _cleanup_(fclosep) FILE *f = open_database("/etc/group");
        struct group *gr;

        u->groups = new0(gid_t, GROUPS_MAX);
        if (!u->groups)
                return -ENOMEM;
        u->groups[u->n_groups++] = u->gid;

        while (f && u->n_groups < GROUPS_MAX && (gr = fgetgrent(f)))
                if (gr->gr_gid != u->gid && group_has(gr, u->name))
                        u->groups[u->n_groups++] = gr->gr_gid;
        return 0;
}

static int find_group(const char *name, gid_t *ret) {
        _cleanup_(fclosep) FILE *f = NULL;
        struct group *gr;
        uint32_t gid;

        if (parse_u32(name, &gid) >= 0 && gid != UINT32_MAX) {
                *ret = gid;
                return 0;
        }
        f = open_database("/etc/group");
        while (f && (gr = fgetgrent(f)))
                if (streq(gr->gr_name, name)) {
                        *ret = gr->gr_gid;
                        return 0;
                }
        return -ENOENT;
}

/* The one group that was asked for, in place of all that the user is in. */
static int set_group(User *u, const char *name) {
        int r = find_group(name, &u->gid);
        if (r < 0)
                return r;
        u->groups = new0(gid_t, 1);
        if (!u->groups)
                return -ENOMEM;
        u->groups[u->n_groups++] = u->gid;
        return 0;
}

int user_find(const char *user, User *ret) {
        const char *colon = strchr(strempty(user), ':'), *group = colon && colon[1] ? colon + 1 : NULL;
        size_t size = strcspn(strempty(user), ":");
        _cleanup_free_ char *name = size > 0 ? strndup(user, size) : strdup("0");
        _cleanup_user_ User u = {};
        uint32_t uid = 0;

        assert(ret);

        if (!name)
                return -ENOMEM;
        bool numeric = parse_u32(name, &uid) >= 0 && uid != UINT32_MAX;

        int r = find_passwd(name, numeric, uid, &u);
        if (r == -ENOENT && (streq(name, "root") || (numeric && uid == 0)))
                r = user_set(&u, "root", "/root", NULL);
        else if (r == -ENOENT && numeric) {
                u.uid = uid;
                r = user_set(&u, name, NULL, NULL);
        }
        if (r < 0)
                return r;

        r = group ? set_group(&u, group) : find_groups(&u);
        if (r < 0)
                return r;

        *ret = u;
        u = (User) {};
        return 0;
}

void user_done(User *u) {
        free(u->name);
        free(u->home);
        free(u->shell);
        free(u->groups);
        *u = (User) {};
}

const char *user_name(uid_t uid, char ret[static USER_NAME_MAX + 1]) {
        _cleanup_(fclosep) FILE *f = open_database("/etc/passwd");
        struct passwd *pw;

        snprintf(ret, USER_NAME_MAX + 1, "%u", uid);
        while (f && (pw = fgetpwent(f)))
                if (pw->pw_uid == uid) {
                        snprintf(ret, USER_NAME_MAX + 1, "%s", pw->pw_name);
                        break;
                }
        return ret;
}

const char *group_name(gid_t gid, char ret[static USER_NAME_MAX + 1]) {
        _cleanup_(fclosep) FILE *f = open_database("/etc/group");
        struct group *gr;

        snprintf(ret, USER_NAME_MAX + 1, "%u", gid);
        while (f && (gr = fgetgrent(f)))
                if (gr->gr_gid == gid) {
                        snprintf(ret, USER_NAME_MAX + 1, "%s", gr->gr_name);
                        break;
                }
        return ret;
}

int identity_enter(const User *u) {
        if (u->uid == 0)
                return 0;

        if (setgroups(u->n_groups, u->groups) < 0)
                return -errno;
        setfsgid(u->gid);
        /* Leaving 0 takes the capabilities over files along. It reports no error, so ask. */
        setfsuid(u->uid);
        if ((uid_t) setfsuid((uid_t) -1) != u->uid) {
                identity_leave();
                return -EPERM;
        }
        return 0;
}

void identity_leave(void) {
        setfsuid(geteuid());
        setfsgid(getegid());
        (void) setgroups(0, NULL);
}
