/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "vmm/control.h"
#include "vmm/peer.h"

/* How long the last event may wait for a slow peer. */
#define LAST_EVENT_TIMEOUT_USEC (200 * USEC_PER_MSEC)

struct Control {
        Loop *loop;
        Machine *machine;
        uid_t allowed_uid;
        LoopSource *listener;
        Peer *peer;             /* NULL without one */
        uint64_t peer_serial;   /* counts peers, so that no answer goes to the wrong one */
};

/* A request while it is served. */
typedef struct Request {
        const VmmMessage *head;
        const uint8_t *records;
        int *fds;
        size_t n_fds;
        TlvWriter reply;
        int reply_fds[PEER_FDS_MAX]; /* borrowed */
        size_t n_reply_fds;
        bool deferred;          /* the answer comes later */
        ErrorText e;
} Request;

/* A STREAM request that waits for the agent. Owned by the pending answer. */
typedef struct PendingStream {
        Control *control;
        uint64_t peer_serial;
        uint32_t seq;
} PendingStream;

/* The records of all requests but BUILD. */
typedef struct Params {
        const uint8_t *frame;   /* NULL without one */
        size_t frame_size;
        uint64_t timeout_usec;
        bool has_timeout;
        uint64_t bytes;         /* PLUGGED_BYTES or BALLOON_BYTES */
        bool has_bytes;
        uint32_t roles[VMM_FDS_MAX];
        size_t n_roles;
} Params;

#define TAKES(tag) ((uint64_t) 1 << (tag))

static int param_read(const Request *q, const Tlv *t, Params *p) {
        switch (t->tag) {

        case VMM_TAG_FRAME:
                if (p->frame)
                        return -EEXIST;
                p->frame = t->data;
                p->frame_size = t->len;
                return 0;

        case VMM_TAG_TIMEOUT_USEC:
                if (p->has_timeout)
                        return -EEXIST;
                p->has_timeout = true;
                return tlv_get_u64(t, &p->timeout_usec);

        case VMM_TAG_PLUGGED_BYTES:
        case VMM_TAG_BALLOON_BYTES:
                if (p->has_bytes)
                        return -EEXIST;
                p->has_bytes = true;
                return tlv_get_u64(t, &p->bytes);

        case VMM_TAG_FD:
                if (p->n_roles == ELEMENTSOF(p->roles))
                        return -E2BIG;
                return tlv_get_u32(t, &p->roles[p->n_roles++]);

        default:
                return -EINVAL;
        }
}

/* takes: TAKES() bits of the tags that this request knows. */
static int params_parse(Request *q, uint64_t takes, Params *ret) {
        TlvReader reader = TLV_READER_INIT(q->records, q->head->len);
        Tlv t;
        int r;

        *ret = (Params) {};
        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag >= 64 || !(takes & TAKES(t.tag)))
                        return error_set(&q->e, -EINVAL, "unknown tag %u", t.tag);
                r = param_read(q, &t, ret);
                if (r < 0)
                        return error_set_errno(&q->e, r == -EEXIST ? -EINVAL : r, "tag %u", t.tag);
        }
        if (r < 0)
                return error_set(&q->e, r, "records are malformed at byte %zu", reader.offset);
        if (ret->n_roles != q->n_fds)
                return error_set(&q->e, -EINVAL, "%zu file descriptors for %zu roles", q->n_fds,
                                 ret->n_roles);
        return 0;
}

static int params_frame(Request *q, uint64_t takes, Params *ret) {
        int r = params_parse(q, takes, ret);
        if (r < 0)
                return r;
        if (!ret->frame)
                return error_set(&q->e, -EINVAL, "no frame");
        return 0;
}

static bool put_fd(Request *q, VmmFdRole role, int fd) {
        if (fd < 0)
                return false;
        tlv_put_u32(&q->reply, VMM_TAG_FD, role);
        q->reply_fds[q->n_reply_fds++] = fd;
        return true;
}

