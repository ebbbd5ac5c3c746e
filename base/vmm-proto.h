/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The control protocol between cubed and a VMM, on a SOCK_SEQPACKET unix socket.
 *
 * cubed binds and listens, the VMM inherits the listening socket and serves one peer at a time
 * (uid 0, checked by SO_PEERCRED). It runs on when the peer leaves and answers the next one.
 *
 * One message is one packet: a VmmMessage header, then TLV records with tags from VmmTag.
 * File descriptors travel by SCM_RIGHTS; a VMM_TAG_FD record names the role of each, in the order
 * in which they are attached. A request is answered by one message with the same op, seq and
 * VMM_FLAG_REPLY; error is 0 or a negative errno, then VMM_TAG_MESSAGE says more. A request in the
 * wrong state answers -EPROTO and changes nothing. Messages without VMM_FLAG_REPLY from the VMM
 * are events with seq 0. */

#include <stdint.h>

#define VMM_PROTO_MAGIC 0x45425543U /* "CUBE" */
#define VMM_PROTO_VERSION 1U
#define VMM_MESSAGE_MAX (320U * 1024U)
#define VMM_FDS_MAX 32U
#define VMM_DISK_LAYERS_MAX 8U

/* The listening socket in a fresh VMM. Standard streams 0-2 are set up by cubed as well. */
#define VMM_LISTEN_FD 3

#define VMM_FLAG_REPLY 1U

typedef struct VmmMessage {
        uint32_t magic;
        uint16_t version;
        uint16_t op;
        uint32_t flags;
        uint32_t seq;
        int32_t error;
        uint32_t len;  /* bytes of records behind this header */
} VmmMessage;

typedef enum VmmOp {
        /* Requests. State needed in brackets, state after -> */
        VMM_OP_HELLO = 1,      /* [any] -> STATE, FRAME: AGENT_READY if the agent is connected, FD CONSOLE, FD
                                  DISK_OVERLAY of the writable disk, FD TAP, ID of the uppermost memory layer, those
                                  that there are */
        VMM_OP_BUILD,          /* [new] configuration and fds -> [built]: everything but running */
        VMM_OP_CLAIM,          /* [built] HOSTNAME etc. as FRAME (an AGENT_CLAIM frame) -> [running]. Behind a
                                  LOAD the guest goes on, and this frame is the first that its agent gets */
        VMM_OP_AGENT,          /* [running] FRAME: put on the control stream. Answered once queued; the
                                  agent's answer comes as event VMM_EVENT_AGENT. -EAGAIN: queue full */
        VMM_OP_STREAM,         /* [running] FRAME (AGENT_STREAM_*), FD STREAM -> FRAME: the agent's
                                  first answer; error -ECONNREFUSED/-ETIMEDOUT when there was none */
        VMM_OP_CONSOLE,        /* [any] -> FD CONSOLE */
        VMM_OP_STATISTICS,     /* [all but new] -> COUNTER... */
        VMM_OP_STOP,           /* [running] TIMEOUT_USEC: ask the guest to power off; then end */
        VMM_OP_KILL,           /* [any] end now, reason killed */
        VMM_OP_RESIZE,         /* [built, running] PLUGGED_BYTES: what the guest shall have plugged of its
                                  PLUG_BYTES. Answered once asked; mem-plugged-bytes of STATISTICS
                                  says how far it is */
        VMM_OP_BALLOON,        /* [built, running] BALLOON_BYTES: what the guest shall lend to the host; as
                                  above, balloon-bytes */

        /* Snapshots; base/snapshot-format.h has the files. */
        VMM_OP_PAUSE = 16,     /* [running] -> [paused]: no vCPU runs, no device touches memory or disk.
                                  -ETIMEDOUT: something did not stop in time, all runs on */
        VMM_OP_RESUME,         /* [paused] -> [running]. Behind a ROLLBACK with FRAME (AGENT_CLAIM), else without.
                                  FD LAYER: the file of the pages just saved, which is put beneath the
                                  guest's memory: its pages are private no more. Several: the whole chain,
                                  lowest first, that replaces the present one and ends with that file.
                                  FD DISK_OVERLAY, empty: what the writable disk writes to from now on; the
                                  present one becomes its uppermost layer, never written again. FD
                                  DISK_FROZEN: it is read from this one from there on. Or, with
                                  FD DISK_LAYER..., lowest first: the whole chain of layers that replaces
                                  the present one and ends with the present overlay's file */
        VMM_OP_SAVE,           /* [paused; built by LOAD] FD STATE (written), FD PAGEMAP -> ID, RUNS: the
                                  private pages, for the peer to copy before it resumes */
        VMM_OP_LOAD,           /* [new] as BUILD, without kernel, command line, initrd, memory sizes and possible
                                  CPUs; FD STATE (read), FD LAYER..., the lowest first -> [built].
                                  Disks as in BUILD */
        VMM_OP_ROLLBACK,       /* [paused, torn] FD STATE, FD LAYER..., and for the writable disk FD DISK_LAYER...,
                                  FD DISK_OVERLAY (need not be empty), or neither: it stays -> [paused]. On
                                  error nothing has changed, or the state is torn */

        /* Events */
        VMM_EVENT_AGENT = 64,  /* FRAME from the agent's control stream (AGENT_READY too) */
        VMM_EVENT_AGENT_LOST,  /* the control stream broke */
        VMM_EVENT_DEVICE,      /* DEVICE, MESSAGE: a device stopped, or its host side failed */
        VMM_EVENT_EXIT,        /* REASON, STATUS: the last message */
} VmmOp;

