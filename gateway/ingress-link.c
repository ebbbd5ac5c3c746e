/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/macros.h"
#include "base/parse.h"
#include "gateway/ingress-link.h"
#include "gateway/log.h"

/* The map's name in ingress.cfg: without a file it begins empty. */
#define MAP "/dev/null"
/* Tells a haproxy that has all routes from one that was just started; no id has a dash. */
#define READY_KEY "-ready"
#define PROMPT "\n> "

#define LOOK_FIRST_USEC (20 * USEC_PER_MSEC)
#define LOOK_LAST_USEC USEC_PER_SEC
/* So long haproxy may take for its next answer. */
#define ANSWER_USEC (3 * USEC_PER_SEC)
#define ANSWER_MAX 4096U
#define OUT_MAX (64U * 1024U * 1024U)

typedef enum LinkState {
        LINK_AWAY,
        LINK_PREPARING,            /* a new version of the map was asked for */
        LINK_FILLED,               /* all was said; from now on changes are */
} LinkState;

struct IngressLink {
        sd_event *event;
        struct sockaddr_un address;
        IngressLinkHandlers handlers;
        void *userdata;
        LinkState state;
        int fd;
        sd_event_source *io, *look, *patience;
        uint64_t look_usec;
        char *out;
        size_t out_size, out_done, out_room;
        char in[ANSWER_MAX];
        size_t in_size;
        uint64_t n_asked, n_answered;
        uint32_t version;          /* that is being filled; 0: changes go to the present one */
        bool failing;              /* it was told */
};

static void look_later(IngressLink *l) {
        (void) sd_event_source_set_time_relative(l->look, l->look_usec);
        (void) sd_event_source_set_enabled(l->look, SD_EVENT_ONESHOT);
        l->look_usec = MIN(l->look_usec * 2, (uint64_t) LOOK_LAST_USEC);
}

static void leave(IngressLink *l) {
        l->io = sd_event_source_disable_unref(l->io);
        l->fd = safe_close(l->fd);
        l->state = LINK_AWAY;
        l->out_size = l->out_done = l->in_size = 0;
        l->version = 0;
        l->n_answered = l->n_asked;
        (void) sd_event_source_set_enabled(l->patience, SD_EVENT_OFF);
        look_later(l);
        l->handlers.moved(l, l->userdata);
}

static void fail(IngressLink *l, int r, const char *what) {
        if (!l->failing)
                (void) log_full_errno(LOG_WARNING, r, "haproxy could not be told the routes to sandboxes, and will be told anew: %s: %m",
                                      what);
        l->failing = true;
        leave(l);
}

