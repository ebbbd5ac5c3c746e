/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's HTTP: the parser by itself, and a server on a port of loopback with limits of the test's. */
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd-util.h"
#include "guest/agent.h"
#include "guest/connect.h"
#include "guest/http-reply.h"
#include "guest/http-server.h"
#include "tests/unit/test.h"

typedef struct Seen {
        unsigned heads;
        char body[256];
        size_t n_body;
} Seen;

static void seen_head(void *userdata) {
        Seen *s = userdata;
        s->heads++;
}

static void seen_body(void *userdata, const uint8_t *data, size_t size) {
        Seen *s = userdata;

        assert_true(size <= sizeof(s->body) - s->n_body);
        memcpy(s->body + s->n_body, data, size);
        s->n_body += size;
}

/* In pieces of that many bytes; what the last call said. */
static ssize_t feed(HttpParser *p, const char *text, size_t piece) {
        size_t left = strlen(text);
        ssize_t n = 0;

        while (left > 0 && !p->request.complete) {
                n = http_parser_feed(p, (const uint8_t *) text, MIN(piece, left));
                if (n < 0)
                        return n;
                text += n;
                left -= (size_t) n;
        }
        return (ssize_t) left;
}

TEST(a_request_in_any_pieces_is_the_same_request) {
        const char *text = "POST /files?path=a%2Fb+c&x HTTP/1.1\r\nHost: h\r\nEmpty:\r\nX-Two:  a b \r\n"
                           "Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n";

        for (size_t piece = 1; piece < strlen(text) + 1; piece++) {
                _cleanup_free_ char *path = NULL, *none = NULL, *x = NULL;
                HttpParser p;
                Seen seen = {};

                http_parser_init(&p, seen_head, seen_body, &seen);
                assert_eq(feed(&p, text, piece), 0);
                assert_true(p.request.complete);
                assert_eq(seen.heads, 1);
                assert_eq(seen.n_body, 5);
                assert_true(memcmp(seen.body, "abcde", 5) == 0);
                assert_eq(p.request.method, HTTP_POST);
                assert_eq(p.request.length, UINT64_MAX);
                assert_true(p.request.keep_alive);
                assert_true(http_path_is(&p.request, "/files"));
                assert_true(!http_path_is(&p.request, "/file"));
                assert_streq(http_field(&p.request, "host"), "h");
                assert_streq(http_field(&p.request, "empty"), "");
                assert_true(startswith(http_field(&p.request, "x-two"), "a b"));
                assert_true(!http_field(&p.request, "Trailer"));
                assert_ok(http_query(&p.request, "path", &path));
                assert_streq(path, "a/b c");
                assert_ok(http_query(&p.request, "x", &x));
                assert_streq(x, "");
                assert_ok(http_query(&p.request, "pat", &none));
                assert_true(!none);
                http_parser_done(&p);
        }
}

TEST(what_comes_behind_a_request_waits_for_the_next) {
        const char *text = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET /two HTTP/1.1\r\nConnection: close\r\n\r\n";
        HttpParser p;
        Seen seen = {};

        http_parser_init(&p, seen_head, seen_body, &seen);
        ssize_t left = feed(&p, text, strlen(text));
        assert_true(p.request.complete);
        assert_eq(p.request.length, 2);
        assert_streq(text + strlen(text) - left, "GET /two HTTP/1.1\r\nConnection: close\r\n\r\n");
        http_parser_next(&p);
        assert_true(!p.request.begun);
        assert_eq(feed(&p, text + strlen(text) - left, 7), 0);
        assert_true(http_path_is(&p.request, "/two"));
        assert_true(!p.request.keep_alive);
        http_parser_done(&p);
}

TEST(what_is_no_http_or_may_be_read_in_two_ways_is_refused) {
        static const char *const bad[] = {
                "\x16\x03\x01\x02",
                "FETCH / HTTP/1.1\r\n\r\n",
                "GET / HTTP/1.1\r\nA\r\n\r\n",
                "GET / HTTP/1.1\r\nA : b\r\n\r\n",
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nq\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                HttpParser p;
                Seen seen = {};

                http_parser_init(&p, seen_head, seen_body, &seen);
                if (feed(&p, bad[i], 64) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "%s", bad[i]);
                http_parser_done(&p);
        }
}