static int op_hello(Control *c, Request *q) {
        const uint8_t *frame;
        size_t size;
        Params p;

        int r = params_parse(q, 0, &p);
        if (r < 0)
                return r;

        tlv_put_u32(&q->reply, VMM_TAG_STATE, machine_state(c->machine));
        if (machine_agent_ready(c->machine, &frame, &size))
                tlv_put(&q->reply, VMM_TAG_FRAME, frame, size);
        (void) put_fd(q, VMM_FD_CONSOLE, machine_console_fd(c->machine));
        (void) put_fd(q, VMM_FD_DISK_OVERLAY, machine_overlay_fd(c->machine));
        (void) put_fd(q, VMM_FD_TAP, machine_tap_fd(c->machine));
        if (machine_layer_id(c->machine))
                tlv_put(&q->reply, VMM_TAG_ID, machine_layer_id(c->machine), SNAPSHOT_ID_BYTES);
        return 0;
}

/* The n-th descriptor with this role, where it lies among those of the request. NULL: there is none. */
static int *param_fd(Request *q, const Params *p, VmmFdRole role, unsigned n) {
        for (size_t i = 0; i < p->n_roles; i++)
                if (p->roles[i] == role && n-- == 0)
                        return &q->fds[i];
        return NULL;
}

/* No descriptor but these. */
static int check_roles(Request *q, const Params *p, uint64_t roles) {
        for (size_t i = 0; i < p->n_roles; i++)
                if (p->roles[i] >= 64 || !(roles & TAKES(p->roles[i])))
                        return error_set(&q->e, -EINVAL, "no use for file descriptor %zu with role %u", i,
                                         p->roles[i]);
        return 0;
}

#define DISK_ROLES (TAKES(VMM_FD_DISK_LAYER) | TAKES(VMM_FD_DISK_OVERLAY))

/* Not more of any role than ret has room for. */
static int check_counts(Request *q, const Params *p, const char *what) {
        if (param_fd(q, p, VMM_FD_STATE, 1) || param_fd(q, p, VMM_FD_DISK_OVERLAY, 1) ||
            param_fd(q, p, VMM_FD_DISK_FROZEN, 1))
                return error_set(&q->e, -EINVAL, "%s takes one file of this role", what);
        if (param_fd(q, p, VMM_FD_LAYER, SNAPSHOT_LAYERS_MAX))
                return error_set(&q->e, -E2BIG, "%s takes at most %u memory files", what, SNAPSHOT_LAYERS_MAX);
        if (param_fd(q, p, VMM_FD_DISK_LAYER, VMM_DISK_LAYERS_MAX))
                return error_set(&q->e, -E2BIG, "%s takes at most %u layers of a disk", what, VMM_DISK_LAYERS_MAX);
        return 0;
}

/* Takes those of the disk out of the request; the others stay its own. */
static int params_snapshot(Request *q, const Params *p, const char *what, SnapshotFds *ret) {
        int *fd;

        *ret = SNAPSHOT_FDS_NONE;
        int r = check_counts(q, p, what);
        if (r < 0)
                return r;

        if ((fd = param_fd(q, p, VMM_FD_STATE, 0)))
                ret->state_fd = *fd;
        for (unsigned i = 0; (fd = param_fd(q, p, VMM_FD_LAYER, i)); i++)
                ret->layer_fds[ret->n_layers++] = *fd;
        for (unsigned i = 0; (fd = param_fd(q, p, VMM_FD_DISK_LAYER, i)); i++)
                ret->disk.layer_fds[ret->disk.n_layers++] = TAKE_FD(*fd);
        if ((fd = param_fd(q, p, VMM_FD_DISK_OVERLAY, 0)))
                ret->disk.overlay_fd = TAKE_FD(*fd);
        if ((fd = param_fd(q, p, VMM_FD_DISK_FROZEN, 0))) {
                ret->disk.has_frozen = true;
                ret->disk.frozen_fd = TAKE_FD(*fd);
        }
        return 0;
}