typedef enum VmmTag {
        VMM_TAG_FD = 1,        /* u32 VmmFdRole; one for each attached fd, in order */
        VMM_TAG_MESSAGE,       /* str */
        VMM_TAG_STATE,         /* u32 VmmState */
        VMM_TAG_MEM_BYTES,     /* u64, RAM of the guest */
        VMM_TAG_CPUS,          /* u32, vCPUs made */
        VMM_TAG_MAX_CPUS,      /* u32, CPUs in the MADT */
        VMM_TAG_CMDLINE,       /* str */
        VMM_TAG_ENTRY,         /* u64 gpa of the 32-bit PVH entry */
        VMM_TAG_SEGMENT,       /* VmmSegment, one for each loadable part of the kernel */
        VMM_TAG_INITRD_BYTES,  /* u64 */
        VMM_TAG_DISK,          /* VmmDisk */
        VMM_TAG_FRAME,         /* bytes: a whole frame, header included (base/frame.h) */
        VMM_TAG_TIMEOUT_USEC,  /* u64 */
        VMM_TAG_REASON,        /* u32 VmmExitReason */
        VMM_TAG_STATUS,        /* u32 */
        VMM_TAG_DEVICE,        /* str */
        VMM_TAG_COUNTER,       /* VmmCounter */
        VMM_TAG_STOP_TIMEOUT_USEC, /* u64, in BUILD: how long SIGTERM waits for the guest */
        VMM_TAG_UID,           /* u32, in BUILD: refused unless the VMM runs as this uid (its --uid=) */
        VMM_TAG_CPUID_HIDE,    /* u32, in BUILD: VmmCpuidHide bits */
        VMM_TAG_PLUG_BYTES,    /* u64, in BUILD: how much memory can be plugged beyond MEM_BYTES, a multiple
                                  of 128 MiB; none without it */
        VMM_TAG_PLUGGED_BYTES, /* u64, a multiple of 2 MiB */
        VMM_TAG_BALLOON_BYTES, /* u64, a multiple of 4 KiB, less than MEM_BYTES + PLUG_BYTES */
        VMM_TAG_ID = 32,       /* 16 bytes: of a snapshot */
        VMM_TAG_RUNS,          /* VmmRun..., by address, not overlapping */
} VmmTag;

typedef enum VmmFdRole {
        VMM_FD_KVM,            /* /dev/kvm */
        VMM_FD_KERNEL,         /* file that VMM_TAG_SEGMENT records point into */
        VMM_FD_INITRD,
        VMM_FD_EXIT,           /* where the exit record goes, opened for writing */
        VMM_FD_CONSOLE,        /* memfd of a ConsoleRing (base/console-ring.h) */
        VMM_FD_DISK_BASE,      /* of the disk record with the same index; read-only */
        VMM_FD_DISK_OVERLAY,   /* read-write; absent for a read-only disk */
        VMM_FD_STREAM,         /* connected stream socket */
        VMM_FD_TAP,            /* in BUILD and LOAD: what the network card is plugged into, a tap with
                                  IFF_NO_PI and IFF_VNET_HDR; the VMM sets the rest. Without it the card is
                                  there as well, its link is down */
        VMM_FD_STATE = 16,     /* state file of a snapshot, a regular file */
        VMM_FD_LAYER,          /* memory file of a snapshot, read-only */
        VMM_FD_PAGEMAP,        /* /proc/<pid>/pagemap of this VMM, which can't open it itself */
        VMM_FD_DISK_LAYER,     /* read-only: an overlay that is written no more, between the writable disk's base
                                  and its overlay; lowest first, at most VMM_DISK_LAYERS_MAX */
        VMM_FD_DISK_FROZEN,    /* read-only: the file that the writable disk's overlay is, which takes the
                                  place of the descriptor that could write to it */
        _VMM_FD_ROLE_MAX,
} VmmFdRole;

