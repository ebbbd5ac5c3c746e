/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "guest/request.h"
#include "guest/walk.h"
#include "guest/watch.h"

#define EVENTS (IN_CREATE|IN_MOVED_TO|IN_MOVED_FROM|IN_MODIFY|IN_ATTRIB|IN_DELETE|IN_DELETE_SELF|IN_MOVE_SELF|IN_ONLYDIR)
#define READ_SIZE (64U * (sizeof(struct inotify_event) + NAME_MAX + 1))
#define READS_PER_TURN 4U
#define ENTRIES_PER_TURN 128U

struct Watch {
        int fd;
        LoopSource source;
        LoopSource scan;        /* while there are trees to go through; no events are read then */
        Walk walk;
        bool walking;
        StringList trees;       /* directories, watched already, whose contents are to be: names below path */
        size_t n_walked;        /* of them, the last one maybe not to its end */
        bool armed;
        char *path;
        bool recursive;
        bool held;              /* the listener has to take some first */
        char **names;           /* by watch descriptor: the directory's name below path, "" for path itself, NULL for none */
        size_t n_names;
        const WatchListener *listener;
        void *userdata;
        bool *freed;            /* set when that happens under an event */
};

static char *join(const char *directory, const char *name) {
        char *s;

        return asprintf(&s, "%s%s%s", directory, *directory ? "/" : "", name) < 0 ? NULL : s;
}

/* inotify counts its descriptors up, and gives the same one for a directory that it has. */
static int set_name(Watch *w, int wd, const char *name) {
        if ((size_t) wd >= w->n_names) {
                size_t n = MAX((size_t) wd + 1, w->n_names * 2);
                char **names = reallocarray(w->names, n, sizeof(char *));
                if (!names)
                        return -ENOMEM;
                memset(names + w->n_names, 0, (n - w->n_names) * sizeof(char *));
                w->names = names;
                w->n_names = n;
        }
        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        free(w->names[wd]);
        w->names[wd] = copy;
        return 0;
}

/* A directory that is gone by now is none to watch. */
static int add_directory(Watch *w, const char *path, const char *name) {
        int wd = inotify_add_watch(w->fd, path, EVENTS | (*name ? IN_DONT_FOLLOW : 0));
        if (wd < 0)
                return *name && (errno == ENOENT || errno == ENOTDIR || errno == EACCES) ? 0 : -errno;
        return set_name(w, wd, name);
}

static char *path_below(const Watch *w, const char *name) {
        bool slash = w->path[strlen(w->path) - 1] == '/';
        char *s;

        if (!*name)
                return strdup(w->path);
        return asprintf(&s, "%s%s%s", w->path, slash ? "" : "/", name) < 0 ? NULL : s;
}

/* One that moved away is no longer below, and has to come back to be. */
static void forget_tree(Watch *w, const char *name) {
        size_t n = strlen(name);

        for (size_t wd = 0; wd < w->n_names; wd++) {
                const char *known = w->names[wd];

                if (known && strncmp(known, name, n) == 0 && (known[n] == 0 || known[n] == '/')) {
                        (void) inotify_rm_watch(w->fd, (int) wd);
                        free(TAKE_PTR(w->names[wd]));
                }
        }
}

static unsigned events_of(uint32_t mask, bool self) {
        static const struct {
                uint32_t mask;
                WatchEvent event;
                bool self;
        } kinds[] = {
                { IN_CREATE|IN_MOVED_TO, WATCH_CREATE, false },
                { IN_MOVED_FROM, WATCH_RENAME, false },
                { IN_MOVE_SELF, WATCH_RENAME, true },
                { IN_ATTRIB, WATCH_CHMOD, false },
                { IN_MODIFY, WATCH_WRITE, false },
                { IN_DELETE, WATCH_REMOVE, false },
                { IN_DELETE_SELF, WATCH_REMOVE, true },
        };
        unsigned events = 0;

        for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
                if ((mask & kinds[i].mask) && (self || !kinds[i].self))
                        events |= kinds[i].event;
        return events;
}

static int add_tree(Watch *w, const char *name) {
        char *copy = strdup(name);
        int r = copy ? strings_add(&w->trees, copy) : -ENOMEM;

        if (r < 0)
                free(copy);
        return r;
}

static int follow_directories(Watch *w, uint32_t mask, const char *name) {
        if (!w->recursive || !(mask & IN_ISDIR))
                return 0;
        if (mask & IN_MOVED_FROM)
                forget_tree(w, name);
        if (!(mask & (IN_CREATE|IN_MOVED_TO)))
                return 0;

        _cleanup_free_ char *path = path_below(w, name);
        if (!path)
                return -ENOMEM;
        int r = add_directory(w, path, name);
        return r < 0 ? r : add_tree(w, name);
}

/* -ECANCELED: the watch is gone */
static int take_event(Watch *w, const struct inotify_event *e) {
        bool freed = false;

        if (e->mask & IN_Q_OVERFLOW)
                return -EOVERFLOW;
        if (e->wd < 0 || (size_t) e->wd >= w->n_names || !w->names[e->wd])
                return 0;
        const char *directory = w->names[e->wd];
        bool root = !*directory, self = e->len == 0;
        _cleanup_free_ char *name = self ? strdup(".") : join(directory, e->name);
        if (!name)
                return -ENOMEM;
        if (e->mask & IN_IGNORED)
                free(TAKE_PTR(w->names[e->wd]));
        /* What happens to a directory below is told by the one that it is in. */
        if (self && !root)
                return 0;

        unsigned events = events_of(e->mask, self);
        w->freed = &freed;
        for (WatchEvent event = WATCH_CREATE; event <= WATCH_REMOVE; event <<= 1) {
                if (events & event)
                        w->listener->event(w->userdata, event, name);
                if (freed)
                        return -ECANCELED;
        }
        w->freed = NULL;
        return self ? 0 : follow_directories(w, e->mask, name);
}

