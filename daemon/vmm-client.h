/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cubed's end of one VMM's control socket: requests and their answers, events, and behind it the
 * agent's control stream with requests of its own.
 *
 * Owned by the sandbox. The VMM may be in the hands of its guest: whatever it sends is bounded and
 * checked, and one that breaks the protocol is cut off (gone). Each request is answered exactly
 * once: by the VMM or agent, by -ETIMEDOUT, or by -ECONNRESET when the client is freed or the
 * connection breaks. May be freed in its own callbacks. */

#include <systemd/sd-event.h>

#include "base/agent-proto.h"
#include "base/frame.h"
#include "base/packet-client.h"
#include "base/vmm-proto.h"

#define VMM_AGENT_PENDING_MAX 128U
/* Most bytes of all frames that answer one agent request. */
#define VMM_AGENT_ANSWER_MAX (8U * 1024U * 1024U)
#define VMM_TEXT_MAX 512U

typedef struct VmmClient VmmClient;

typedef struct VmmEvents {
        /* A frame of the agent that answers nothing: AGENT_READY, events. */
        void (*agent)(VmmClient *c, AgentFrameType type, const uint8_t *body, size_t size, void *userdata);
        void (*agent_lost)(VmmClient *c, void *userdata);
        /* Texts are escaped already. */
        void (*device)(VmmClient *c, const char *device, const char *message, void *userdata);
        void (*exiting)(VmmClient *c, VmmExitReason reason, uint32_t status, void *userdata);
        /* The connection broke, or the VMM the protocol (error). Nothing comes after this. */
        void (*gone)(VmmClient *c, int error, void *userdata);
} VmmEvents;

/* Takes fd, a connected SOCK_SEQPACKET socket, on success. events is borrowed. */
int vmm_client_new(sd_event *event, int fd, const VmmEvents *events, void *userdata, VmmClient **ret);
VmmClient *vmm_client_free(VmmClient *c);
DEFINE_CLEANUP(VmmClient *, vmm_client_free);

/* message: what the peer said about the error, escaped; never NULL. */
typedef void (*VmmReply)(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata);
int vmm_client_call(VmmClient *c, VmmOp op, const TlvWriter *body, const int *fds, size_t n_fds,
                    uint64_t timeout_usec, VmmReply reply, void *userdata);

/* While a VMM is paused it refuses what is for its guest (AGENT, STREAM and STOP requests): these wait here until
 * they are let go, in their order. Other requests pass. Agent requests keep their time-outs. */
void vmm_client_hold(VmmClient *c);
void vmm_client_let_go(VmmClient *c);

/* What an answer says of the VMM's state; _VMM_STATE_MAX: nothing. */
uint32_t vmm_client_state(const PacketBody *body);

/* body: TLV records of the AGENT_OK; more: others follow. */
typedef void (*VmmAgentReply)(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size,
                              bool more, void *userdata);
int vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec,
                     VmmAgentReply reply, void *userdata);
/* The same with AGENT_CLAIM, by VMM_OP_CLAIM: the machine starts, and the agent answers once it is up. */
int vmm_client_claim(VmmClient *c, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply, void *userdata);
/* The same by VMM_OP_RESUME, behind a ROLLBACK. */
int vmm_client_resume(VmmClient *c, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply, void *userdata);
/* The guest that was asked is no more, another life of it takes over: all that waits for its agent, sent or held, is
 * answered with -ECONNRESET and why. */
void vmm_client_forget(VmmClient *c, const char *why);
/* Opens a stream to the agent whose host end is fd (stays the caller's). */
int vmm_client_stream(VmmClient *c, AgentFrameType type, const TlvWriter *body, int fd, uint64_t timeout_usec,
                      VmmAgentReply reply, void *userdata);

/* A whole frame as a VMM_TAG_FRAME record. */
void tlv_put_frame(TlvWriter *w, AgentFrameType type, uint32_t id, const TlvWriter *body);
/* -EBADMSG when data is not exactly one frame. */
int frame_split(const uint8_t *data, size_t size, FrameHeader *ret_header, const uint8_t **ret_body);