static int op_build(Control *c, Request *q) {
        _cleanup_build_config_ BuildConfig config = BUILD_CONFIG_INIT;

        /* First of all, so that a misplaced BUILD is told as that, whatever is in it. */
        if (machine_state(c->machine) != VMM_STATE_NEW)
                return machine_build(c->machine, &config, &q->e);

        int r = build_config_parse(VMM_OP_BUILD, q->records, q->head->len, q->fds, q->n_fds, &config, &q->e);
        if (r < 0)
                return r;
        return machine_build(c->machine, &config, &q->e);
}

static int op_load(Control *c, Request *q) {
        _cleanup_build_config_ BuildConfig config = BUILD_CONFIG_INIT;

        if (machine_state(c->machine) != VMM_STATE_NEW)
                return machine_load(c->machine, &config, &q->e);

        int r = build_config_parse(VMM_OP_LOAD, q->records, q->head->len, q->fds, q->n_fds, &config, &q->e);
        return r < 0 ? r : machine_load(c->machine, &config, &q->e);
}

static int op_pause(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, 0, &p);
        return r < 0 ? r : machine_pause(c->machine, &q->e);
}

static int op_resume(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, TAKES(VMM_TAG_FRAME) | TAKES(VMM_TAG_FD), &p);
        if (r >= 0)
                r = check_roles(q, &p, TAKES(VMM_FD_LAYER) | TAKES(VMM_FD_DISK_FROZEN) | DISK_ROLES);
        if (r < 0)
                return r;

        SnapshotFds files;
        r = params_snapshot(q, &p, "RESUME", &files);
        return r < 0 ? r : machine_resume(c->machine, p.frame, p.frame_size, &files, &q->e);
}

static int op_save(Control *c, Request *q) {
        uint8_t id[SNAPSHOT_ID_BYTES];
        size_t n = 0;
        Params p;

        int r = params_parse(q, TAKES(VMM_TAG_FD), &p);
        if (r >= 0)
                r = check_roles(q, &p, TAKES(VMM_FD_STATE) | TAKES(VMM_FD_PAGEMAP));
        if (r < 0)
                return r;

        const int *state = param_fd(q, &p, VMM_FD_STATE, 0), *pagemap = param_fd(q, &p, VMM_FD_PAGEMAP, 0);
        if (!state || !pagemap || p.n_roles != 2)
                return error_set(&q->e, -EINVAL, "SAVE takes a state file and a pagemap");

        _cleanup_free_ VmmRun *runs = new0(VmmRun, PAGEMAP_RUNS_MAX);
        if (!runs)
                return error_set(&q->e, -ENOMEM, "out of memory");
        r = machine_save(c->machine, *state, *pagemap, id, runs, &n, &q->e);
        if (r < 0)
                return r;
        tlv_put(&q->reply, VMM_TAG_ID, id, sizeof(id));
        tlv_put(&q->reply, VMM_TAG_RUNS, runs, n * sizeof(runs[0]));
        return 0;
}

static int op_rollback(Control *c, Request *q) {
        SnapshotFds files;
        Params p;

        int r = params_parse(q, TAKES(VMM_TAG_FD), &p);
        if (r >= 0)
                r = check_roles(q, &p, TAKES(VMM_FD_STATE) | TAKES(VMM_FD_LAYER) | DISK_ROLES);
        if (r < 0)
                return r;

        if (!param_fd(q, &p, VMM_FD_STATE, 0))
                return error_set(&q->e, -EINVAL, "ROLLBACK takes a state file");
        r = params_snapshot(q, &p, "ROLLBACK", &files);
        return r < 0 ? r : machine_rollback(c->machine, &files, &q->e);
}

static int op_claim(Control *c, Request *q) {
        Params p;

        int r = params_frame(q, TAKES(VMM_TAG_FRAME), &p);
        return r < 0 ? r : machine_claim(c->machine, p.frame, p.frame_size, &q->e);
}

