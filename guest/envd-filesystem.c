/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>

#include "guest/envd-entry.h"
#include "guest/envd-filesystem.h"
#include "guest/envd-path.h"
#include "guest/http-reply.h"
#include "guest/json.h"
#include "guest/remove-tree.h"
#include "guest/walk.h"

#define LIST_STEP 64U
#define REMOVE_STEP 256U

int filesystem_path(ConnectCall *call, json_object *request, const char *key, char **ret) {
        const char *path = "";

        int r = json_get_text(request, key, &path);
        if (r < 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "%s is not a path", key);
                return r;
        }
        r = envd_path(&call->agent->envd, &call->user, path, ret);
        if (r < 0)
                connect_fail(call, r == -EINVAL ? CONNECT_INVALID_ARGUMENT : CONNECT_INTERNAL, "%s",
                             r == -EINVAL ? "cannot expand user-specific home dir" : strerror(-r));
        return r;
}

static void reply_entry(ConnectCall *call, const char *path) {
        _cleanup_json_ json_object *answer = json_object_new_object();
        EntryNames names = {};
        json_object *entry;

        int r = entry_new(path, &names, &entry, NULL);
        if (r == -ENOENT || r == -ENOTDIR)
                connect_fail(call, CONNECT_NOT_FOUND, "file not found: %s", path);
        else if (r < 0)
                connect_fail(call, CONNECT_INTERNAL, "error getting file info: %s: %s", path, strerror(-r));
        else {
                json_put(answer, "entry", entry);
                connect_reply(call, answer);
        }
}

static void stat_call(ConnectCall *call, json_object *request) {
        _cleanup_free_ char *path = NULL;

        if (filesystem_path(call, request, "path", &path) >= 0)
                reply_entry(call, path);
}

static void make_dir_call(ConnectCall *call, json_object *request) {
        _cleanup_free_ char *path = NULL;
        struct stat st;

        if (filesystem_path(call, request, "path", &path) < 0)
                return;
        if (stat(path, &st) >= 0) {
                if (S_ISDIR(st.st_mode))
                        connect_fail(call, CONNECT_ALREADY_EXISTS, "directory already exists: %s", path);
                else
                        connect_fail(call, CONNECT_INVALID_ARGUMENT, "path already exists but it is not a directory: %s", path);
                return;
        }
        int r = envd_make_directory(path, &call->user);
        if (r < 0 && r != -EEXIST)
                connect_fail(call, r == -ENOTDIR || r == -ENAMETOOLONG ? CONNECT_INVALID_ARGUMENT : CONNECT_INTERNAL,
                             "error creating directory: %s: %s", path, strerror(-r));
        else
                reply_entry(call, path);
}

static void move_call(ConnectCall *call, json_object *request) {
        _cleanup_free_ char *source = NULL, *destination = NULL;
        struct stat st;

        if (filesystem_path(call, request, "source", &source) < 0 ||
            filesystem_path(call, request, "destination", &destination) < 0)
                return;
        int r = envd_make_parents(destination, &call->user);
        if (r < 0) {
                connect_fail(call, CONNECT_INTERNAL, "error creating parent directories: %s: %s", destination, strerror(-r));
                return;
        }
        if (rename(source, destination) >= 0)
                reply_entry(call, destination);
        else if (errno == ENOENT && lstat(source, &st) < 0)
                connect_fail(call, CONNECT_NOT_FOUND, "source file not found: %s", source);
        else
                connect_fail(call, CONNECT_INTERNAL, "error renaming: %s to %s: %s", source, destination, strerror(errno));
}

/* ListDir: entries are sent as they are found, so that a large tree neither takes memory nor keeps others waiting. */

typedef struct Listing {
        Walk walk;
        size_t depth;
        EntryNames names;
        bool comma;
} Listing;

static void listing_gone(ConnectCall *call) {
        Listing *l = call->owner;

        walk_done(&l->walk);
        free(l);
}

/* 1: there may be more, 0: that was all */
static int list_next(Listing *l, HttpConn *c) {
        _cleanup_free_ char *path = NULL;
        _cleanup_json_ json_object *entry = NULL;
        bool directory;

        int r = walk_next(&l->walk, &path);
        if (r <= 0)
                return r;
        size_t depth = walk_depth(&l->walk);
        /* What went away since its name was read is not there. */
        if (entry_new(path, &l->names, &entry, &directory) < 0)
                return 1;
        const char *text = json_text(entry);
        http_reply_part(c, ",", l->comma);
        http_reply_part(c, text, strlen(text));
        l->comma = true;
        return directory && depth < l->depth ? MIN(walk_descend(&l->walk, path), 0) + 1 : 1;
}

