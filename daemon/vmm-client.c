/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/fd-util.h"
#include "daemon/log.h"
#include "daemon/vmm-client.h"

#define VMM_PENDING_MAX 256U
#define VMM_QUEUE_MAX (2U * 1024U * 1024U)
#define AGENT_LOST_GRACE_USEC USEC_PER_SEC

typedef struct Call {
        VmmClient *client;
        VmmReply reply;
        void *userdata;
} Call;

typedef struct AgentCall {
        VmmClient *client;
        uint32_t id;
        bool stream;
        bool forgotten;        /* its guest is no more */
        uint64_t deadline_usec;
        size_t bytes;          /* of the answer so far */
        VmmAgentReply reply;
        void *userdata;
        struct AgentCall *next;
} AgentCall;

/* A request for a guest that is paused. */
typedef struct Held {
        VmmOp op;
        uint8_t *data;
        size_t size;
        int fd;                /* of a stream; ours */
        uint64_t timeout_usec;
        VmmReply reply;
        void *userdata;        /* the id, of what is for the agent */
        struct Held *next;
} Held;

struct VmmClient {
        sd_event *event;
        sd_event_source *io, *timer;
        PacketClient *packets;
        const VmmEvents *events;
        void *userdata;
        uint32_t last_id;
        AgentCall *agent_calls;
        size_t n_agent_calls;
        Held *held, *held_tail;
        size_t held_bytes;
        bool holding;
        unsigned n_inside;     /* as in PacketClient */
        bool dead;
        bool broken;           /* the connection is */
};

static_assert(sizeof(PacketHeader) == sizeof(VmmMessage), "one header for all protocols");
static_assert(PACKET_FLAG_REPLY == VMM_FLAG_REPLY, "one header for all protocols");
static_assert(VMM_MESSAGE_MAX <= PACKET_SIZE_MAX, "packets must fit the buffer");
static_assert(VMM_FDS_MAX <= PACKET_FDS_LIMIT, "and so must their descriptors");

static void on_event(uint16_t op, const PacketBody *body, void *userdata);

static const PacketProtocol protocol = {
        .magic = VMM_PROTO_MAGIC,
        .version = VMM_PROTO_VERSION,
        .max_pending = VMM_PENDING_MAX,
        .max_queued_bytes = VMM_QUEUE_MAX,
        .event = on_event,
};

static void client_enter(VmmClient *c) {
        c->n_inside++;
}

static void client_leave(VmmClient *c) {
        if (--c->n_inside == 0 && c->dead)
                free(c);
}