static void expect(IngressLink *l) {
        bool waits = l->n_answered < l->n_asked;

        if (waits)
                (void) sd_event_source_set_time_relative(l->patience, ANSWER_USEC);
        (void) sd_event_source_set_enabled(l->patience, waits ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

/* Sending. */

static int grow(IngressLink *l, size_t more) {
        if (l->out_done > 0) {
                memmove(l->out, l->out + l->out_done, l->out_size - l->out_done);
                l->out_size -= l->out_done;
                l->out_done = 0;
        }
        size_t need = l->out_size + more;
        if (need <= l->out_room)
                return 0;
        if (need > OUT_MAX)
                return -ENOBUFS;
        char *p = realloc(l->out, need * 2);
        if (!p)
                return -ENOMEM;
        l->out = p;
        l->out_room = need * 2;
        return 0;
}

static _printf_(2, 3) void ask(IngressLink *l, const char *format, ...) {
        _cleanup_free_ char *line = NULL;
        va_list ap;

        va_start(ap, format);
        int n = vasprintf(&line, format, ap);
        va_end(ap);
        if (n < 0) {
                line = NULL;
                fail(l, -ENOMEM, "no memory");
                return;
        }
        int r = grow(l, (size_t) n);
        if (r < 0) {
                fail(l, r, "it takes too little");
                return;
        }
        memcpy(l->out + l->out_size, line, (size_t) n);
        l->out_size += (size_t) n;
        if (l->n_asked++ == l->n_answered)
                expect(l);
        (void) sd_event_source_set_io_events(l->io, EPOLLIN|EPOLLOUT);
}

static int send_some(IngressLink *l) {
        while (l->out_done < l->out_size) {
                ssize_t n = send(l->fd, l->out + l->out_done, l->out_size - l->out_done, MSG_NOSIGNAL|MSG_DONTWAIT);
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                l->out_done += (size_t) n;
        }
        l->out_size = l->out_done = 0;
        return sd_event_source_set_io_events(l->io, EPOLLIN);
}

static void change(IngressLink *l, const char *verb, const char *id, const char *route) {
        char version[16] = "";

        if (l->state != LINK_FILLED)
                return;
        if (l->version > 0)
                (void) snprintf(version, sizeof(version), "@%u ", l->version);
        ask(l, "%s map %s" MAP " %s%s%s\n", verb, version, id, route ? " " : "", strempty(route));
}

void ingress_link_add(IngressLink *l, const char *id, const char *route) {
        change(l, "add", id, route);
}

void ingress_link_change(IngressLink *l, const char *id, const char *route) {
        change(l, "set", id, route);
}

void ingress_link_remove(IngressLink *l, const char *id) {
        change(l, "del", id, NULL);
}

/* Answers. */

static void fill(IngressLink *l) {
        l->state = LINK_FILLED;
        ingress_link_add(l, READY_KEY, "yes");
        if (l->state == LINK_FILLED)
                l->handlers.fill(l, l->userdata);
        if (l->state != LINK_FILLED)
                return;
        ask(l, "commit map @%u " MAP "\n", l->version);
        l->version = 0;
}

/* 0, or why it is none that we can go on from. */
static int take_answer(IngressLink *l, char *answer) {
        const char *number;

        l->n_answered++;
        /* The first is that to "prompt", the second that to "prepare map". */
        if (l->state == LINK_FILLED || l->n_asked - l->n_answered == 1)
                return *answer ? -EBADMSG : 0;
        number = startswith(answer, "New version created: ");
        return number ? parse_u32(number, &l->version) : -EBADMSG;
}

static char *without_newlines(char *s) {
        s += strspn(s, "\n");
        for (size_t n = strlen(s); n > 0 && s[n - 1] == '\n'; n--)
                s[n - 1] = 0;
        return s;
}

static void take_answers(IngressLink *l) {
        char *at = l->in, *end;

        l->in[l->in_size] = 0;
        if (strlen(l->in) != l->in_size) {
                fail(l, -EBADMSG, "its answer is no text");
                return;
        }
        while (l->state != LINK_AWAY && (end = strstr(at, PROMPT))) {
                *end = 0;
                int r = take_answer(l, without_newlines(at));
                if (r < 0) {
                        fail(l, r, without_newlines(at));
                        return;
                }
                at = end + strlen(PROMPT);
                if (l->state == LINK_PREPARING && l->version > 0)
                        fill(l);
        }
        if (l->state == LINK_AWAY)
                return;
        l->in_size = strlen(at);
        memmove(l->in, at, l->in_size);
        if (l->in_size == sizeof(l->in) - 1) {
                fail(l, -EMSGSIZE, "its answer has no end");
                return;
        }
        expect(l);
        if (l->state == LINK_FILLED && l->n_answered == l->n_asked) {
                l->look_usec = LOOK_FIRST_USEC;
                l->failing = false;
        }
        l->handlers.moved(l, l->userdata);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        IngressLink *l = userdata;

        if (revents & EPOLLOUT) {
                int r = send_some(l);
                if (r < 0) {
                        leave(l);
                        return 0;
                }
        }
        if (!(revents & (EPOLLIN|EPOLLHUP|EPOLLERR)))
                return 0;
        ssize_t n = recv(fd, l->in + l->in_size, sizeof(l->in) - 1 - l->in_size, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
                return 0;
        /* It was stopped, as it may be. */
        if (n <= 0) {
                leave(l);
                return 0;
        }
        l->in_size += (size_t) n;
        take_answers(l);
        return 0;
}

static int on_patience(sd_event_source *source, uint64_t usec, void *userdata) {
        fail(userdata, -ETIMEDOUT, "it does not answer");
        return 0;
}

/* Looking for it. */

static int join(IngressLink *l) {
        l->fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (l->fd < 0)
                return -errno;
        if (connect(l->fd, (struct sockaddr *) &l->address, sizeof(l->address)) < 0)
                return -errno;
        int r = sd_event_add_io(l->event, &l->io, l->fd, EPOLLIN, on_io, l);
        if (r < 0)
                return r;
        l->state = LINK_PREPARING;
        ask(l, "prompt\n");
        if (l->state == LINK_PREPARING)
                ask(l, "prepare map " MAP "\n");
        return 0;
}

static int on_look(sd_event_source *source, uint64_t usec, void *userdata) {
        IngressLink *l = userdata;

        if (l->state == LINK_AWAY && join(l) < 0) {
                l->fd = safe_close(l->fd);
                look_later(l);
        }
        return 0;
}

int ingress_link_start(IngressLink *l) {
        int r = sd_event_source_set_time(l->look, 0);

        return r < 0 ? r : sd_event_source_set_enabled(l->look, SD_EVENT_ONESHOT);
}

int ingress_link_new(sd_event *event, const char *path, const IngressLinkHandlers *handlers, void *userdata, IngressLink **ret) {
        IngressLink *l = new0(IngressLink, 1);
        if (!l)
                return -ENOMEM;

        *l = (IngressLink) {
                .event = sd_event_ref(event), .address.sun_family = AF_UNIX, .handlers = *handlers, .userdata = userdata,
                .fd = -EBADF, .look_usec = LOOK_FIRST_USEC,
        };
        int r = strlen(path) < sizeof(l->address.sun_path) ? 0 : -ENAMETOOLONG;
        if (r >= 0) {
                strcpy(l->address.sun_path, path);
                r = sd_event_add_time_relative(event, &l->look, CLOCK_MONOTONIC, 0, 0, on_look, l);
        }
        if (r >= 0)
                r = sd_event_source_set_enabled(l->look, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &l->patience, CLOCK_MONOTONIC, 0, 0, on_patience, l);
        if (r >= 0)
                r = sd_event_source_set_enabled(l->patience, SD_EVENT_OFF);
        if (r < 0) {
                ingress_link_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

IngressLink *ingress_link_free(IngressLink *l) {
        if (!l)
                return NULL;

        sd_event_source_disable_unref(l->io);
        sd_event_source_disable_unref(l->look);
        sd_event_source_disable_unref(l->patience);
        safe_close(l->fd);
        sd_event_unref(l->event);
        free(l->out);
        free(l);
        return NULL;
}

uint64_t ingress_link_now(const IngressLink *l) {
        return l->state == LINK_PREPARING ? UINT64_MAX : l->n_asked;
}

bool ingress_link_reached(const IngressLink *l, uint64_t point) {
        if (l->state == LINK_AWAY)
                return true;
        /* One of before it was filled, which comes after all that is asked now. */
        if (point == UINT64_MAX)
                return l->state == LINK_FILLED && l->n_answered == l->n_asked;
        return l->n_answered >= point;
}