static int op_agent(Control *c, Request *q) {
        Params p;

        int r = params_frame(q, TAKES(VMM_TAG_FRAME), &p);
        return r < 0 ? r : machine_agent_send(c->machine, p.frame, p.frame_size, &q->e);
}

static void on_stream_answer(void *userdata, int error, const uint8_t *frame, size_t size) {
        _cleanup_free_ PendingStream *pending = userdata;
        _cleanup_tlv_ TlvWriter records = TLV_WRITER_INIT(VMM_MESSAGE_MAX - sizeof(VmmMessage));
        Control *c = pending->control;
        ErrorText e = {};

        if (!c->peer || c->peer_serial != pending->peer_serial)
                return;

        if (error >= 0)
                tlv_put(&records, VMM_TAG_FRAME, frame, size);
        if (error >= 0)
                error = tlv_writer_finish(&records);
        if (error < 0) {
                (void) error_set_errno(&e, error, "the agent gave no answer");
                tlv_put_str(&records, VMM_TAG_MESSAGE, e.text);
        }

        VmmMessage head = { .op = VMM_OP_STREAM, .flags = VMM_FLAG_REPLY, .seq = pending->seq,
                            .error = error };
        peer_send(c->peer, head, &records, NULL, 0);
}

static int op_stream(Control *c, Request *q) {
        Params p;

        int r = params_frame(q, TAKES(VMM_TAG_FRAME) | TAKES(VMM_TAG_FD), &p);
        if (r < 0)
                return r;
        if (q->n_fds != 1 || p.roles[0] != VMM_FD_STREAM)
                return error_set(&q->e, -EINVAL, "a stream takes one socket");

        PendingStream *pending = new0(PendingStream, 1);
        if (!pending)
                return error_set(&q->e, -ENOMEM, "out of memory");
        *pending = (PendingStream) { .control = c, .peer_serial = c->peer_serial, .seq = q->head->seq };

        r = machine_stream_open(c->machine, TAKE_FD(q->fds[0]), p.frame, p.frame_size, on_stream_answer,
                                pending, &q->e);
        if (r < 0) {
                free(pending);
                return r;
        }
        q->deferred = true;
        return 0;
}

static int op_console(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, 0, &p);
        if (r < 0)
                return r;

        return put_fd(q, VMM_FD_CONSOLE, machine_console_fd(c->machine)) ? 0 : error_set(&q->e, -ENODEV, "no console");
}

static void put_counter(void *userdata, const char *name, uint64_t value) {
        Request *q = userdata;
        VmmCounter counter = { .value = htole64(value) };

        memcpy(counter.name, name, strnlen(name, sizeof(counter.name) - 1));
        tlv_put(&q->reply, VMM_TAG_COUNTER, &counter, sizeof(counter));
}

static int op_statistics(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, 0, &p);
        return r < 0 ? r : machine_counters(c->machine, put_counter, q, &q->e);
}

static int op_stop(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, TAKES(VMM_TAG_TIMEOUT_USEC), &p);
        if (r < 0)
                return r;
        if (!p.has_timeout)
                return error_set(&q->e, -EINVAL, "no time-out");
        return machine_stop(c->machine, p.timeout_usec, &q->e);
}

static int op_kill(Control *c, Request *q) {
        Params p;

        int r = params_parse(q, 0, &p);
        if (r < 0)
                return r;

        /* The loop comes to it after the answer is sent. */
        machine_end(c->machine, VMM_EXIT_KILLED, 0, "killed on request");
        return 0;
}

static int params_bytes(Request *q, VmmTag tag, Params *ret) {
        int r = params_parse(q, TAKES(tag), ret);
        if (r < 0)
                return r;
        return ret->has_bytes ? 0 : error_set(&q->e, -EINVAL, "no number of bytes");
}

static int op_resize(Control *c, Request *q) {
        Params p;

        int r = params_bytes(q, VMM_TAG_PLUGGED_BYTES, &p);
        return r < 0 ? r : machine_resize(c->machine, p.bytes, &q->e);
}