static void rearm(VmmClient *c) {
        if (c->dead || !c->packets)
                return;
        if (c->io)
                (void) sd_event_source_set_io_events(c->io, packet_client_events(c->packets));

        uint64_t deadline = packet_client_deadline(c->packets);
        for (const AgentCall *a = c->agent_calls; a; a = a->next)
                deadline = MIN(deadline, a->deadline_usec);
        if (deadline != UINT64_MAX)
                (void) sd_event_source_set_time(c->timer, deadline);
        (void) sd_event_source_set_enabled(c->timer, deadline != UINT64_MAX ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static void agent_unlink(AgentCall *a) {
        for (AgentCall **i = &a->client->agent_calls; *i; i = &(*i)->next)
                if (*i == a) {
                        *i = a->next;
                        a->client->n_agent_calls--;
                        return;
                }
}

static void held_free(Held *h) {
        /* It may hold an environment. */
        if (h->data)
                explicit_bzero(h->data, h->size);
        free(h->data);
        safe_close(h->fd);
        free(h);
}

/* What is held for the agent under this id, 0: all of that. A STOP is for whatever guest there is. */
static void drop_held_for_agent(VmmClient *c, uint32_t id) {
        Held *kept = NULL;

        for (Held **i = &c->held; *i;) {
                Held *h = *i;

                if (h->op == VMM_OP_STOP || (id != 0 && (uint32_t) (uintptr_t) h->userdata != id)) {
                        kept = h;
                        i = &h->next;
                        continue;
                }
                *i = h->next;
                c->held_bytes -= h->size;
                held_free(h);
        }
        c->held_tail = kept;
}

static void agent_finish(AgentCall *a, int error, const char *message, const uint8_t *body, size_t size) {
        agent_unlink(a);
        /* Its caller was told: it must not be done behind that. */
        drop_held_for_agent(a->client, a->id);
        a->reply(a->client, error, message, body, size, false, a->userdata);
        free(a);
}

static Held *held_take(VmmClient *c) {
        Held *h = c->held;

        if (h) {
                c->held = h->next;
                c->held_bytes -= h->size;
        }
        return h;
}

static void held_finish(VmmClient *c, Held *h, int error, const char *message) {
        static const PacketBody nothing = {};

        h->reply(c, error, message, &nothing, h->userdata);
        held_free(h);
}

static void client_disconnect(VmmClient *c) {
        c->io = sd_event_source_disable_unref(c->io);
        c->timer = sd_event_source_disable_unref(c->timer);
        packet_client_free(TAKE_PTR(c->packets));
        for (Held *h; (h = held_take(c));)
                held_finish(c, h, -ECONNRESET, "the VMM ended");
        while (c->agent_calls)
                agent_finish(c->agent_calls, -ECONNRESET, "the sandbox ended or its VMM was lost", NULL, 0);
}

VmmClient *vmm_client_free(VmmClient *c) {
        if (!c || c->dead)
                return NULL;

        client_enter(c);
        c->dead = true;
        client_disconnect(c);
        c->event = sd_event_unref(c->event);
        client_leave(c);
        return NULL;
}

/* What was asked on a control stream that broke is answered by nobody. If the guest is ending, the end
 * of its VMM comes in this time and tells more. */
static void hurry_agent_calls(VmmClient *c) {
        uint64_t now = 0;

        (void) sd_event_now(c->event, CLOCK_MONOTONIC, &now);
        for (AgentCall *a = c->agent_calls; a; a = a->next)
                if (!a->stream)
                        a->deadline_usec = MIN(a->deadline_usec, now + AGENT_LOST_GRACE_USEC);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VmmClient *c = userdata;

        client_enter(c);
        int r = packet_client_process(c->packets, revents);
        if (r < 0 && !c->dead) {
                /* Requests wait for vmm_client_free(): the owner may learn first why it ended. */
                c->io = sd_event_source_disable_unref(c->io);
                c->broken = true;
                c->events->gone(c, r, c->userdata);
        }
        rearm(c);
        client_leave(c);
        return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        VmmClient *c = userdata;

        client_enter(c);
        if (c->packets)
                packet_client_expire(c->packets, usec);
        for (bool again = true; again && !c->dead;) {
                again = false;
                for (AgentCall *a = c->agent_calls; a; a = a->next)
                        if (a->deadline_usec <= usec) {
                                agent_finish(a, -ETIMEDOUT, "the agent did not answer in time", NULL, 0);
                                again = true;
                                break;
                        }
        }
        rearm(c);
        client_leave(c);
        return 0;
}

int vmm_client_new(sd_event *event, int fd, const VmmEvents *events, void *userdata, VmmClient **ret) {
        _cleanup_(vmm_client_freep) VmmClient *c = new0(VmmClient, 1);
        if (!c)
                return -ENOMEM;

        c->event = sd_event_ref(event);
        c->events = events;
        c->userdata = userdata;
        /* An answer to an id of the cubed before us must not look like one to ours. */
        if (getrandom(&c->last_id, sizeof(c->last_id), 0) != sizeof(c->last_id))
                return -EIO;

        int r = sd_event_add_io(event, &c->io, fd, EPOLLIN, on_io, c);
        if (r >= 0)
                r = sd_event_add_time(event, &c->timer, CLOCK_MONOTONIC, UINT64_MAX, 100 * USEC_PER_MSEC, on_timer, c);
        if (r >= 0)
                r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
        if (r >= 0)
                r = packet_client_new(fd, &protocol, c, &c->packets);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

/* Copies the last MESSAGE or DEVICE record, escaped. */
static void get_text(const PacketBody *body, uint16_t tag, char ret[static VMM_TEXT_MAX]) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        Tlv t;

        ret[0] = 0;
        while (tlv_next(&reader, &t) > 0) {
                if (t.tag != tag)
                        continue;
                _cleanup_free_ char *e = escape_text(t.data, t.len, VMM_TEXT_MAX / 2);
                (void) snprintf(ret, VMM_TEXT_MAX, "%s", strempty(e));
        }
}

static void on_reply(int error, const PacketBody *body, void *userdata) {
        _cleanup_free_ Call *call = userdata;
        char text[VMM_TEXT_MAX];

        get_text(body, VMM_TAG_MESSAGE, text);
        if (error < 0 && !*text)
                (void) snprintf(text, sizeof(text), "%s",
                                error == -ECONNRESET ? "the VMM ended" :
                                error == -ETIMEDOUT ? "the VMM did not answer in time" : strerror(-error));
        call->reply(call->client, error, text, body, call->userdata);
}

static int send_call(VmmClient *c, VmmOp op, const TlvWriter *body, const int *fds, size_t n_fds,
                     uint64_t timeout_usec, VmmReply reply, void *userdata) {
        Call *call = new0(Call, 1);
        if (!call)
                return -ENOMEM;
        *call = (Call) { c, reply, userdata };
        int r = packet_client_call(c->packets, op, body, fds, n_fds, timeout_usec, on_reply, call);
        if (r < 0)
                free(call);
        rearm(c);
        return r;
}

/* Keeps copies: the descriptor is the caller's. */
static int hold_call(VmmClient *c, VmmOp op, const TlvWriter *body, int fd, uint64_t timeout_usec, VmmReply reply,
                     void *userdata) {
        size_t size = body ? body->size : 0;

        if (c->held_bytes + size > VMM_QUEUE_MAX)
                return -ENOBUFS;
        Held *h = new0(Held, 1);
        if (!h)
                return -ENOMEM;
        *h = (Held) { .op = op, .fd = -EBADF, .timeout_usec = timeout_usec, .reply = reply, .userdata = userdata };
        h->data = malloc(size + 1);
        if (h->data && fd >= 0)
                h->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (!h->data || (fd >= 0 && h->fd < 0)) {
                int r = h->data ? -errno : -ENOMEM;
                held_free(h);
                return r;
        }
        if (size > 0)
                memcpy(h->data, body->data, size);
        h->size = size;
        if (c->held)
                c->held_tail->next = h;
        else
                c->held = h;
        c->held_tail = h;
        c->held_bytes += size;
        return 0;
}

static bool is_for_guest(VmmOp op) {
        return op == VMM_OP_AGENT || op == VMM_OP_STREAM || op == VMM_OP_STOP;
}

int vmm_client_call(VmmClient *c, VmmOp op, const TlvWriter *body, const int *fds, size_t n_fds,
                    uint64_t timeout_usec, VmmReply reply, void *userdata) {
        if (c->dead || c->broken)
                return -ENOTCONN;
        if (body && sizeof(VmmMessage) + body->size > VMM_MESSAGE_MAX)
                return -EMSGSIZE;
        if (!c->holding || !is_for_guest(op))
                return send_call(c, op, body, fds, n_fds, timeout_usec, reply, userdata);

        assert(n_fds <= 1);
        if (body && tlv_writer_finish(body) < 0)
                return tlv_writer_finish(body);
        return hold_call(c, op, body, n_fds > 0 ? fds[0] : -EBADF, timeout_usec, reply, userdata);
}

void vmm_client_hold(VmmClient *c) {
        c->holding = true;
}

void vmm_client_let_go(VmmClient *c) {
        client_enter(c);
        c->holding = false;
        for (Held *h; !c->dead && !c->broken && !c->holding && (h = held_take(c));) {
                TlvWriter body = { .data = h->data, .size = h->size };

                int r = send_call(c, h->op, &body, &h->fd, h->fd >= 0 ? 1 : 0, h->timeout_usec, h->reply, h->userdata);
                if (r == -ENOTCONN)
                        held_finish(c, h, -ECONNRESET, "the VMM ended");
                else if (r < 0)
                        held_finish(c, h, r, strerror(-r));
                else
                        held_free(h);
        }
        client_leave(c);
}

uint32_t vmm_client_state(const PacketBody *body) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint32_t state = _VMM_STATE_MAX;
        Tlv t;

        while (tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_STATE)
                        (void) tlv_get_u32(&t, &state);
        return state;
}

void tlv_put_frame(TlvWriter *w, AgentFrameType type, uint32_t id, const TlvWriter *body) {
        size_t size = FRAME_HEADER_SIZE + (body ? body->size : 0);

        if (body && body->error < 0) {
                w->error = w->error < 0 ? w->error : body->error;
                return;
        }
        if (size > FRAME_HEADER_SIZE + AGENT_FRAME_MAX) {
                w->error = -EMSGSIZE;
                return;
        }
        _cleanup_free_ uint8_t *frame = malloc(size);
        if (!frame) {
                w->error = -ENOMEM;
                return;
        }
        FrameHeader h = { .len = (uint32_t) (size - FRAME_HEADER_SIZE), .type = (uint16_t) type, .id = id };
        frame_header_put(&h, frame);
        if (h.len > 0)
                memcpy(frame + FRAME_HEADER_SIZE, body->data, h.len);
        tlv_put(w, VMM_TAG_FRAME, frame, size);
        /* It may hold an environment. */
        explicit_bzero(frame, size);
}

int frame_split(const uint8_t *data, size_t size, FrameHeader *ret_header, const uint8_t **ret_body) {
        FrameHeader h;

        if (size < FRAME_HEADER_SIZE)
                return -EBADMSG;
        frame_header_get(data, &h);
        if (h.len != size - FRAME_HEADER_SIZE || h.len > AGENT_FRAME_MAX)
                return -EBADMSG;
        *ret_header = h;
        *ret_body = data + FRAME_HEADER_SIZE;
        return 0;
}

static int find_frame(const PacketBody *body, FrameHeader *ret_header, const uint8_t **ret_body) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0)
                if (t.tag == VMM_TAG_FRAME)
                        return frame_split(t.data, t.len, ret_header, ret_body);
        return r < 0 ? r : -EBADMSG;
}

