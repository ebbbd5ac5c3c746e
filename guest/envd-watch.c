/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "guest/envd-entry.h"
#include "guest/envd-filesystem.h"
#include "guest/json.h"
#include "guest/watch.h"

#define KEEPALIVE "{\"keepalive\":{}}"
#define WATCHERS_MAX 100U
#define WATCHER_EVENTS_MAX 16384U
#define WATCHER_ID_SIZE 21U

static const struct {
        WatchEvent event;
        const char *name;
        bool there;             /* and has an entry */
} event_names[] = {
        { WATCH_CREATE, "EVENT_TYPE_CREATE", true },
        { WATCH_RENAME, "EVENT_TYPE_RENAME", false },
        { WATCH_CHMOD, "EVENT_TYPE_CHMOD", true },
        { WATCH_WRITE, "EVENT_TYPE_WRITE", true },
        { WATCH_REMOVE, "EVENT_TYPE_REMOVE", false },
};

/* What a client wants to watch. */
typedef struct Wish {
        char *path;
        bool recursive, entries, network;
} Wish;

static void wish_done(Wish *w) {
        free(w->path);
}

static json_object *event_new(WatchEvent event, const char *name, const char *path, bool entries) {
        json_object *o = json_object_new_object(), *entry;
        _cleanup_free_ char *full = NULL;
        EntryNames names = {};

        json_put_text(o, "name", name);
        for (size_t i = 0; i < ELEMENTSOF(event_names); i++) {
                if (event_names[i].event != event)
                        continue;
                json_put_text(o, "type", event_names[i].name);
                if (!entries || !event_names[i].there)
                        continue;
                if (asprintf(&full, "%s%s%s", path, streq(name, ".") ? "" : "/", streq(name, ".") ? "" : name) < 0)
                        full = NULL;
                if (full && entry_new(full, &names, &entry, NULL) >= 0)
                        json_put(o, "entry", entry);
        }
        return o;
}

static bool on_network(const char *path) {
        const uint32_t types[] = { 0x6969, 0x517b, 0xfe534d42, 0xff534d42, 0x65735546 }; /* NFS, SMB, SMB2, CIFS, FUSE */
        struct statfs st, root;

        if (statfs(path, &st) < 0)
                return false;
        /* What the sandbox itself lies on is no network. */
        if (statfs("/", &root) >= 0 && st.f_type == root.f_type)
                return false;
        for (size_t i = 0; i < ELEMENTSOF(types); i++)
                if ((uint32_t) st.f_type == types[i])
                        return true;
        return false;
}

/* 0, or the call has failed. */
static int parse_wish(ConnectCall *call, json_object *request, Wish *ret) {
        struct stat st;

        int r = filesystem_path(call, request, "path", &ret->path);
        if (r < 0)
                return r;
        if (json_get_bool(request, "recursive", &ret->recursive) < 0 ||
            json_get_bool(request, "includeEntry", &ret->entries) < 0 ||
            json_get_bool(request, "allowNetworkMounts", &ret->network) < 0)
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "the request is no message of this method");
        else if (stat(ret->path, &st) < 0)
                connect_fail(call, errno == ENOENT || errno == ENOTDIR ? CONNECT_NOT_FOUND : CONNECT_INTERNAL,
                             "path %s not found: %s", ret->path, strerror(errno));
        else if (!S_ISDIR(st.st_mode))
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "path %s not a directory: it is something else", ret->path);
        else if (!ret->network && on_network(ret->path))
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "cannot watch path on network filesystem: %s", ret->path);
        else
                return 0;
        return -EINVAL;
}

static void fail_watch(ConnectCall *call, const char *path, int error) {
        bool full = error == -ENOSPC || error == -EMFILE || error == -ENFILE;

        connect_fail(call, full ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL, "error watching %s: %s", path,
                     error == -EOVERFLOW ? "more happened than was kept" : full ? "no more watches" : strerror(-error));
}

/* WatchDir: a stream */

typedef struct WatchStream {
        ConnectCall *call;
        Watch *watch;
        Wish wish;
} WatchStream;

static void stream_gone(ConnectCall *call) {
        WatchStream *s = call->owner;

        watch_free(s->watch);
        wish_done(&s->wish);
        free(s);
}

static void stream_drained(ConnectCall *call) {
        WatchStream *s = call->owner;
        watch_resume(s->watch);
}

static bool stream_full(void *userdata) {
        const WatchStream *s = userdata;
        return connect_congested(s->call);
}

static void stream_armed(void *userdata) {
        const WatchStream *s = userdata;
        connect_send(s->call, "{\"start\":{}}", 12);
}

static void stream_event(void *userdata, WatchEvent event, const char *name) {
        const WatchStream *s = userdata;
        _cleanup_json_ json_object *message = json_object_new_object();

        json_put(message, "filesystem", event_new(event, name, s->wish.path, s->wish.entries));
        connect_send_json(s->call, message);
}

static void stream_failed(void *userdata, int error) {
        const WatchStream *s = userdata;
        fail_watch(s->call, s->wish.path, error);
}

static void watch_dir_call(ConnectCall *call, json_object *request) {
        static const WatchListener listener = { stream_armed, stream_event, stream_failed, stream_full };
        _cleanup_(wish_done) Wish wish = {};

        if (parse_wish(call, request, &wish) < 0)
                return;
        WatchStream *s = new0(WatchStream, 1);
        int r = s ? watch_new(&call->agent->loop, wish.path, wish.recursive, &listener, s, &s->watch) : -ENOMEM;
        if (r < 0) {
                free(s);
                fail_watch(call, wish.path, r);
                return;
        }
        s->call = call;
        s->wish = wish;
        wish = (Wish) {};
        call->owner = s;
        call->gone = stream_gone;
        call->drained = stream_drained;
        if (r > 0)
                stream_armed(s);
}