TEST(a_head_has_its_bounds) {
        char line[1024 + 16];
        HttpParser p;
        Seen seen = {};
        ssize_t r = 0;

        http_parser_init(&p, seen_head, seen_body, &seen);
        assert_eq(feed(&p, "GET / HTTP/1.1\r\n", 64), 0);
        for (unsigned i = 0; i < HTTP_FIELDS_MAX; i++)
                assert_eq(feed(&p, "A: b\r\n", 64), 0);
        assert_eq(feed(&p, "A: b\r\n", 64), -EMSGSIZE);
        http_parser_done(&p);

        http_parser_init(&p, seen_head, seen_body, &seen);
        assert_eq(feed(&p, "GET / HTTP/1.1\r\n", 64), 0);
        memset(line, 'x', sizeof(line));
        memcpy(line, "A: ", 3);
        memcpy(line + 1024, "\r\n", 3);
        for (unsigned i = 0; r == 0 && i < 64; i++)
                r = feed(&p, line, sizeof(line));
        assert_eq(r, -EMSGSIZE);
        assert_true(p.request.allocated <= HTTP_HEAD_MAX);
        http_parser_done(&p);
}

TEST(a_query_that_is_no_query) {
        static const char *const bad[] = { "/?path=%", "/?path=a%2", "/?path=%zz", "/?path=%00" };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                char text[64];
                char *value;
                HttpParser p;
                Seen seen = {};

                snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n\r\n", bad[i]);
                http_parser_init(&p, seen_head, seen_body, &seen);
                assert_eq(feed(&p, text, 64), 0);
                assert_eq(http_query(&p.request, "path", &value), -EBADMSG);
                assert_true(!value);
                http_parser_done(&p);
        }
}

/* A server that answers a POST with its body, and a GET with "hello", in two parts when it is of /parts; with more than any
 * socket holds when it is of /large, or by a stream that goes on when it is a POST of /stream. */

typedef struct Server {
        Loop loop;
        HttpServer http;
        unsigned done;
} Server;

static Server server;

static void echo_complete(HttpConn *c) {
        http_reply(c, 200, "X: y\r\n", c->body, c->n_body);
}

static void parts_writable(HttpConn *c) {
        if (!c->reply_begun) {
                http_reply_begin(c, 200, NULL, HTTP_CHUNKED);
                http_reply_part(c, "hel", 3);
                return;
        }
        http_reply_part(c, "lo", 2);
        http_reply_end(c);
}

static void parts_complete(HttpConn *c) {
}

static void silent_writable(HttpConn *c) {
}

static void count_done(HttpConn *c) {
        server.done++;
}

#define LARGE MIB(64)

static void reply_large(HttpConn *c) {
        char *data = calloc(1, LARGE);

        assert_true(data);
        http_reply(c, 200, NULL, data, LARGE);
        free(data);
}

static void stream_call(ConnectCall *call, json_object *request) {
        char *data = malloc(LARGE);

        assert_true(data);
        memset(data, ' ', LARGE);
        connect_send(call, data, LARGE);
        free(data);
}

static void begin_stream(HttpConn *c) {
        static const ConnectMethod method = { "/stream", true, "{\"keepalive\":{}}", stream_call };
        static Agent agent;

        agent = (Agent) { .loop = server.loop };
        connect_begin(&agent, c, &method);
}

static void begin(HttpConn *c, void *userdata) {
        static const HttpHandler echo = { .complete = echo_complete, .done = count_done };
        static const HttpHandler parts = { .complete = parts_complete, .writable = parts_writable, .done = count_done };
        static const HttpHandler silent = {
                .complete = parts_complete, .writable = silent_writable, .done = count_done, .gone = true,
        };

        if (http_path_is(http_request(c), "/parts"))
                http_conn_set_handler(c, &parts, NULL);
        else if (http_path_is(http_request(c), "/silent"))
                http_conn_set_handler(c, &silent, NULL);
        else if (http_path_is(http_request(c), "/stream"))
                begin_stream(c);
        else if (http_request(c)->method == HTTP_POST)
                http_conn_set_handler(c, &echo, NULL);
        else if (http_path_is(http_request(c), "/large"))
                reply_large(c);
        else if (http_path_is(http_request(c), "/break"))
                http_conn_break(c);
        else
                http_reply(c, 200, NULL, "hello", 5);
}

static int server_start(const HttpLimits *limits) {
        struct sockaddr_in6 sa = {};
        socklen_t size = sizeof(sa);
        int fd;

        server = (Server) {};
        assert_ok(loop_init(&server.loop));
        assert_ok(http_listen(0, &fd));
        assert_true(getsockname(fd, (struct sockaddr *) &sa, &size) >= 0);
        assert_ok(http_server_start(&server.http, &server.loop, fd, limits, begin, NULL));
        return ntohs(sa.sin6_port);
}

static void server_stop(void) {
        http_server_stop(&server.http);
        loop_done(&server.loop);
}

static int client(int port) {
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t) port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

        assert_true(fd >= 0 && connect(fd, (struct sockaddr *) &sa, sizeof(sa)) >= 0);
        assert_ok(fd_set_nonblock(fd, true));
        return fd;
}

static void turn(int msec) {
        struct epoll_event e;

        if (epoll_wait(server.loop.epoll_fd, &e, 1, msec) == 1) {
                LoopSource *s = e.data.ptr;
                s->callback(s, e.events);
        }
}

