/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices-private.h"
#include "vmm/snapshot-virtio.h"

struct DevicesLoad {
        PciState pci[_SLOT_MAX];
        VirtioLoad virtio[_SLOT_MAX];
        VsockLoad *vsock;
        MemLoad mem;
        OverlayChange disk;
};

/* NULL for a function that is not virtio, or not there. */
static VirtioPci *slot_virtio(const Devices *d, unsigned slot) {
        switch (slot) {

        case SLOT_VSOCK:
                return virtio_vsock_pci(d->vsock);

        case SLOT_RNG:
                return virtio_rng_pci(d->rng);

        case SLOT_NET:
                return virtio_net_pci(d->net);

        case SLOT_BALLOON:
                return virtio_balloon_pci(d->balloon);

        case SLOT_MEM:
                return d->mem ? virtio_mem_pci(d->mem) : NULL;

        case SLOT_VDA:
        case SLOT_VDB:
                return d->disks[slot - SLOT_VDA] ? virtio_blk_pci(d->disks[slot - SLOT_VDA]) : NULL;

        default:
                return NULL;
        }
}

void devices_save(Devices *d, SnapshotWriter *w) {
        assert(d);
        assert(w);

        for (unsigned i = 0; i < _SLOT_MAX; i++) {
                VirtioPci *v = slot_virtio(d, i);

                if (d->slots[i])
                        snapshot_pci_save(d->slots[i], i, w);
                if (v)
                        snapshot_virtio_save(v, i, w);
        }
        virtio_vsock_save(d->vsock, SLOT_VSOCK, w);
        if (d->mem)
                virtio_mem_save(d->mem, SLOT_MEM, w);
}

static int prepare_slot(Devices *d, const SnapshotFile *f, unsigned slot, DevicesLoad *l, ErrorText *e) {
        VirtioPci *v = slot_virtio(d, slot);
        SnapshotReader reader;

        if (!d->slots[slot])
                return 0;
        int r = snapshot_file_section(f, SNAPSHOT_SECTION_PCI, slot, &reader, e);
        if (r >= 0)
                r = snapshot_pci_parse(d->slots[slot], &reader, &l->pci[slot], e);
        if (r < 0 || !v)
                return r;
        r = snapshot_file_section(f, SNAPSHOT_SECTION_VIRTIO, slot, &reader, e);
        return r < 0 ? r : snapshot_virtio_parse(v, &reader, &l->virtio[slot], e);
}

/* Not one more, not one less: a device without its state would be as dangerous as state without its
 * device. */
static int check_slots(const Devices *d, const SnapshotFile *f, ErrorText *e) {
        unsigned n_pci = 0, n_virtio = 0;

        for (unsigned i = 0; i < _SLOT_MAX; i++) {
                n_pci += d->slots[i] != NULL;
                n_virtio += slot_virtio(d, i) != NULL;
        }
        if (snapshot_file_count(f, SNAPSHOT_SECTION_PCI) != n_pci ||
            snapshot_file_count(f, SNAPSHOT_SECTION_VIRTIO) != n_virtio ||
            snapshot_file_count(f, SNAPSHOT_SECTION_VSOCK) != 1 ||
            snapshot_file_count(f, SNAPSHOT_SECTION_MEM) != (d->mem != NULL))
                return error_set(e, -EBADMSG, "the state file is of a machine with other devices");
        return 0;
}

static int prepare_vsock(Devices *d, const SnapshotFile *f, DevicesLoad *l, ErrorText *e) {
        SnapshotReader reader;

        int r = snapshot_file_section(f, SNAPSHOT_SECTION_VSOCK, SLOT_VSOCK, &reader, e);
        if (r < 0)
                return r;
        return virtio_vsock_parse(d->vsock, l->virtio[SLOT_VSOCK].state.live, &reader, &l->vsock, e);
}

/* They were at rest: they finish in one go what they take, and what the balloon and the network card hold was handed
 * back. */
static int check_idle(const VirtioLoad *l, const char *name, ErrorText *e) {
        for (unsigned i = 0; i < l->state.n_queues; i++)
                for (unsigned k = 0; k < ELEMENTSOF(l->state.queues[i].in_flight); k++)
                        if (l->state.queues[i].in_flight[k] != 0)
                                return error_set(e, -EBADMSG, "state file: %s holds requests", name);
        return 0;
}