/* Those by which callers know that the VMM is gone or going are not the guest's to say. */
static int guest_errno(uint32_t error) {
        if (error == 0 || error > 4095)
                return EBADMSG;
        return error == ECONNRESET || error == ENOTCONN || error == EPROTO ? EREMOTEIO : (int) error;
}

/* An AGENT_ERROR's errno, never 0 or positive, and its text. */
static int parse_agent_error(const uint8_t *data, size_t size, char ret_text[static VMM_TEXT_MAX]) {
        TlvReader reader = TLV_READER_INIT(data, size);
        uint32_t error = 0;
        Tlv t;

        ret_text[0] = 0;
        while (tlv_next(&reader, &t) > 0)
                if (t.tag == AGENT_TAG_ERRNO)
                        (void) tlv_get_u32(&t, &error);
                else if (t.tag == AGENT_TAG_MESSAGE) {
                        _cleanup_free_ char *e = escape_text(t.data, t.len, VMM_TEXT_MAX / 2);
                        (void) snprintf(ret_text, VMM_TEXT_MAX, "%s", strempty(e));
                }
        int e = guest_errno(error);
        if (!*ret_text)
                (void) snprintf(ret_text, VMM_TEXT_MAX, "%s", strerror(e));
        return -e;
}

static void agent_answer(AgentCall *a, const FrameHeader *h, const uint8_t *body) {
        char text[VMM_TEXT_MAX];
        int error = 0;

        a->bytes += h->len;
        if (h->type == AGENT_ERROR)
                error = parse_agent_error(body, h->len, text);
        else if (h->type != AGENT_OK || (h->flags & FRAME_FLAG_MORE && a->stream)) {
                error = -EBADMSG;
                (void) snprintf(text, sizeof(text), "the agent's answer makes no sense");
        } else if (a->bytes > VMM_AGENT_ANSWER_MAX) {
                error = -EMSGSIZE;
                (void) snprintf(text, sizeof(text), "the answer is larger than %u bytes", VMM_AGENT_ANSWER_MAX);
        }
        if (error < 0)
                agent_finish(a, error, text, NULL, 0);
        else if (h->flags & FRAME_FLAG_MORE)
                a->reply(a->client, 0, "", body, h->len, true, a->userdata);
        else
                agent_finish(a, 0, "", body, h->len);
}