static int op_balloon(Control *c, Request *q) {
        Params p;

        int r = params_bytes(q, VMM_TAG_BALLOON_BYTES, &p);
        return r < 0 ? r : machine_balloon(c->machine, p.bytes, &q->e);
}

static const struct {
        const char *name;
        int (*serve)(Control *c, Request *q);
} ops[] = {
        [VMM_OP_HELLO] = { "HELLO", op_hello },
        [VMM_OP_BUILD] = { "BUILD", op_build },
        [VMM_OP_CLAIM] = { "CLAIM", op_claim },
        [VMM_OP_AGENT] = { "AGENT", op_agent },
        [VMM_OP_STREAM] = { "STREAM", op_stream },
        [VMM_OP_CONSOLE] = { "CONSOLE", op_console },
        [VMM_OP_STATISTICS] = { "STATISTICS", op_statistics },
        [VMM_OP_STOP] = { "STOP", op_stop },
        [VMM_OP_KILL] = { "KILL", op_kill },
        [VMM_OP_RESIZE] = { "RESIZE", op_resize },
        [VMM_OP_BALLOON] = { "BALLOON", op_balloon },
        [VMM_OP_PAUSE] = { "PAUSE", op_pause },
        [VMM_OP_RESUME] = { "RESUME", op_resume },
        [VMM_OP_SAVE] = { "SAVE", op_save },
        [VMM_OP_LOAD] = { "LOAD", op_load },
        [VMM_OP_ROLLBACK] = { "ROLLBACK", op_rollback },
};

static int serve(Control *c, Request *q) {
        const VmmMessage *head = q->head;

        if (head->version != VMM_PROTO_VERSION)
                return error_set(&q->e, -EPROTONOSUPPORT, "protocol version %u, this is %u",
                                 head->version, VMM_PROTO_VERSION);
        if (head->flags != 0 || head->error != 0)
                return error_set(&q->e, -EINVAL, "a request with flags 0x%x and error %d", head->flags,
                                 head->error);
        if (head->op >= ELEMENTSOF(ops) || !ops[head->op].serve)
                return error_set(&q->e, -EOPNOTSUPP, "unknown operation %u", head->op);

        return ops[head->op].serve(c, q);
}

static void on_message(void *userdata, const VmmMessage *head, const uint8_t *records, int *fds,
                       size_t n_fds) {
        Control *c = userdata;
        Request q = {
                .head = head,
                .records = records,
                .fds = fds,
                .n_fds = n_fds,
                .reply = TLV_WRITER_INIT(VMM_MESSAGE_MAX - sizeof(VmmMessage)),
        };

        int r = serve(c, &q);
        if (r >= 0)
                r = tlv_writer_finish(&q.reply);
        if (r < 0) {
                tlv_writer_done(&q.reply);
                q.reply = TLV_WRITER_INIT(VMM_MESSAGE_MAX - sizeof(VmmMessage));
                q.n_reply_fds = 0;
                tlv_put_str(&q.reply, VMM_TAG_MESSAGE, q.e.text);
        }

        /* Before the answer, so that who reads it knows them closed. */
        close_many(fds, n_fds);

        VmmMessage reply = { .op = head->op, .flags = VMM_FLAG_REPLY, .seq = head->seq, .error = MIN(r, 0) };
        if (!q.deferred)
                peer_send(c->peer, reply, &q.reply, q.reply_fds, q.n_reply_fds);
        tlv_writer_done(&q.reply);
}

static void on_pressure(void *userdata, bool high) {
        Control *c = userdata;
        machine_agent_hold(c->machine, high);
}

static void on_gone(void *userdata) {
        Control *c = userdata;

        c->peer = peer_free(c->peer);
        machine_agent_hold(c->machine, false);
        (void) loop_set_events(c->listener, EPOLLIN);
}

static bool peer_allowed(const Control *c, int fd) {
        struct ucred cred;
        socklen_t size = sizeof(cred);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
                return false;
        return cred.uid == 0 || cred.uid == c->allowed_uid;
}

