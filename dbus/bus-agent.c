/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdio.h>

#include "dbus/bus-agent.h"
#include "dbus/bus-util.h"

/* A guest may go on listing for ever. */
#define LISTING_ENTRIES_MAX 100000U
#define LISTING_BYTES_MAX (16U * 1024U * 1024U)
/* Of all listings that are coming in for the sandboxes of one tenant: his guests may begin each and end none. */
#define TENANT_BYTES_MAX (2 * LISTING_BYTES_MAX)

typedef struct AgentCall {
        sd_bus_message *call;
        sd_bus_message *reply; /* NULL once the call was answered with an error */
        const BusAgentListing *listing;
        size_t n_entries, n_bytes;
        uid_t owner;
        char tenant[TENANT_NAME_MAX];
        struct AgentCall *next;
} AgentCall;

static AgentCall *calls = NULL;

static AgentCall *agent_call_free(AgentCall *c) {
        if (!c)
                return NULL;

        AgentCall **at = &calls;
        while (*at && *at != c)
                at = &(*at)->next;
        if (*at)
                *at = c->next;
        sd_bus_message_unref(c->reply);
        sd_bus_message_unref(c->call);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(AgentCall *, agent_call_free);

static int agent_call_new(sd_bus_message *m, const Sandbox *s, const BusAgentListing *listing, AgentCall **ret) {
        _cleanup_(agent_call_freep) AgentCall *c = new0(AgentCall, 1);
        if (!c)
                return -ENOMEM;

        c->call = sd_bus_message_ref(m);
        c->listing = listing;
        c->owner = s->owner_uid;
        tenant_name_copy(c->tenant, s->tenant);
        c->next = calls;
        calls = c;
        int r = sd_bus_message_new_method_return(m, &c->reply);
        if (r < 0)
                return r;
        if (listing && listing->array) {
                _cleanup_free_ char *contents = NULL;
                if (asprintf(&contents, "(%s)", listing->signature) < 0)
                        return -ENOMEM;
                r = sd_bus_message_open_container(c->reply, 'a', contents);
                if (r < 0)
                        return r;
        }

        *ret = TAKE_PTR(c);
        return 0;
}

static size_t tenant_bytes(const AgentCall *of) {
        size_t n = 0;

        for (const AgentCall *c = calls; c; c = c->next)
                if (tenant_same(c->owner, c->tenant, of->owner, of->tenant) && c->reply)
                        n += c->n_bytes;
        return n;
}

static int append_answer(AgentCall *c, const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        Tlv t;
        int r;

        if (!c->listing)
                return 0;

        c->n_bytes += size;
        if (c->n_bytes > LISTING_BYTES_MAX)
                return -E2BIG;
        if (tenant_bytes(c) > TENANT_BYTES_MAX)
                return -EBUSY;

        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag != c->listing->tag)
                        return -EBADMSG;
                if (++c->n_entries > 1 && !c->listing->array)
                        return -EBADMSG;
                if (c->n_entries > LISTING_ENTRIES_MAX)
                        return -E2BIG;
                r = c->listing->append(c->reply, &t);
                if (r < 0)
                        return r;
        }
        return r;
}

static int finish_answer(AgentCall *c) {
        int r = 0;

        if (c->listing && !c->listing->array && c->n_entries != 1)
                return -EBADMSG;
        if (c->listing && c->listing->array)
                r = sd_bus_message_close_container(c->reply);
        return r < 0 ? r : sd_bus_send(NULL, c->reply, NULL);
}

static void fail_answer(AgentCall *c, int r) {
        _cleanup_bus_error_ sd_bus_error e = SD_BUS_ERROR_NULL;

        if (r == -E2BIG)
                (void) sd_bus_error_setf(&e, BUS_ERROR_GUEST_FAILED, "The guest lists more than %u entries or %u MiB",
                                         LISTING_ENTRIES_MAX, LISTING_BYTES_MAX >> 20);
        else if (r == -EBUSY)
                (void) sd_bus_error_set(&e, BUS_ERROR_BUSY, "Too many long listings are under way, try again when they are done");
        else if (r == -EBADMSG)
                (void) sd_bus_error_set(&e, BUS_ERROR_GUEST_FAILED, "The guest's answer makes no sense");
        bus_reply_error(c->call, &e, r);
        c->reply = sd_bus_message_unref(c->reply);
}

static void on_answer(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        AgentCall *c = userdata;

        if (sd_bus_error_is_set(error)) {
                if (c->reply)
                        bus_reply_error(c->call, error, 0);
                agent_call_free(c);
                return;
        }

        if (c->reply) {
                int r = append_answer(c, body, size);
                if (r >= 0 && !more)
                        r = finish_answer(c);
                if (r < 0)
                        fail_answer(c, r);
        }
        if (!more)
                agent_call_free(c);
}

int bus_agent_call(sd_bus_message *m, Sandbox *s, AgentFrameType type, const TlvWriter *body,
                   const BusAgentListing *listing, sd_bus_error *error) {
        _cleanup_(agent_call_freep) AgentCall *c = NULL;

        int r = tlv_writer_finish(body);
        if (r >= 0)
                r = agent_call_new(m, s, listing, &c);
        if (r >= 0)
                r = (listing && listing->look ? sandbox_agent_ask : sandbox_agent_request)(s, type, body, on_answer, c, error);
        if (r < 0)
                return r;

        TAKE_PTR(c);
        return 1;
}

int bus_append_file(sd_bus_message *reply, const Tlv *t) {
        AgentFile f;

        if (t->len < sizeof(f))
                return -EBADMSG;
        memcpy(&f, t->data, sizeof(f));
        const uint8_t *text = t->data + sizeof(f);
        size_t left = t->len - sizeof(f), name_len = le32toh(f.name_len);
        if (name_len > left || (name_len < left && text[name_len] != 0))
                return -EBADMSG;

        size_t target = name_len < left ? name_len + 1 : left;
        _cleanup_free_ char *name = bus_text(text, name_len), *link = bus_text(text + target, left - target);
        if (!name || !link)
                return -ENOMEM;

        return sd_bus_message_append(reply, "(" CUBE_BUS_FILE ")", name, le32toh(f.mode), le32toh(f.uid),
                                     le32toh(f.gid), le64toh(f.size), le64toh(f.mtime_nsec), link);
}