static void say(int fd, const char *text) {
        assert_eq(write(fd, text, strlen(text)), strlen(text));
}

/* What the server answers until text is in it, or the end: then that is told by errno, 0 for an orderly one. */
static char *hear(int fd, const char *text) {
        static char heard[8192];
        size_t n = 0;

        heard[0] = 0;
        errno = EAGAIN;
        for (unsigned i = 0; i < 2000 && !(text && strstr(heard, text)); i++) {
                ssize_t got = read(fd, heard + n, sizeof(heard) - 1 - n);
                if (got == 0 || (got < 0 && errno != EAGAIN)) {
                        errno = got == 0 ? 0 : errno;
                        return heard;
                }
                if (got > 0)
                        heard[n += (size_t) got] = 0;
                else
                        turn(10);
        }
        return heard;
}

#define assert_heard(fd, text) assert_true(strstr(hear(fd, text), text))

TEST(a_connection_takes_one_request_after_the_other) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));

        for (unsigned i = 0; i < 3; i++) {
                say(fd, "GET / HTTP/1.1\r\n\r\n");
                assert_heard(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
        /* Two at once, the second in two pieces. */
        say(fd, "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /parts HT");
        assert_heard(fd, "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 3\r\n\r\nabc");
        say(fd, "TP/1.1\r\n\r\n");
        assert_heard(fd, "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n");
        say(fd, "HEAD / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
        assert_heard(fd, "Content-Length: 5\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        say(fd, "q");
        assert_heard(fd, "Content-Length: 1\r\n\r\nq");
        assert_eq(server.done, 3);
        assert_eq(server.http.n_conns, 1);
        server_stop();
}

TEST(a_client_of_1_0_gets_no_chunks) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));

        say(fd, "GET /parts HTTP/1.0\r\n\r\n");
        const char *answer = hear(fd, NULL);
        assert_eq(errno, 0);
        assert_streq(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
        server_stop();
}

TEST(what_is_no_http_is_told_so_and_closed) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));

        say(fd, "\x16\x03\x01 hello\r\n\r\n");
        const char *answer = hear(fd, NULL);
        assert_eq(errno, 0);
        assert_true(startswith(answer, "HTTP/1.1 400 Bad Request\r\n"));
        assert_true(strstr(answer, "Connection: close\r\n"));
        close(TAKE_FD(fd));
        for (unsigned i = 0; i < 300 && server.http.n_conns > 0; i++)
                turn(10);
        assert_eq(server.http.n_conns, 0);
        server_stop();
}

TEST(a_body_beyond_the_limit_is_refused_and_the_rest_of_it_dropped) {
        HttpLimits limits = HTTP_LIMITS_DEFAULT;

        limits.body_bytes = 10;
        _cleanup_close_ int fd = client(server_start(&limits));
        say(fd, "POST / HTTP/1.1\r\nContent-Length: 14\r\n\r\n0123456789a");
        assert_heard(fd, "HTTP/1.1 413 ");
        say(fd, "bcdGET / HTTP/1.1\r\n\r\n");
        assert_heard(fd, "hello");
        server_stop();
}

TEST(who_does_not_get_on_is_closed) {
        HttpLimits limits = HTTP_LIMITS_DEFAULT;

        limits.head_usec = limits.body_usec = 50 * USEC_PER_MSEC;
        int port = server_start(&limits);
        static const char *const slow[] = { "GET / HT", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na" };
        for (size_t i = 0; i < ELEMENTSOF(slow); i++) {
                _cleanup_close_ int fd = client(port);

                say(fd, slow[i]);
                assert_streq(hear(fd, NULL), "");
                assert_true(errno != EAGAIN);
        }
        /* Between two requests there is another limit. */
        _cleanup_close_ int fd = client(port);
        say(fd, "GET / HTTP/1.1\r\n\r\n");
        assert_heard(fd, "hello");
        for (unsigned i = 0; i < 10; i++)
                turn(20);
        say(fd, "GET / HTTP/1.1\r\n\r\n");
        assert_heard(fd, "hello");
        server_stop();
}

static bool hold;

static bool held(void *userdata) {
        return hold;
}

TEST(clients_wait_while_the_server_is_held) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));

        server.http.held = held;
        say(fd, "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\na");
        for (unsigned i = 0; i < 10; i++)
                turn(10);
        hold = true;
        say(fd, "b");
        for (unsigned i = 0; i < 10; i++)
                turn(10);
        char byte;
        assert_true(read(fd, &byte, 1) < 0 && errno == EAGAIN);
        hold = false;
        http_server_wake(&server.http);
        assert_heard(fd, "\r\n\r\nab");
        server_stop();
}

