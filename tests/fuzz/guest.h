/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A sandbox of cubed's that runs, with a VMM that is a socket of ours: whatever cubed asks of its guest is noted, and
 * answered as the input says. */

#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "daemon/manager.h"
#include "daemon/sandbox-private.h"
#include "fuzz.h"

#define GUEST_ASKED_MAX 64U
#define GUEST_BODY_MAX KIB(8)

typedef struct FuzzGuest {
        Manager manager;
        TemplateStore templates;       /* there are none */
        Sandbox sandbox;
        struct SandboxPrivate priv;
        int vmm_fd;
        size_t n_asked;
        struct {
                uint16_t op;
                uint32_t seq, frame_id;
                int fd;                /* that came with it: the guest's end of a stream */
        } asked[GUEST_ASKED_MAX];
} FuzzGuest;

static void guest_on_agent(VmmClient *c, AgentFrameType type, const uint8_t *body, size_t size, void *userdata) {
}

static void guest_on_agent_lost(VmmClient *c, void *userdata) {
}

static void guest_on_device(VmmClient *c, const char *device, const char *message, void *userdata) {
}

static void guest_on_exiting(VmmClient *c, VmmExitReason reason, uint32_t status, void *userdata) {
}

static void guest_on_gone(VmmClient *c, int error, void *userdata) {
}

static void guest_new(FuzzGuest *g) {
        static const VmmEvents events = { guest_on_agent, guest_on_agent_lost, guest_on_device, guest_on_exiting,
                                          guest_on_gone };
        int ends[2];

        memset(g, 0, sizeof(*g));
        g->manager.templates = &g->templates;
        FUZZ_CHECK(sd_event_new(&g->manager.event) >= 0);
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        g->vmm_fd = ends[1];
        g->sandbox = (Sandbox) { .manager = &g->manager, .id = "aaaaaaaaaaaaaaaa", .state = SANDBOX_RUNNING, .priv = &g->priv };
        FUZZ_CHECK(vmm_client_new(g->manager.event, ends[0], &events, &g->sandbox, &g->priv.vmm) == 0);
}

static void guest_free(FuzzGuest *g) {
        g->priv.vmm = vmm_client_free(g->priv.vmm);
        safe_close(g->vmm_fd);
        for (size_t i = 0; i < g->n_asked; i++)
                safe_close(g->asked[i].fd);
        sd_event_unref(g->manager.event);
}

static void guest_note(FuzzGuest *g, const uint8_t *data, size_t size, int fd) {
        TlvReader reader = TLV_READER_INIT(data + sizeof(VmmMessage), size - sizeof(VmmMessage));
        VmmMessage head;
        FrameHeader h = {};
        Tlv t;

        memcpy(&head, data, sizeof(head));
        while (tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_FRAME && t.len >= FRAME_HEADER_SIZE)
                        frame_header_get(t.data, &h);
        if (g->n_asked == GUEST_ASKED_MAX) {
                safe_close(fd);
                return;
        }
        g->asked[g->n_asked].op = head.op;
        g->asked[g->n_asked].seq = head.seq;
        g->asked[g->n_asked].frame_id = h.id;
        g->asked[g->n_asked++].fd = fd;
}

/* Both sides until neither has anything to do. */
static void guest_run(FuzzGuest *g) {
        static uint8_t data[VMM_MESSAGE_MAX];
        size_t n_fds;

        for (unsigned i = 0; i < 16; i++) {
                int fd = -EBADF, moved = sd_event_run(g->manager.event, 0);
                ssize_t n = g->vmm_fd < 0 ? -EAGAIN : recv_packet(g->vmm_fd, data, sizeof(data), &fd, 1, &n_fds);

                if (n >= (ssize_t) sizeof(VmmMessage))
                        guest_note(g, data, (size_t) n, fd);
                else if (n > 0)
                        safe_close(fd);
                if (moved <= 0 && n < 0)
                        return;
        }
}

