# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a guest whose memory comes and goes, and the generation id of every copy."""

import errno
import struct

import pytest

import snapshot as s
import vmm as v
from snapguest import (Loader, answer_to_claim, count, differing, guest, refused, resume_claimed, second, started,
                       state)
from test_devices import Guest


PLUG = 128 << 20
PLUG_GPA = 4 << 30
BLOCK = 2 << 20
MEMORY_AND_PLUG = s.MEMORY + PLUG
SLOT_BALLOON, SLOT_MEM = 7, 8
CONFIG_PLUG_BYTES = 56
# In a section VIRTIO: the device's configuration, and in it fields of virtio 1.2, 5.5.4 and 5.15.4.
VIRTIO_CONFIG = 48
BALLOON_ACTUAL = VIRTIO_CONFIG + 4
MEM_PLUGGED, MEM_REQUESTED = VIRTIO_CONFIG + 40, VIRTIO_CONFIG + 48
VMGENID = 0xfe000


def guest_page(vmm, runs, gpa):
    """16 bytes at gpa as the VMM has them; None: they are not its own."""
    for at, size, hva in runs:
        if at <= gpa < at + size:
            with open(f'/proc/{vmm.process.pid}/mem', 'rb', buffering=0) as f:
                f.seek(hva + gpa - at)
                return f.read(16)
    return None


def with_blocks(snapshot, path, blocks, claimed=None):
    """The snapshot of a guest that has these blocks plugged: the payload has no driver for that."""
    parsed = snapshot.parsed()
    body = parsed.sections[s.MEM, SLOT_MEM]
    for block in blocks:
        if block // 8 == len(body):
            body.extend(bytes(8))
        body[block // 8] |= 1 << block % 8
    struct.pack_into('<Q', parsed.sections[s.VIRTIO, SLOT_MEM], MEM_PLUGGED,
                     (len(blocks) if claimed is None else claimed) * BLOCK)
    return snapshot.with_state(path, parsed.pack())


@pytest.fixture
def grown(vmm, tmp_path):
    """A running guest with a region, asked to take some of it and to lend some."""
    g = Guest(vmm, extra=v.u64(v.Tag.PLUG_BYTES, PLUG)).wait_ready()
    g.start('counter')
    g.peer.request(v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 8 * BLOCK))
    g.peer.request(v.Op.BALLOON, v.u64(v.Tag.BALLOON_BYTES, 16 << 20))
    return g


def asked(guest, plugged=0):
    found = guest.counters()
    assert (found['mem-region-bytes'], found['mem-requested-bytes']) == (PLUG, 8 * BLOCK)
    assert (found['mem-plugged-bytes'], found['balloon-requested-bytes']) == (plugged * BLOCK, 16 << 20)


def save_grown(vmm, peer, path, layers=()):
    return s.save(vmm, peer, path, layers, memory=MEMORY_AND_PLUG)


def test_what_was_asked_of_memory_is_kept(vmm, grown, second, tmp_path):
    s.pause(grown.peer)
    refused(errno.EPROTO, 'RESIZE', grown.peer.request, v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 0))
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    assert struct.unpack_from('<Q', snapshot.parsed().sections[s.CONFIG, 0], CONFIG_PLUG_BYTES)[0] == PLUG
    plugged = with_blocks(snapshot, tmp_path / 'plugged', [0, 5, 63])
    parsed = plugged.parsed()
    struct.pack_into('<I', parsed.sections[s.VIRTIO, SLOT_BALLOON], BALLOON_ACTUAL, 256)
    plugged.state.write_bytes(parsed.pack())

    peer = second.connect()
    s.load(second, peer, plugged)
    again = save_grown(second, peer, tmp_path / 'again', plugged.layers)
    assert differing(plugged.parsed(), again.parsed()) == set()
    second.claim(peer)
    answer_to_claim(peer)
    copy = started(second, peer)
    asked(copy, plugged=3)
    assert copy.counters()['balloon-bytes'] == 256 * s.PAGE
    assert count(copy) >= 0

    # And back again, by a guest of which more, or less, was asked meanwhile.
    s.resume(grown.peer, snapshot.layers[0])
    grown.peer.request(v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 0))
    grown.peer.request(v.Op.BALLOON, v.u64(v.Tag.BALLOON_BYTES, 0))
    s.pause(grown.peer)
    s.rollback(grown.peer, plugged)
    resume_claimed(grown)
    asked(grown, plugged=3)
    assert count(grown) >= 0


