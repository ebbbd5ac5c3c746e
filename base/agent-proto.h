/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What host and agent say to each other over vsock.
 *
 * Two kinds of connection exist:
 *
 * The control stream. The agent connects from the guest to port AGENT_CONTROL_PORT of the host
 * (CID 2), from a port below 1024; the VMM is its other end and relays whole frames to and from
 * cubed. The first frame is the agent's AGENT_READY, or an AGENT_ERROR with id 0 from a guest that
 * could not boot and powers off. Then requests flow from the host, each with an id of its own, and
 * each is answered by AGENT_OK or AGENT_ERROR frames with that id (all but the last with
 * FRAME_FLAG_MORE). Until AGENT_CLAIM is answered, all others but PING, SET_TIME, ADD_ENTROPY, THAW and
 * POWEROFF are refused with EAGAIN.
 *
 * Epochs. Each AGENT_CLAIM begins one. The first is that of the boot; a further one on the same control stream
 * says that the guest has become a copy, or was put back in time. It may come at any moment, and any number of
 * times: behind requests that are not answered yet, and in the middle of another claim, which then
 * fails with ECANCELED. Requests that the guest had before it are part of the copy and answered as ever. In
 * this order the agent reseeds the random number generator, sets the time, thaws the file system, sets the host
 * name and the network, brings CPUs online, grows the disk, leaves all streams behind, and runs the hooks in /etc/cube/fork.d
 * (guest/hooks.h), at most 10 s; then it answers. Processes go on meanwhile; nothing new is started
 * before the answer. A claim that failed leaves the guest unclaimed, and can be repeated.
 *
 * Streams belong to an epoch. The claim comes first, then the host resets the connections of all streams from
 * before, and it opens none before the answer. To a program its stream is left behind as if nobody had
 * looked: no end of input, no SIGPIPE, no SIGHUP. Its output is thrown away until it is attached again; what
 * had not been attached yet keeps waiting for somebody, as before. Input of which all had come, up to
 * its end, is still delivered; other input that the program had not taken is lost. A file that was being
 * written is dropped, a TCP connection closed, and so are those that the agent passed on to servers on loopback
 * (guest/loopback.h). In ordinary life a client that goes away is seen by the
 * program: end of input, SIGPIPE, SIGHUP.
 *
 * A stream. The host connects to port AGENT_STREAM_PORT of the guest and sends one AGENT_STREAM_*
 * frame. The agent answers with exactly one AGENT_OK or AGENT_ERROR frame; the VMM takes that
 * frame off the stream. After an OK the connection carries what the kind says: raw bytes, or
 * frames where noted, and the VMM moves it between the guest and a file descriptor without
 * looking at it. Half-closing works both ways.
 *
 * Frame bodies are TLV records (base/tlv.h), tags from AgentTag. Unknown tags are refused. */

#include <stdint.h>

#define AGENT_PROTO_VERSION 1U
#define AGENT_CONTROL_PORT 1024U
#define AGENT_STREAM_PORT 1024U
/* Guest ports up to this one take a privilege in the guest: nobody else can pose as the agent. */
#define AGENT_CONTROL_GUEST_PORT_MAX 1023U
#define AGENT_GUEST_CID 3U
/* Of the network card, the same in every guest. */
#define AGENT_GUEST_MAC { 0x02, 0xcb, 0xff, 0x00, 0x00, 0x02 }

/* Most bytes of a frame's body: a request with argv and environment, or a part of a listing. */
#define AGENT_FRAME_MAX (256U * 1024U)
/* Most bytes in one AGENT_DATA frame. */
#define AGENT_DATA_MAX (64U * 1024U)

#define FRAME_FLAG_MORE 1U /* more frames with this id follow */