static int on_connect(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Control *c = userdata;

        _cleanup_close_ int peer_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (peer_fd < 0 || !peer_allowed(c, peer_fd))
                return 0;

        const PeerEvents peer_events = {
                .on_message = on_message,
                .on_pressure = on_pressure,
                .on_gone = on_gone,
                .userdata = c,
        };
        if (peer_new(c->loop, TAKE_FD(peer_fd), &peer_events, &c->peer) < 0)
                return 0;

        c->peer_serial++;
        (void) loop_set_events(c->listener, 0);
        return 0;
}

static void send_event(Control *c, VmmOp op, const TlvWriter *records) {
        /* Without the memory for a record cubed is told by what follows, or by its own time-out. */
        if (c->peer && tlv_writer_finish(records) >= 0)
                peer_send(c->peer, (VmmMessage) { .op = (uint16_t) op }, records, NULL, 0);
}

static void on_agent(void *userdata, const uint8_t *frame, size_t size) {
        _cleanup_tlv_ TlvWriter records = TLV_WRITER_INIT(VMM_MESSAGE_MAX - sizeof(VmmMessage));

        tlv_put(&records, VMM_TAG_FRAME, frame, size);
        send_event(userdata, VMM_EVENT_AGENT, &records);
}

static void on_agent_lost(void *userdata) {
        send_event(userdata, VMM_EVENT_AGENT_LOST, &TLV_WRITER_INIT(0));
}

static void on_device(void *userdata, const char *device, const char *message) {
        _cleanup_tlv_ TlvWriter records = TLV_WRITER_INIT(KIB(4));

        tlv_put_str(&records, VMM_TAG_DEVICE, device);
        tlv_put_str(&records, VMM_TAG_MESSAGE, message);
        send_event(userdata, VMM_EVENT_DEVICE, &records);
}

static void on_end(void *userdata, VmmExitReason reason, uint32_t status, const char *message) {
        _cleanup_tlv_ TlvWriter records = TLV_WRITER_INIT(KIB(4));
        Control *c = userdata;

        tlv_put_u32(&records, VMM_TAG_REASON, reason);
        tlv_put_u32(&records, VMM_TAG_STATUS, status);
        tlv_put_str(&records, VMM_TAG_MESSAGE, message);
        send_event(c, VMM_EVENT_EXIT, &records);
        if (c->peer)
                peer_flush(c->peer, LAST_EVENT_TIMEOUT_USEC);
}

int control_new(Loop *loop, Machine *machine, int listen_fd, uid_t allowed_uid, Control **ret,
                ErrorText *e) {
        int type = 0;
        socklen_t size = sizeof(type);

        assert(loop);
        assert(machine);
        assert(ret);

        if (getsockopt(listen_fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
                return error_set_errno(e, -errno, "descriptor %d", listen_fd);
        if (type != SOCK_SEQPACKET)
                return error_set(e, -EINVAL, "descriptor %d is not a SOCK_SEQPACKET socket", listen_fd);
        int r = fd_set_nonblock(listen_fd, true);
        if (r < 0)
                return error_set_errno(e, r, "descriptor %d", listen_fd);

        _cleanup_free_ Control *c = new0(Control, 1);
        if (!c)
                return error_set(e, -ENOMEM, "out of memory");
        c->loop = loop;
        c->machine = machine;
        c->allowed_uid = allowed_uid;

        r = loop_add_fd(loop, listen_fd, EPOLLIN, on_connect, c, &c->listener);
        if (r < 0)
                return error_set_errno(e, r, "watching descriptor %d", listen_fd);

        machine_set_events(machine, &(MachineEvents) {
                .on_agent = on_agent,
                .on_agent_lost = on_agent_lost,
                .on_device = on_device,
                .on_exit = on_end,
                .userdata = c,
        });
        *ret = TAKE_PTR(c);
        return 0;
}
