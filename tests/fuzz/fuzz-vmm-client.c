/* SPDX-License-Identifier: Apache-2.0 */

/* cubed's end of a VMM's control socket, with a VMM that says anything. Each request is answered once.
 *
 * Input: { u8 what, u8 length, bytes }..., packets with a right header, or without. */

#include <sys/socket.h>

#include "base/fd-util.h"
#include "daemon/vmm-client.h"
#include "fuzz.h"

#define PACKETS_MAX 32U
#define TIMEOUT (60 * USEC_PER_SEC)

static sd_event *event;
static unsigned asked, answered;

static void on_agent(VmmClient *c, AgentFrameType type, const uint8_t *body, size_t size, void *userdata) {
}

static void on_agent_lost(VmmClient *c, void *userdata) {
}

static void on_device(VmmClient *c, const char *device, const char *message, void *userdata) {
        FUZZ_CHECK(strlen(device) < VMM_TEXT_MAX && strlen(message) < VMM_TEXT_MAX);
}

static void on_exiting(VmmClient *c, VmmExitReason reason, uint32_t status, void *userdata) {
}

static void on_gone(VmmClient *c, int error, void *userdata) {
}

static const VmmEvents events = { on_agent, on_agent_lost, on_device, on_exiting, on_gone };

static void on_reply(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        FUZZ_CHECK(message && error <= 0);
        answered++;
}

static void on_agent_reply(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                           void *userdata) {
        FUZZ_CHECK(message && error <= 0);
        answered += !more;
}

static void ask(VmmClient *c) {
        asked += vmm_client_call(c, VMM_OP_HELLO, NULL, NULL, 0, TIMEOUT, on_reply, NULL) >= 0;
        asked += vmm_client_agent(c, AGENT_PING, NULL, TIMEOUT, on_agent_reply, NULL) >= 0;
}

static void say(int fd, FuzzInput *in) {
        uint8_t what = fuzz_u8(in), size = fuzz_u8(in);
        struct {
                VmmMessage head;
                uint8_t body[UINT8_MAX];
        } packet = {
                .head = {
                        .magic = VMM_PROTO_MAGIC, .version = VMM_PROTO_VERSION, .flags = what & 1, .len = size,
                        .op = what & 1 ? VMM_OP_HELLO + (what >> 1 & 3) : VMM_EVENT_AGENT + (what >> 1 & 3),
                        .seq = what >> 4 & 7, .error = what & 128 ? -EIO : 0,
                },
        };
        const uint8_t *data = what & 8 ? packet.body : (const uint8_t *) &packet;

        (void) fuzz_bytes(in, packet.body, size);
        (void) !send(fd, data, size + (what & 8 ? 0 : sizeof(packet.head)), MSG_NOSIGNAL|MSG_DONTWAIT);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        FUZZ_CHECK(sd_event_new(&event) >= 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        VmmClient *c;
        int ends[2];

        asked = answered = 0;
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        FUZZ_CHECK(vmm_client_new(event, ends[0], &events, NULL, &c) == 0);
        ask(c);
        for (unsigned i = 0; i < PACKETS_MAX && in.left > 0; i++) {
                say(ends[1], &in);
                if (i % 4 == 3)
                        ask(c);
                while (sd_event_run(event, 0) > 0)
                        ;
        }
        vmm_client_free(c);
        safe_close(ends[1]);
        FUZZ_CHECK(answered == asked);
        return 0;
}