static void event_agent(VmmClient *c, const PacketBody *packet) {
        const uint8_t *body;
        FrameHeader h;

        if (find_frame(packet, &h, &body) < 0) {
                log_debug("A VMM relayed something that is no frame, dropped");
                return;
        }
        if (h.id == 0) {
                c->events->agent(c, (AgentFrameType) h.type, body, h.len, c->userdata);
                return;
        }
        for (AgentCall *a = c->agent_calls; a; a = a->next)
                if (a->id == h.id && !a->stream) {
                        agent_answer(a, &h, body);
                        return;
                }
        log_debug("An agent answered request %u, which nobody waits for", h.id);
}

static void event_exit(VmmClient *c, const PacketBody *body) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint32_t reason = VMM_EXIT_NONE, status = 0;
        Tlv t;

        while (tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_REASON)
                        (void) tlv_get_u32(&t, &reason);
                else if (t.tag == VMM_TAG_STATUS)
                        (void) tlv_get_u32(&t, &status);
        if (reason >= _VMM_EXIT_WRITTEN_MAX)
                reason = VMM_EXIT_NONE;
        c->events->exiting(c, (VmmExitReason) reason, status, c->userdata);
}

static void on_event(uint16_t op, const PacketBody *body, void *userdata) {
        char device[VMM_TEXT_MAX], text[VMM_TEXT_MAX];
        VmmClient *c = userdata;

        switch (op) {
        case VMM_EVENT_AGENT:
                event_agent(c, body);
                break;
        case VMM_EVENT_AGENT_LOST:
                c->events->agent_lost(c, c->userdata);
                hurry_agent_calls(c);
                break;
        case VMM_EVENT_DEVICE:
                get_text(body, VMM_TAG_DEVICE, device);
                get_text(body, VMM_TAG_MESSAGE, text);
                c->events->device(c, device, text, c->userdata);
                break;
        case VMM_EVENT_EXIT:
                event_exit(c, body);
                break;
        default:
                log_debug("A VMM sent event %u, which is not known", op);
        }
}

