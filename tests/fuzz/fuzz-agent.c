/* SPDX-License-Identifier: Apache-2.0 */

/* What a guest says to the host: answers and listings on the control stream, which become messages on the bus; programs
 * that cubed runs in it, their output and their end; files.
 *
 * Input: u8, then by its low two bits: 0 steps of guest.h, before which a directory is listed, a file looked at and a
 * program started; 1 bytes of a stream that carries a file to the host; 2 the same from the host; 3 the end of a process
 * as records. */

#include <signal.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>

#include "base/agent-file.h"
#include "daemon/guest-command.h"
#include "dbus/bus-agent.h"
#include "dbus/bus-names.h"
#include "guest.h"

#define STEPS_MAX 64U
#define STREAM_BYTES_MAX KIB(64)

/* The bus: somebody's, who never reads. */

static sd_bus_message *new_call(int fd, sd_bus **ret_bus) {
        sd_bus_message *m;

        FUZZ_CHECK(sd_bus_new(ret_bus) >= 0 && sd_bus_set_fd(*ret_bus, fd, fd) >= 0 && sd_bus_start(*ret_bus) >= 0);
        FUZZ_CHECK(sd_bus_message_new_method_call(*ret_bus, &m, NULL, "/", NULL, "Method") >= 0);
        FUZZ_CHECK(sd_bus_message_seal(m, 1, 0) >= 0);
        return m;
}

static void on_output(GuestCommand *c, const char *text, size_t size, void *userdata) {
        unsigned sum = 0;

        for (size_t i = 0; i < size; i++)
                sum += (unsigned char) text[i];
        __asm__ volatile("" : : "r"(sum));
}

static void on_done(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata) {
        FUZZ_CHECK(!error != !exit);
        FUZZ_CHECK(!exit || exit->status <= 255);
        guest_command_free(c);
        *(GuestCommand **) userdata = NULL;
}

static void begin(FuzzGuest *g, sd_bus_message *call, GuestCommand **ret) {
        static const BusAgentListing listing = { .tag = AGENT_TAG_FILE, .signature = CUBE_BUS_FILE, .array = true,
                                                 .append = bus_append_file };
        static const BusAgentListing stat = { .tag = AGENT_TAG_FILE, .signature = CUBE_BUS_FILE, .append = bus_append_file };
        static const GuestCommandCallbacks callbacks = { .output = on_output, .done = on_done };
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        TlvWriter none = TLV_WRITER_INIT(16);

        FUZZ_CHECK(bus_agent_call(call, &g->sandbox, AGENT_LIST_DIRECTORY, &none, &listing, &e) == 1);
        FUZZ_CHECK(bus_agent_call(call, &g->sandbox, AGENT_STAT, &none, &stat, &e) == 1);
        FUZZ_CHECK(bus_agent_call(call, &g->sandbox, AGENT_REMOVE, &none, NULL, &e) == 1);
        FUZZ_CHECK(guest_command_start(&g->sandbox, &(ExecSpec) { .argv = (char *[]) { (char *) "true", NULL } }, &callbacks,
                                       ret, ret, &e) >= 0);
}

static void answer(FuzzInput *in) {
        static FuzzGuest g;
        GuestCommand *c = NULL;
        sd_bus *bus = NULL;
        int ends[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) == 0);
        guest_new(&g);
        sd_bus_message *call = new_call(ends[0], &bus);
        begin(&g, call, &c);
        guest_run(&g);
        for (unsigned i = 0; i < STEPS_MAX && in->left > 0; i++)
                guest_step(&g, in);
        guest_command_free(c);
        guest_free(&g);
        sd_bus_message_unref(call);
        sd_bus_close_unref(bus);
        safe_close(ends[1]);
}

/* Streams, with all that comes in them there from the start. */

static int stream_of(const FuzzInput *in) {
        int ends[2];

        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends) == 0);
        (void) !send(ends[1], in->data, MIN(in->left, STREAM_BYTES_MAX), MSG_NOSIGNAL|MSG_DONTWAIT);
        FUZZ_CHECK(shutdown(ends[1], SHUT_WR) == 0);
        FUZZ_CHECK(ends[0] >= 0);
        /* What is sent to it stays in the socket. */
        static int kept = -EBADF;
        safe_close(kept);
        kept = ends[1];
        return ends[0];
}

static void receive_file(const FuzzInput *in, uint64_t max) {
        _cleanup_close_ int stream = stream_of(in), fd = memfd_create("file", MFD_CLOEXEC);
        _cleanup_free_ char *message = NULL;
        struct stat st;

        int r = agent_file_receive(stream, fd, max, &message);
        FUZZ_CHECK(r <= 0 && (!message || r < 0));
        FUZZ_CHECK(fstat(fd, &st) == 0 && (uint64_t) st.st_size <= max);
}

static void send_file(const FuzzInput *in) {
        _cleanup_close_ int stream = stream_of(in);
        _cleanup_free_ char *message = NULL;

        int r = agent_file_send(stream, fuzz_file("contents", 8), in->left & 1 ? 8 : UINT64_MAX, &message);
        FUZZ_CHECK(r <= 0 && (!message || r < 0));
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        /* As the programs do. */
        FUZZ_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        uint8_t what = fuzz_u8(&in);
        AgentExit exit;

        switch (what & 3) {
        case 0: answer(&in); break;
        case 1: receive_file(&in, what & 4 ? 16 : UINT64_MAX); break;
        case 2: send_file(&in); break;
        case 3:
                if (agent_exit_parse(in.data, in.left, &exit) >= 0)
                        FUZZ_CHECK(exit.status <= (exit.signaled ? 127U : 255U));
                break;
        }
        return 0;
}