static int prepare_memory(Devices *d, const SnapshotFile *f, DevicesLoad *l, ErrorText *e) {
        SnapshotReader reader;

        int r = check_idle(&l->virtio[SLOT_BALLOON], "balloon", e);
        if (r >= 0)
                r = virtio_balloon_check(d->balloon, &l->virtio[SLOT_BALLOON].state, e);
        if (r < 0 || !d->mem)
                return r;
        r = check_idle(&l->virtio[SLOT_MEM], "mem", e);
        if (r >= 0)
                r = snapshot_file_section(f, SNAPSHOT_SECTION_MEM, SLOT_MEM, &reader, e);
        return r < 0 ? r : virtio_mem_parse(d->mem, &l->virtio[SLOT_MEM].state, &reader, &l->mem, e);
}

static int prepare_net(const DevicesLoad *l, ErrorText *e) {
        return check_idle(&l->virtio[SLOT_NET], "net", e);
}

static int prepare_disk(Devices *d, OverlayFds *fds, DevicesLoad *l, ErrorText *e) {
        Overlay *overlay = devices_overlay(d);

        if (fds->overlay_fd < 0 && fds->n_layers == 0)
                return 0;
        if (!overlay)
                return error_set(e, -EINVAL, "an overlay, but there is no disk that could be written");
        return overlay_prepare_other(overlay, fds, &l->disk, e);
}

static int prepare(Devices *d, const SnapshotFile *f, OverlayFds *disk, DevicesLoad *l, ErrorText *e) {
        int r = check_slots(d, f, e);

        for (unsigned i = 0; i < _SLOT_MAX && r >= 0; i++)
                r = prepare_slot(d, f, i, l, e);
        if (r >= 0)
                r = prepare_vsock(d, f, l, e);
        if (r >= 0)
                r = prepare_memory(d, f, l, e);
        if (r >= 0)
                r = prepare_net(l, e);
        return r < 0 ? r : prepare_disk(d, disk, l, e);
}

int devices_prepare(Devices *d, const SnapshotFile *f, OverlayFds *disk, DevicesLoad **ret, ErrorText *e) {
        assert(d);
        assert(f);
        assert(disk);
        assert(ret);

        DevicesLoad *l = new0(DevicesLoad, 1);
        int r = l ? prepare(d, f, disk, l, e) : error_set(e, -ENOMEM, "out of memory");

        overlay_fds_done(disk);
        if (r < 0) {
                devices_load_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

DevicesLoad *devices_load_free(DevicesLoad *l) {
        if (!l)
                return NULL;

        virtio_vsock_load_free(l->vsock);
        overlay_change_done(&l->disk);
        free(l);
        return NULL;
}

bool devices_load_has_control(const DevicesLoad *l) {
        assert(l);
        return virtio_vsock_load_has_control(l->vsock);
}

void devices_apply(Devices *d, DevicesLoad *l) {
        assert(d);
        assert(l);

        virtio_vsock_pause(d->vsock);
        virtio_pci_pause(virtio_rng_pci(d->rng));
        virtio_pci_pause(virtio_net_pci(d->net));
        virtio_net_forget(d->net);
        virtio_pci_pause(virtio_balloon_pci(d->balloon));
        virtio_balloon_apply(d->balloon, &l->virtio[SLOT_BALLOON].state);
        if (d->mem) {
                virtio_pci_pause(virtio_mem_pci(d->mem));
                virtio_mem_apply(d->mem, &l->mem);
        }
        for (unsigned i = 0; i < _SLOT_MAX; i++) {
                VirtioPci *v = slot_virtio(d, i);

                if (d->slots[i])
                        snapshot_pci_apply(d->slots[i], &l->pci[i]);
                if (v)
                        snapshot_virtio_apply(v, &l->virtio[i]);
        }
        virtio_vsock_apply(d->vsock, TAKE_PTR(l->vsock));
        if (devices_overlay(d))
                overlay_change(devices_overlay(d), &l->disk);
        devices_load_free(l);
}
