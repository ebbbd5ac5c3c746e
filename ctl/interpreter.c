/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/interpreter.h"

#define INTERPRETER_PORT 49999U
/* Of an answer that is no stream: the reason of a refusal, or a context. */
#define ANSWER_MAX KIB(16)
/* How long a connection may be silent before the bus is looked at all the same. */
#define WAIT_MSEC 10000

DEFINE_CLEANUP(CURL *, curl_easy_cleanup)
DEFINE_CLEANUP(CURLM *, curl_multi_cleanup)
DEFINE_CLEANUP(struct curl_slist *, curl_slist_free_all)

/* One request under way. */
typedef struct Exchange {
        Interpreter *interpreter;
        CURL *easy;
        int fd;                 /* of the guest, until libcurl has it */
        int socket;             /* libcurl's */
        CellLines lines;
        CellEventHandler handler; /* NULL: all of the answer is wanted */
        void *userdata;
        char answer[ANSWER_MAX + 1];
        size_t n_answer;
        int error;              /* of the handler */
} Exchange;

int interpreter_init(Interpreter *i, sd_bus *bus, const char *id) {
        *i = (Interpreter) { .bus = bus, .id = id };

        if (curl_global_init(CURL_GLOBAL_NOTHING) != 0)
                return ctl_fail(-ENOMEM, NULL, "prepare for HTTP");
        return removal_watch(&i->removal, bus, id);
}

void interpreter_done(Interpreter *i) {
        removal_done(&i->removal);
        curl_global_cleanup();
}

static int connect_guest(Interpreter *i, int *ret_fd) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int fd;

        int r = ctl_call_sandbox(i->bus, "Connecting", i->id, "Connect", &reply, &error, "q", (uint16_t) INTERPRETER_PORT);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &fd);
        if (r < 0)
                return ctl_fail(r, &error, "connect to the code interpreter in sandbox %s (port %u)", i->id,
                                INTERPRETER_PORT);
        *ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        r = *ret_fd < 0 ? -errno : fd_set_nonblock(*ret_fd, true);
        return r < 0 ? ctl_fail(r, NULL, "connect to sandbox %s", i->id) : 0;
}

/* libcurl 7.88 connects even a socket of which it was told that it is connected. So it gets one for which that is only a
 * word, and has the guest's in its place before it sends anything. */
static curl_socket_t on_open_socket(void *userdata, curlsocktype purpose, struct curl_sockaddr *address) {
        Exchange *x = userdata;

        x->socket = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        return x->socket < 0 ? CURL_SOCKET_BAD : x->socket;
}

static int on_connected(void *userdata, char *remote, char *local, int remote_port, int local_port) {
        Exchange *x = userdata;

        if (dup3(x->fd, x->socket, O_CLOEXEC) < 0)
                return CURL_PREREQFUNC_ABORT;
        x->fd = safe_close(x->fd);
        return CURL_PREREQFUNC_OK;
}

static long http_status(const Exchange *x) {
        long status = 0;

        (void) curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
        return status;
}

static size_t on_data(char *data, size_t size, size_t n, void *userdata) {
        Exchange *x = userdata;

        n *= size;
        if (x->handler && http_status(x) == 200) {
                x->error = cell_lines_feed(&x->lines, data, n, x->handler, x->userdata);
                return x->error < 0 ? CURL_WRITEFUNC_ERROR : n;
        }
        size_t room = MIN(n, ANSWER_MAX - x->n_answer);
        memcpy(x->answer + x->n_answer, data, room);
        x->n_answer += room;
        x->answer[x->n_answer] = 0;
        return n;
}

static int set_up(Exchange *x, const char *url, const char *body, struct curl_slist *headers) {
        bool failed = curl_easy_setopt(x->easy, CURLOPT_URL, url) != CURLE_OK;

        failed = failed || curl_easy_setopt(x->easy, CURLOPT_PROTOCOLS_STR, "http") != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_PROXY, "") != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, headers) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, body) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) strlen(body)) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_TCP_NODELAY, 0L) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_OPENSOCKETDATA, x) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_PREREQFUNCTION, on_connected) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_PREREQDATA, x) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, on_data) != CURLE_OK;
        failed = failed || curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x) != CURLE_OK;
        return failed ? -ENOMEM : 0;
}

/* The bus is read meanwhile, or what is told to all of its clients would wait for us there. */
static int wait_for_data(CURLM *multi, sd_bus *bus) {
        int fd = sd_bus_get_fd(bus), r;

        while ((r = sd_bus_process(bus, NULL)) > 0)
                ;
        struct curl_waitfd other = { .fd = fd, .events = CURL_WAIT_POLLIN };
        bool heard = fd >= 0 && r >= 0;
        return curl_multi_poll(multi, heard ? &other : NULL, heard, WAIT_MSEC, NULL) == CURLM_OK ? 0 : -EIO;
}