/* Watchers that are polled */

struct Watcher {
        LIST_FIELDS(Watcher);
        Agent *agent;
        char id[WATCHER_ID_SIZE + 1];
        Watch *watch;
        Wish wish;
        ConnectCall *call;      /* that makes it, until it is armed */
        json_object *events;    /* since they were asked for */
        int error;              /* there will be no more; told once they are asked for */
};

static void watcher_free(Watcher *w) {
        LIST_REMOVE(w->agent->watchers, w);
        w->agent->n_watchers--;
        watch_free(w->watch);
        json_object_put(w->events);
        wish_done(&w->wish);
        free(w);
}

void watchers_done(Agent *a) {
        while (a->watchers)
                watcher_free(a->watchers);
}

static void creator_gone(ConnectCall *call) {
        Watcher *w = call->owner;

        w->call = NULL;
        watcher_free(w);
}

static ConnectCall *leave_creator(Watcher *w) {
        ConnectCall *call = TAKE_PTR(w->call);

        call->gone = NULL;
        return call;
}

static void watcher_armed(void *userdata) {
        _cleanup_json_ json_object *answer = json_object_new_object();
        Watcher *w = userdata;

        json_put_text(answer, "watcherId", w->id);
        connect_reply(leave_creator(w), answer);
}

static void watcher_failed(void *userdata, int error) {
        Watcher *w = userdata;

        if (w->call) {
                fail_watch(leave_creator(w), w->wish.path, error);
                watcher_free(w);
                return;
        }
        w->error = error;
        w->watch = watch_free(w->watch);
        json_object_put(TAKE_PTR(w->events));
}

static void watcher_event(void *userdata, WatchEvent event, const char *name) {
        Watcher *w = userdata;

        if (!w->events)
                w->events = json_object_new_array();
        if (w->events && json_object_array_length(w->events) >= WATCHER_EVENTS_MAX) {
                watcher_failed(w, -EOVERFLOW);
                return;
        }
        json_object *o = event_new(event, name, w->wish.path, w->wish.entries);
        if (!w->events || json_object_array_add(w->events, o) < 0)
                json_object_put(o);
}

static int make_id(char ret[static WATCHER_ID_SIZE + 1]) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        uint8_t random[WATCHER_ID_SIZE];

        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        ret[0] = 'w';
        for (size_t i = 1; i < WATCHER_ID_SIZE; i++)
                ret[i] = letters[random[i] % (sizeof(letters) - 1)];
        ret[WATCHER_ID_SIZE] = 0;
        return 0;
}

static void create_watcher_call(ConnectCall *call, json_object *request) {
        static const WatchListener listener = { watcher_armed, watcher_event, watcher_failed, NULL };
        _cleanup_(wish_done) Wish wish = {};
        Agent *a = call->agent;

        if (parse_wish(call, request, &wish) < 0)
                return;
        if (a->n_watchers >= WATCHERS_MAX) {
                connect_fail(call, CONNECT_RESOURCE_EXHAUSTED, "there are %u watchers", a->n_watchers);
                return;
        }
        Watcher *w = new0(Watcher, 1);
        int r = w ? make_id(w->id) : -ENOMEM;
        if (r >= 0)
                r = watch_new(&a->loop, wish.path, wish.recursive, &listener, w, &w->watch);
        if (r < 0) {
                free(w);
                fail_watch(call, wish.path, r);
                return;
        }
        w->agent = a;
        w->wish = wish;
        wish = (Wish) {};
        LIST_PREPEND(a->watchers, w);
        a->n_watchers++;
        w->call = call;
        call->owner = w;
        call->gone = creator_gone;
        if (r > 0)
                watcher_armed(w);
}

static Watcher *find_watcher(ConnectCall *call, json_object *request) {
        const char *id = "";

        if (json_get_text(request, "watcherId", &id) < 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "the request is no message of this method");
                return NULL;
        }
        for (Watcher *w = call->agent->watchers; w; w = w->list_next)
                if (streq(w->id, id))
                        return w;
        connect_fail(call, CONNECT_NOT_FOUND, "watcher with id %s not found", id);
        return NULL;
}

static void get_watcher_events_call(ConnectCall *call, json_object *request) {
        _cleanup_json_ json_object *answer = json_object_new_object();

        Watcher *w = find_watcher(call, request);
        if (!w)
                return;
        if (w->error < 0) {
                fail_watch(call, w->wish.path, w->error);
                return;
        }
        json_put(answer, "events", w->events ? TAKE_PTR(w->events) : json_object_new_array());
        connect_reply(call, answer);
}

static void remove_watcher_call(ConnectCall *call, json_object *request) {
        _cleanup_json_ json_object *answer = json_object_new_object();

        Watcher *w = find_watcher(call, request);
        if (!w)
                return;
        watcher_free(w);
        connect_reply(call, answer);
}

const ConnectMethod watch_methods[] = {
        { "/filesystem.Filesystem/WatchDir", true, KEEPALIVE, watch_dir_call },
        { "/filesystem.Filesystem/CreateWatcher", false, NULL, create_watcher_call },
        { "/filesystem.Filesystem/GetWatcherEvents", false, NULL, get_watcher_events_call },
        { "/filesystem.Filesystem/RemoveWatcher", false, NULL, remove_watcher_call },
        {},
};
