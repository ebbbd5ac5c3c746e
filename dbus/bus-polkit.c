/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "dbus/bus-polkit.h"
#include "dbus/bus-util.h"

/* Calls that may be outstanding at once on one connection are few (128 in Debian), and PID 1 needs
 * some of them: nobody may fill them by asking for what he is denied anyway. */
#define QUESTIONS_MAX 48U
#define QUESTIONS_PER_CLIENT_MAX 8U
/* A user has many connections, and an authentication agent of his own that never answers. */
#define QUESTIONS_PER_USER_MAX (QUESTIONS_MAX / 2)
#define FLAG_ALLOW_INTERACTION 1U
/* A person may take his time over a password, and ends it by leaving. */
#define INTERACTION_TIMEOUT_USEC (5 * 60 * USEC_PER_SEC)

/* A time-out of the bus comes later than this. */
#define ENDED_USEC (10 * USEC_PER_SEC)

typedef struct Question {
        Polkit *polkit;
        sd_bus_message *message;
        uid_t actor;
        char *action, *key, *value;
        bool interactive;
        bool again;                 /* polkit ended over it once */
        uint64_t asked_usec;
        sd_bus_slot *slot;          /* set while polkit has not answered */
        sd_event_source *drop;      /* set once it has */
        int answer;                 /* 1, or negative with error */
        sd_bus_error error;
        struct Question *next;
} Question;

struct Polkit {
        sd_bus *bus;
        sd_event *event;
        Question *questions;
};

int polkit_new(sd_bus *bus, sd_event *event, Polkit **ret) {
        Polkit *p = new0(Polkit, 1);
        if (!p)
                return -ENOMEM;

        *p = (Polkit) { .bus = sd_bus_ref(bus), .event = sd_event_ref(event) };
        *ret = p;
        return 0;
}

static void question_free(Question *q) {
        Question **at = &q->polkit->questions;
        while (*at && *at != q)
                at = &(*at)->next;
        if (*at)
                *at = q->next;

        sd_bus_slot_unref(q->slot);
        sd_event_source_disable_unref(q->drop);
        sd_bus_error_free(&q->error);
        sd_bus_message_unref(q->message);
        free(q->action);
        free(q->key);
        free(q->value);
        free(q);
}

Polkit *polkit_free(Polkit *p) {
        if (!p)
                return NULL;

        while (p->questions)
                question_free(p->questions);
        sd_event_unref(p->event);
        sd_bus_unref(p->bus);
        free(p);
        return NULL;
}

static bool same_string(const char *a, const char *b) {
        return streq(strempty(a), strempty(b));
}

static Question *find_question(Polkit *p, sd_bus_message *m, const char *action, const char *key, const char *value) {
        for (Question *q = p->questions; q; q = q->next)
                if (q->message == m && streq(q->action, action) && same_string(q->key, key) && same_string(q->value, value))
                        return q;
        return NULL;
}

static void set_drops(Polkit *p, sd_bus_message *m, int enabled) {
        for (Question *q = p->questions; q; q = q->next)
                if (q->message == m && q->drop)
                        (void) sd_event_source_set_enabled(q->drop, enabled);
}

void polkit_hold(Polkit *p, sd_bus_message *m) {
        set_drops(p, m, SD_EVENT_OFF);
}

void polkit_release(Polkit *p, sd_bus_message *m) {
        set_drops(p, m, SD_EVENT_ONESHOT);
}

static bool room_for_question(const Polkit *p, uid_t actor, const char *sender) {
        size_t all = 0, user = 0, client = 0;

        for (const Question *q = p->questions; q; q = q->next) {
                /* One that is answered is kept for its message only, until the loop has nothing better to do. */
                if (!q->slot)
                        continue;
                all++;
                user += q->actor == actor;
                client += streq(sd_bus_message_get_sender(q->message), sender);
        }
        return all < QUESTIONS_MAX && user < QUESTIONS_PER_USER_MAX && client < QUESTIONS_PER_CLIENT_MAX;
}

static int set_denied(sd_bus_error *e, const Question *q) {
        return sd_bus_error_setf(e, BUS_ERROR_ACCESS_DENIED, "Access denied: this takes %s%s%s", q->action,
                                 isempty(q->value) ? "" : " for ", strempty(q->value));
}

/* What polkit said, as the result of polkit_check(). */
static int read_answer(Question *q, sd_bus_message *answer) {
        const sd_bus_error *e = sd_bus_message_get_error(answer);
        int authorized, challenge;

        /* Absent, hanging or broken: denied. */
        if (e)
                return sd_bus_error_setf(&q->error, BUS_ERROR_ACCESS_DENIED,
                                         "Access denied: %s could not be asked of polkit (%s)", q->action,
                                         strempty(e->message));

        int r = sd_bus_message_enter_container(answer, 'r', "bba{ss}");
        if (r >= 0)
                r = sd_bus_message_read(answer, "bb", &authorized, &challenge);
        if (r < 0)
                return sd_bus_error_setf(&q->error, BUS_ERROR_ACCESS_DENIED,
                                         "Access denied: polkit gave a strange answer for %s", q->action);

        if (authorized)
                return 1;
        if (challenge)
                return sd_bus_error_setf(&q->error, BUS_ERROR_ACCESS_DENIED,
                                         "Access denied: %s takes an administrator's authentication, and %s", q->action,
                                         q->interactive ? "nobody was there to be asked for it"
                                                        : "this call did not allow to ask for it");
        return set_denied(&q->error, q);
}

