/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One vsock stream connection (virtio 1.2, 5.10.6) and its host end.
 *
 * Two kinds. The control stream was opened by the guest and speaks frames both ways for good. A
 * stream was opened by the host: its first frame goes out, the agent's first frame comes back and is
 * handed to answer, and from then on bytes move between the guest and a socket of the host.
 *
 * Nothing is copied that needn't be: the host's bytes are read straight into the guest's buffers and
 * the guest's are sent straight from them. What the socket does not take at once waits in a ring
 * buffer that exists only then; the guest's credit is exactly that ring's size, so it always fits
 * (P11). In the other direction nothing waits in here at all: the socket is read when the guest has
 * room. Both ends therefore feel each other's slowness, and no byte is lost.
 *
 * Owned by the vsock device and used on the loop's thread alone. A call changes the connection;
 * the device looks afterwards at what it wants: vsock_conn_has_output(), reset_owed, state. */

#include <linux/virtio_vsock.h>
#include <sys/queue.h>

#include "vmm/devices.h"
#include "vmm/snapshot-file.h"
#include "vmm/virt-chain.h"

#define VSOCK_HEADER_BYTES sizeof(struct virtio_vsock_hdr)
#define VSOCK_PACKET_BYTES_MAX KIB(64)
/* What a guest may have on its way to us, for each connection. */
#define VSOCK_BUFFER_BYTES KIB(64)
/* The agent's first answer on a stream is small. */
#define VSOCK_ANSWER_BYTES_MAX KIB(32)
/* Frames that wait for the guest to take them from the control stream. */
#define VSOCK_QUEUE_BYTES_MAX MIB(1)

#define VSOCK_CONNECT_TIMEOUT_USEC (60 * USEC_PER_SEC)
#define VSOCK_ANSWER_TIMEOUT_USEC (60 * USEC_PER_SEC)
/* How long the guest may take to let go of a connection that has ended in both directions. */
#define VSOCK_LINGER_TIMEOUT_USEC (10 * USEC_PER_SEC)

typedef enum VsockState {
        VSOCK_REQUESTED,          /* we asked the guest, it did not answer yet */
        VSOCK_OPEN,
        VSOCK_ORPHAN,             /* the guest knows it no more; its last bytes are still on their way out */
        VSOCK_DEAD,               /* to be freed */
} VsockState;

typedef struct VsockConn VsockConn;

typedef struct VsockControlEvents {
        void (*on_frame)(void *userdata, const FrameHeader *h, const uint8_t *body);
        void (*on_lost)(void *userdata);
        void *userdata;
} VsockControlEvents;

typedef struct VsockFrame VsockFrame;

struct VsockConn {
        TAILQ_ENTRY(VsockConn) ready_entry; /* the device's list of those with output */
        bool ready;
        void *owner;
        Loop *loop;
        VsockState state;
        uint32_t host_port;
        uint32_t guest_port;
        uint64_t deadline_usec;   /* 0: none */
        bool reset_owed;          /* the guest is to be told by a RST */

        /* To the guest. Counters of bytes wrap (5.10.6.3). */
        unsigned owed;            /* packets without data, vsock-conn.c */
        uint32_t peer_buf_alloc;
        uint32_t peer_fwd_cnt;
        uint32_t sent;
        bool credit_asked;
        uint32_t host_shutdown;   /* VIRTIO_VSOCK_SHUTDOWN_* that the guest was told */
        STAILQ_HEAD(, VsockFrame) frames;
        size_t frames_bytes;

        /* From the guest. */
        uint32_t guest_shutdown;  /* VIRTIO_VSOCK_SHUTDOWN_* that it told us */
        uint32_t received;
        uint32_t forwarded;       /* of these, handed on; our fwd_cnt */
        uint32_t reported;        /* forwarded as the guest knows it */
        bool framed;              /* bytes are frames; a stream's first one only */
        FrameParser parser;
        uint8_t *ring;
        uint32_t ring_start;
        uint32_t ring_used;

        /* Control stream. */
        bool control;
        bool held;                /* forwarded isn't reported any further */
        VsockControlEvents events;

        /* Stream. */
        StreamAnswer answer;      /* NULL once called */
        void *answer_userdata;
        int fd;                   /* -EBADF: closed, or the control stream */
        LoopSource *source;
        LoopHandler handler;
        bool fd_readable;         /* there was something when we looked last */
        bool fd_eof;              /* nothing more comes from it */
        bool fd_shut;             /* it was told that nothing more comes from the guest */
        bool fd_broken;           /* it takes nothing any more */
        bool fd_hangup;
};

/* The guest opened it. */
VsockConn *vsock_conn_new_control(uint32_t guest_port, const VsockControlEvents *events);
/* Takes fd. handler is called on the loop for it with the connection as userdata. */
VsockConn *vsock_conn_new_stream(Loop *loop, LoopHandler handler, int fd, uint32_t host_port,
                                 uint32_t guest_port, StreamAnswer answer, void *userdata);
VsockConn *vsock_conn_free(VsockConn *c);

/* Copies frame behind those that wait. -EAGAIN over the ceiling. */
int vsock_conn_queue_frame(VsockConn *c, const uint8_t *frame, size_t size);

/* The guest's credit stays what it is now, or grows again. */
void vsock_conn_hold(VsockConn *c, bool hold);

/* A packet of the guest's for this connection; h is a checked copy, its data is in the chain behind
 * the header. */
void vsock_conn_packet(VsockConn *c, const struct virtio_vsock_hdr *h, const VirtChain *chain, const GuestMem *m);
/* Puts the next packet's data into chain behind the header, at most room bytes, and fills *ret.
 * 1, or 0 when there is none to send now. */
int vsock_conn_fill(VsockConn *c, const VirtChain *chain, const GuestMem *m, uint64_t room,
                    struct virtio_vsock_hdr *ret);
bool vsock_conn_has_output(const VsockConn *c);

void vsock_conn_on_fd(VsockConn *c, uint32_t events);
/* Waits for what it needs next from its socket. */
void vsock_conn_update_events(VsockConn *c);
/* Nothing came in time. */
void vsock_conn_on_deadline(VsockConn *c);
/* The guest's end is gone: error goes to a stream that still waits for its answer. */
void vsock_conn_guest_gone(VsockConn *c, int error);

/* The control stream in a snapshot: counters, the piece of a frame that has come in, and what is left of one
 * that has gone out in part. Frames of which nothing has gone out are not in it: they belong to the requests of
 * one who asked this guest, not its copy. */
void vsock_conn_save_control(const VsockConn *c, SnapshotWriter *w);
int vsock_conn_load_control(SnapshotReader *r, const VsockControlEvents *events, VsockConn **ret, ErrorText *e);
