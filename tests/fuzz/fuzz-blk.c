/* SPDX-License-Identifier: Apache-2.0 */

/* A disk: its queue and registers (script.h), with files on the host that end early, refuse to be written, or get another
 * one laid over them. Input: u8, 1: read-only; then the script. */

#include <fcntl.h>

#include "base/fd-util.h"
#include "script.h"
#include "vmm/virtio-blk.h"

#define BASE_BYTES KIB(64)
#define DISK_BYTES (KIB(128) + 512) /* the last block is not whole */

enum {
        HOST_CUT_BASE,         /* u16: its new length */
        HOST_FREEZE,           /* what is written is refused */
        HOST_PUSH,             /* an empty file over the present one; with u8 1 it can't be written */
        HOST_OTHER,            /* all but the base is replaced by an empty file */
        HOST_COUNT,
        HOST_CHAIN,            /* as HOST_PUSH, with the present one as the only layer in place of all */
        _HOST_MAX,
};

typedef struct Disk {
        VirtioBlk *blk;
        int base_fd;
} Disk;

static int open_file(uint64_t bytes) {
        int fd = memfd_create("disk", MFD_CLOEXEC|MFD_ALLOW_SEALING);

        FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t) bytes) == 0);
        return fd;
}

/* A layer is only read. */
static int reopen(int fd) {
        char path[32];

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_RDONLY|O_CLOEXEC);
}

static void change(Disk *d, unsigned what, bool refuse) {
        OverlayFds fds = { .overlay_fd = open_file(0) };
        Overlay *o = virtio_blk_overlay(d->blk);
        _cleanup_overlay_change_ OverlayChange c = {};
        ErrorText e;

        if (refuse)
                FUZZ_CHECK(fcntl(fds.overlay_fd, F_ADD_SEALS, F_SEAL_WRITE|F_SEAL_GROW) == 0);
        if (what == HOST_CHAIN && overlay_top_fd(o) >= 0)
                fds.layer_fds[fds.n_layers++] = reopen(overlay_top_fd(o));
        int r = what != HOST_OTHER ? overlay_prepare_next(o, &fds, &c, &e) : overlay_prepare_other(o, &fds, &c, &e);
        if (r >= 0)
                overlay_change(o, &c);
}

static void act(void *userdata, unsigned what, FuzzInput *in) {
        Disk *d = userdata;

        switch (what % _HOST_MAX) {
        case HOST_CUT_BASE: (void) ftruncate(d->base_fd, fuzz_u16(in)); break;
        case HOST_FREEZE: (void) fcntl(overlay_top_fd(virtio_blk_overlay(d->blk)), F_ADD_SEALS, F_SEAL_WRITE); break;
        case HOST_PUSH: change(d, HOST_PUSH, fuzz_u8(in) & 1); break;
        case HOST_CHAIN: change(d, HOST_CHAIN, false); break;
        case HOST_OTHER: change(d, HOST_OTHER, false); break;
        case HOST_COUNT: virtio_blk_counters(d->blk, script_on_counter, NULL); break;
        }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        script_init(0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        bool read_only = fuzz_u8(&in) & 1;
        Disk d = { .base_fd = open_file(BASE_BYTES) };
        DiskConfig config = {
                .present = true, .read_only = read_only, .base_fd = dup(d.base_fd),
                .over.overlay_fd = read_only ? -EBADF : open_file(DISK_BYTES), .base_bytes = BASE_BYTES,
                .disk_bytes = DISK_BYTES,
        };
        const ScriptHost host = { .act = act, .userdata = &d };

        script_begin();
        FUZZ_CHECK(virtio_blk_new(&script_vm, 0xc0200000, "vdb", &config, script_on_error, NULL, &d.blk, NULL) == 0);
        FUZZ_CHECK(virtio_pci_attach(virtio_blk_pci(d.blk), script_stepper.loop) == 0);
        script_run(virtio_blk_pci(d.blk), &host, &in);
        virtio_blk_free(d.blk);
        safe_close(d.base_fd);
        return 0;
}