/* Runs after the message had its next turn, whether or not a handler asked for the answer then: its object may have
 * vanished. Not while the message waits for something else, another question above all. */
static int on_drop(sd_event_source *source, void *userdata) {
        question_free(userdata);
        return 0;
}

static int call_polkit(Question *q);

/* It was restarted, as when its package is upgraded: the next one is there, or started by the question. */
static bool ended_over(const Question *q, sd_bus_message *answer) {
        return sd_bus_message_is_method_error(answer, SD_BUS_ERROR_NO_REPLY) && now_usec() - q->asked_usec < ENDED_USEC;
}

static int on_answer(sd_bus_message *answer, void *userdata, sd_bus_error *ret_error) {
        Question *q = userdata;
        int r;

        q->slot = sd_bus_slot_unref(q->slot);
        if (!q->again && ended_over(q, answer)) {
                q->again = true;
                if (call_polkit(q) >= 0)
                        return 1;
        }
        q->answer = read_answer(q, answer);

        r = sd_event_add_defer(q->polkit->event, &q->drop, on_drop, q);
        if (r >= 0)
                r = sd_event_source_set_priority(q->drop, SD_EVENT_PRIORITY_IDLE);
        if (r >= 0)
                r = sd_bus_message_rewind(q->message, 1);
        if (r >= 0)
                r = sd_bus_enqueue_for_read(q->polkit->bus, q->message);
        polkit_release(q->polkit, q->message);
        if (r < 0) {
                (void) sd_bus_reply_method_errno(q->message, r, NULL);
                question_free(q);
        }
        return 1;
}

/* What is granted stays for the message's next turns, of which there may be several. */
static int use_answer(Question *q, sd_bus_error *error) {
        int r = q->answer;

        if (!q->drop)
                return -EBUSY;
        if (r < 0) {
                sd_bus_error_move(error, &q->error);
                question_free(q);
        }
        return r;
}

static int call_polkit(Question *q) {
        _cleanup_bus_message_ sd_bus_message *call = NULL;
        const char *key = q->key;

        int r = sd_bus_message_new_method_call(q->polkit->bus, &call, "org.freedesktop.PolicyKit1",
                                               "/org/freedesktop/PolicyKit1/Authority",
                                               "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
        if (r < 0)
                return r;

        r = sd_bus_message_append(call, "(sa{sv})s", "system-bus-name", 1, "name", "s",
                                  sd_bus_message_get_sender(q->message), q->action);
        if (r < 0)
                return r;
        r = key ? sd_bus_message_append(call, "a{ss}", 1, key, strempty(q->value))
                : sd_bus_message_append(call, "a{ss}", 0);
        if (r < 0)
                return r;
        r = sd_bus_message_append(call, "us", q->interactive ? FLAG_ALLOW_INTERACTION : 0, "");
        if (r < 0)
                return r;

        q->asked_usec = now_usec();
        return sd_bus_call_async(q->polkit->bus, &q->slot, call, on_answer, q,
                                 q->interactive ? INTERACTION_TIMEOUT_USEC : 0);
}

static int ask(Polkit *p, sd_bus_message *m, uid_t actor, const char *action, const char *key, const char *value,
               bool quiet) {
        Question *q = new0(Question, 1);
        if (!q)
                return -ENOMEM;

        *q = (Question) { .polkit = p, .message = sd_bus_message_ref(m), .actor = actor, .next = p->questions };
        p->questions = q;
        q->action = strdup(action);
        q->key = key ? strdup(key) : NULL;
        q->value = value ? strdup(value) : NULL;

        int r = -ENOMEM;
        if (q->action && (!key || q->key) && (!value || q->value)) {
                q->interactive = !quiet && sd_bus_message_get_allow_interactive_authorization(m) > 0;
                r = call_polkit(q);
        }
        if (r < 0) {
                question_free(q);
                return r;
        }
        polkit_hold(p, m);
        return 0;
}

int polkit_check(Polkit *p, sd_bus_message *m, uid_t actor, const char *action, const char *key, const char *value,
                 bool quiet, sd_bus_error *error) {
        assert(p);
        assert(m);

        Question *q = find_question(p, m, action, key, value);
        if (q)
                return use_answer(q, error);
        if (!room_for_question(p, actor, sd_bus_message_get_sender(m)))
                return sd_bus_error_setf(error, BUS_ERROR_ACCESS_DENIED,
                                         "Access denied: too many questions about %s are open, try again later", action);
        return ask(p, m, actor, action, key, value, quiet);
}

void polkit_client_gone(Polkit *p, const char *unique_name) {
        for (Question *q = p->questions, *next; q; q = next) {
                next = q->next;
                /* One whose message waits for its next turn goes by itself. */
                if (q->slot && streq(sd_bus_message_get_sender(q->message), unique_name)) {
                        polkit_release(p, q->message);
                        question_free(q);
                }
        }
}
