/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "guest/envd-files.h"
#include "guest/envd-metadata.h"
#include "guest/envd-path.h"
#include "guest/files.h"
#include "guest/http-reply.h"
#include "guest/inflate.h"
#include "guest/log.h"
#include "guest/multipart.h"

#define UPLOAD_FILES_MAX 4096U

/* One request that writes files, as its body comes. What is wrong with it is answered at once, and ends it. */
typedef struct Upload {
        Agent *agent;
        HttpConn *conn;
        FileTarget target;
        json_object *metadata;
        Inflate *inflate;       /* of a body that is compressed */
        bool parts;
        Multipart multipart;
        int fd;                 /* of the present file; parts of no concern have none */
        char *path;
        json_object *entries;   /* of those that are written */
} Upload;

static void upload_free(Upload *u) {
        if (!u)
                return;
        safe_close(u->fd);
        inflate_free(u->inflate);
        multipart_done(&u->multipart);
        file_target_done(&u->target);
        json_object_put(u->metadata);
        json_object_put(u->entries);
        free(u->path);
        free(u);
}
DEFINE_CLEANUP(Upload *, upload_free)

static void upload_done(HttpConn *c) {
        upload_free(c->state);
}

/* Says it once; what is still to come of the request is dropped. */
#define fail(u, status, ...)                                            \
        ({                                                              \
                if (!(u)->conn->reply_begun)                            \
                        http_reply_error((u)->conn, (status), __VA_ARGS__); \
                -ECANCELED;                                             \
        })

static int fail_write(Upload *u, int error) {
        if (error == -ENOSPC || error == -EDQUOT)
                return fail(u, 507, "not enough disk space available");
        return fail(u, 500, "error writing file %s: %s", u->path, strerror(-error));
}

static int refuse_twice(Upload *u) {
        for (size_t i = 0; i < json_object_array_length(u->entries); i++) {
                const char *path = NULL;

                if (json_get_text(json_object_array_get_idx(u->entries, i), "path", &path) > 0 && streq(path, u->path))
                        return fail(u, 400, "the path '%s' is in the request more than once", u->path);
        }
        return 0;
}

/* Whoever watches the file sees it written, which a file renamed over it would not show. */
static int open_file(Upload *u, const char *path) {
        const User *user = &u->target.user;

        free(TAKE_PTR(u->path));
        int r = envd_path(&u->agent->envd, user, path, &u->path);
        if (r < 0)
                return fail(u, r == -EINVAL ? 400 : 500, "%s",
                            r == -EINVAL ? "cannot expand user-specific home dir" : strerror(-r));
        if (json_object_array_length(u->entries) >= UPLOAD_FILES_MAX)
                return fail(u, 400, "more than %u files in one request", UPLOAD_FILES_MAX);
        r = refuse_twice(u);
        if (r < 0)
                return r;

        r = envd_make_parents(u->path, user);
        if (r < 0)
                return r == -ENOSPC ? fail_write(u, r) : fail(u, 400, "directory of %s: %s", u->path, strerror(-r));
        u->fd = open(u->path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NONBLOCK|O_NOCTTY, 0644);
        if (u->fd < 0 && (errno == EISDIR || u->path[strlen(u->path) - 1] == '/'))
                return fail(u, 400, "path is a directory: %s", u->path);
        if (u->fd < 0 && (errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG))
                return fail(u, 400, "%s: %s", u->path, strerror(errno));
        if (u->fd < 0)
                return fail_write(u, -errno);
        return fchown(u->fd, user->uid, user->gid) < 0 ? fail_write(u, -errno) : 0;
}

static int write_file(Upload *u, const uint8_t *data, size_t size) {
        while (size > 0 && u->fd >= 0) {
                ssize_t n = write(u->fd, data, size);
                if (n < 0 && errno != EINTR)
                        return fail_write(u, -errno);
                if (n > 0) {
                        data += n;
                        size -= (size_t) n;
                }
        }
        return 0;
}

static int close_file(Upload *u) {
        if (u->fd < 0)
                return 0;
        int r = metadata_set(u->fd, u->metadata);
        bool kept = r >= 0;
        if (r < 0 && r != -EOPNOTSUPP)
                log_warning("metadata of a file not kept: %s", strerror(-r));
        u->fd = safe_close(u->fd);

        json_object *entry = json_object_new_object();
        json_put_text(entry, "path", u->path);
        json_put_text(entry, "name", file_base_name(u->path));
        json_put_text(entry, "type", "file");
        if (u->metadata && kept)
                json_put(entry, "metadata", json_object_get(u->metadata));
        if (!entry || json_object_array_add(u->entries, entry) < 0) {
                json_object_put(entry);
                return fail(u, 500, "out of memory");
        }
        return 0;
}