static void guest_send(FuzzGuest *g, VmmMessage head, const TlvWriter *body) {
        struct iovec iov[2] = { { &head, sizeof(head) }, { body->data, body->size } };

        head.magic = VMM_PROTO_MAGIC;
        head.version = VMM_PROTO_VERSION;
        head.len = (uint32_t) body->size;
        if (g->vmm_fd >= 0 && tlv_writer_finish(body) >= 0)
                (void) send_packet(g->vmm_fd, iov, body->size > 0 ? 2 : 1, NULL, 0);
}

/* u16 length, bytes. */
static size_t guest_body(FuzzInput *in, uint8_t body[static GUEST_BODY_MAX]) {
        return fuzz_bytes(in, body, MIN((size_t) fuzz_u16(in), GUEST_BODY_MAX));
}

/* A frame of the agent's: u8 kind (0 OK, 1 error, 2 OK of several, 3 READY, else by number), then its body. */
static void guest_put_frame(TlvWriter *w, uint32_t id, FuzzInput *in) {
        static const uint16_t types[] = { AGENT_OK, AGENT_ERROR, AGENT_OK, AGENT_READY };
        static uint8_t frame[FRAME_HEADER_SIZE + GUEST_BODY_MAX];

        uint8_t kind = fuzz_u8(in);
        size_t n = guest_body(in, frame + FRAME_HEADER_SIZE);
        const FrameHeader h = {
                .type = kind < ELEMENTSOF(types) ? types[kind] : kind, .flags = kind == 2 ? FRAME_FLAG_MORE : 0, .id = id,
                .len = (uint32_t) n,
        };
        frame_header_put(&h, frame);
        tlv_put(w, VMM_TAG_FRAME, frame, FRAME_HEADER_SIZE + n);
}

/* What the VMM, or the agent behind it, does: the kind in the low half of the byte, in the high one which request it is
 * about, counted from the last:
 * 0 answers with records of the input, 1 the same and an error, 2 answers with a frame, 3 the agent's frame as an event,
 * 4 bytes into the stream, 5 its end, 6 any packet, 7 the VMM is gone. */
_unused_ static void guest_step(FuzzGuest *g, FuzzInput *in) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(KIB(16));
        uint8_t what = fuzz_u8(in), body[GUEST_BODY_MAX];
        size_t k = what >> 4, at = k < g->n_asked ? g->n_asked - 1 - k : 0;
        VmmMessage reply = { .flags = VMM_FLAG_REPLY, .op = g->asked[at].op, .seq = g->asked[at].seq };

        switch (what & 7) {

        case 0:
        case 1: {
                reply.error = what & 1 ? -(int) fuzz_u8(in) : 0;
                size_t n = guest_body(in, body);
                TlvWriter raw = { .data = body, .size = n };
                guest_send(g, reply, &raw);
                break;
        }

        case 2:
                guest_put_frame(&w, g->asked[at].frame_id, in);
                guest_send(g, reply, &w);
                break;

        case 3:
                guest_put_frame(&w, g->asked[at].frame_id, in);
                guest_send(g, (VmmMessage) { .op = VMM_EVENT_AGENT }, &w);
                break;

        case 4: {
                size_t n = guest_body(in, body);
                if (g->n_asked > 0 && g->asked[at].fd >= 0)
                        (void) !send(g->asked[at].fd, body, n, MSG_NOSIGNAL|MSG_DONTWAIT);
                break;
        }

        case 5:
                if (g->n_asked > 0)
                        g->asked[at].fd = safe_close(g->asked[at].fd);
                break;

        case 6: {
                size_t n = guest_body(in, body);
                if (g->vmm_fd >= 0)
                        (void) !send(g->vmm_fd, body, n, MSG_NOSIGNAL|MSG_DONTWAIT);
                break;
        }

        case 7:
                g->vmm_fd = safe_close(g->vmm_fd);
                break;
        }
        guest_run(g);
}
