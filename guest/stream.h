/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection that the host made for one purpose, which its first frame names.
 *
 * Owned by the agent's list. It begins without a kind, reads exactly one frame, and the function
 * for that frame's type answers and gives it one. From then on kind->run is called whenever the
 * connection may have become readable or writable and nothing of ours waits to be sent; it may free
 * the stream. What a kind keeps in state is released by kind->done.
 *
 * At an epoch all streams are abandoned: their clients are those of another copy of this guest, and their
 * connections are being reset. A reset that is seen before the claim was read leaves a stream in doubt.
 *
 * A stream ends with stream_finish(): the connection is closed once the peer has taken what is
 * still in the outbox. */

#include "base/frame.h"
#include "base/tlv.h"
#include "guest/agent.h"
#include "guest/list.h"
#include "guest/outbox.h"
#include "guest/request.h"

typedef struct StreamKind {
        void (*run)(Stream *s, uint32_t events);
        void (*done)(Stream *s);
        /* The client is another copy's. Frees the stream, unless it goes on without one; NULL: just frees. */
        void (*abandon)(Stream *s);
        /* Nothing may be written to the disk from here on. NULL: nothing was. */
        void (*freeze)(Stream *s);
} StreamKind;

struct Stream {
        LIST_FIELDS(Stream);
        Agent *agent;
        int fd;
        LoopSource source;
        FrameParser parser;
        Outbox out;
        uint32_t id;            /* of the first frame */
        const StreamKind *kind;
        void *state;
        bool finishing;
        bool doubtful;
};

int streams_listen(Agent *a);
void streams_done(Agent *a);
/* A new epoch has begun: every stream, and who waits to become one, is of the one before. */
void streams_abandon(Agent *a);
void streams_freeze(Agent *a);
/* All that the host had sent on the control stream has been read: who was in doubt isn't any more. */
void streams_judge(Agent *a);

void stream_set_kind(Stream *s, const StreamKind *kind, void *state);
void stream_answer_ok(Stream *s, const TlvWriter *body);
/* Ends the stream too. error is a negative errno. */
void stream_answer_error(Stream *s, int error, const char *format, ...) _printf_(3, 4);
/* AGENT_END with 0 or a negative errno; stream_end() ends the stream too. */
void stream_put_end(Stream *s, int error, const char *what);
void stream_end(Stream *s, int error, const char *what);
/* Whether a host that is gone may have been that of another epoch, which only the control stream can tell.
 * If so the stream runs again when it has. */
bool stream_in_doubt(Stream *s);
/* Makes the loop call stream_run() soon; for use from outside of the stream's own callbacks. */
void stream_wake(Stream *s);
/* What the loop calls; kinds call it when something else that they watch became ready. */
void stream_run(Stream *s, uint32_t events);
void stream_finish(Stream *s);
void stream_free(Stream *s);
/* 1 when a whole frame is there, 0 when more has to come, -EPIPE at the end, -EMSGSIZE */
int stream_read_frame(Stream *s);