typedef enum VmmState {
        VMM_STATE_NEW,
        VMM_STATE_BUILT,
        VMM_STATE_RUNNING,
        VMM_STATE_STOPPING,
        VMM_STATE_PAUSED,
        VMM_STATE_TORN,        /* a ROLLBACK failed half-way: only ROLLBACK and KILL lead on */
        _VMM_STATE_MAX,
} VmmState;

typedef enum VmmCpuidHide {
        VMM_CPUID_HIDE_XSAVE = 1,
} VmmCpuidHide;

typedef enum VmmExitReason {
        VMM_EXIT_NONE,
        VMM_EXIT_POWEROFF,        /* the guest powered off */
        VMM_EXIT_RESET,           /* the guest asked for a reset */
        VMM_EXIT_RESET_EARLY,     /* the same before the agent was there: often a panic too early for pvpanic */
        VMM_EXIT_PANIC,           /* pvpanic */
        VMM_EXIT_TRIPLE_FAULT,
        VMM_EXIT_INTERNAL_ERROR,  /* KVM_EXIT_INTERNAL_ERROR, FAIL_ENTRY or an unknown exit; status: suberror */
        VMM_EXIT_KILLED,          /* VMM_OP_KILL */
        VMM_EXIT_STOP_TIMEOUT,    /* asked to power off and did not */
        VMM_EXIT_VMM_ERROR,       /* the VMM itself failed; status: errno */
        VMM_EXIT_FORBIDDEN_CALL,  /* a thread of it made a system call that its filter forbids; status: the call */
        _VMM_EXIT_WRITTEN_MAX,
        /* Never written by a VMM; cubed derives them. */
        VMM_EXIT_OOM = _VMM_EXIT_WRITTEN_MAX, /* the scope's MemoryMax */
        VMM_EXIT_SIGNAL,          /* killed by a signal; status: its number */
        VMM_EXIT_LOST,            /* ended without a word while cubed was away */
        VMM_EXIT_TIMEOUT,         /* lifetime over */
        VMM_EXIT_ROLLBACK,        /* a rollback failed, and the state before it could not be put back */
        _VMM_EXIT_REASON_MAX,
} VmmExitReason;

/* Fixed little-endian records. */
typedef struct VmmSegment {
        uint64_t gpa;
        uint64_t file_offset;
        uint64_t file_bytes;
        uint64_t mem_bytes;       /* >= file_bytes, the rest is zero */
} VmmSegment;

typedef struct VmmDisk {
        uint32_t index;           /* 0 = vda, 1 = vdb */
        uint32_t read_only;
        uint64_t base_bytes;      /* of the base file; multiple of 512 */
        uint64_t disk_bytes;      /* capacity the guest sees, >= base_bytes; multiple of 512 */
} VmmDisk;

typedef struct VmmCounter {
        char name[24];            /* NUL-padded */
        uint64_t value;
} VmmCounter;

/* Private pages of the guest's. hva is where they lie in the VMM, for process_vm_readv(). */
typedef struct VmmRun {
        uint64_t gpa;
        uint64_t bytes;           /* multiple of 4096 */
        uint64_t hva;
} VmmRun;

/* What is left of a VMM: written to VMM_FD_EXIT in one write before it ends. */
#define VMM_EXIT_RECORD_MAGIC 0x54495845U
typedef struct VmmExitRecord {
        uint32_t magic;
        uint32_t version;         /* 1 */
        uint32_t reason;          /* VmmExitReason */
        uint32_t status;
        uint64_t realtime_usec;
        char message[104];        /* NUL-terminated, for people */
} VmmExitRecord;

const char *vmm_exit_reason_to_string(VmmExitReason reason);
const char *vmm_state_to_string(VmmState state);