static uint32_t next_id(VmmClient *c) {
        for (;;) {
                bool taken = ++c->last_id == 0;
                for (const AgentCall *a = c->agent_calls; a; a = a->next)
                        taken = taken || a->id == c->last_id;
                if (!taken)
                        return c->last_id;
        }
}

static int agent_new(VmmClient *c, bool stream, uint64_t timeout_usec, VmmAgentReply reply, void *userdata,
                     AgentCall **ret) {
        uint64_t now = 0;

        if (c->dead || c->broken)
                return -ENOTCONN;
        if (c->n_agent_calls >= VMM_AGENT_PENDING_MAX)
                return -EBUSY;
        AgentCall *a = new0(AgentCall, 1);
        if (!a)
                return -ENOMEM;
        (void) sd_event_now(c->event, CLOCK_MONOTONIC, &now);
        *a = (AgentCall) {
                .client = c,
                .id = next_id(c),
                .stream = stream,
                .deadline_usec = timeout_usec > UINT64_MAX - now ? UINT64_MAX : now + timeout_usec,
                .reply = reply,
                .userdata = userdata,
                .next = c->agent_calls,
        };
        c->agent_calls = a;
        c->n_agent_calls++;
        *ret = a;
        return 0;
}

static AgentCall *find_call(VmmClient *c, uint32_t id) {
        for (AgentCall *a = c->agent_calls; a; a = a->next)
                if (a->id == id)
                        return a;
        return NULL;
}