typedef enum AgentFrameType {
        /* Answers */
        AGENT_OK = 1,
        AGENT_ERROR = 2,              /* AGENT_TAG_ERRNO, AGENT_TAG_MESSAGE */

        /* Events, agent to host */
        AGENT_READY = 16,             /* VERSION, KERNEL_RELEASE, CPUS (possible), MEM_BYTES */

        /* Control requests */
        AGENT_CLAIM = 32,             /* HOSTNAME, REALTIME_NSEC, ENTROPY, CPUS, DISK_BYTES, NETWORK..., MTU,
                                         NAMESERVER...: identity, before any user code -> MESSAGE, when hooks failed.
                                         Without NETWORK the network stays as it is. Name servers are for
                                         images that say nothing about theirs */
        AGENT_EXEC,                   /* ARGV..., ENV..., CWD, USER, PTY + ROWS + COLS, TIMEOUT_USEC -> PID */
        AGENT_SIGNAL,                 /* PID, SIGNAL, GROUP */
        AGENT_RESIZE,                 /* PID, ROWS, COLS */
        AGENT_LIST_PROCESSES,         /* -> PROCESS... */
        AGENT_STAT,                   /* PATH, FOLLOW -> FILE */
        AGENT_LIST_DIRECTORY,         /* PATH -> FILE..., in several frames */
        AGENT_REMOVE,                 /* PATH, RECURSIVE */
        AGENT_RENAME,                 /* PATH, TARGET */
        AGENT_MKDIR,                  /* PATH, MODE, PARENTS, USER */
        AGENT_SET_TIME,               /* REALTIME_NSEC */
        AGENT_ADD_ENTROPY,            /* ENTROPY */
        AGENT_POWEROFF,               /* answered, then the guest goes down */
        AGENT_PING,
        AGENT_FREEZE,                 /* FREEZE_DISK: makes ready to be saved. Writes out what is dirty, drops caches,
                                         compacts memory. FREEZE_DISK: the disk alone is to be saved, caches and memory
                                         stay; nothing can be written from here on and the disk is clean; until
                                         AGENT_THAW or the next AGENT_CLAIM what is refused before a claim is refused,
                                         and files on their way into the guest end with ECANCELED */
        AGENT_THAW,                   /* also when nothing is frozen; a freeze that is under way ends with ECANCELED first */
        AGENT_SYMLINK,                /* PATH, LINK: a symbolic link, also in place of a file or another link */

        AGENT_ENVD,                   /* TOKEN, USER, USER_OPTIONAL, CWD, ENV..., KEEP_ENV, PORT: serves E2B's envd protocol
                                         on TCP (guest/envd.h), port 49983, or sets anew what holds for it. USER_OPTIONAL:
                                         root in place of a USER that the guest does not know. KEEP_ENV: variables
                                         that are there stay, but for those of the same names */
        AGENT_USAGE,                  /* -> USAGE */

        /* First frame of a stream */
        AGENT_STREAM_PROCESS = 64,    /* PID, STREAM -> raw; for a pty both ways */
        AGENT_STREAM_WAIT,            /* PID -> one AGENT_EXITED frame, then the end */
        AGENT_STREAM_READ,            /* PATH, USER -> FILE; AGENT_DATA frames, then AGENT_END */
        AGENT_STREAM_WRITE,           /* PATH, MODE, USER, SIZE?; host: AGENT_DATA frames, AGENT_END;
                                         agent: AGENT_END once the file is in place */
        AGENT_STREAM_TCP,             /* PORT -> raw, to 127.0.0.1 or ::1 in the guest */

        /* Inside framed streams */
        AGENT_DATA = 96,              /* body: raw bytes */
        AGENT_END,                    /* ERRNO (0 = all is well), MESSAGE */
        AGENT_EXITED,                 /* EXIT_CODE or EXIT_SIGNAL, TIMED_OUT */
} AgentFrameType;

