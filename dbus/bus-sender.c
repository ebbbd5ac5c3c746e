/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-sender.h"
#include "dbus/bus-util.h"

/* Clients remembered and asked for. Beyond that the oldest is forgotten, and new ones have to
 * come again. */
#define SENDERS_MAX 1024U
#define QUESTIONS_MAX 256U

typedef struct Sender {
        char *name;
        uid_t uid;
} Sender;

typedef struct Question {
        BusSenders *senders;
        sd_bus_message *message;
        sd_bus_slot *slot;          /* of the first one of a client; the others wait for the same answer */
        struct Question *next;      /* a later one */
} Question;

struct BusSenders {
        sd_bus *bus;
        Sender known[SENDERS_MAX];
        size_t n_known;
        Question *questions;
        size_t n_questions;
};

int bus_senders_new(sd_bus *bus, BusSenders **ret) {
        BusSenders *s = new0(BusSenders, 1);
        if (!s)
                return -ENOMEM;

        s->bus = sd_bus_ref(bus);
        *ret = s;
        return 0;
}

static void question_free(Question *q) {
        Question **at = &q->senders->questions;
        while (*at && *at != q)
                at = &(*at)->next;
        if (*at) {
                *at = q->next;
                q->senders->n_questions--;
        }
        sd_bus_slot_unref(q->slot);
        sd_bus_message_unref(q->message);
        free(q);
}

static void sender_forget(BusSenders *s, size_t i) {
        free(s->known[i].name);
        s->n_known--;
        memmove(&s->known[i], &s->known[i + 1], (s->n_known - i) * sizeof(Sender));
}

BusSenders *bus_senders_free(BusSenders *s) {
        if (!s)
                return NULL;

        while (s->questions)
                question_free(s->questions);
        while (s->n_known > 0)
                sender_forget(s, s->n_known - 1);
        sd_bus_unref(s->bus);
        free(s);
        return NULL;
}

static const Sender *find_sender(const BusSenders *s, const char *name) {
        for (size_t i = s->n_known; i > 0; i--)
                if (streq(s->known[i - 1].name, name))
                        return &s->known[i - 1];
        return NULL;
}

static int remember(BusSenders *s, const char *name, uid_t uid) {
        if (find_sender(s, name))
                return 0;
        if (s->n_known == SENDERS_MAX)
                sender_forget(s, 0);

        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        s->known[s->n_known++] = (Sender) { .name = copy, .uid = uid };
        return 0;
}

static void requeue(Question *q) {
        int r = sd_bus_message_rewind(q->message, 1);

        if (r >= 0)
                r = sd_bus_enqueue_for_read(q->senders->bus, q->message);
        if (r < 0)
                (void) sd_bus_reply_method_errno(q->message, r, NULL);
}

static int on_uid(sd_bus_message *answer, void *userdata, sd_bus_error *ret_error) {
        Question *asked = userdata;
        _cleanup_bus_message_ sd_bus_message *first = sd_bus_message_ref(asked->message);
        const char *name = sd_bus_message_get_sender(first);
        BusSenders *s = asked->senders;
        bool left = sd_bus_message_get_error(answer);
        uint32_t uid;

        int r = left ? 0 : sd_bus_message_read(answer, "u", &uid);
        if (r >= 0 && !left)
                r = remember(s, name, uid);

        /* All at once, so that what comes later stays behind them. One that has left waits for no answer. */
        for (Question *q = s->questions, *next; q; q = next) {
                next = q->next;
                if (!streq(sd_bus_message_get_sender(q->message), name))
                        continue;
                if (r < 0)
                        (void) sd_bus_reply_method_errno(q->message, r, NULL);
                else if (!left)
                        requeue(q);
                question_free(q);
        }
        return 1;
}

static bool is_asked(const BusSenders *s, const char *name) {
        for (const Question *q = s->questions; q; q = q->next)
                if (streq(sd_bus_message_get_sender(q->message), name))
                        return true;
        return false;
}

static int ask(BusSenders *s, sd_bus_message *m, sd_bus_error *error) {
        const char *name = sd_bus_message_get_sender(m);
        bool asked = is_asked(s, name);
        Question **end = &s->questions;

        if (s->n_questions >= QUESTIONS_MAX)
                return sd_bus_error_set(error, BUS_ERROR_BUSY, "Too many new clients at once, try again");

        Question *q = new0(Question, 1);
        if (!q)
                return -ENOMEM;
        *q = (Question) { .senders = s, .message = sd_bus_message_ref(m) };
        while (*end)
                end = &(*end)->next;
        *end = q;
        s->n_questions++;

        int r = asked ? 0
                      : sd_bus_call_method_async(s->bus, &q->slot, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                                 "org.freedesktop.DBus", "GetConnectionUnixUser", on_uid, q, "s", name);
        if (r < 0) {
                question_free(q);
                return r;
        }
        return 0;
}

int bus_senders_get(BusSenders *s, sd_bus_message *m, uid_t *ret, sd_bus_error *error) {
        const char *name = sd_bus_message_get_sender(m);

        assert(s);
        assert(ret);

        if (!name)
                return sd_bus_error_set(error, BUS_ERROR_ACCESS_DENIED, "This call has no sender");

        const Sender *known = find_sender(s, name);
        if (!known)
                return ask(s, m, error);

        *ret = known->uid;
        return 1;
}

void bus_senders_gone(BusSenders *s, const char *unique_name) {
        for (size_t i = 0; i < s->n_known; i++)
                if (streq(s->known[i].name, unique_name)) {
                        sender_forget(s, i);
                        return;
                }
}