def test_memory_in_the_region_is_carried(vmm, grown, second, tmp_path):
    """Pages there are pages like any other: out of a layer, and into the next."""
    s.pause(grown.peer)
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    layer = tmp_path / 'filled'
    pages = s.layer_pages(snapshot.layers[0])
    pages[PLUG_GPA + 5 * BLOCK] = b'plugged!' * 512
    pages[PLUG_GPA + PLUG - s.PAGE] = b'the last' * 512
    s.write_layer(layer, MEMORY_AND_PLUG, snapshot.parsed().id, s.NO_ID, sorted(pages.items()))
    peer = second.connect()
    filled = s.Snapshot(snapshot.state, [layer])
    s.load(second, peer, filled)
    with open(f'/proc/{second.process.pid}/maps') as f:
        mapped = [x.split()[0] for x in f if x.rstrip().endswith(str(layer))]
    found = []
    with open(f'/proc/{second.process.pid}/mem', 'r+b', buffering=0) as f:
        for where in mapped:
            start, end = (int(x, 16) for x in where.split('-'))
            for at in range(start, end, s.PAGE):
                f.seek(at)
                if f.read(8) in (b'plugged!', b'the last'):
                    found.append(at)
                    f.seek(at)
                    f.write(b'changed!')
    assert len(found) == 2
    after = save_grown(second, peer, tmp_path / 'after', filled.layers)
    pages = s.layer_pages(after.layers[1])
    for gpa in (PLUG_GPA + 5 * BLOCK, PLUG_GPA + PLUG - s.PAGE):
        assert pages[gpa].startswith(b'changed!')
    # What lies between two regions, or behind the last, is nobody's.
    for gpa in (s.MEMORY, PLUG_GPA - s.PAGE, PLUG_GPA + PLUG):
        s.write_layer(layer, MEMORY_AND_PLUG, snapshot.parsed().id, s.NO_ID, [(gpa, bytes([1]) * s.PAGE)])
        with v.Vmm() as other:
            refused(errno.EBADMSG, 'out of place', s.load, other, other.connect(), filled)


def test_a_region_that_does_not_fit_is_refused(vmm, grown, tmp_path):
    s.pause(grown.peer)
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    loader = Loader()

    def attempt(error, text, change, kind=s.VIRTIO, slot=SLOT_MEM):
        parsed = snapshot.parsed()
        change(parsed.sections[kind, slot])
        bad = snapshot.with_state(tmp_path / 'bad', parsed.pack())
        loader.open()
        refused(error, text, s.load, loader.vmm, loader.peer, bad)
        assert state(loader.peer) == v.State.NEW
        loader.close()
        with pytest.raises(v.Refused):
            s.rollback(grown.peer, bad)
        assert state(grown.peer) == v.State.PAUSED

    def put(at, value, form='<Q'):
        return lambda body: struct.pack_into(form, body, at, value)

    bad = errno.EBADMSG
    attempt(bad, 'of what is plugged', put(0, 1), s.MEM)
    attempt(bad, 'of what is plugged', put(MEM_PLUGGED, BLOCK))
    attempt(bad, 'of what is plugged', put(MEM_REQUESTED, 4096))
    attempt(bad, 'more is asked', put(MEM_REQUESTED, PLUG + BLOCK))
    attempt(bad, 'more is asked', put(MEM_REQUESTED, (1 << 64) - 1))
    attempt(bad, 'of what is plugged', put(VIRTIO_CONFIG, 4096))
    attempt(bad, 'of what is plugged', put(VIRTIO_CONFIG + 16, 0))
    attempt(bad, 'as large as the guest', put(VIRTIO_CONFIG, MEMORY_AND_PLUG // s.PAGE, '<I'), slot=SLOT_BALLOON)
    attempt(bad, 'memory to plug', put(CONFIG_PLUG_BYTES, 1 << 62), s.CONFIG, 0)
    attempt(bad, 'memory to plug', put(CONFIG_PLUG_BYTES, PLUG + BLOCK), s.CONFIG, 0)
    attempt(bad, 'other places', put(CONFIG_PLUG_BYTES, 2 * PLUG), s.CONFIG, 0)
    attempt(bad, 'other places', put(CONFIG_PLUG_BYTES, 0), s.CONFIG, 0)
    attempt(bad, 'other places', put(8 + 16, PLUG_GPA + PLUG), s.MEMMAP, 0)

    parsed = snapshot.parsed()
    del parsed.sections[s.MEM, SLOT_MEM]
    loader.open()
    refused(bad, 'other devices', s.load, loader.vmm, loader.peer,
            snapshot.with_state(tmp_path / 'bad', parsed.pack()))
    refused(errno.EINVAL, 'not for a snapshot', s.load, loader.vmm, loader.peer, snapshot,
            extra=v.u64(v.Tag.PLUG_BYTES, PLUG))
    loader.close()
    s.resume(grown.peer)
    asked(grown)
    assert count(grown) >= 0


def test_a_snapshot_without_a_region_is_of_another_shape(vmm, grown, second, tmp_path):
    plain = Guest(second).wait_ready()
    s.pause(plain.peer)
    snapshot = s.save(second, plain.peer, tmp_path / 'plain')
    s.pause(grown.peer)
    refused(errno.EXDEV, 'another shape', s.rollback, grown.peer, snapshot)
    s.resume(grown.peer)
    asked(grown)


def test_every_copy_has_a_generation_of_its_own(vmm, guest, tmp_path):
    s.pause(guest.peer)
    ident, runs = s.save_state(vmm, guest.peer, tmp_path / 'first')
    seen = [guest_page(vmm, runs, VMGENID)]
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])

    # It is the same guest until it is put back.
    s.pause(guest.peer)
    _, runs = s.save_state(vmm, guest.peer, tmp_path / 'same')
    assert guest_page(vmm, runs, VMGENID) is None
    s.rollback(guest.peer, snapshot)
    resume_claimed(guest)
    s.pause(guest.peer)
    _, runs = s.save_state(vmm, guest.peer, tmp_path / 'back')
    seen.append(guest_page(vmm, runs, VMGENID))

    for i in range(2):
        with v.Vmm() as copy:
            peer = copy.connect()
            s.load(copy, peer, snapshot)
            _, runs = s.save_state(copy, peer, tmp_path / str(i))
            seen.append(guest_page(copy, runs, VMGENID))
    assert None not in seen and bytes(16) not in seen
    assert len(set(seen)) == len(seen) == 4