typedef enum AgentTag {
        AGENT_TAG_ERRNO = 1,          /* u32, positive errno */
        AGENT_TAG_MESSAGE,            /* str, for people */
        AGENT_TAG_VERSION,            /* u32 */
        AGENT_TAG_KERNEL_RELEASE,     /* str */
        AGENT_TAG_CPUS,               /* u32 */
        AGENT_TAG_MEM_BYTES,          /* u64 */
        AGENT_TAG_HOSTNAME,           /* str */
        AGENT_TAG_REALTIME_NSEC,      /* u64, since the epoch */
        AGENT_TAG_ENTROPY,            /* bytes, at most 256 */
        AGENT_TAG_ARGV,               /* str, one record each, in order */
        AGENT_TAG_ENV,                /* str NAME=VALUE, one record each */
        AGENT_TAG_CWD,                /* str, absolute; default: home of USER, else / */
        AGENT_TAG_USER,               /* str, name or uid; default root */
        AGENT_TAG_PTY,                /* u32 0/1 */
        AGENT_TAG_ROWS,               /* u32 */
        AGENT_TAG_COLS,               /* u32 */
        AGENT_TAG_TIMEOUT_USEC,       /* u64; then SIGTERM, 2 s later SIGKILL to the group */
        AGENT_TAG_PID,                /* u32 */
        AGENT_TAG_SIGNAL,             /* u32 */
        AGENT_TAG_GROUP,              /* u32 0/1: the process group, not the process alone */
        AGENT_TAG_PROCESS,            /* AgentProcess record with argv[0] behind it */
        AGENT_TAG_PATH,               /* str, absolute */
        AGENT_TAG_TARGET,             /* str, absolute */
        AGENT_TAG_FOLLOW,             /* u32 0/1 */
        AGENT_TAG_FILE,               /* AgentFile record with name and, behind a NUL, a link's target */
        AGENT_TAG_RECURSIVE,          /* u32 0/1 */
        AGENT_TAG_MODE,               /* u32, permission bits */
        AGENT_TAG_PARENTS,            /* u32 0/1 */
        AGENT_TAG_STREAM,             /* u32 AgentStream */
        AGENT_TAG_PORT,               /* u32 */
        AGENT_TAG_SIZE,               /* u64 */
        AGENT_TAG_EXIT_CODE,          /* u32 */
        AGENT_TAG_EXIT_SIGNAL,        /* u32 */
        AGENT_TAG_TIMED_OUT,          /* u32 0/1 */
        AGENT_TAG_DISK_BYTES,         /* u64 */
        AGENT_TAG_FREEZE_DISK,        /* u32 0/1 */
        AGENT_TAG_NETWORK,            /* AgentNetwork; at most one of each family */
        AGENT_TAG_MTU,                /* u32 */
        AGENT_TAG_NAMESERVER,         /* str, an IPv4 or IPv6 address; at most AGENT_NAMESERVERS_MAX */
        AGENT_TAG_LINK,               /* str, what a symbolic link says */
        AGENT_TAG_TOKEN,              /* str, a secret that a client has to know */
        AGENT_TAG_USER_OPTIONAL,      /* u32 0/1 */
        AGENT_TAG_KEEP_ENV,           /* u32 0/1 */
        AGENT_TAG_USAGE,              /* AgentUsage record */
} AgentTag;

typedef enum AgentStream {
        AGENT_STREAM_STDIN,           /* host to guest */
        AGENT_STREAM_STDOUT,          /* guest to host */
        AGENT_STREAM_STDERR,          /* guest to host */
        AGENT_STREAM_PTY,             /* both ways */
} AgentStream;

#define AGENT_NAMESERVERS_MAX 3U /* more are ignored by libc */

/* One family's address in the guest. Addresses are in network order, those of IPv4 in the first four bytes. */
typedef struct AgentNetwork {
        uint32_t family;              /* 4 or 6 */
        uint32_t prefix;              /* bits */
        uint8_t address[16];
        uint8_t gateway[16];          /* of the default route, all zeros: none */
        uint8_t gateway_mac[6];       /* so that nobody needs to ask for it; all zeros: asked for */
        uint8_t reserved[2];          /* 0 */
} AgentNetwork;

/* Fixed little-endian parts of records; a name follows directly. */
typedef struct AgentFile {
        uint64_t size;
        uint64_t mtime_nsec;
        uint32_t mode;                /* st_mode, type bits included */
        uint32_t uid;
        uint32_t gid;
        uint32_t name_len;
} AgentFile;

typedef struct AgentProcess {
        uint32_t pid;
        uint32_t uid;
        uint32_t state;               /* 0 running, 1 exited and not yet waited for */
        uint32_t pty;
} AgentProcess;

/* Sizes in bytes; 0 where the guest's kernel does not tell. */
typedef struct AgentUsage {
        uint64_t cpu_total_usec;      /* of all CPUs together, since the claim */
        uint64_t cpu_idle_usec;       /* of that */
        uint64_t mem_total, mem_used, mem_cache;
        uint64_t disk_total, disk_used;
        uint32_t cpus;
        uint32_t reserved;            /* 0 */
} AgentUsage;