/* 1: there may be more, 0: none at the moment */
static int read_events(Watch *w) {
        uint8_t buf[READ_SIZE] __attribute__((aligned(__alignof__(struct inotify_event))));

        ssize_t n = read(w->fd, buf, sizeof(buf));
        if (n <= 0)
                return n < 0 && errno != EAGAIN && errno != EINTR ? -errno : n < 0 && errno == EINTR;
        for (const uint8_t *p = buf; p < buf + n;) {
                const struct inotify_event *e = (const struct inotify_event *) (const void *) p;

                int r = take_event(w, e);
                if (r < 0)
                        return r;
                p += sizeof(*e) + e->len;
        }
        return 1;
}

static void fail(Watch *w, int error) {
        loop_remove(&w->source);
        loop_remove(&w->scan);
        w->listener->failed(w->userdata, error);
}

static bool is_full(Watch *w) {
        w->held = w->listener->full && w->listener->full(w->userdata);
        return w->held;
}

/* Trees */

/* The one that came first. One that can't be read, or is gone, has nothing in it. */
static int begin_tree(Watch *w) {
        _cleanup_free_ char *path = path_below(w, w->trees.items[w->n_walked++]);
        if (!path)
                return -ENOMEM;

        int r = walk_begin(&w->walk, path);
        w->walking = r >= 0;
        return r == -ENOMEM ? r : 1;
}

/* 1: there may be more, 0: all of it is watched, -ECANCELED: the watch is gone */
static int scan_next(Watch *w) {
        size_t prefix = strlen(w->path) + (w->path[strlen(w->path) - 1] != '/');
        _cleanup_free_ char *entry = NULL;
        bool freed = false;
        struct stat st;

        if (!w->walking)
                return w->n_walked < w->trees.n ? begin_tree(w) : 0;
        int r = walk_next(&w->walk, &entry);
        if (r <= 0) {
                walk_done(&w->walk);
                w->walking = false;
                return r < 0 ? r : 1;
        }
        if (w->armed) {
                w->freed = &freed;
                w->listener->event(w->userdata, WATCH_CREATE, entry + prefix);
                if (freed)
                        return -ECANCELED;
                w->freed = NULL;
        }
        if (lstat(entry, &st) < 0 || !S_ISDIR(st.st_mode))
                return 1;
        r = add_directory(w, entry, entry + prefix);
        if (r >= 0)
                r = walk_descend(&w->walk, entry);
        return r < 0 ? r : 1;
}

static void end_scan(Watch *w) {
        bool first = !w->armed;

        loop_remove(&w->scan);
        strings_done(&w->trees);
        w->n_walked = 0;
        w->armed = true;
        (void) loop_rearm(&w->source);
        if (first)
                w->listener->armed(w->userdata);
}

static void on_scan(LoopSource *s, uint32_t events) {
        Watch *w = s->userdata;
        int r = 1;

        for (unsigned i = 0; r > 0 && i < ENTRIES_PER_TURN; i++) {
                if (w->armed && is_full(w)) {
                        (void) loop_modify(s, 0);
                        return;
                }
                r = scan_next(w);
        }
        if (r == 0)
                end_scan(w);
        else if (r < 0 && r != -ECANCELED)
                fail(w, r);
}

static void on_events(LoopSource *s, uint32_t events) {
        Watch *w = s->userdata;
        int r = 1;

        if (w->scan.loop)
                return;
        for (unsigned i = 0; r > 0 && w->trees.n == 0 && i < READS_PER_TURN; i++) {
                if (is_full(w))
                        return;
                r = read_events(w);
        }
        if (r == -ECANCELED)
                return;
        if (r >= 0 && w->trees.n > 0)
                r = loop_add_idle(s->loop, &w->scan, on_scan, w);
        else if (r > 0)
                (void) loop_rearm(s);
        if (r < 0)
                fail(w, r);
}

void watch_resume(Watch *w) {
        if (w->held && w->scan.loop)
                (void) loop_modify(&w->scan, EPOLLIN);
        else if (w->held && w->source.loop)
                (void) loop_rearm(&w->source);
        w->held = false;
}

int watch_new(Loop *l, const char *path, bool recursive, const WatchListener *listener, void *userdata, Watch **ret) {
        Watch *w = new0(Watch, 1);

        if (!w)
                return -ENOMEM;
        *w = (Watch) {
                .recursive = recursive, .armed = !recursive, .listener = listener, .userdata = userdata, .path = strdup(path),
        };
        w->fd = inotify_init1(IN_NONBLOCK|IN_CLOEXEC);
        int r = w->fd < 0 ? -errno : w->path ? 0 : -ENOMEM;
        if (r >= 0)
                r = add_directory(w, path, "");
        if (r >= 0 && recursive)
                r = add_tree(w, "");
        if (r >= 0)
                r = loop_add(l, &w->source, w->fd, EPOLLIN|EPOLLET, on_events, w);
        if (r >= 0 && recursive)
                r = loop_add_idle(l, &w->scan, on_scan, w);
        if (r < 0) {
                watch_free(w);
                return r;
        }
        *ret = w;
        return w->armed;
}

Watch *watch_free(Watch *w) {
        if (!w)
                return NULL;
        if (w->freed)
                *w->freed = true;
        loop_remove(&w->source);
        loop_remove(&w->scan);
        walk_done(&w->walk);
        strings_done(&w->trees);
        safe_close(w->fd);
        for (size_t i = 0; i < w->n_names; i++)
                free(w->names[i]);
        free(w->names);
        free(w->path);
        free(w);
        return NULL;
}