TEST(no_more_connections_than_that) {
        HttpLimits limits = HTTP_LIMITS_DEFAULT;

        limits.connections = 1;
        int port = server_start(&limits);
        _cleanup_close_ int first = client(port);
        say(first, "GET / HTTP/1.1\r\n\r\n");
        assert_heard(first, "hello");
        _cleanup_close_ int second = client(port);
        assert_streq(hear(second, NULL), "");
        assert_true(errno != EAGAIN);
        say(first, "GET / HTTP/1.1\r\n\r\n");
        assert_heard(first, "hello");
        server_stop();
}

TEST(a_broken_answer_is_no_orderly_end) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));

        say(fd, "GET /break HTTP/1.1\r\n\r\n");
        assert_streq(hear(fd, NULL), "");
        assert_eq(errno, ECONNRESET);
        server_stop();
}

TEST(a_client_that_goes_away_is_forgotten) {
        int port = server_start(&HTTP_LIMITS_DEFAULT);
        int fd = client(port);

        say(fd, "GET /silent HTTP/1.1\r\n\r\n");
        for (unsigned i = 0; i < 300 && server.http.n_conns == 0; i++)
                turn(10);
        for (unsigned i = 0; i < 5; i++)
                turn(10);
        assert_eq(server.done, 0);
        close(fd);
        for (unsigned i = 0; i < 300 && server.http.n_conns > 0; i++)
                turn(10);
        assert_eq(server.http.n_conns, 0);
        assert_eq(server.done, 1);
        server_stop();
}


/* How many of its bytes wait for the client, once that does not change any more. */
static size_t wait_stuck(void) {
        size_t size = 0;

        for (unsigned quiet = 0; quiet < 20; quiet++) {
                turn(10);
                size_t now = server.http.conns ? outbox_size(&server.http.conns->out) : 0;
                if (now == 0 || now != size)
                        quiet = 0;
                size = now;
        }
        return size;
}

TEST(who_takes_nothing_of_what_it_is_sent_is_cut) {
        HttpLimits limits = HTTP_LIMITS_DEFAULT;

        limits.write_usec = 50 * USEC_PER_MSEC;
        int port = server_start(&limits);
        _cleanup_close_ int fd = client(port);
        say(fd, "GET /large HTTP/1.1\r\n\r\n");
        for (unsigned i = 0; i < 3000 && server.http.n_conns == 0; i++)
                turn(10);
        for (unsigned i = 0; i < 3000 && server.http.n_conns > 0; i++)
                turn(10);
        assert_eq(server.http.n_conns, 0);
        server_stop();
}

/* The whole of what was sent, and nothing is left. */
static void take_all(int fd) {
        static char buf[1024 * 1024];

        for (unsigned i = 0; i < 100000 && outbox_size(&server.http.conns->out) > 0; i++) {
                while (read(fd, buf, sizeof(buf)) > 0)
                        ;
                turn(10);
        }
        while (read(fd, buf, sizeof(buf)) > 0)
                ;
}

TEST(who_takes_it_late_has_time_for_the_next_request) {
        HttpLimits limits = HTTP_LIMITS_DEFAULT;

        limits.body_usec = limits.head_usec = 50 * USEC_PER_MSEC;
        _cleanup_close_ int fd = client(server_start(&limits));
        say(fd, "GET /large HTTP/1.1\r\n\r\n");
        assert_true(wait_stuck() > 0);
        take_all(fd);
        for (unsigned i = 0; i < 10; i++)
                turn(20);
        say(fd, "GET / HTTP/1.1\r\n\r\n");
        assert_heard(fd, "hello");
        server_stop();
}

TEST(a_client_that_does_not_read_gets_no_signs_of_life) {
        _cleanup_close_ int fd = client(server_start(&HTTP_LIMITS_DEFAULT));
        struct timespec begin_time, now;

        say(fd, "POST /stream HTTP/1.1\r\nContent-Type: application/connect+json\r\nKeepalive-Ping-Interval: 1\r\n"
                "Content-Length: 7\r\n\r\n");
        assert_eq(write(fd, "\0\0\0\0\2{}", 7), 7);
        size_t stuck = wait_stuck();
        assert_true(stuck > 0);
        clock_gettime(CLOCK_MONOTONIC, &begin_time);
        do {
                turn(50);
                clock_gettime(CLOCK_MONOTONIC, &now);
        } while (now.tv_sec < begin_time.tv_sec + 4);
        assert_eq(outbox_size(&server.http.conns->out), stuck);
        take_all(fd);
        /* Envelopes have zeros in them. */
        char heard[256];
        ssize_t n = -1;
        for (unsigned i = 0; i < 2000 && n <= 0; i++) {
                turn(10);
                n = read(fd, heard, sizeof(heard));
        }
        assert_true(n > 0 && memmem(heard, (size_t) n, "keepalive", 9));
        server_stop();
}
