/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/parse.h"
#include "guest/envd-files.h"
#include "guest/envd-path.h"
#include "guest/files.h"
#include "guest/http-reply.h"

#define READ_SIZE (64U * 1024U)
#define FIELDS_MAX 2048
#define DATE_FORMAT "%a, %d %b %Y %H:%M:%S GMT"
#define DATE_MAX 64

/* A file on its way to a client. */
typedef struct Download {
        int fd;
        uint64_t left;          /* UINT64_MAX: until its end */
} Download;

static void download_done(HttpConn *c) {
        Download *d = c->state;

        safe_close(d->fd);
        free(d);
}

static void download_complete(HttpConn *c) {
}

/* A file that has become shorter can't be made up for: what was announced does not come. */
static void download_writable(HttpConn *c) {
        static uint8_t buf[READ_SIZE];
        Download *d = c->state;

        ssize_t n = d->left > 0 ? read(d->fd, buf, MIN(sizeof(buf), d->left)) : 0;
        if (n < 0 || (n == 0 && d->left > 0 && d->left != UINT64_MAX)) {
                http_conn_break(c);
                return;
        }
        http_reply_part(c, buf, (size_t) n);
        if (d->left != UINT64_MAX)
                d->left -= (uint64_t) n;
        if (n == 0 || d->left == 0)
                http_reply_end(c);
}

/* "bytes=A-B", "bytes=A-", "bytes=-N": one of them, more are answered with all. 1: a part, 0: all, -ERANGE: none of it is there */
static int parse_range(const char *field, uint64_t size, uint64_t *ret_first, uint64_t *ret_n) {
        const char *text = field ? startswith(field, "bytes=") : NULL, *dash = text ? strchr(text, '-') : NULL;
        char first[24] = "";
        uint64_t a = 0, b = size > 0 ? size - 1 : 0;

        if (!dash || strchr(text, ',') || (size_t) (dash - text) >= sizeof(first))
                return 0;
        memcpy(first, text, (size_t) (dash - text));
        if ((*first && parse_u64(first, &a) < 0) || (dash[1] && parse_u64(dash + 1, &b) < 0) || (!*first && !dash[1]))
                return 0;
        if (!*first) {
                a = size - MIN(b, size);
                b = size > 0 ? size - 1 : 0;
        } else if (dash[1] && b < a)
                return 0;
        if (a >= size)
                return -ERANGE;
        *ret_first = a;
        *ret_n = MIN(b, size - 1) - a + 1;
        return 1;
}

static void format_date(time_t when, char ret[static DATE_MAX]) {
        struct tm tm;

        if (!gmtime_r(&when, &tm) || strftime(ret, DATE_MAX, DATE_FORMAT, &tm) == 0)
                *ret = 0;
}

/* The name as a quoted string; what has no place in a field is left out. */
static void format_name(const char *path, char ret[static NAME_MAX * 2 + 1]) {
        size_t n = 0;

        for (const char *p = file_base_name(path); *p && n < NAME_MAX * 2 - 1; p++) {
                if ((unsigned char) *p < ' ' || *p == 0x7f)
                        continue;
                if (*p == '"' || *p == '\\')
                        ret[n++] = '\\';
                ret[n++] = *p;
        }
        ret[n] = 0;
}

static bool identity_refused(const char *accept) {
        const char *p = accept ? strstr(accept, "identity;q=0") : NULL;

        return p && strspn(p + strlen("identity;q=0"), ".0") == strcspn(p + strlen("identity;q=0"), ", ");
}

static int download_start(HttpConn *c, int fd, uint64_t left) {
        static const HttpHandler handler = {
                .complete = download_complete, .writable = download_writable, .done = download_done,
        };
        Download *d = new0(Download, 1);

        if (!d)
                return -ENOMEM;
        *d = (Download) { .fd = fd, .left = left };
        http_conn_set_handler(c, &handler, d);
        return 0;
}

/* Files of /proc and the like say that they have no size, and have. */
static void answer_unsized(HttpConn *c, int *fd, const char *fields) {
        uint8_t first[4096];

        ssize_t n = read(*fd, first, sizeof(first));
        if (n < 0)
                http_reply_error(c, 500, "error reading file: %s", strerror(errno));
        else if (n == 0)
                http_reply(c, 200, fields, NULL, 0);
        else if (download_start(c, *fd, UINT64_MAX) < 0)
                http_conn_break(c);
        else {
                TAKE_FD(*fd);
                http_reply_begin(c, 200, fields, HTTP_CHUNKED);
                http_reply_part(c, first, (size_t) n);
        }
}

static void answer_file(HttpConn *c, int *fd, const struct stat *st, const char *path) {
        const HttpRequest *q = http_request(c);
        char fields[FIELDS_MAX], name[NAME_MAX * 2 + 1], modified[DATE_MAX], range[128] = "";
        const char *since = http_field(q, "If-Modified-Since"), *if_range = http_field(q, "If-Range");
        uint64_t size = (uint64_t) st->st_size, first = 0, n = size;

        format_name(path, name);
        format_date(st->st_mtime, modified);
        int r = if_range && !streq(if_range, modified) ? 0 : parse_range(http_field(q, "Range"), size, &first, &n);
        if (r > 0)
                snprintf(range, sizeof(range), "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long) first,
                         (unsigned long long) (first + n - 1), (unsigned long long) size);
        else if (r < 0)
                snprintf(range, sizeof(range), "Content-Range: bytes */%llu\r\n", (unsigned long long) size);
        snprintf(fields, sizeof(fields),
                 "Content-Type: application/octet-stream\r\nContent-Disposition: inline; filename=\"%s\"\r\n"
                 "Vary: Accept-Encoding\r\nAccept-Ranges: bytes\r\nLast-Modified: %s\r\n%s", name, modified, range);

        if (since && streq(since, modified))
                http_reply(c, 304, fields, NULL, 0);
        else if (size == 0)
                answer_unsized(c, fd, fields);
        else if (r < 0)
                http_reply(c, 416, fields, NULL, 0);
        else if (lseek(*fd, (off_t) first, SEEK_SET) < 0 || download_start(c, *fd, q->method == HTTP_HEAD ? 0 : n) < 0)
                http_reply_error(c, 500, "error reading file");
        else {
                TAKE_FD(*fd);
                http_reply_begin(c, r > 0 ? 206 : 200, fields, n);
        }
}

void files_begin_read(Agent *a, HttpConn *c) {
        _cleanup_file_target_ FileTarget t = {};
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *path = NULL;
        struct stat st;

        if (file_target_get(&a->envd, c, "read", &t) < 0)
                return;
        if (identity_refused(http_field(http_request(c), "Accept-Encoding"))) {
                http_reply_error(c, 406, "no acceptable encoding found, supported: identity");
                return;
        }
        if (envd_path(&a->envd, &t.user, strempty(t.path), &path) < 0) {
                http_reply_error(c, 400, "cannot expand user-specific home dir");
                return;
        }

        /* A FIFO would hang PID 1, and a terminal become its own. */
        fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK|O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0)
                http_reply_error(c, errno == ENOENT ? 404 : errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG ? 400 : 500,
                                 errno == ENOENT ? "path '%s' does not exist" : "path '%s': %s", path, strerror(errno));
        else if (S_ISDIR(st.st_mode))
                http_reply_error(c, 400, "path '%s' is a directory", path);
        else if (!S_ISREG(st.st_mode))
                http_reply_error(c, 400, "path '%s' is not a regular file", path);
        else
                answer_file(c, &fd, &st, path);
}