static void listing_drained(ConnectCall *call) {
        Listing *l = call->owner;
        int r = 1;

        for (unsigned i = 0; r > 0 && i < LIST_STEP; i++)
                r = list_next(l, call->conn);
        if (r < 0)
                http_conn_break(call->conn);
        else if (r > 0)
                http_conn_wake(call->conn);
        if (r != 0)
                return;
        http_reply_part(call->conn, "]}", 2);
        http_reply_end(call->conn);
}

static void list_dir_call(ConnectCall *call, json_object *request) {
        _cleanup_free_ char *path = NULL;
        uint32_t depth = 0;

        if (filesystem_path(call, request, "path", &path) < 0)
                return;
        if (json_get_u32(request, "depth", &depth) < 0) {
                connect_fail(call, CONNECT_INVALID_ARGUMENT, "depth is not a number");
                return;
        }
        Listing *l = new0(Listing, 1);
        int r = l ? walk_begin(&l->walk, path) : -ENOMEM;
        if (r < 0) {
                free(l);
                connect_fail(call,
                             r == -ENOENT  ? CONNECT_NOT_FOUND :
                             r == -ENOTDIR ? CONNECT_INVALID_ARGUMENT :
                             r == -ELOOP   ? CONNECT_FAILED_PRECONDITION : CONNECT_INTERNAL,
                             r == -ENOENT  ? "path not found: %s" :
                             r == -ENOTDIR ? "path is not a directory: %s" : "error reading directory: %s: %s", path, strerror(-r));
                return;
        }
        l->depth = MAX(depth, 1U);
        call->owner = l;
        call->gone = listing_gone;
        call->drained = listing_drained;
        http_reply_begin(call->conn, 200, "Content-Type: application/json\r\n", HTTP_CHUNKED);
        http_reply_part(call->conn, "{\"entries\":[", 12);
        http_conn_wake(call->conn);
}

/* Remove: a large tree in steps between the other events. It ends with its client. */

typedef struct Removal {
        TreeRemoval tree;
        LoopSource source;
} Removal;

static void removal_gone(ConnectCall *call) {
        Removal *x = call->owner;

        loop_remove(&x->source);
        tree_removal_done(&x->tree);
        free(x);
}

static void answer_removal(ConnectCall *call, const char *path, int r) {
        _cleanup_json_ json_object *nothing = json_object_new_object();

        if (r >= 0 || r == -ENOENT || r == -ENOTDIR)
                connect_reply(call, nothing);
        else
                connect_fail(call, r == -EINVAL ? CONNECT_INVALID_ARGUMENT : CONNECT_INTERNAL,
                             "error removing file or directory: %s: %s", path, strerror(-r));
}

static void on_removal(LoopSource *s, uint32_t events) {
        ConnectCall *call = s->userdata;
        Removal *x = call->owner;
        int r = call->agent->frozen ? -ECANCELED : 1;

        for (unsigned i = 0; r > 0 && i < REMOVE_STEP; i++)
                r = tree_removal_next(&x->tree);
        if (r <= 0)
                answer_removal(call, x->tree.path, r);
}

static void remove_call(ConnectCall *call, json_object *request) {
        _cleanup_free_ char *path = NULL;

        if (filesystem_path(call, request, "path", &path) < 0)
                return;
        Removal *x = new0(Removal, 1);
        if (!x) {
                answer_removal(call, path, -ENOMEM);
                return;
        }
        call->owner = x;
        call->gone = removal_gone;
        x->tree.path = strdup(path);
        int r = x->tree.path ? tree_removal_begin(&x->tree, true) : -ENOMEM;
        if (r > 0)
                r = MIN(loop_add_idle(&call->agent->loop, &x->source, on_removal, call), 0) + 1;
        if (r <= 0)
                answer_removal(call, path, r);
}

const ConnectMethod filesystem_methods[] = {
        { "/filesystem.Filesystem/Stat", false, NULL, stat_call },
        { "/filesystem.Filesystem/ListDir", false, NULL, list_dir_call },
        { "/filesystem.Filesystem/MakeDir", false, NULL, make_dir_call },
        { "/filesystem.Filesystem/Move", false, NULL, move_call },
        { "/filesystem.Filesystem/Remove", false, NULL, remove_call },
        {},
};