static int on_part(void *userdata, const char *name, const char *filename) {
        Upload *u = userdata;

        if (!streq(name, "file"))
                return 0;
        if (!u->target.path && isempty(filename))
                return fail(u, 400, "a part has no file name, and the query no path");
        return open_file(u, u->target.path ? u->target.path : filename);
}

static int on_part_data(void *userdata, const uint8_t *data, size_t size) {
        return write_file(userdata, data, size);
}

static int on_part_end(void *userdata) {
        return close_file(userdata);
}

static int put_plain(void *userdata, const uint8_t *data, size_t size) {
        Upload *u = userdata;

        int r = u->parts ? multipart_feed(&u->multipart, data, size) : write_file(u, data, size);
        if (r == -EBADMSG)
                return fail(u, 400, "error parsing multipart form: it is none");
        return r == -ENOMEM ? fail(u, 500, "out of memory") : r;
}

static void upload_body(HttpConn *c, const uint8_t *data, size_t size) {
        Upload *u = c->state;

        if (c->reply_begun)
                return;
        if (!u->inflate) {
                (void) put_plain(u, data, size);
                return;
        }
        int r = inflate_feed(u->inflate, data, size, put_plain, u);
        if (r == -EBADMSG)
                (void) fail(u, 400, "error decompressing the body: it is not gzip");
        else if (r == -ENOMEM)
                (void) fail(u, 500, "out of memory");
}

static void upload_complete(HttpConn *c) {
        Upload *u = c->state;

        if (c->reply_begun)
                return;
        if (u->inflate && !inflate_ended(u->inflate))
                (void) fail(u, 400, "error decompressing the body: it is cut off");
        else if (u->parts && !multipart_complete(&u->multipart))
                (void) fail(u, 400, "error parsing multipart form: it is cut off");
        else if (!u->parts && close_file(u) < 0)
                return;
        if (c->reply_begun)
                return;
        const char *text = json_text(u->entries);
        http_reply(c, 200, "Content-Type: application/json\r\n", text, strlen(text));
}

/* Before any of it is written, where its size is known and the file system says what is left. */
static bool has_room(const HttpConn *c, const char *path) {
        _cleanup_free_ char *directory = strdup(path);
        uint64_t length = http_request(c)->length;
        struct statvfs st;

        if (length == UINT64_MAX || !directory)
                return true;
        while (statvfs(directory, &st) < 0) {
                char *slash = strrchr(directory, '/');
                if (errno != ENOENT || !slash || slash == directory)
                        return true;
                *slash = 0;
        }
        return length <= (uint64_t) st.f_bavail * st.f_frsize;
}

static int begin_content(Upload *u) {
        const HttpRequest *q = http_request(u->conn);
        const char *type = strempty(http_field(q, "Content-Type")), *encoding = http_field(q, "Content-Encoding");
        static const MultipartEvents events = { on_part, on_part_data, on_part_end };
        size_t n = strcspn(type, "; \t");

        if (encoding && strcasecmp(encoding, "gzip") == 0) {
                u->inflate = inflate_new();
                if (!u->inflate)
                        return fail(u, 500, "out of memory");
        } else if (encoding && strcasecmp(encoding, "identity") != 0)
                return fail(u, 400, "unsupported content encoding: %s", encoding);

        if (strncasecmp(type, "multipart/", 10) == 0) {
                u->parts = true;
                return multipart_init(&u->multipart, type, &events, u) < 0 ?
                               fail(u, 400, "error parsing multipart form: no boundary") : 0;
        }
        if (n != 24 || strncasecmp(type, "application/octet-stream", 24) != 0)
                return fail(u, 400, "unsupported content type: %s, expected multipart/form-data or application/octet-stream", type);
        if (!u->target.path)
                return fail(u, 400, "path query parameter is required for raw body upload");
        return 0;
}

static int begin_upload(Upload *u) {
        char message[METADATA_MESSAGE_MAX];
        const char *path = strempty(u->target.path);

        if (metadata_parse(http_request(u->conn), &u->metadata, message) < 0)
                return fail(u, 400, "invalid metadata: %s", message);
        int r = begin_content(u);
        if (r < 0)
                return r;
        if (!has_room(u->conn, *path == '/' ? path : u->target.user.home))
                return fail(u, 507, "not enough disk space available");
        return u->parts ? 0 : open_file(u, path);
}

void files_begin_write(Agent *a, HttpConn *c) {
        static const HttpHandler handler = { .body = upload_body, .complete = upload_complete, .done = upload_done };
        _cleanup_(upload_freep) Upload *u = new0(Upload, 1);

        if (!u) {
                http_conn_break(c);
                return;
        }
        *u = (Upload) { .agent = a, .conn = c, .fd = -EBADF, .entries = json_object_new_array() };
        if (!u->entries) {
                http_conn_break(c);
                return;
        }
        if (file_target_get(&a->envd, c, "write", &u->target) < 0 || begin_upload(u) < 0)
                return;
        http_conn_set_handler(c, &handler, TAKE_PTR(u));
}