static int transfer(Exchange *x, CURLM *multi, CURLcode *ret) {
        int n_running = 1, n_messages, r = 0;

        if (curl_multi_add_handle(multi, x->easy) != CURLM_OK)
                return -ENOMEM;
        while (r >= 0 && n_running > 0) {
                if (curl_multi_perform(multi, &n_running) != CURLM_OK)
                        r = -EIO;
                if (r >= 0 && n_running > 0)
                        r = wait_for_data(multi, x->interpreter->bus);
        }
        CURLMsg *m = r >= 0 ? curl_multi_info_read(multi, &n_messages) : NULL;
        *ret = m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_FAILED_INIT;
        (void) curl_multi_remove_handle(multi, x->easy);
        return r;
}

static int explain(Exchange *x, CURLcode code) {
        Interpreter *i = x->interpreter;

        if (x->error == -EBADMSG)
                return ctl_fail_text(x->error, "what the guest sent is not what a code interpreter sends",
                                     "run code in sandbox %s", i->id);
        if (x->error == -ENOMEM)
                return ctl_fail(x->error, NULL, "show what comes of the code");
        if (x->error < 0)
                return x->error;
        const char *reason = removal_reason(&i->removal);
        if (reason)
                ctl_note("Sandbox %s ended while the code ran: %s. See: cubectl show %s", i->id, reason, i->id);
        else
                ctl_note("The connection to the code interpreter in sandbox %s is lost: %s.", i->id, curl_easy_strerror(code));
        return -ECONNRESET;
}

static int refused(const Exchange *x) {
        long status = http_status(x);

        if (x->n_answer == 0)
                return ctl_fail_text(-EREMOTEIO, "the code interpreter gave no reason", "run code in sandbox %s (status %ld)",
                                     x->interpreter->id, status);
        return ctl_fail_text(-EREMOTEIO, x->answer, "run code in sandbox %s", x->interpreter->id);
}

static int post(Exchange *x, const char *path, json_object *request) {
        _cleanup_(curl_slist_free_allp) struct curl_slist *headers = NULL;
        _cleanup_(curl_multi_cleanupp) CURLM *multi = curl_multi_init();
        _cleanup_(curl_easy_cleanupp) CURL *easy = curl_easy_init();
        CURLcode code = CURLE_OK;
        char url[64];

        snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", INTERPRETER_PORT, path);
        const char *body = json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN|JSON_C_TO_STRING_NOSLASHESCAPE);
        headers = curl_slist_append(NULL, "Content-Type: application/json");
        if (!multi || !easy || !body || !headers)
                return ctl_fail(-ENOMEM, NULL, "prepare a request");
        x->easy = easy;

        int r = connect_guest(x->interpreter, &x->fd);
        if (r < 0)
                return r;
        r = set_up(x, url, body, headers);
        if (r >= 0)
                r = transfer(x, multi, &code);
        if (r < 0)
                return ctl_fail(r, NULL, "send a request to sandbox %s", x->interpreter->id);
        if (code != CURLE_OK)
                return explain(x, code);
        return http_status(x) == 200 ? 0 : refused(x);
}

static void exchange_done(Exchange *x) {
        safe_close(x->fd);
        cell_lines_done(&x->lines);
}

int interpreter_execute(Interpreter *i, json_object *request, CellEventHandler handler, void *userdata) {
        _cleanup_(exchange_done) Exchange x = {
                .interpreter = i, .fd = -EBADF, .handler = handler, .userdata = userdata,
        };
        return post(&x, "/execute", request);
}

static int parse_context(const char *text, size_t size, char **ret_id) {
        json_object *o = json_tokener_parse(text), *id;
        int r = -EBADMSG;

        if (json_object_object_get_ex(o, "id", &id) && json_object_is_type(id, json_type_string)) {
                *ret_id = strdup(json_object_get_string(id));
                r = *ret_id ? 0 : -ENOMEM;
        }
        json_object_put(o);
        return r;
}

int interpreter_add_context(Interpreter *i, const char *language, char **ret_id) {
        _cleanup_(exchange_done) Exchange x = { .interpreter = i, .fd = -EBADF };

        json_object *request = json_object_new_object(), *value = language ? json_object_new_string(language) : NULL;
        int r = request && (!language || (value && json_object_object_add(request, "language", value) == 0)) ? 0 : -ENOMEM;
        if (r >= 0)
                r = post(&x, "/contexts", request);
        if (r >= 0)
                r = parse_context(x.answer, x.n_answer, ret_id);
        json_object_put(request);
        return r == -EBADMSG ? ctl_fail_text(r, "what the guest sent is no context", "make a context in sandbox %s", i->id) : r;
}