/* What the VMM says about a request: by id, since it may have been answered or given up already. */
static void on_queued(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        AgentCall *a = find_call(c, (uint32_t) (uintptr_t) userdata);

        if (a && error < 0)
                agent_finish(a, error, message, NULL, 0);
}

static void on_stream(VmmClient *c, int error, const char *message, const PacketBody *packet, void *userdata) {
        AgentCall *a = find_call(c, (uint32_t) (uintptr_t) userdata);
        const uint8_t *body;
        FrameHeader h;

        if (!a)
                return;
        if (error < 0)
                agent_finish(a, error, message, NULL, 0);
        else if (find_frame(packet, &h, &body) < 0)
                agent_finish(a, -EBADMSG, "the VMM's answer makes no sense", NULL, 0);
        else
                agent_answer(a, &h, body);
}

static int agent_send(VmmClient *c, AgentCall *a, VmmOp op, AgentFrameType type, const TlvWriter *body, int fd) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(VMM_MESSAGE_MAX - sizeof(VmmMessage));

        tlv_put_frame(&w, type, a->id, body);
        if (fd >= 0)
                tlv_put_u32(&w, VMM_TAG_FD, VMM_FD_STREAM);
        int r = tlv_writer_finish(&w);
        if (r >= 0)
                r = vmm_client_call(c, op, &w, &fd, fd >= 0 ? 1 : 0, UINT64_MAX, a->stream ? on_stream : on_queued,
                                    (void *) (uintptr_t) a->id);
        if (w.data)
                explicit_bzero(w.data, w.size);
        if (r < 0) {
                agent_unlink(a);
                free(a);
        }
        rearm(c);
        return r;
}

int vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec,
                     VmmAgentReply reply, void *userdata) {
        AgentCall *a;

        int r = agent_new(c, false, timeout_usec, reply, userdata, &a);
        return r < 0 ? r : agent_send(c, a, VMM_OP_AGENT, type, body, -EBADF);
}

int vmm_client_claim(VmmClient *c, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply, void *userdata) {
        AgentCall *a;

        int r = agent_new(c, false, timeout_usec, reply, userdata, &a);
        return r < 0 ? r : agent_send(c, a, VMM_OP_CLAIM, AGENT_CLAIM, body, -EBADF);
}

int vmm_client_resume(VmmClient *c, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply, void *userdata) {
        AgentCall *a;

        int r = agent_new(c, false, timeout_usec, reply, userdata, &a);
        return r < 0 ? r : agent_send(c, a, VMM_OP_RESUME, AGENT_CLAIM, body, -EBADF);
}

static AgentCall *find_forgotten(VmmClient *c) {
        for (AgentCall *a = c->agent_calls; a; a = a->next)
                if (a->forgotten)
                        return a;
        return NULL;
}

void vmm_client_forget(VmmClient *c, const char *why) {
        client_enter(c);
        drop_held_for_agent(c, 0);
        /* What is asked for in the callbacks is for the new one. */
        for (AgentCall *a = c->agent_calls; a; a = a->next)
                a->forgotten = true;
        for (AgentCall *a; (a = find_forgotten(c));)
                agent_finish(a, -ECONNRESET, why, NULL, 0);
        rearm(c);
        client_leave(c);
}

int vmm_client_stream(VmmClient *c, AgentFrameType type, const TlvWriter *body, int fd, uint64_t timeout_usec,
                      VmmAgentReply reply, void *userdata) {
        AgentCall *a;

        int r = agent_new(c, true, timeout_usec, reply, userdata, &a);
        return r < 0 ? r : agent_send(c, a, VMM_OP_STREAM, type, body, fd);
}
